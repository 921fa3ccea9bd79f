//! A session's workload where the agent runs no programs and is on this machine: this program starts it, as its own
//! user, on the session's clock.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use gilk_engine::Session;
use gilk_samples::metadata::Clock;

use crate::processor;
use crate::protocol::{Target, Workload, WorkloadEvent};
use crate::workload::{Events, RunningWorkload, boot};

/// Limit on undelivered events; a program that prints more waits.
const MOST: usize = 1024;

struct Channel(Sender<WorkloadEvent>);

impl Events for Channel {
    fn deliver(&self, event: WorkloadEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

/// A workload of this program, killed when it is dropped.
pub(super) struct OwnWorkload {
    workload: Workload,
    /// Batches that are applied before it starts: a launch at its second sees it.
    batches: usize,
    stage: Stage,
}

enum Stage {
    Waiting,
    Running {
        running: RunningWorkload,
        events: Receiver<WorkloadEvent>,
    },
    /// It could not be started; the event says why.
    Failed,
}

impl OwnWorkload {
    /// Returns the workload of a session that this program starts; `None` if there is none, or the agent does it or
    /// refuses it. `batches` are the times of the batches of its plan.
    pub(super) fn of(
        session: &Session,
        batches: impl Iterator<Item = f64>,
        target: &Target,
    ) -> Option<Self> {
        let workload = session.workload.as_ref()?;
        let is_here = !target.boot.is_empty() && target.boot == boot();
        if target.runs_programs || !is_here {
            return None;
        }
        Some(Self {
            workload: Workload {
                program: workload.program.clone(),
                arguments: workload.arguments.clone(),
                at: workload.start,
            },
            batches: batches.filter(|at| *at <= workload.start).count(),
            stage: Stage::Waiting,
        })
    }

    /// Notes that the agent has applied a batch.
    pub(super) const fn batch_applied(&mut self) {
        self.batches = self.batches.saturating_sub(1);
    }

    /// Starts the program if it is time, and returns what has happened to it.
    pub(super) fn events(&mut self, clock: &Clock) -> Vec<WorkloadEvent> {
        let is_due = || clock.seconds(processor::tsc()) >= self.workload.at;
        if matches!(self.stage, Stage::Waiting) && self.batches == 0 && is_due() {
            let (sender, events) = bounded(MOST);
            match RunningWorkload::start(&self.workload, Arc::new(Channel(sender))) {
                Some(running) => self.stage = Stage::Running { running, events },
                None => {
                    self.stage = Stage::Failed;
                    return events.try_iter().collect();
                }
            }
        }
        match &self.stage {
            Stage::Running { events, .. } => events.try_iter().collect(),
            Stage::Waiting | Stage::Failed => Vec::new(),
        }
    }

    /// Kills the program if it still runs, and returns the rest of what has happened to it.
    pub(super) fn end(self) -> Vec<WorkloadEvent> {
        let Stage::Running { running, events } = self.stage else {
            return Vec::new();
        };
        // Its threads may wait for room.
        let rest = std::thread::spawn(move || events.iter().collect());
        running.end();
        rest.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use gilk_engine::Addr;
    use gilk_engine::layout::RuntimeLayout;
    use gilk_engine::session;

    use super::*;

    fn target(runs_programs: bool, boot: String) -> Target {
        Target {
            host: String::new(),
            release: String::new(),
            cpus: 1,
            tsc_hz: 1,
            runs_programs,
            boot,
            layout: RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000)),
        }
    }

    fn session(command: &str) -> Session {
        Session {
            workload: Some(session::Workload {
                program: "sh".to_owned(),
                arguments: vec!["-c".to_owned(), command.to_owned()],
                start: 1.0,
            }),
            ..Session::empty()
        }
    }

    fn here() -> Target {
        target(false, boot())
    }

    #[test]
    fn a_program_is_this_programs_where_the_agent_is_here_and_runs_none() {
        let session = session("exit 0");
        let is_own = |target: &Target| {
            let own = OwnWorkload::of(&session, std::iter::empty(), target);
            own.is_some()
        };
        assert!(is_own(&here()));
        assert!(!is_own(&target(true, boot())));
        for elsewhere in ["", "another"] {
            assert!(!is_own(&target(false, elsewhere.to_owned())));
        }
        let without = OwnWorkload::of(&Session::empty(), std::iter::empty(), &here());
        assert!(without.is_none());
    }

    #[test]
    fn a_program_starts_at_its_time_after_the_batches_until_then() {
        let clock = |start| Clock {
            hz: 1000,
            start,
            start_unix_ns: 0,
        };
        let after = clock(0);
        let session = session("echo printed; exit 3");
        let mut own = OwnWorkload::of(&session, [0.0, 1.0, 2.0].into_iter(), &here()).unwrap();
        assert!(own.events(&after).is_empty(), "two batches are not applied");
        own.batch_applied();
        own.batch_applied();
        let later = clock(processor::tsc().wrapping_add(1 << 40));
        assert!(own.events(&later).is_empty(), "it is before second 0");
        let mut events = own.events(&after);
        assert!(!events.is_empty(), "it is time");
        while !matches!(events.last(), Some(WorkloadEvent::Ended { .. })) {
            events.extend(own.events(&after));
            std::thread::yield_now();
        }
        assert!(own.end().is_empty());
        assert!(
            matches!(
                &events[..],
                [WorkloadEvent::Started { .. }, WorkloadEvent::Line(line), WorkloadEvent::Ended { status, .. }]
                    if line == "printed" && status == "exit status: 3"
            ),
            "{events:?}"
        );
    }

    #[test]
    fn a_program_that_prints_ends_with_the_session() {
        let session = session("while :; do echo printed; done");
        let mut own = OwnWorkload::of(&session, std::iter::empty(), &here()).unwrap();
        let clock = Clock {
            hz: 1000,
            start: 0,
            start_unix_ns: 0,
        };
        let events = own.events(&clock);
        let rest = own.end();
        let printed = |event: &WorkloadEvent| matches!(event, WorkloadEvent::Line(_));
        assert!(rest.iter().all(printed), "{:?}", rest.last());
        assert!(matches!(
            events.first(),
            Some(WorkloadEvent::Started { .. })
        ));
    }
}
