//! A session's clock: second 0, and the time since.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::processor;
use crate::protocol::{MAX_WAIT, Started};

/// Length of the calibration of the TSC against the operating system's clock if the kernel has not
/// calibrated it.
const CALIBRATION: Duration = Duration::from_millis(100);

/// The first readings of both clocks.
static FIRST: OnceLock<(Instant, u64)> = OnceLock::new();

/// Begins to measure the rate of the TSC: a reading of it a tenth of a second later does not wait.
pub(crate) fn begin_calibration() {
    first();
}

fn first() -> (Instant, u64) {
    *FIRST.get_or_init(now)
}

/// Returns a moment by both clocks.
fn now() -> (Instant, u64) {
    let reading = processor::beside_tsc(Instant::now);
    (reading.value, reading.tsc)
}

/// Returns the TSC ticks per second: the kernel's figure, or a measurement if that is 0.
pub(super) fn tsc_hz(kernel_hz: u64) -> u64 {
    if kernel_hz != 0 {
        return kernel_hz;
    }
    let (begun, first) = first();
    std::thread::sleep(CALIBRATION.saturating_sub(begun.elapsed()));
    let (ended, last) = now();
    rate(last.wrapping_sub(first), ended - begun)
}

fn rate(ticks: u64, elapsed: Duration) -> u64 {
    (ticks as f64 / elapsed.as_secs_f64()) as u64
}

/// A moment by both clocks, at which a session starts; no rate is needed to take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartMoment {
    pub(crate) tsc: u64,
    /// Nanoseconds since 1970.
    unix_ns: u64,
}

impl StartMoment {
    /// Returns now.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        });
        Self {
            tsc: processor::tsc(),
            unix_ns,
        }
    }

    /// The start of a session at this moment.
    pub(crate) fn started(self, tsc_hz: u64) -> Started {
        Started {
            tsc_hz,
            tsc: self.tsc,
            unix_ns: self.unix_ns,
        }
    }
}

/// The session's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started: Started,
}

impl Clock {
    /// Sets second 0 to TSC `start`, or to now if that is past or absent.
    ///
    /// # Errors
    /// The seconds until then if they are more than [`MAX_WAIT`].
    pub(super) fn start(tsc_hz: u64, start: Option<u64>) -> Result<Self, f64> {
        Self::start_at(processor::tsc(), tsc_hz, start)
    }

    fn start_at(now: u64, tsc_hz: u64, start: Option<u64>) -> Result<Self, f64> {
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

    /// Returns the seconds since second 0; negative before it.
    pub(super) fn now(&self) -> f64 {
        self.seconds_at(processor::tsc())
    }

    fn seconds_at(&self, tsc: u64) -> f64 {
        let ticks = tsc.wrapping_sub(self.started.tsc).cast_signed();
        ticks as f64 / self.started.tsc_hz.max(1) as f64
    }

    /// Returns the time until second `at`, or `None` if it is past.
    pub(super) fn until(&self, at: f64) -> Option<Duration> {
        self.remaining_at(processor::tsc(), at)
    }

    fn remaining_at(&self, tsc: u64, at: f64) -> Option<Duration> {
        let tsc_hz = self.started.tsc_hz;
        let due = (at * tsc_hz as f64) as i64;
        let now = tsc.wrapping_sub(self.started.tsc).cast_signed();
        let remaining = due.checked_sub(now).filter(|ticks| *ticks > 0)?;
        Some(Duration::from_secs_f64(
            remaining as f64 / tsc_hz.max(1) as f64,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_clock_agrees_with_the_operating_systems() {
        // A thread that is preempted between two readings compares badly, so one good comparison of
        // many proves the calibration.
        let agrees = || {
            let clock = Clock::start(tsc_hz(0), None).unwrap();
            let (begun, first) = (Instant::now(), clock.now());
            std::thread::sleep(Duration::from_millis(50));
            let (elapsed, last) = (begun.elapsed().as_secs_f64(), clock.now());
            (0.95..1.05).contains(&((last - first) / elapsed))
        };
        assert!((0..50).any(|_| agrees()));
        assert_eq!(rate(240_000_000, CALIBRATION), 2_400_000_000);
    }

    #[test]
    fn a_second_is_due_when_its_ticks_have_passed() {
        let clock = Clock::start_at(5000, 1000, None).unwrap();
        assert_eq!(clock.seconds_at(5200), 0.2);
        assert_eq!(
            clock.remaining_at(5000, 0.2),
            Some(Duration::from_millis(200))
        );
        assert_eq!(
            clock.remaining_at(5199, 0.2),
            Some(Duration::from_millis(1))
        );
        assert_eq!(clock.remaining_at(5200, 0.2), None);
        assert_eq!(clock.remaining_at(5000, 0.0), None);
    }

    #[test]
    fn second_0_may_lie_ahead_up_to_a_limit() {
        let (hz, now) = (1000, 1_000_000);
        let ahead = now + hz / 2;
        let clock = Clock::start_at(now, hz, Some(ahead)).unwrap();
        assert_eq!(clock.started.tsc, ahead);
        assert_eq!(clock.seconds_at(now), -0.5);
        let until_start = clock.remaining_at(now, 0.0).unwrap();
        assert_eq!(until_start, Duration::from_millis(500));
        let until_first = clock.remaining_at(now, 1.0).unwrap();
        assert_eq!(until_first - until_start, Duration::from_secs(1));

        let past = Clock::start_at(now, hz, Some(1)).unwrap();
        assert_eq!((past.started.tsc, past.seconds_at(now)), (now, 0.0));
        let far = Clock::start_at(now, hz, Some(now + 100 * hz)).unwrap_err();
        assert_eq!(far, 100.0);
    }

    #[test]
    fn the_kernels_figure_needs_no_measurement() {
        assert_eq!(tsc_hz(2_400_000_000), 2_400_000_000);
    }
}
