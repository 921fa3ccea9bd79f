//! Paired runs: with the instrument and without it, in turns, so that what else the machine does falls on both.

use std::time::{Duration, Instant};

use super::cases::Case;
use super::results::Row;
use super::target::{Changes, RING_SLOTS, Target, ticks};

/// Length of a run: shorter than what a scheduler gives a thread, so that most runs are not interrupted.
const RUN_NS: f64 = 100_000.0;
/// First argument of every run, so that all runs of a case take the same ways.
pub(crate) const SEED: u64 = 0x1234_5678_9abc_def1;
/// Calls of the smallest run, and of the one whose length is measured first.
const FEWEST_CALLS: u64 = 2;

/// A clock's rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Ticks of the time stamp counter a nanosecond.
    pub(crate) per_ns: f64,
}

impl Clock {
    /// Compares the time stamp counter with the system's clock for a while.
    pub(crate) fn new() -> Self {
        let (start, first) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(200));
        let (elapsed, last) = (start.elapsed(), ticks());
        Self {
            per_ns: (last - first) as f64 / elapsed.as_nanos() as f64,
        }
    }
}

/// Times of runs of so many calls, in nanoseconds.
pub(crate) struct Times {
    pub(crate) calls: u64,
    /// Runs with the instrument.
    pub(crate) with: Vec<f64>,
    /// Runs without it.
    pub(crate) without: Vec<f64>,
    /// Differences of pairs.
    pub(crate) differences: Vec<f64>,
}

/// Measures runs with and without an instrument, of at most so many calls.
pub(crate) fn pairs(
    target: &mut Target,
    clock: Clock,
    changes: &Changes,
    most_calls: u64,
    rounds: usize,
) -> Times {
    let mut calls = FEWEST_CALLS;
    target.set(changes, true);
    loop {
        let ns = target.run(calls, SEED).ticks as f64 / clock.per_ns;
        if ns > RUN_NS / 2.0 || calls >= most_calls {
            break;
        }
        calls = (2 * calls).min(most_calls);
    }
    let mut run = |on: bool| {
        target.set(changes, on);
        // Caches and predictors know the new text before it is measured.
        target.run(calls.div_ceil(2), SEED);
        target.run(calls, SEED).ticks as f64 / clock.per_ns
    };
    let mut times = Times {
        calls,
        with: Vec::new(),
        without: Vec::new(),
        differences: Vec::new(),
    };
    for round in 0..rounds {
        let (on, off) = if round % 2 == 0 {
            let on = run(true);
            (on, run(false))
        } else {
            let off = run(false);
            (run(true), off)
        };
        times.with.push(on);
        times.without.push(off);
        times.differences.push(on - off);
    }
    target.set(changes, false);
    times
}

/// Measures a case.
pub(crate) fn measure(target: &mut Target, clock: Clock, case: &Case, rounds: usize) -> Row {
    let ready = case.load(target);
    case.check(target, &ready);
    let times = pairs(target, clock, &ready.changes, case.most_calls(), rounds);
    let hits = case.tree.run(times.calls, SEED).1 as f64;
    let (with, without) = (least(&times.with), least(&times.without));
    let added = times.differences.iter().map(|added| added / hits);
    Row {
        group: case.group.to_owned(),
        name: case.name.clone(),
        hits_per_call: hits / times.calls as f64,
        bare_call_ns: without / times.calls as f64,
        least_ns: (with - without) / hits,
        quartiles_ns: quartiles(added.collect()),
        instructions: ready.instructions,
        moved_calls: ready.moved_calls,
    }
}

/// The least of some times.
pub(crate) fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The lower quartile, the median and the upper quartile.
pub(crate) fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

impl Case {
    /// The most calls whose samples the ring holds.
    fn most_calls(&self) -> u64 {
        let hits = self.tree.call(SEED, 1).1;
        RING_SLOTS / (self.effect.samples * hits).max(1)
    }
}
