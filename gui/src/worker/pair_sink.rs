//! A run in a process and its kernel: the kernel begins first, and one index has the samples of both.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gilk_engine::{Session, VerifiedPlan};
use gilk_instruments::Library;
use gilk_samples::Batch;
use gilk_samples::index::{Index, KEPT, Shared};
use gilk_samples::live_beside::LiveBeside;
use gilk_samples::metadata::{Clock, Metadata};
use ilk_driver::client::{AggregateSummary, StopFlag, TargetInfo, metadata};
use ilk_driver::process::check_same_clock;

use crate::Result;
use crate::document::EditedSession;

/// Interval at which a waiting process checks for a stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A side's part in the run.
pub(crate) struct PairSeat {
    pub(crate) side: PairSide,
    /// Stops the other side.
    pub(crate) other: StopFlag,
}

/// A side of the run.
pub(crate) enum PairSide {
    /// The kernel, for hits of this process.
    Kernel { pid: u32, library: Arc<Library> },
    /// The process, which begins after the kernel.
    Process {
        /// The kernel's clock, once it has begun.
        begun: Receiver<Clock>,
        /// The time-stamp counter before the order was given.
        before: u64,
    },
}

impl PairSeat {
    /// Returns the session that runs on this side.
    pub(crate) fn session(&self, edited: &EditedSession) -> Result<Session> {
        let mut edited = edited.clone();
        edited.show_kernel(matches!(self.side, PairSide::Kernel { .. }));
        let session = edited.shown();
        Ok(match &self.side {
            PairSide::Kernel { pid, library } => session.within_process(*pid, library)?,
            PairSide::Process { .. } => session,
        })
    }

    /// Waits until this side may begin.
    ///
    /// # Errors
    /// [`ilk_driver::Error::Target`] if the kernel has not begun, or is that of another machine;
    /// [`ilk_driver::Error::NotBegun`] after a stop.
    pub(crate) fn wait(&self, stop: &StopFlag) -> ilk_driver::Result<()> {
        let PairSide::Process { begun, before } = &self.side else {
            return Ok(());
        };
        loop {
            match begun.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(clock) => return check_same_clock(clock, *before),
                Err(RecvTimeoutError::Timeout) if stop.is_stopped() => {
                    return Err(ilk_driver::Error::NotBegun);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let words = "The kernel's side did not begin, so neither did the process's.";
                    return Err(ilk_driver::Error::Target(words.to_owned()));
                }
            }
        }
    }
}

/// The descriptions and totals of both sides up to now, once the kernel has begun.
#[derive(Clone, Debug)]
pub(crate) struct LiveSides {
    /// Number of the side that has this.
    side: u32,
    sides: Arc<Mutex<Option<LiveBeside>>>,
}

impl LiveSides {
    const KERNEL: u32 = 0;
    const PROCESS: u32 = 1;

    /// Those of the kernel and of the process.
    pub(crate) fn new() -> [Self; 2] {
        let sides = Arc::new(Mutex::new(None));
        [Self::KERNEL, Self::PROCESS].map(|side| Self {
            side,
            sides: Arc::clone(&sides),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<LiveBeside>> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the totals of this side, and sends those of both. Later ones are sent later.
    pub(super) fn add_up(
        &self,
        aggregates: Vec<AggregateSummary>,
        send: impl FnOnce(Vec<AggregateSummary>),
    ) {
        if let Some(sides) = &mut *self.lock() {
            send(sides.add_up(self.side, aggregates));
        }
    }

    /// Returns samples of this side as they are among those of both. Without a description, which the kernel's side reports,
    /// there are no lanes.
    fn batch<'b>(&self, batch: &'b Batch) -> Option<Cow<'b, Batch>> {
        self.lock().as_ref()?.batch(self.side, batch)
    }
}

/// The samples of the kernel, and the description of both sides.
pub(crate) struct KernelSink {
    pub(crate) index: Shared,
    pub(crate) info: TargetInfo,
    /// The process: its name in labels, plan, session and description.
    pub(crate) process: (String, Arc<VerifiedPlan>, EditedSession, TargetInfo),
    pub(crate) sides: LiveSides,
    pub(crate) begun: Sender<Clock>,
}

impl KernelSink {
    /// Begins the index of both sides, and returns the description of both.
    pub(crate) fn begin(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        clock: Clock,
    ) -> ilk_driver::Result<Metadata> {
        let described = self.described(plan, session, clock);
        let empty = Index::limited(KEPT, (clock.start, clock.tsc(session.duration)));
        self.index.replace(match &described {
            Ok(described) => empty.by_thread_and_level(described),
            Err(_) => empty,
        });
        described
    }

    /// Has the process begin.
    pub(super) fn release(&self, clock: Clock) {
        // A process that has given up waiting has reported why.
        let _given_up = self.begun.send(clock);
    }

    fn described(
        &self,
        plan: &VerifiedPlan,
        session: &Session,
        clock: Clock,
    ) -> ilk_driver::Result<Metadata> {
        let kernel = metadata(plan.plan(), session, &self.info, clock)?;
        let (name, plan, edited, info) = &self.process;
        let mut edited = edited.clone();
        edited.show_kernel(false);
        let process = metadata(plan.plan(), &edited.shown(), info, clock)?;
        let failed = |source| ilk_driver::Error::Recording { source };
        let mut sides = LiveBeside::new(&kernel);
        sides
            .describe(LiveSides::KERNEL, "kernel", &kernel)
            .map_err(failed)?;
        let all = sides.describe(LiveSides::PROCESS, name, &process);
        let all = all.map_err(failed)?.clone();
        *self.sides.lock() = Some(sides);
        Ok(all)
    }

    pub(crate) fn append(&self, batch: &Batch) {
        if let Some(batch) = self.sides.batch(batch) {
            self.index.append(&batch);
        }
    }
}

/// The samples of the process, which are numbered after those of the kernel.
pub(crate) struct ProcessSink {
    pub(crate) index: Shared,
    /// Its name in labels.
    pub(crate) name: String,
    pub(crate) sides: LiveSides,
}

impl ProcessSink {
    pub(crate) fn append(&self, batch: &Batch) {
        if let Some(batch) = self.sides.batch(batch) {
            self.index.append(&batch);
        }
    }

    /// Returns the description of both sides, with the libraries that the process has loaded and `described`.
    pub(super) fn described(&self, described: &Metadata) -> ilk_driver::Result<Metadata> {
        let mut sides = self.sides.lock();
        let sides = sides.as_mut().ok_or(ilk_driver::Error::NotBegun)?;
        let all = sides.describe(self.sides.side, &self.name, described);
        let all = all.map_err(|source| ilk_driver::Error::Recording { source })?;
        Ok(all.clone())
    }
}

#[cfg(test)]
mod tests {
    use gilk_engine::{HookType, InstrumentId};
    use gilk_instruments::program::Summary;
    use gilk_samples::Sample;
    use gilk_samples::metadata::{FunctionInfo, InstrumentInfo};

    use super::*;

    fn seat() -> (PairSeat, Sender<Clock>) {
        let (sender, begun) = crossbeam_channel::unbounded();
        let side = PairSide::Process {
            begun,
            before: ilk_driver::process::tsc(),
        };
        let other = StopFlag::new();
        (PairSeat { side, other }, sender)
    }

    #[test]
    fn a_process_begins_after_the_kernel_of_its_machine() {
        let (seat, begun) = seat();
        let own = ilk_driver::process::clock();
        let clock = Clock {
            hz: own.tsc_hz,
            start: ilk_driver::process::tsc(),
            start_unix_ns: own.unix_ns,
        };
        begun.send(clock).unwrap();
        seat.wait(&StopFlag::new()).unwrap();
    }

    #[test]
    fn a_process_does_not_begin_without_its_kernel() {
        let words = |seat: &PairSeat, stop: &StopFlag| seat.wait(stop).unwrap_err().to_string();
        let (of_other_machine, begun) = seat();
        begun.send(Clock::default()).unwrap();
        let error = words(&of_other_machine, &StopFlag::new());
        assert!(error.contains("of another machine"), "{error}");

        let (failed, begun) = seat();
        drop(begun);
        let error = words(&failed, &StopFlag::new());
        assert!(error.contains("did not begin"), "{error}");

        let (stopped, _begun) = seat();
        let stop = StopFlag::new();
        stop.stop();
        assert!(matches!(
            stopped.wait(&stop),
            Err(ilk_driver::Error::NotBegun)
        ));
    }

    /// A description with an instrument in each of some functions.
    fn described(names: &[&str]) -> Metadata {
        let numbered = || (0_u32..).zip(names);
        let id = |major| {
            InstrumentId::new(major, HookType::Pre, 0, 0)
                .unwrap()
                .pack()
        };
        let function = |(major, name): (u32, &&str)| FunctionInfo {
            major,
            name: (*name).to_owned(),
            address: 0,
            blocks: Vec::new(),
            edges: Vec::new(),
        };
        let instrument = |(major, name): (u32, &&str)| InstrumentInfo {
            id: id(major),
            label: (*name).to_owned(),
            ..crate::fixture::instrument()
        };
        Metadata {
            cpus: 1,
            functions: numbered().map(function).collect(),
            instruments: numbered().map(instrument).collect(),
            ..Metadata::default()
        }
    }

    #[test]
    fn both_sides_are_shown_with_totals_and_with_libraries_that_the_process_loads() {
        let [of_kernel, of_process] = LiveSides::new();
        let index = Shared::default();
        let process = ProcessSink {
            index: index.clone(),
            name: "process 7".to_owned(),
            sides: of_process.clone(),
        };
        // The kernel's side has not begun.
        assert!(process.described(&described(&["write"])).is_err());
        of_process.add_up(Vec::new(), |_| panic!("nothing is shown yet"));

        let kernel = described(&["vfs_write"]);
        let mut sides = LiveBeside::new(&kernel);
        sides
            .describe(LiveSides::KERNEL, "kernel", &kernel)
            .unwrap();
        let write = described(&["write"]);
        sides
            .describe(LiveSides::PROCESS, &process.name, &write)
            .unwrap();
        *of_kernel.lock() = Some(sides);

        let loaded = described(&["write", "libwork.so:work"]);
        let all = process.described(&loaded).unwrap();
        let labels: Vec<&str> = all
            .instruments
            .iter()
            .map(|one| one.label.as_str())
            .collect();
        assert_eq!(
            labels,
            [
                "kernel: vfs_write",
                "process 7: write",
                "process 7: libwork.so:work"
            ]
        );

        index.replace(Index::limited(KEPT, (0, 1000)));
        let samples = loaded.instruments.iter().map(|one| Sample {
            id: one.id,
            value: 1,
            tsc: 5,
        });
        let samples = samples.collect();
        process.append(&Batch { cpu: 0, samples });
        let counts: Vec<u64> = (all.instruments.iter())
            .map(|one| index.look().lane(one.id).map_or(0, |lane| lane.total.count))
            .collect();
        assert_eq!(counts, [0, 1, 1]);

        let total = |placement, value| AggregateSummary {
            placement,
            instrument: "sums".to_owned(),
            name: "sum".to_owned(),
            unit: String::new(),
            may_be_zero: false,
            value: Summary::Number(value),
        };
        let mut shown = Vec::new();
        of_process.add_up(vec![total(0, 5)], |all| shown.push(all));
        of_kernel.add_up(vec![total(0, 3)], |all| shown.push(all));
        let values: Vec<Vec<(&str, &Summary)>> = (shown.iter())
            .map(|all| {
                all.iter()
                    .map(|one| (one.instrument.as_str(), &one.value))
                    .collect()
            })
            .collect();
        let [kernel, process] = [
            ("kernel: sums", &Summary::Number(3)),
            ("process 7: sums", &Summary::Number(5)),
        ];
        assert_eq!(values, [vec![process], vec![kernel, process]]);
    }
}
