//! Second 0 of a session, and what time it is since.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::sys;
use crate::protocol::{MAX_WAIT, Started};

/// How long the TSC is held against the operating system's clock where the kernel has not
/// calibrated it.
const CALIBRATION: Duration = Duration::from_millis(100);

/// TSC ticks a second: the kernel's figure, else a measurement.
pub(super) fn tsc_hz(kernels: u64) -> u64 {
    if kernels != 0 {
        return kernels;
    }
    let (begun, first) = (Instant::now(), sys::tsc());
    std::thread::sleep(CALIBRATION);
    let (elapsed, ticks) = (
        begun.elapsed().as_secs_f64(),
        sys::tsc().wrapping_sub(first),
    );
    (ticks as f64 / elapsed) as u64
}

/// The session's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started: Started,
}

impl Clock {
    /// Starts when the TSC is at `start`, or now if that has gone by or none is given.
    ///
    /// # Errors
    /// How many seconds it would be until then, if that is more than [`MAX_WAIT`].
    pub(super) fn start(tsc_hz: u64, start: Option<u64>) -> Result<Self, f64> {
        let now = sys::tsc();
        let ahead = start.map_or(0, |start| start.saturating_sub(now));
        let seconds = ahead as f64 / tsc_hz.max(1) as f64;
        if seconds > MAX_WAIT {
            return Err(seconds);
        }
        let unix_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            });
        Ok(Self {
            started: Started {
                tsc_hz,
                tsc: now.saturating_add(ahead),
                unix_ns: unix_ns.saturating_add((seconds * 1e9) as u64),
            },
        })
    }

    /// Seconds since the start; negative before it.
    pub(super) fn now(&self) -> f64 {
        let ticks = sys::tsc().wrapping_sub(self.started.tsc).cast_signed();
        ticks as f64 / self.started.tsc_hz.max(1) as f64
    }

    /// How long it is until second `at`, or `None` if that has passed.
    pub(super) fn until(&self, at: f64) -> Option<Duration> {
        let Started { tsc_hz, tsc, .. } = self.started;
        let due = (at * tsc_hz as f64) as i64;
        let now = sys::tsc().wrapping_sub(tsc).cast_signed();
        let left = due.checked_sub(now).filter(|left| *left > 0)?;
        Some(Duration::from_secs_f64(left as f64 / tsc_hz.max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_clock_agrees_with_the_systems() {
        let clock = Clock::start(tsc_hz(0), None).unwrap();
        let begun = Instant::now();
        while let Some(left) = clock.until(0.2) {
            std::thread::sleep(left.min(Duration::from_millis(10)));
        }
        let seconds = begun.elapsed().as_secs_f64();
        assert!(
            (0.15..1.0).contains(&seconds),
            "{seconds} s went by for 0.2 s"
        );
        assert!(clock.until(0.0).is_none());
    }

    #[test]
    fn second_0_may_lie_ahead_but_not_far() {
        let hz = tsc_hz(0);
        let ahead = sys::tsc() + hz / 2;
        let clock = Clock::start(hz, Some(ahead)).unwrap();
        assert_eq!(clock.started.tsc, ahead);
        assert!(clock.now() < 0.0);
        let left = clock.until(0.0).unwrap();
        assert!(left <= Duration::from_millis(500), "{left:?}");
        assert!(clock.until(1.0).unwrap() - left <= Duration::from_secs(1));

        let gone = Clock::start(hz, Some(1)).unwrap();
        assert!(gone.started.tsc >= ahead - hz / 2 && gone.now() >= 0.0);
        let far = Clock::start(hz, Some(sys::tsc() + 100 * hz)).unwrap_err();
        assert!((90.0..=100.0).contains(&far), "{far}");
    }

    #[test]
    fn the_kernels_figure_is_believed() {
        assert_eq!(tsc_hz(2_400_000_000), 2_400_000_000);
    }
}
