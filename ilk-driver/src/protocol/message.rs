use std::fmt;

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
    /// Reads kernel memory.
    Read {
        /// First address.
        address: u64,
        /// Bytes, at most [`MAX_READ`](super::MAX_READ).
        length: u64,
    },
    /// Discards loaded batches and counters and removes every splice.
    Clear,
    /// Writes code to the arena.
    Arena(Vec<ArenaWrite>),
    /// Loads the next batch of the session, in order of time.
    Batch(Batch),
    /// Appends pokes to the last loaded batch.
    Pokes(Vec<Poke>),
    /// Loads more counters to read, before the start.
    Counters(Vec<Counter>),
    /// Loads more splices to retire, before the start.
    Retire(Vec<Retire>),
    /// Starts the session's clock.
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
    /// Requests the target's clock.
    Ping(u64),
    /// Requests that everything from the answer on is sent through shared memory, at whose start
    /// the client wrote this number.
    Share(u64),
    /// Requests so many messages of meaningless samples, to measure the throughput of the
    /// connection.
    Flood(u32),
}

/// A patch, or several adjacent ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaWrite {
    /// Offset in the arena.
    pub offset: u64,
    /// The machine code.
    pub code: Bytes,
    /// Unwind rows in order of offset; empty unless [`Layout::unwinds`].
    pub rows: Vec<Row>,
    /// Instructions that may fault, in order of offset.
    pub faults: Vec<Fault>,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Offset in the write.
    pub offset: u32,
    /// The kernel's reaction.
    pub recovery: Recovery,
}

/// The kernel's reaction to a fault of an instruction in a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recovery {
    /// Execution continues at this offset in the write.
    At(u32),
    /// The kernel reacts as to a fault of the instruction of its text at this address.
    Like(u64),
}

/// A range of a patch, up to the next row, that the unwinder treats as one instruction of the
/// kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Offset in the write.
    pub offset: u32,
    /// Bytes pushed by the patch.
    pub pushed: u32,
    /// The instruction.
    pub original: u64,
}

/// Pokes that are applied together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Seconds from the start.
    pub at: f64,
    /// The pokes, in any order.
    pub pokes: Vec<Poke>,
}

/// One write of text, in the module's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poke {
    /// First byte.
    pub address: u64,
    /// The patch that a thread executes if it reaches the splice while bytes change.
    pub detour: u64,
    /// The splice's branch target: the patch, or for [`SpliceKind::Short`] its bounce.
    pub target: u64,
    /// The splice that keeps threads out of the bytes of a [`SpliceKind::Bounce`]; 0 if they are
    /// padding.
    pub host: u64,
    /// The kind of branch.
    pub kind: SpliceKind,
    /// Topological rank: lower ranks are installed first and removed last.
    pub rank: u8,
    /// Number of bytes used in `expect` and `write`.
    pub length: u8,
    /// Several instructions are overwritten.
    pub multi: bool,
    /// The poke restores original bytes.
    pub remove: bool,
    /// The bytes required at the address before the write.
    pub expect: [u8; 8],
    /// The bytes to write.
    pub write: [u8; 8],
}

/// The kind of branch from a splice to its patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpliceKind {
    /// `jmp rel32`, whose last bytes may equal the original ones.
    Jump,
    /// `jmp rel8` to a bounce.
    Short,
    /// The bounce: `jmp rel32` in bytes that no thread executes.
    Bounce,
    /// A permanent `int3`.
    Trap,
    /// No write: the kernel's function tracer calls the patch.
    Tracer,
}

/// A per-CPU word that is read periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Key of its totals: the packed instrument identifier, and above its 48 bits 0 for a counter,
    /// or 1 and the number of a word of the instrument's aggregates.
    pub id: u64,
    /// Bank of per-CPU counters.
    pub bank: u32,
    /// Index in the bank.
    pub slot: u32,
    /// The total is the largest word of all CPUs, not their sum.
    pub largest: bool,
}

/// A splice that is retired as soon as each of its words is non-zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retire {
    /// Address of its first byte.
    pub address: u64,
    /// The words, each by bank and index in the bank.
    pub hits: Vec<(u32, u32)>,
}

/// A message of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The answer to [`Request::Info`].
    Info(Target),
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
    /// A batch was applied or refused.
    Switched(Switched),
    /// Splices were retired.
    Retired {
        /// The time of their removal.
        tsc: u64,
        /// The number of splices.
        splices: u32,
    },
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
                | Self::Switched(_)
                | Self::Retired { .. }
                | Self::Losses { .. }
                | Self::Workload(_)
                | Self::Finished(_)
        )
    }
}

/// The description of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Addresses and sizes for generated code.
    pub layout: Layout,
    /// Events, each with its counter or the reason why it has none.
    pub events: Vec<EventFound>,
}

/// The part of the module's `struct ilk_info` that generated code needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Address of the arena.
    pub arena: u64,
    /// Bytes of the arena.
    pub arena_size: u64,
    /// The kernel's unwinder accepts rows for the arena.
    pub unwinds: bool,
    /// Limit on the instructions in the arena that may fault.
    pub faults: u32,
    /// Address of CPU 0's ring.
    pub ring_base: u64,
    /// Distance between rings, as a power of two.
    pub stride_log2: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// `gs:` offset of the head.
    pub head: u64,
    /// `gs:` offset of the limit.
    pub limit: u64,
    /// `gs:` offset of the count of hits that found the ring full.
    pub lost_full: u64,
    /// `gs:` offset of the pointer to the running task.
    pub current: u64,
    /// Banks of counters: `gs:` offset and counters in it.
    pub counters: Vec<(u64, u32)>,
    /// Address of the table of running timers.
    pub timers: u64,
    /// Entries of that table, as a power of two.
    pub timers_log2: u32,
    /// Addresses that programs of instruments read.
    pub surroundings: Surroundings,
}

/// The availability of an event of the processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFound {
    /// Its number in `enum perf_hw_id`.
    pub event: u8,
    /// Operand of `rdpmc` for its counter.
    pub index: u32,
    /// Bits of the counter.
    pub width: u8,
    /// Reason why it has no counter; empty if it has one.
    pub refused: String,
}

/// Addresses and constants that programs of instruments read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// `gs:` offset of the CPU's number.
    pub cpu: u64,
    /// Offset in a task of the thread's number.
    pub thread: u32,
    /// Offset in a task of the process's number.
    pub process: u32,
    /// Offset in a task of its name.
    pub comm: u32,
    /// TSC ticks a millisecond.
    pub tsc_khz: u32,
    /// Address of CPU 0's first counter in each bank.
    pub shared: Vec<u64>,
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

/// The total of a counter over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Key of the counter ([`Counter::id`]).
    pub id: u64,
    /// Hits since the start, or the value of a word of an aggregate.
    pub hits: u64,
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
}

impl CpuLosses {
    /// Returns the number of samples that were put into the ring and can never arrive.
    #[must_use]
    pub fn gone(&self) -> u64 {
        self.overwritten + self.overtaken
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
