//! Events of a run, and its summary.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gilk_samples::Batch;
use gilk_samples::cache_numbers::CacheNumbers;
use gilk_samples::clocks::Reading;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::texts::SampleTexts;
use gilk_samples::totals::SessionCost;
pub use gilk_samples::totals::{Counted, Gap, Total as AggregateSummary};

use crate::protocol::CpuLosses;

/// An event of a run, as it is recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Second 0.
    Started(Clock),
    /// Second 0 of a recording that another program writes, with the recording's metadata in the place of the plan's; or, of one
    /// of several processes, the description of its recording, before all of its samples.
    Described(Box<Metadata>),
    /// A process has loaded an object that has instruments: the metadata of the recording up to now, with those.
    Loaded(Box<Metadata>),
    /// The target's clock was read: after the start, periodically, and at the end.
    Clock(Reading),
    /// Texts of the samples of an object that a process has loaded since the start, which follow.
    Texts(Box<SampleTexts>),
    /// Samples of a CPU. Totals of counters are samples of
    /// [`ALL_CPUS`](gilk_samples::record::ALL_CPUS).
    Samples(Arc<Batch>),
    /// All samples up to now are in this recording, in the place of those before: of a run in the code cache, whose
    /// instruments are the blocks that were executed. Later ones replace it, and the end removes it.
    Recorded(PathBuf),
    /// Number of samples that were recorded but not sent, because earlier ones had not been
    /// received.
    Missed(u64),
    /// A batch of pokes is in effect.
    Switched(Switch),
    /// No instrument is in place, or they are in place again: reported at the begin and at the end of such a time.
    Gap(Gap),
    /// Losses of all CPUs, as running totals.
    Losses(Vec<CpuLosses>),
    /// The session's program started, printed a line, or ended.
    Workload(String),
    /// The session's program ended, after its last line.
    WorkloadEnded {
        /// It ended with status 0.
        success: bool,
        /// Its end: `exit status: 3`.
        status: String,
    },
    /// The values of aggregates up to now: of a process, and of a kernel if they are
    /// [requested](super::Connection::report_aggregates).
    Aggregates(Vec<AggregateSummary>),
    /// Stacks among the values and keys of aggregates that were not reported before, and the number of all hits whose
    /// stack was not kept.
    Stacks(KeptStacks),
    /// An event of one of several processes, or of a program that a process executes after another.
    OfProcess(Box<ProcessEvent>),
    /// The session is over and recorded, and every splice is removed.
    Finished(Box<Summary>),
}

/// An event of one of several measurements of a run.
#[derive(Clone, Debug)]
pub struct ProcessEvent {
    /// Number of the measurement in the run. Its first event is [`Event::Described`].
    pub number: u32,
    /// The name of the process in labels.
    pub name: String,
    /// Sent in the measurement, as in a run of it alone.
    pub event: Event,
}

/// A batch of pokes, with times in seconds from the start.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Switch {
    /// Its index in the plan; one more than the last for the removal by a stop.
    pub batch: usize,
    /// Scheduled time.
    pub scheduled: f64,
    /// Time of the first write.
    pub begun: f64,
    /// Time when every CPU saw the last write.
    pub done: f64,
    /// Splices left out because a module has been unloaded, together with its splices, since its
    /// text was read.
    pub gone: u32,
}

/// The summary of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The recording's path and contents.
    pub recording: gilk_samples::recording::Summary,
    /// The session's clock.
    pub clock: Clock,
    /// The session was stopped before its end.
    pub stopped: bool,
    /// Samples put into rings by patches. All of them were recorded, except those overwritten in a
    /// ring ([`CpuLosses::gone`]) and the [`missing`](Self::missing) ones.
    pub taken: u64,
    /// Samples put into rings that did not arrive. More than 0 is a fault of the agent or the
    /// module.
    pub missing: u64,
    /// Losses per CPU.
    pub losses: Vec<CpuLosses>,
    /// Results of instruments, in the order of the session.
    pub instruments: Vec<InstrumentSummary>,
    /// Values of aggregates, in the order of the session.
    pub aggregates: Vec<AggregateSummary>,
    /// Names of the target's addresses among the values and keys of aggregates.
    pub symbols: BTreeMap<u64, String>,
    /// Stacks among the values and keys of aggregates.
    pub stacks: KeptStacks,
    /// Reads of the kernel's memory by instruments that failed and yielded 0, in the order of the
    /// session.
    pub failed_reads: Vec<Counted>,
    /// Values of thread and call variables that got no storage, in the order of the session.
    pub no_room: Vec<Counted>,
    /// The predicted cost of the session next to that of its hits, if it was [predicted](super::Connection::compare_with).
    pub cost: Option<SessionCost>,
    /// Numbers of the code cache, if the process has executed in one.
    pub cache: Option<CacheNumbers>,
    /// Reason why the session ended before its time, as a sentence; empty if it did not.
    pub ended: String,
    /// Times without instruments, in order.
    pub gaps: Vec<Gap>,
    /// Batches in order of time.
    pub switches: Vec<Switch>,
    /// Exit of the session's program, or the fact that it was killed; `None` if there was none.
    pub workload: Option<String>,
    /// Number of retired splices.
    pub retired: u64,
}

/// The results of one instrument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstrumentSummary {
    /// The packed identifier.
    pub id: u64,
    /// The [label](super::label).
    pub label: String,
    /// Samples recorded.
    pub samples: u64,
    /// Hits, if it counts.
    pub total: Option<u64>,
}

impl Summary {
    /// Returns the number of splices left out because a module had been unloaded.
    #[must_use]
    pub fn gone(&self) -> u64 {
        let gone = self.switches.iter().map(|switch| u64::from(switch.gone));
        gone.sum()
    }

    /// Returns the hits that were not sampled because a ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|cpu| cpu.full).sum()
    }

    /// Returns the losses of all CPUs by cause. Hits of sampling instruments = recorded samples +
    /// [`CpuLosses::lost`].
    #[must_use]
    pub fn lost_by_cause(&self) -> CpuLosses {
        let sum = |of: fn(&CpuLosses) -> u64| self.losses.iter().map(of).sum();
        CpuLosses {
            cpu: gilk_samples::record::ALL_CPUS,
            taken: sum(|cpu| cpu.taken),
            full: sum(|cpu| cpu.full),
            disabled: sum(|cpu| cpu.disabled),
            overwritten: sum(|cpu| cpu.overwritten),
            overtaken: sum(|cpu| cpu.overtaken),
            unfinished: sum(|cpu| cpu.unfinished),
        }
    }

    /// Returns the longest duration of a batch in seconds.
    #[must_use]
    pub fn longest_switch(&self) -> f64 {
        self.switches
            .iter()
            .map(|switch| switch.done - switch.begun)
            .fold(0.0, f64::max)
    }

    /// Returns the longest delay of a batch in seconds.
    #[must_use]
    pub fn lateness(&self) -> f64 {
        self.switches
            .iter()
            .map(|switch| switch.begun - switch.scheduled)
            .fold(0.0, f64::max)
    }
}

/// Ends a run early from another thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Creates a flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the removal of every splice and the proper end of the recording. Returns at once.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
