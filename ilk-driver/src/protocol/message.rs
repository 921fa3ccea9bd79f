use std::fmt;

use gilk_engine::HookType;
use gilk_engine::layout::{EventCounter, RuntimeLayout};
use gilk_engine::placement::Style;
use gilk_samples::metadata::Clock;
use gilk_samples::recording::LossCause;
use serde::{Deserialize, Serialize};

use super::{Bytes, Schedule};

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Requests the description of the target. Opens the module's device.
    Info,
    /// Requests all of `/proc/kallsyms`.
    Kallsyms,
    /// Requests the kernel's kprobe blacklist.
    Blacklist,
    /// Requests a line for each section of each module: module, bytes of the module, section,
    /// address.
    Modules,
    /// Reads text, tables or types of the kernel or its modules; other memory is refused.
    Read {
        /// First address.
        address: u64,
        /// Bytes, at most [`MAX_READ`](super::MAX_READ).
        length: u64,
    },
    /// Discards the loaded session and its plan, and removes every splice.
    Clear,
    /// Loads a part of the session to plan; parts are appended to each other.
    Load(SessionPart),
    /// Plans and verifies the loaded session on the kernel as it is now.
    Plan(PlanOptions),
    /// Starts the clock of the planned session.
    Start(Schedule),
    /// Removes every splice and ends the session.
    Stop,
    /// Confirms that the client has stored so many messages of the session. Has no answer.
    Confirm(u64),
    /// Resumes the session of a client that was lost, before any other request.
    Resume {
        /// The session's [`Schedule::token`].
        token: u64,
        /// Messages of it that the client has stored.
        confirmed: u64,
    },
    /// Requests the state of the agent. Answered also while another client is served.
    Status,
    /// Ends a session whose client was lost, for root and for the user of that client.
    End,
    /// Requests the target's clock.
    Ping(u64),
    /// Requests that everything from the answer on is sent through shared memory, at whose start
    /// the client wrote this number.
    Share(u64),
    /// Requests so many messages of meaningless samples, to measure the throughput of the
    /// connection.
    Flood(u32),
    /// Requests the description of the target, to look at it. Answered also while another client is served, as are
    /// [`Kallsyms`](Self::Kallsyms), [`Blacklist`](Self::Blacklist), [`Modules`](Self::Modules) and
    /// [`Read`](Self::Read) then: the kernel as it is without splices.
    Look,
}

/// A part of a session. Lists of several parts are appended to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionPart {
    /// Names of functions and instruments, to which placements refer by index among all parts.
    pub names: Vec<String>,
    /// The placements, in order.
    pub placements: Vec<Placed>,
    /// Styles of functions, by symbol.
    pub styles: Vec<(String, Style)>,
    /// Instruments in the language, by name: those of the session, and those that the client's
    /// library has besides the built-in ones.
    pub sources: Vec<(String, String)>,
    /// Object files with native instruments.
    pub objects: Vec<ObjectFile>,
}

/// An instrument at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// Index of the function's name.
    pub function: u32,
    /// Index of the block in the function's graph.
    pub block: u32,
    /// The event of the block.
    pub hook: HookType,
    /// Index of the instrument's name.
    pub instrument: u32,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
}

/// An object file with native instruments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFile {
    /// Its name, for messages.
    pub name: String,
    /// Its contents.
    pub bytes: Bytes,
}

/// The parameters of a plan besides its placements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// `uname -r` of the kernel that the session is for.
    pub release: String,
    /// Seconds from the start to the end.
    pub duration: f64,
    /// Instruments save every register that they use.
    pub save_all: bool,
    /// Tracepoints whose functions have placements are switched on.
    pub tracepoints: bool,
    /// Reads of memory and splices in assembly are permitted on a kernel that the lists of functions by name were not
    /// compared with.
    pub unknown_kernel: bool,
    /// Limit on the entries of the table of thread and call variables, as a power of two.
    pub storage_log2: u32,
    /// Counters of events that are assumed instead of opened, for tests.
    pub assumed_events: Option<Vec<EventCounter>>,
}

/// The size of a plan, and a checksum of everything that it writes, by which agent and client
/// compare their plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOutline {
    /// Number of instruments.
    pub instruments: u32,
    /// Number of sites.
    pub sites: u32,
    /// Number of patches.
    pub patches: u32,
    /// Number of batches.
    pub batches: u32,
    /// Number of pokes in all batches.
    pub pokes: u32,
    /// CRC-32 of the writes ([`Writes`](crate::writes::Writes)).
    pub checksum: u32,
}

/// A message of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The answer to [`Request::Info`] and [`Request::Look`].
    Info(Box<Target>),
    /// A part of the requested data.
    Chunk(Bytes),
    /// The end of the requested data, with a note for the user or an empty text.
    End(String),
    /// The request was carried out.
    Accepted,
    /// The request was refused, and nothing was changed.
    Refused(Refusal),
    /// The answer to [`Request::Ping`].
    Pong {
        /// The number in the request.
        number: u64,
        /// The target's TSC at that moment, for the comparison of the clocks.
        tsc: u64,
    },
    /// The session is still being planned; sent once a second.
    Planning,
    /// The answer to [`Request::Plan`].
    Planned(PlanOutline),
    /// The answer to [`Request::Status`].
    Status(Status),
    /// The session's clock started.
    Started(Started),
    /// Samples of one CPU: id, value and TSC, `u64` each, little-endian.
    Samples {
        /// The ring's CPU.
        cpu: u16,
        /// The records, 24 bytes each.
        records: Bytes,
    },
    /// Totals that changed since the last report.
    Totals {
        /// The time of the reading.
        tsc: u64,
        /// The totals over all CPUs.
        totals: Vec<Total>,
    },
    /// Stacks that values and keys since the start have as their numbers; each is reported once.
    Stacks {
        /// Those that no message before has reported.
        stacks: Vec<NumberedStack>,
        /// Hits since the start whose stack is not kept, because there are too many different ones.
        lost: u64,
    },
    /// A batch was applied or refused.
    Switched(Switched),
    /// Splices were retired.
    Retired {
        /// The time of their removal.
        tsc: u64,
        /// The number of splices.
        splices: u32,
    },
    /// The module removed every splice. The session continues, and is planned again.
    Out(Outage),
    /// The splices are in place again.
    Back(Return),
    /// Losses of all CPUs as running totals, sent when they change.
    Losses {
        /// The time of the reading.
        tsc: u64,
        /// The losses of every CPU.
        cpus: Vec<CpuLosses>,
    },
    /// The workload started, printed something or ended.
    Workload(WorkloadEvent),
    /// The session is over and every splice is removed.
    Finished(Finished),
}

impl Message {
    /// Returns whether this message belongs to a session instead of answering a request.
    #[must_use]
    pub fn is_of_session(&self) -> bool {
        matches!(
            self,
            Self::Started(_)
                | Self::Samples { .. }
                | Self::Totals { .. }
                | Self::Stacks { .. }
                | Self::Switched(_)
                | Self::Retired { .. }
                | Self::Out(_)
                | Self::Back(_)
                | Self::Losses { .. }
                | Self::Workload(_)
                | Self::Finished(_)
        )
    }
}

/// The description of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `uname -n`.
    pub host: String,
    /// `uname -r`.
    pub release: String,
    /// Number of rings, one per possible CPU.
    pub cpus: u32,
    /// TSC ticks a second.
    pub tsc_hz: u64,
    /// The agent may run a session's workload.
    pub runs_programs: bool,
    /// The kernel's random number of this boot, by which a client knows that it is on the same machine; empty if unknown.
    pub boot: String,
    /// Addresses and sizes for generated code, and the processor's events.
    pub layout: RuntimeLayout,
}

/// The state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `uname -n`.
    pub host: String,
    /// `uname -r`.
    pub release: String,
    /// The client that is served, besides the one that requests this.
    pub holder: Option<Holder>,
    /// Seconds for which a session continues whose client was lost.
    pub parked: Option<u64>,
    /// No splice is in place until the transition of a live patch is complete.
    pub is_out: bool,
    /// Number of splices and bounces in place.
    pub splices: u32,
    /// Their functions, by name.
    pub functions: Vec<SplicedFunction>,
}

/// A client that an agent serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its user; unknown at a port.
    pub user: Option<u32>,
    /// Its process; unknown at a port.
    pub process: Option<u32>,
    /// Seconds since it connected.
    pub seconds: u64,
}

/// A function with splices in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplicedFunction {
    /// Its symbol, after that of its module.
    pub name: String,
    /// Number of splices and bounces in it.
    pub splices: u32,
}

/// Second 0 of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// TSC ticks a second.
    pub tsc_hz: u64,
    /// TSC at second 0.
    pub tsc: u64,
    /// Nanoseconds since 1970 at second 0, by the target's clock.
    pub unix_ns: u64,
}

impl From<Started> for Clock {
    /// The clock of a recording that begins then.
    fn from(started: Started) -> Self {
        Self {
            hz: started.tsc_hz,
            start: started.tsc,
            start_unix_ns: started.unix_ns,
        }
    }
}

/// The total of a counter over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Key of the counter ([`Counter::id`](crate::writes::Counter::id)).
    pub id: u64,
    /// Hits since the start, or the value of a word of an aggregate.
    pub hits: u64,
}

/// The stack of a hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedStack {
    /// Its number, a hash of the addresses.
    pub number: u64,
    /// Its frames, at most 126.
    pub frames: StackFrames,
}

/// The frames of a stack, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackFrames {
    /// Addresses of the kernel.
    Kernel(Vec<u64>),
    /// Names of addresses of a process: only the target has its mappings, and only while it lives.
    Process(Vec<String>),
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// Its index among the session's batches; one more than the last for the removal by a stop.
    pub batch: u32,
    /// Scheduled time in seconds.
    pub scheduled: f64,
    /// TSC when its first byte was written.
    pub tsc_begin: u64,
    /// TSC after every CPU has seen the last write.
    pub tsc_end: u64,
    /// Pokes left out because a module has been unloaded, together with its splices, since its text
    /// was read.
    pub gone: u32,
    /// Reason for a refusal; the session ends then.
    pub refused: Option<Refusal>,
}

/// The begin of a time without splices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// TSC after the last splice was removed.
    pub tsc: u64,
    /// The event, as a clause: `a live patch changed the kernel`.
    pub why: String,
}

/// The end of a time without splices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// TSC when the first byte was written.
    pub tsc_begin: u64,
    /// TSC after every CPU has seen the last write.
    pub tsc_end: u64,
    /// Number of the session's batches whose launches and splashes are in effect.
    pub batches: u32,
    /// Packed identifiers of instruments that are left out from now on.
    pub left_out: Vec<u64>,
    /// The reason: functions of the session that live patches replace, by name.
    pub replaced: Vec<String>,
}

/// Losses of a CPU by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLosses {
    /// Number of the CPU.
    pub cpu: u16,
    /// Samples put into its ring since the start.
    pub taken: u64,
    /// Hits lost because the ring was full.
    pub full: u64,
    /// Hits while the ring was off.
    pub disabled: u64,
    /// Samples overwritten by newer ones before they were read.
    pub overwritten: u64,
    /// Samples overwritten by an older one: the older hit was interrupted before its write, and the
    /// ring wrapped around before it resumed.
    pub overtaken: u64,
    /// Samples that were never written, since their thread ended or left the hit; of a process only.
    pub unfinished: u64,
}

impl CpuLosses {
    /// Adds losses of its ring of a cause.
    pub(crate) fn add(&mut self, cause: LossCause, count: u64) {
        *match cause {
            LossCause::RingFull => &mut self.full,
            // The latter is of timers, and in old recordings alone.
            LossCause::RingOff | LossCause::Unmatched => &mut self.disabled,
            LossCause::Overwritten => &mut self.overwritten,
            LossCause::Overtaken => &mut self.overtaken,
            LossCause::Unfinished => &mut self.unfinished,
        } += count;
    }

    /// Returns the number of samples that were put into the ring and can never arrive.
    #[must_use]
    pub fn gone(&self) -> u64 {
        self.overwritten + self.overtaken + self.unfinished
    }

    /// Returns the number of hits without a sample and of samples that can never arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.full + self.disabled + self.gone()
    }
}

/// A start, line of output, or end of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkloadEvent {
    /// It started.
    Started {
        /// The TSC at that moment.
        tsc: u64,
        /// Its process.
        pid: u32,
    },
    /// It printed a line.
    Line(String),
    /// It ended.
    Ended {
        /// The TSC at that moment.
        tsc: u64,
        /// The system's wording, as in `exit status: 0`.
        status: String,
        /// The status means success.
        success: bool,
    },
    /// It could not be started.
    Failed(String),
}

/// The outcome of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// TSC after the removal of the last splice.
    pub tsc: u64,
    /// The session was stopped before its end.
    pub stopped: bool,
    /// The error that ended it early.
    pub failed: Option<Refusal>,
    /// Losses of every CPU at the very end.
    pub losses: Vec<CpuLosses>,
    /// Number of samples sent.
    pub sent: u64,
}

/// A refused request, with a kind for programs and a text for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind, for a program to act on.
    pub kind: RefusalKind,
    /// Whole sentences with advice.
    pub text: String,
}

/// The subject of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Another client is connected.
    Busy,
    /// The module is not there or not usable.
    Module,
    /// The request is invalid in the current state, or out of bounds.
    Request,
    /// A file of the target cannot be read.
    Read,
    /// The module refused a batch or a write of the arena.
    Batch,
    /// The session cannot be planned, or its plan failed the verification.
    Plan,
    /// The agent does not run programs.
    Workload,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}
