//! A periodic deadline with jitter.

use std::time::{Duration, Instant};

use crate::processor;
use crate::protocol::Interval;

/// The next deadline of a periodic action.
#[derive(Debug)]
pub(super) struct Ticker {
    interval: Interval,
    /// State of a xorshift generator (Marsaglia, 2003); the jitter only has to be out of phase with
    /// the target.
    random: u64,
    due: Instant,
}

impl Ticker {
    /// Creates a ticker that is first due one interval from now.
    pub(super) fn new(interval: Interval) -> Self {
        let mut ticker = Self {
            interval,
            random: processor::tsc() | 1,
            due: Instant::now(),
        };
        ticker.advance();
        ticker
    }

    /// Returns the time until the deadline; zero if it is past.
    pub(super) fn remaining(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Moves the deadline by one interval, but at least to now.
    pub(super) fn advance(&mut self) {
        let Interval { every, jitter } = self.interval;
        let seconds = every + jitter * (2.0 * self.uniform() - 1.0);
        let next = self.due + Duration::from_secs_f64(seconds.max(0.0));
        self.due = next.max(Instant::now());
    }

    /// Returns a uniformly distributed number from 0 to 1.
    fn uniform(&mut self) -> f64 {
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
    fn intervals_vary_by_the_jitter_and_keep_their_mean() {
        let interval = Interval {
            every: 10.0,
            jitter: 4.0,
        };
        let mut ticker = Ticker::new(interval);
        let begun = ticker.due;
        let lengths: Vec<f64> = (0..1000)
            .map(|_| {
                let before = ticker.due;
                ticker.advance();
                (ticker.due - before).as_secs_f64()
            })
            .collect();
        assert!(lengths.iter().all(|length| (6.0..=14.0).contains(length)));
        let within =
            |from: f64, to: f64| lengths.iter().filter(|l| (from..to).contains(*l)).count();
        assert!(
            within(6.0, 8.0) > 150 && within(12.0, 14.0) > 150,
            "not uniform"
        );
        let mean = (ticker.due - begun).as_secs_f64() / 1000.0;
        assert!((9.5..10.5).contains(&mean), "{mean} s is the mean");
    }

    #[test]
    fn missed_deadlines_are_skipped() {
        let mut ticker = Ticker::new(Interval {
            every: 0.001,
            jitter: 0.0,
        });
        std::thread::sleep(Duration::from_millis(20));
        let before = Instant::now();
        ticker.advance();
        assert!(ticker.due >= before);
    }
}
