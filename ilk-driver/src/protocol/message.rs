use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Bytes, Schedule};

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// What the target is. Opens the module's device.
    Info,
    /// All of `/proc/kallsyms`.
    Kallsyms,
    /// All of the kernel's list of functions that must not be probed.
    Blacklist,
    /// A line for each section of each module: module, bytes of the module, section, address.
    Modules,
    /// Kernel memory.
    Read {
        /// First address.
        address: u64,
        /// Bytes, at most [`MAX_READ`](super::MAX_READ).
        length: u64,
    },
    /// Forgets what was loaded and takes every splice out.
    Clear,
    /// Code for the arena.
    Arena(Vec<ArenaWrite>),
    /// The next batch of the session, in order of time.
    Batch(Batch),
    /// More pokes of the batch loaded last.
    Pokes(Vec<Poke>),
    /// More counters to read, before the start.
    Counters(Vec<Counter>),
    /// More splices that are to go before their time, before the start.
    Retire(Vec<Retire>),
    /// Starts the clock over what was loaded.
    Start(Schedule),
    /// Takes every splice out and ends the session.
    Stop,
    /// So many messages of the session are safe with the client. Nothing answers.
    Taken(u64),
    /// Goes on with the session of a client that was lost, before anything else is asked.
    Resume {
        /// The session's [`Schedule::token`].
        token: u64,
        /// Messages of it that the client has safe.
        taken: u64,
    },
    /// Whether anyone is there, and what its clock shows.
    Ping(u64),
    /// Sends everything from the answer on by memory that both have, at whose beginning the client wrote
    /// this number.
    Share(u64),
    /// So many messages of samples that mean nothing, to see what the way carries.
    Flood(u32),
}

/// One code patch, or several that stand together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaWrite {
    /// From the arena's start.
    pub offset: u64,
    /// The code.
    pub code: Bytes,
    /// How stacks are unwound through it, in order; none unless the layout says that they are.
    pub rows: Vec<Row>,
    /// What of it may fault, in order.
    pub faults: Vec<Fault>,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where it is, from the start of the write.
    pub offset: u32,
    /// What the kernel does then.
    pub recovery: Recovery,
}

/// What the kernel does when an instruction of a patch faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recovery {
    /// It goes on there, from the start of the write.
    At(u32),
    /// What it does when the instruction of its text there faults.
    Like(u64),
}

/// From here up to the next row, a patch stands for one instruction of the kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// From the start of the write.
    pub offset: u32,
    /// Bytes that the patch has pushed.
    pub pushed: u32,
    /// The instruction.
    pub original: u64,
}

/// Pokes that are done together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Seconds from the start.
    pub at: f64,
    /// In any order.
    pub pokes: Vec<Poke>,
}

/// One write of text, as the module takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poke {
    /// First byte.
    pub address: u64,
    /// The code patch that a thread goes to which comes by while bytes change.
    pub detour: u64,
    /// Where it leads then: the code patch, or for [`Way::Short`] its bounce.
    pub target: u64,
    /// The splice that keeps threads away from the bytes of a [`Way::Bounce`]; 0 if they are padding.
    pub host: u64,
    /// How it leads there.
    pub way: Way,
    /// Pokes of a lower rank come first, and are taken out last.
    pub rank: u8,
    /// Bytes of `expect` and `write` that count.
    pub length: u8,
    /// More than one instruction is overwritten.
    pub multi: bool,
    /// Puts original bytes back.
    pub remove: bool,
    /// What must stand there.
    pub expect: [u8; 8],
    /// What is to stand there.
    pub write: [u8; 8],
}

/// How a splice leads to its code patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// `jmp rel32`, whose last bytes may be those that stand there.
    Jump,
    /// `jmp rel8` to a bounce.
    Short,
    /// The bounce: `jmp rel32` in bytes that nobody runs.
    Bounce,
    /// An `int3` that stays.
    Trap,
    /// Nothing is written: the kernel's function tracer leads from its site.
    Tracer,
}

/// A word of each CPU that is read now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// By what it is told: packed instrument identifier, and above its 48 bits 0 for a counter, or 1 and
    /// the number of a word of the instrument's aggregates.
    pub id: u64,
    /// Bank of per-CPU counters.
    pub bank: u32,
    /// Index in the bank.
    pub slot: u32,
    /// Whether the largest word of all CPUs is told, not their sum.
    pub largest: bool,
}

/// A splice that is taken out as soon as each of its words has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retire {
    /// Its first byte.
    pub address: u64,
    /// The words, each by its bank and its index there.
    pub hits: Vec<(u32, u32)>,
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To [`Request::Info`].
    Info(Target),
    /// Part of what was asked for.
    Chunk(Bytes),
    /// All of it was sent; a note for a person, or empty.
    End(String),
    /// Done.
    Accepted,
    /// Not done, and nothing was changed.
    Refused(Refusal),
    /// To [`Request::Ping`].
    Pong {
        /// The number that was asked with.
        number: u64,
        /// The target's TSC at that moment, by which its clock is laid beside the client's.
        tsc: u64,
    },
    /// The clock runs.
    Started(Started),
    /// Samples of one CPU: id, value and TSC, `u64` each, little-endian.
    Samples {
        /// The ring's CPU.
        cpu: u16,
        /// 24 bytes each.
        records: Bytes,
    },
    /// Totals that have changed since they were last told.
    Totals {
        /// When they were read.
        tsc: u64,
        /// Over all CPUs.
        totals: Vec<Total>,
    },
    /// A batch was done, or refused.
    Switched(Switched),
    /// Splices were taken out before their time.
    Retired {
        /// When that was done.
        tsc: u64,
        /// How many.
        splices: u32,
    },
    /// Losses of all CPUs, as running totals, when they have changed.
    Losses {
        /// When they were read.
        tsc: u64,
        /// Every CPU.
        cpus: Vec<CpuLosses>,
    },
    /// The workload started, printed something or ended.
    Workload(WorkloadEvent),
    /// The session is over and every splice is out.
    Finished(Finished),
}

impl Message {
    /// Whether it tells of a session, rather than answer a request.
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

/// What the target is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `uname -n`.
    pub host: String,
    /// `uname -r`.
    pub release: String,
    /// Rings, one a possible CPU.
    pub cpus: u32,
    /// TSC ticks a second.
    pub tsc_hz: u64,
    /// Whether the agent runs a session's workload.
    pub runs_programs: bool,
    /// Where generated code finds its words.
    pub layout: Layout,
    /// Which events the processor counts, and which not.
    pub events: Vec<EventFound>,
}

/// `struct ilk_info` of the module, as far as generated code needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Address of the arena.
    pub arena: u64,
    /// Its bytes.
    pub arena_size: u64,
    /// Whether stacks are unwound through it.
    pub unwinds: bool,
    /// Instructions in it that may fault, at most.
    pub faults: u32,
    /// Address of CPU 0's ring.
    pub ring_base: u64,
    /// From one ring to the next, as a power of two.
    pub stride_log2: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// `gs:` offset of the head.
    pub head: u64,
    /// `gs:` offset of the limit.
    pub limit: u64,
    /// `gs:` offset of the count of hits that found the ring full.
    pub lost_full: u64,
    /// `gs:` offset of the count of timer stops without a start.
    pub lost_unmatched: u64,
    /// `gs:` offset of the pointer to the running task.
    pub current: u64,
    /// Banks of counters: `gs:` offset and counters in it.
    pub counters: Vec<(u64, u32)>,
    /// Address of the table of running timers.
    pub timers: u64,
    /// Its entries, as a power of two.
    pub timers_log2: u32,
    /// What programs of instruments read.
    pub surroundings: Surroundings,
}

/// An event of the processor's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFound {
    /// Its number in `enum perf_hw_id`.
    pub event: u8,
    /// What `rdpmc` is given for its counter.
    pub index: u32,
    /// Bits of the counter.
    pub width: u8,
    /// Why it has none; empty if it has one.
    pub refused: String,
}

/// What programs of instruments read of where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// `gs:` offset of the number of the CPU.
    pub cpu: u64,
    /// Bytes from a task to the number of its thread.
    pub thread: u32,
    /// Bytes from a task to the number of its process.
    pub process: u32,
    /// Bytes from a task to its name.
    pub comm: u32,
    /// TSC ticks a millisecond.
    pub tsc_khz: u32,
    /// Address of the first counter of CPU 0 in each bank.
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

/// A counter over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// As it was asked for ([`Counter::id`]).
    pub id: u64,
    /// Hits since the start, or what the word of an aggregate has.
    pub hits: u64,
}

/// How a batch went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// Its index among the session's batches; one more than the last for what a stop took out.
    pub batch: u32,
    /// Second for which it was asked.
    pub asked: f64,
    /// TSC when its first byte was written.
    pub tsc_begin: u64,
    /// TSC when every CPU saw the last.
    pub tsc_end: u64,
    /// Pokes left out: a module has been unloaded since its text was read, and took its splices along.
    pub gone: u32,
    /// Why it was refused, if it was: the session ends then.
    pub refused: Option<Refusal>,
}

/// What a CPU did not sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLosses {
    /// The CPU.
    pub cpu: u16,
    /// Samples put into its ring since the start.
    pub taken: u64,
    /// Hits that found the ring full.
    pub full: u64,
    /// Timer stops for which there was no start.
    pub unmatched: u64,
    /// Hits while the ring was off.
    pub disabled: u64,
    /// Samples taken, and overwritten by newer ones before anyone read them.
    pub overwritten: u64,
    /// Samples taken, and overwritten by an older one: its hit was interrupted before it was written, and
    /// meanwhile the ring came around.
    pub overtaken: u64,
}

impl CpuLosses {
    /// Samples that were put into the ring and can never arrive.
    #[must_use]
    pub fn gone(&self) -> u64 {
        self.overwritten + self.overtaken
    }

    /// Hits that became no sample, and samples that can never arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.full + self.unmatched + self.disabled + self.gone()
    }
}

/// What a workload did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkloadEvent {
    /// It runs.
    Started {
        /// When, in TSC ticks.
        tsc: u64,
        /// Its process.
        pid: u32,
    },
    /// It printed a line.
    Line(String),
    /// It ended; `exit status: 0`.
    Ended {
        /// When, in TSC ticks.
        tsc: u64,
        /// As the system words it.
        status: String,
        /// Whether it said it succeeded.
        success: bool,
    },
    /// It could not be started.
    Failed(String),
}

/// How a session ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// TSC after the last splice was out.
    pub tsc: u64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// Why it ended early, if something went wrong.
    pub failed: Option<Refusal>,
    /// Of every CPU, at the very end.
    pub losses: Vec<CpuLosses>,
    /// Samples sent.
    pub sent: u64,
}

/// A no, for a person and for a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For a program.
    pub kind: RefusalKind,
    /// For a person: whole sentences that say what to do.
    pub text: String,
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Another client is connected.
    Busy,
    /// The module is not there or not usable.
    Module,
    /// The request makes no sense now, or is out of bounds.
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
    /// A refusal of that kind.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}
