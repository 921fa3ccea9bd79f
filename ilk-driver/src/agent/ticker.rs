//! A time that comes again, a little earlier or later each time.

use std::time::{Duration, Instant};

use super::sys;
use crate::protocol::Interval;

/// When something is next due.
#[derive(Debug)]
pub(super) struct Rhythm {
    interval: Interval,
    /// Of a xorshift generator (Marsaglia, 2003); it only has to be out of step with the target.
    random: u64,
    due: Instant,
}

impl Rhythm {
    /// First due one interval from now.
    pub(super) fn new(interval: Interval) -> Self {
        let mut rhythm = Self {
            interval,
            random: sys::tsc() | 1,
            due: Instant::now(),
        };
        rhythm.step();
        rhythm
    }

    /// How long it is until it is due; nothing if it is.
    pub(super) fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Makes it due one interval later than it was, or than now if that is past.
    pub(super) fn step(&mut self) {
        let Interval { every, jitter } = self.interval;
        let seconds = every + jitter * (2.0 * self.share() - 1.0);
        let next = self.due + Duration::from_secs_f64(seconds.max(0.0));
        self.due = next.max(Instant::now());
    }

    /// Evenly from 0 to 1.
    fn share(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_vary_as_asked_for_and_keep_their_mean() {
        let interval = Interval {
            every: 10.0,
            jitter: 4.0,
        };
        let mut rhythm = Rhythm::new(interval);
        let begun = rhythm.due;
        let lengths: Vec<f64> = (0..1000)
            .map(|_| {
                let before = rhythm.due;
                rhythm.step();
                (rhythm.due - before).as_secs_f64()
            })
            .collect();
        assert!(lengths.iter().all(|length| (6.0..=14.0).contains(length)));
        let far = |from: f64, to: f64| lengths.iter().filter(|l| (from..to).contains(*l)).count();
        assert!(far(6.0, 8.0) > 150 && far(12.0, 14.0) > 150, "not even");
        let mean = (rhythm.due - begun).as_secs_f64() / 1000.0;
        assert!((9.5..10.5).contains(&mean), "{mean} s between two");
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let mut rhythm = Rhythm::new(Interval {
            every: 0.001,
            jitter: 0.0,
        });
        std::thread::sleep(Duration::from_millis(20));
        rhythm.step();
        assert!(rhythm.due >= Instant::now() - Duration::from_millis(10));
    }
}
