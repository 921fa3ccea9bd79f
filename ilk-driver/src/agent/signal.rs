//! The termination of a session from another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::clock::Clock;

/// Time by which a wait may take longer than the TSC says, before the TSC is not believed.
const SLACK: Duration = Duration::from_secs(1);

/// The requested end of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// None: the session ends by its schedule.
    #[default]
    Never,
    /// Removal of all splices, delivery of the last samples, `Finished`.
    Stop,
    /// The client is gone: the device is closed next.
    Abandon,
}

/// Carries the request to end a session, and the fact that it is over.
#[derive(Default)]
pub(super) struct Signal {
    end: Mutex<End>,
    changed: Condvar,
    over: AtomicBool,
}

impl Signal {
    pub(super) fn set(&self, end: End) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        self.changed.notify_all();
    }

    /// Requests a regular end, unless an end was requested before.
    pub(super) fn stop(&self) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if *end == End::Never {
            *end = End::Stop;
        }
        self.changed.notify_all();
    }

    pub(super) fn get(&self) -> End {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the session as over, right before its end is reported: from then on the client may
    /// start another session.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for second `at`, or for an end. If the TSC is reset meanwhile, the wait ends soon after the
    /// time that it should have taken.
    pub(super) fn wait(&self, clock: &Clock, at: f64) -> End {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = clock.until(at).map(|time| Instant::now() + time + SLACK);
        while *end == End::Never
            && let (Some(remaining), Some(latest)) = (clock.until(at), latest)
        {
            let longest = latest.saturating_duration_since(Instant::now());
            if longest.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(end, remaining.min(longest));
            end = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::clock::tsc_hz;
    use super::*;

    #[test]
    fn a_wait_ends_at_its_time_or_by_a_signal() {
        let clock = Clock::start(tsc_hz(0), None).unwrap();
        assert_eq!(Signal::default().wait(&clock, 0.05), End::Never);
        assert!(clock.until(0.05).is_none());

        let signal = Arc::new(Signal::default());
        let waited_on = Arc::clone(&signal);
        // Thirty years: only the signal can end this wait.
        let waiting = std::thread::spawn(move || waited_on.wait(&clock, 1e9));
        signal.set(End::Stop);
        assert_eq!(waiting.join().unwrap(), End::Stop);
    }
}
