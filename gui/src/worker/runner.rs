//! Targets on which sessions run: an agent, a process, and a process in the code cache.

use std::path::Path;
use std::time::Duration;

use crossbeam_channel::Sender;
use gilk_engine::{Session, VerifiedPlan};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Event, Seat, StopFlag, Summary};
use ilk_driver::process::{
    CachedRun, CachedWork, CloneThreads, EveryTarget, ProcessChoices, ProcessRun, ProcessTarget,
};

/// A target on which sessions run.
pub(super) trait Runner {
    /// Checks that the target is still there.
    fn check(&mut self) -> ilk_driver::Result<()>;

    /// The process whose functions are shown, if they are of one.
    fn process(&mut self) -> Option<&mut ProcessTarget>;

    /// Runs a session to its end.
    fn run(&mut self, order: RunOrder<'_>) -> ilk_driver::Result<Summary>;
}

/// A session to run, and the receiver of its events.
pub(super) struct RunOrder<'o> {
    pub(super) plan: &'o VerifiedPlan,
    pub(super) session: &'o Session,
    pub(super) recording: &'o Path,
    pub(super) events: &'o Sender<Event>,
    pub(super) stop: &'o StopFlag,
    pub(super) together: Option<(Seat, String)>,
    pub(super) threads: &'o CloneThreads,
    pub(super) choices: ProcessChoices,
    pub(super) library: &'o Library,
}

/// A process that executes in the code cache during a run.
pub(super) struct CachedProcess(pub(super) ProcessTarget);

impl Runner for CachedProcess {
    fn check(&mut self) -> ilk_driver::Result<()> {
        self.0.check()
    }

    fn process(&mut self) -> Option<&mut ProcessTarget> {
        Some(&mut self.0)
    }

    fn run(&mut self, order: RunOrder<'_>) -> ilk_driver::Result<Summary> {
        check_alone(&order)?;
        let session = match order.choices.cached {
            CachedWork::Blocks => None,
            CachedWork::Instruments => Some(order.session),
        };
        self.0.run_in_cache(CachedRun {
            session,
            threads: order.threads,
            choices: order.choices,
            length: Duration::from_secs_f64(order.session.duration),
            recording: order.recording,
            events: order.events,
            stop: order.stop,
        })
    }
}

impl Runner for Connection {
    fn check(&mut self) -> ilk_driver::Result<()> {
        self.ping()
    }

    fn process(&mut self) -> Option<&mut ProcessTarget> {
        None
    }

    fn run(&mut self, order: RunOrder<'_>) -> ilk_driver::Result<Summary> {
        let RunOrder {
            plan,
            session,
            recording,
            events,
            stop,
            together,
            ..
        } = order;
        match together {
            None => Self::run(self, plan, session, recording, events, stop),
            Some((seat, name)) => {
                self.set_name(&name);
                self.run_together(plan, session, recording, events, stop, seat)
            }
        }
    }
}

/// Refuses a run on several machines.
fn check_alone(order: &RunOrder<'_>) -> ilk_driver::Result<()> {
    if order.together.is_some() {
        let words = "A session of several machines does not run in a process yet; remove the other machines.";
        return Err(ilk_driver::Error::Target(words.to_owned()));
    }
    Ok(())
}

impl<'o> From<RunOrder<'o>> for ProcessRun<'o> {
    fn from(order: RunOrder<'o>) -> Self {
        let RunOrder {
            plan,
            session,
            recording,
            events,
            stop,
            choices,
            library,
            ..
        } = order;
        Self {
            plan,
            session,
            library,
            choices,
            recording,
            events,
            stop,
        }
    }
}

impl Runner for ProcessTarget {
    fn check(&mut self) -> ilk_driver::Result<()> {
        Self::check(self)
    }

    fn process(&mut self) -> Option<&mut ProcessTarget> {
        Some(self)
    }

    fn run(&mut self, order: RunOrder<'_>) -> ilk_driver::Result<Summary> {
        check_alone(&order)?;
        Self::run(self, order.into())
    }
}

impl Runner for EveryTarget {
    fn check(&mut self) -> ilk_driver::Result<()> {
        // Others may begin after the process that is shown has ended.
        Ok(())
    }

    fn process(&mut self) -> Option<&mut ProcessTarget> {
        Some(self.shown())
    }

    fn run(&mut self, order: RunOrder<'_>) -> ilk_driver::Result<Summary> {
        check_alone(&order)?;
        Self::run(self, order.into())
    }
}
