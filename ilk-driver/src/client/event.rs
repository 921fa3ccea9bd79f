//! What a run tells while it lasts and when it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gilk_samples::Batch;
use gilk_samples::clocks::Reading;
use gilk_samples::metadata::Clock;
pub use gilk_samples::totals::{Counted, Total as AggregateSummary};

use crate::protocol::CpuLosses;

/// What a run tells as it happens; the same as what is recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Second 0.
    Started(Clock),
    /// The target's clock was read: after the start, now and then, and at the end.
    Clock(Reading),
    /// Samples of a CPU; totals of counters come as samples of
    /// [`ALL_CPUS`](gilk_samples::record::ALL_CPUS).
    Samples(Arc<Batch>),
    /// So many samples were recorded and are not told, because those before them had not been taken here.
    Missed(u64),
    /// A batch of pokes is in effect.
    Switched(Switch),
    /// Losses of all CPUs, as running totals.
    Losses(Vec<CpuLosses>),
    /// The session's program started, printed a line, or ended.
    Workload(String),
    /// The session is over and recorded, and every splice is out.
    Finished(Box<Summary>),
}

/// A batch of pokes, with times in seconds from the start.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Switch {
    /// Its index in the plan; one more than the last for what a stop took out.
    pub batch: usize,
    /// For when it was planned.
    pub asked: f64,
    /// When the first byte was written.
    pub begun: f64,
    /// When every CPU saw the last.
    pub done: f64,
    /// Splices it left out: a module has been unloaded since its text was read, and took its splices along.
    pub gone: u32,
}

/// How a session went.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The file, and what is in it.
    pub recording: gilk_samples::recording::Summary,
    /// Its clock.
    pub clock: Clock,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// Samples that patches put into rings: all of them were recorded, but for those that a ring has
    /// overwritten ([`CpuLosses::gone`]), or [`Summary::missing`] says how many were not.
    pub taken: u64,
    /// Samples that were taken and did not arrive. More than 0 is a fault of the agent or the module.
    pub missing: u64,
    /// Per CPU.
    pub losses: Vec<CpuLosses>,
    /// In the order of the session.
    pub instruments: Vec<InstrumentSummary>,
    /// What instruments have added up, in the order of the session.
    pub aggregates: Vec<AggregateSummary>,
    /// Reads of the kernel's memory by instruments that failed and gave 0, in the order of the session.
    pub failed_reads: Vec<Counted>,
    /// Values of threads' and calls' variables that found no room, in the order of the session.
    pub no_room: Vec<Counted>,
    /// In order of time.
    pub switches: Vec<Switch>,
    /// How the session's program ended, or that it did not; `None` if there was none.
    pub workload: Option<String>,
    /// Splices that were taken out before their time: what stood there `once` had been hit.
    pub retired: u64,
}

/// What one instrument delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstrumentSummary {
    /// The packed identifier.
    pub id: u64,
    /// What a person reads.
    pub label: String,
    /// Samples recorded.
    pub samples: u64,
    /// Hits, if it counts.
    pub total: Option<u64>,
}

impl Summary {
    /// Writes of splices that were left out, because a module had been unloaded meanwhile.
    #[must_use]
    pub fn gone(&self) -> u64 {
        let gone = self.switches.iter().map(|switch| u64::from(switch.gone));
        gone.sum()
    }

    /// Hits that were not sampled: (ring full, timer stop without a start).
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        (
            self.losses.iter().map(|cpu| cpu.full).sum(),
            self.losses.iter().map(|cpu| cpu.unmatched).sum(),
        )
    }

    /// What was lost over all CPUs, by cause. Always: hits of instruments that sample = samples recorded
    /// + [`CpuLosses::lost`].
    #[must_use]
    pub fn lost_by_cause(&self) -> CpuLosses {
        let sum = |of: fn(&CpuLosses) -> u64| self.losses.iter().map(of).sum();
        CpuLosses {
            cpu: gilk_samples::record::ALL_CPUS,
            taken: sum(|cpu| cpu.taken),
            full: sum(|cpu| cpu.full),
            unmatched: sum(|cpu| cpu.unmatched),
            disabled: sum(|cpu| cpu.disabled),
            overwritten: sum(|cpu| cpu.overwritten),
            overtaken: sum(|cpu| cpu.overtaken),
        }
    }

    /// The longest that a batch took, in seconds.
    #[must_use]
    pub fn longest_switch(&self) -> f64 {
        self.switches
            .iter()
            .map(|switch| switch.done - switch.begun)
            .fold(0.0, f64::max)
    }

    /// The longest that a batch came after its time, in seconds.
    #[must_use]
    pub fn lateness(&self) -> f64 {
        self.switches
            .iter()
            .map(|switch| switch.begun - switch.asked)
            .fold(0.0, f64::max)
    }
}

/// Ends a run early from another thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// One that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has every splice taken out and the recording ended properly. Returns at once; the run ends soon.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was set.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
