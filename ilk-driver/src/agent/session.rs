//! A session on the agent's clock, and how it is ended from outside.
//!
//! Two threads. The clock's does what is due, in order of time, and waits for nobody but the
//! module. The drain's empties rings and reads counters, and waits for a client that is slow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::clock::Clock;
use super::clockwork::Clockwork;
use super::device::Device;
use super::drain::Drain;
use super::outbox::Outbox;
use super::retire::Retiring;
use super::rings::Rings;
use crate::protocol::{Batch, Counter, MAX_WAIT, Refusal, RefusalKind, Retire, Schedule};

/// How a session is ended from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// In its own time.
    #[default]
    Never,
    /// Splices out, last samples, `Finished`.
    Stop,
    /// The client is gone: the device is closed right after.
    Abandon,
}

/// Between whoever ends a session and the session.
#[derive(Default)]
pub(super) struct Signal {
    end: Mutex<End>,
    changed: Condvar,
    over: AtomicBool,
}

/// What a client has loaded for a session.
pub(super) struct Loaded {
    pub(super) batches: Vec<Batch>,
    pub(super) counters: Vec<Counter>,
    pub(super) retire: Vec<Retire>,
}

/// A session under way.
pub(super) struct Running {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl Running {
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
            broken("The module describes its rings wrongly; build it from this source.")
        })?;
        let clock = Clock::start(hz, schedule.start).map_err(|seconds| {
            let text = format!(
                "The session would begin in {seconds:.0} s, and the limit is {MAX_WAIT} s; the \
                 clocks were compared too long ago, so start it again."
            );
            Refusal::new(RefusalKind::Request, text)
        })?;
        let Loaded {
            batches,
            counters,
            retire,
        } = loaded;
        let signal = Arc::new(Signal::default());
        let own = Arc::clone(&signal);
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
                let clockwork =
                    Clockwork::new(device, outbox, Arc::new(drain), own, clock, retiring);
                clockwork.run(rings, &batches, schedule.workload, schedule.duration);
            })
            .map_err(|e| {
                broken(&format!(
                    "The agent could not start a thread for the session: {e}."
                ))
            })?;
        Ok(Self { signal, thread })
    }

    /// Whether its end was told.
    pub(super) fn is_over(&self) -> bool {
        self.signal.over.load(Ordering::Acquire) || self.thread.is_finished()
    }

    /// Whether nothing of it runs any more.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Has every splice taken out and the session finished, soon.
    pub(super) fn stop(&self) {
        self.signal.set(End::Stop);
    }

    /// Leaves everything as it is; returns when nothing of the session runs any more.
    pub(super) fn abandon(self) {
        self.signal.set(End::Abandon);
        let _panicked = self.thread.join();
    }
}

impl Signal {
    fn set(&self, end: End) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        self.changed.notify_all();
    }

    pub(super) fn get(&self) -> End {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end is told next: the client may ask for another session.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Waits for second `at`, or for an end.
    pub(super) fn wait(&self, clock: &Clock, at: f64) -> End {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        while *end == End::Never
            && let Some(left) = clock.until(at)
        {
            let waited = self.changed.wait_timeout(end, left);
            end = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *end
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn waiting_ends_at_its_time_or_by_a_signal() {
        let clock = Clock::start(super::super::clock::tsc_hz(0), None).unwrap();
        assert_eq!(Signal::default().wait(&clock, 0.05), End::Never);
        assert!(clock.until(0.05).is_none());

        let other = Arc::new(Signal::default());
        let own = Arc::clone(&other);
        let begun = Instant::now();
        let waiting = std::thread::spawn(move || own.wait(&clock, 1000.0));
        other.set(End::Stop);
        assert_eq!(waiting.join().unwrap(), End::Stop);
        assert!(begun.elapsed() < Duration::from_secs(100));
    }
}
