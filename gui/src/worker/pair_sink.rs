//! A run in a process and its kernel: the kernel begins first, and one index has the samples of both.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gilk_engine::{InstrumentId, Session, VerifiedPlan};
use gilk_instruments::Library;
use gilk_samples::Batch;
use gilk_samples::index::{Index, KEPT, Shared};
use gilk_samples::metadata::{Clock, Metadata};
use ilk_driver::client::{StopFlag, TargetInfo, metadata};
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

/// The samples of the kernel, and the description of both sides.
pub(crate) struct KernelSink {
    pub(crate) index: Shared,
    pub(crate) info: TargetInfo,
    /// The process: its name in labels, plan, session and description.
    pub(crate) process: (String, Arc<VerifiedPlan>, EditedSession, TargetInfo),
    /// The number of the first function of the process.
    pub(crate) first_major: Arc<OnceLock<u32>>,
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
        // A process that has given up waiting has reported why.
        let _given_up = self.begun.send(clock);
        described
    }

    fn described(
        &self,
        plan: &VerifiedPlan,
        session: &Session,
        clock: Clock,
    ) -> ilk_driver::Result<Metadata> {
        let mut all = metadata(plan.plan(), session, &self.info, clock)?;
        named(&mut all, "kernel");
        let majors = all.functions.iter().map(|function| function.major);
        let instruments = all.instruments.iter();
        let instruments = instruments.filter_map(|one| InstrumentId::unpack(one.id));
        let majors = majors.chain(instruments.map(|id| id.major));
        let first_major = majors.max().map_or(0, |most| most + 1);
        let placements = u32::try_from(session.placements.len()).unwrap_or(u32::MAX);

        let (name, plan, edited, info) = &self.process;
        let mut edited = edited.clone();
        edited.show_kernel(false);
        let mut process = metadata(plan.plan(), &edited.shown(), info, clock)?;
        named(&mut process, name);
        all.append(&process, first_major, placements);
        let set = self.first_major.set(first_major);
        debug_assert!(set.is_ok(), "the sides of a run are numbered once");
        Ok(all)
    }

    pub(crate) fn append(&self, batch: &Batch) {
        self.index.append(batch);
    }
}

/// Puts a name before all labels.
fn named(described: &mut Metadata, name: &str) {
    for instrument in &mut described.instruments {
        instrument.label = format!("{name}: {}", instrument.label);
    }
}

/// The samples of the process, which are numbered after those of the kernel.
pub(crate) struct ProcessSink {
    pub(crate) index: Shared,
    pub(crate) first_major: Arc<OnceLock<u32>>,
}

impl ProcessSink {
    pub(crate) fn append(&self, batch: &Batch) {
        // Without a description, which the kernel's side reports, there are no lanes.
        let Some(&first_major) = self.first_major.get() else {
            return;
        };
        let mut batch = batch.clone();
        for sample in &mut batch.samples {
            sample.id = InstrumentId::renumbered(sample.id, first_major);
        }
        self.index.append(&batch);
    }
}

#[cfg(test)]
mod tests {
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
}
