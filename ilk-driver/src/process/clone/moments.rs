//! The counters of a cache in the course of time: they are read while threads execute, without the agent.

use std::time::{Duration, Instant};

use super::block_counters::BlockCounters;

/// Interval of the first readings.
const FIRST: Duration = Duration::from_millis(100);
/// Changes of executions that are kept, at most: 16 bytes each.
const MOST: usize = 1 << 19;

/// The executions that have changed since the moment before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedMoment {
    /// The time of the reading, in ticks of the time-stamp counter.
    pub(super) tsc: u64,
    /// Numbers of dynamic blocks in their order, with their executions up to that time.
    pub(super) changed: Vec<(usize, u64)>,
}

/// Readings at an interval that doubles whenever they have become many.
#[derive(Debug)]
pub(super) struct CountedMoments {
    interval: Duration,
    next: Instant,
    most: usize,
    last: Vec<u64>,
    kept: Vec<CountedMoment>,
}

impl CountedMoments {
    /// Begins with readings after the first interval.
    pub(super) fn new() -> Self {
        Self {
            interval: FIRST,
            next: Instant::now() + FIRST,
            most: MOST,
            last: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Reads the counters if the interval is over.
    pub(super) fn poll(&mut self, counters: &BlockCounters) {
        let now = Instant::now();
        if now >= self.next {
            let executions = counters.executions();
            self.take(super::super::tsc(), executions.into_iter());
            self.next = now + self.interval;
        }
    }

    /// Keeps the values that have changed.
    fn take(&mut self, tsc: u64, values: impl Iterator<Item = u64>) {
        let mut changed = Vec::new();
        for (block, value) in values.enumerate() {
            match self.last.get_mut(block) {
                Some(last) if *last == value => continue,
                Some(last) => *last = value,
                None => self.last.push(value),
            }
            if value > 0 {
                changed.push((block, value));
            }
        }
        if !changed.is_empty() {
            self.kept.push(CountedMoment { tsc, changed });
        }
        let changes =
            |kept: &[CountedMoment]| kept.iter().map(|one| one.changed.len()).sum::<usize>();
        while self.kept.len() > 1 && changes(&self.kept) > self.most {
            self.kept = self.kept.chunks(2).map(joined).collect();
            self.interval *= 2;
        }
    }

    /// The moments so far in the order of time.
    pub(super) fn kept(&self) -> &[CountedMoment] {
        &self.kept
    }
}

/// Joins a moment with the next one: values are those of the later time.
fn joined(pair: &[CountedMoment]) -> CountedMoment {
    let mut changed = std::collections::BTreeMap::new();
    for moment in pair {
        changed.extend(moment.changed.iter().copied());
    }
    CountedMoment {
        tsc: pair.last().map_or(0, |moment| moment.tsc),
        changed: changed.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_what_has_changed_and_many_are_joined() {
        let mut moments = CountedMoments::new();
        moments.most = 4;
        moments.take(10, [1, 0].into_iter());
        moments.take(20, [1, 0].into_iter());
        moments.take(30, [2, 0, 7].into_iter());
        let expected = |tsc, changed: &[(usize, u64)]| CountedMoment {
            tsc,
            changed: changed.to_vec(),
        };
        let both = [expected(10, &[(0, 1)]), expected(30, &[(0, 2), (2, 7)])];
        assert_eq!(moments.kept, both);
        // Two changes more are too many: the first two moments become one.
        moments.take(40, [3, 5, 7].into_iter());
        let joined = [
            expected(30, &[(0, 2), (2, 7)]),
            expected(40, &[(0, 3), (1, 5)]),
        ];
        assert_eq!(
            (&moments.kept[..], moments.interval),
            (&joined[..], 2 * FIRST)
        );
        // The values of the last moments are those of now.
        moments.take(50, [4, 6, 8].into_iter());
        assert_eq!(moments.kept(), [expected(50, &[(0, 4), (1, 6), (2, 8)])]);
    }
}
