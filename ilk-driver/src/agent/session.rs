//! A session on the agent's clock, and its termination from outside.
//!
//! A session has two threads. The clock's thread applies batches in order of time and waits for
//! nothing but the module. The drain's thread empties rings and reads counters, and waits for a
//! slow client.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::clock::Clock;
use super::device::Device;
use super::drain::Drain;
use super::outbox::Outbox;
use super::retire::Retiring;
use super::rings::Rings;
use super::scheduler::Scheduler;
use super::signal::{End, Signal};
use crate::protocol::{MAX_WAIT, Refusal, RefusalKind, Schedule};
use crate::writes::Writes;

/// A planned and verified session, whose code is in the arena.
pub(super) struct Loaded {
    pub(super) writes: Writes,
    /// Seconds from the start to the end.
    pub(super) duration: f64,
}

/// A started session.
pub(super) struct RunningSession {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl RunningSession {
    /// Starts the clock.
    pub(super) fn start(
        device: Arc<Device>,
        loaded: Loaded,
        schedule: Schedule,
        outbox: Arc<Outbox>,
        hz: u64,
    ) -> Result<Self, Refusal> {
        let broken = |what: &str| Refusal::new(RefusalKind::Module, what);
        let rings = Rings::new(Arc::clone(&device)).ok_or_else(|| {
            broken("The module's description of its rings is invalid; build it from this source.")
        })?;
        let clock = Clock::start(hz, schedule.start).map_err(|seconds| {
            let text = format!(
                "Second 0 of the session is {seconds:.0} s away, and the limit is {MAX_WAIT} s; the \
                 clocks were compared too long ago, so start it again."
            );
            Refusal::new(RefusalKind::Request, text)
        })?;
        let Loaded { writes, duration } = loaded;
        let Writes {
            batches,
            counters,
            retire,
            ..
        } = writes;
        let signal = Arc::new(Signal::default());
        let session_signal = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name(String::from("clock"))
            .spawn(move || {
                let collection = schedule.collection;
                let drain = Drain::new(
                    Arc::clone(&device),
                    Arc::clone(&outbox),
                    counters,
                    collection,
                );
                let retiring = Retiring::new(retire);
                let scheduler = Scheduler::new(
                    device,
                    outbox,
                    Arc::new(drain),
                    session_signal,
                    clock,
                    retiring,
                );
                scheduler.run(rings, &batches, schedule.workload, duration);
            })
            .map_err(|e| {
                broken(&format!(
                    "The agent could not start a thread for the session: {e}."
                ))
            })?;
        Ok(Self { signal, thread })
    }

    /// Returns whether the session's end was reported to the client.
    pub(super) fn is_over(&self) -> bool {
        self.signal.is_over() || self.thread.is_finished()
    }

    /// Returns whether the session's threads have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Requests the removal of every splice and the end of the session.
    pub(super) fn stop(&self) {
        self.signal.set(End::Stop);
    }

    /// Ends the session without removing its splices; returns after its threads have ended.
    pub(super) fn abandon(self) {
        self.signal.set(End::Abandon);
        let _panicked = self.thread.join();
    }
}
