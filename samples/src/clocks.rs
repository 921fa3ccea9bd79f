//! The clocks of several machines on one timeline.
//!
//! Whoever records asks a target for its TSC and looks at a clock of its own before and after: the TSC
//! was read somewhere between, so the middle is right give or take half the way there and back
//! ([`Reading`]). No way that is slower in one direction makes that wrong. A recording has such
//! readings from before its beginning, now and then, and from behind its end; between two of them
//! time goes evenly, as far as quartz does ([`Alignment`]).

use crate::Result;
use crate::metadata::Clock;
use crate::recording::{Mark, MarkKind, Recording};

/// By how many parts in a million a target's clock may go faster or slower than its own figure says,
/// against the clock of whoever records: quartz, and a kernel that has measured it.
const NOMINAL: u64 = 200;
/// By how many parts in a million the speed of two clocks against each other may change between two
/// readings: warmth, and a clock that is led back to the right time.
const WANDER: u64 = 20;
const MILLION: u64 = 1_000_000;

/// One clock read by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The target's TSC.
    pub tsc: u64,
    /// What the clock of whoever records showed then, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// How far off that may be, in nanoseconds.
    pub error_ns: u64,
}

impl Reading {
    /// A TSC that was asked for at `before` and had come at `after`, both in nanoseconds since 1970.
    #[must_use]
    pub const fn between(before: u64, after: u64, tsc: u64) -> Self {
        let way = after.saturating_sub(before);
        Self {
            tsc,
            unix_ns: before.saturating_add(way / 2),
            error_ns: way.div_ceil(2),
        }
    }
}

impl From<Reading> for Mark {
    fn from(reading: Reading) -> Self {
        Self {
            kind: MarkKind::Clock,
            tsc: reading.tsc,
            id: reading.error_ns,
            value: reading.unix_ns,
        }
    }
}

impl Reading {
    /// The reading that this mark is, if it is one.
    #[must_use]
    pub fn of(mark: &Mark) -> Option<Self> {
        (mark.kind == MarkKind::Clock).then_some(Self {
            tsc: mark.tsc,
            unix_ns: mark.value,
            error_ns: mark.id,
        })
    }
}

/// How the ticks of a recording become nanoseconds of the clock of whoever recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// Ticks and nanoseconds both grow from one to the next.
    readings: Vec<Reading>,
    clock: Clock,
}

impl Alignment {
    /// By the readings of a recording. Where it has none, times are by its own clock, whose error
    /// nobody knows.
    ///
    /// # Errors
    /// As for [`Recording::marks`].
    pub fn of(recording: &Recording) -> Result<Self> {
        let marks = recording.marks()?;
        let readings = marks.iter().filter_map(Reading::of);
        Ok(Self::new(readings, recording.metadata().clock))
    }

    /// By these readings.
    #[must_use]
    pub fn new(readings: impl IntoIterator<Item = Reading>, clock: Clock) -> Self {
        let mut all: Vec<Reading> = readings.into_iter().collect();
        all.sort_unstable_by_key(|reading| reading.tsc);
        let mut kept: Vec<Reading> = Vec::new();
        for next in all {
            let alone = kept.len() == 1;
            let Some(last) = kept.last_mut() else {
                kept.push(next);
                continue;
            };
            // Two readings measure a speed. Where the clock's own figure is better than that, the more
            // exact of the two says it all.
            let apart = next.unix_ns.saturating_sub(last.unix_ns);
            let off = last.error_ns.saturating_add(next.error_ns);
            if next.tsc > last.tsc && apart > 0 && off <= share(apart, NOMINAL) {
                kept.push(next);
            } else if alone && next.error_ns < last.error_ns {
                *last = next;
            }
        }
        Self {
            readings: kept,
            clock,
        }
    }

    /// Nanoseconds since 1970 at this TSC; never less for a later one.
    #[must_use]
    pub fn unix_ns(&self, tsc: u64) -> u64 {
        let (Some(first), Some(last)) = (self.readings.first(), self.readings.last()) else {
            let own = self.clock.unix_nanoseconds(tsc);
            return u64::try_from(own).unwrap_or_default();
        };
        let next = self.readings.partition_point(|reading| reading.tsc <= tsc);
        let around = next.checked_sub(1).map(|at| self.readings.get(at..=next));
        let (from, rate) = match around {
            Some(Some([from, to])) => (from, (to.unix_ns - from.unix_ns, to.tsc - from.tsc)),
            // Before the first or behind the last: at the speed of all.
            _ => {
                let nearest = if next == 0 { first } else { last };
                let rate = if last.tsc > first.tsc {
                    (last.unix_ns - first.unix_ns, last.tsc - first.tsc)
                } else {
                    (1_000_000_000, self.clock.hz.max(1))
                };
                (nearest, rate)
            }
        };
        let ticks = i128::from(tsc) - i128::from(from.tsc);
        let nanoseconds = (ticks * i128::from(rate.0)).div_euclid(i128::from(rate.1.max(1)));
        let at = i128::from(from.unix_ns) + nanoseconds;
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }

    /// How far [`unix_ns`](Self::unix_ns) may be off at this TSC from the clock of whoever recorded, in
    /// nanoseconds; `None` where nobody knows. It holds for clocks that agree with their own figure to
    /// 200 parts in a million, and whose speed changes by no more than 20 between two readings.
    #[must_use]
    pub fn error_ns(&self, tsc: u64) -> Option<u64> {
        let at = self.unix_ns(tsc);
        let (first, last) = (self.readings.first()?, self.readings.last()?);
        let next = self.readings.partition_point(|reading| reading.tsc <= tsc);
        let before = next.checked_sub(1).and_then(|at| self.readings.get(at));
        Some(match (before, self.readings.get(next)) {
            (Some(before), Some(after)) => {
                let apart = at.abs_diff(before.unix_ns).min(at.abs_diff(after.unix_ns));
                before
                    .error_ns
                    .max(after.error_ns)
                    .saturating_add(share(apart, WANDER))
            }
            (before, after) => {
                let near = before.or(after).copied().unwrap_or(*first);
                let apart = at.abs_diff(near.unix_ns);
                let span = last.unix_ns.abs_diff(first.unix_ns);
                let off = if span == 0 {
                    share(apart, NOMINAL)
                } else {
                    // The speed of all is known as well as its ends are.
                    let ends = u128::from(first.error_ns.saturating_add(last.error_ns));
                    let ends = ends * u128::from(apart) / u128::from(span);
                    share(apart, WANDER).saturating_add(u64::try_from(ends).unwrap_or(u64::MAX))
                };
                near.error_ns.saturating_add(off)
            }
        })
    }

    /// The greatest [`error_ns`](Self::error_ns) of any time between these two.
    #[must_use]
    pub fn worst_ns(&self, from: u64, to: u64) -> Option<u64> {
        let inside = |tsc: u64| (from..=to).contains(&tsc);
        // Between two readings it is greatest in the middle; everywhere else, at an end.
        let middles = self.readings.array_windows::<2>().map(|[one, two]| {
            let middle = one.tsc + (two.tsc - one.tsc) / 2;
            middle.clamp(from, to)
        });
        let at = self.readings.iter().map(|reading| reading.tsc);
        let at = at.filter(|tsc| inside(*tsc));
        [from, to]
            .into_iter()
            .chain(at)
            .chain(middles)
            .map(|tsc| self.error_ns(tsc))
            .try_fold(0, |worst, error| Some(worst.max(error?)))
    }
}

/// So many parts in a million of it.
fn share(nanoseconds: u64, parts: u64) -> u64 {
    let all = u128::from(nanoseconds) * u128::from(parts);
    u64::try_from(all / u128::from(MILLION)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLOCK: Clock = Clock {
        hz: 2_000_000_000,
        start: 500,
        start_unix_ns: 1_000_000_000_000,
    };

    #[test]
    fn one_reading_goes_by_the_clocks_own_figure_and_none_by_its_own_time() {
        let alone = Alignment::new([], CLOCK);
        assert_eq!(alone.unix_ns(500 + 2_000_000_000), 1_001_000_000_000);
        assert_eq!(alone.error_ns(500), None);
        let one = Reading::between(4_000_000_000, 4_000_001_001, 10_000);
        assert_eq!((one.unix_ns, one.error_ns), (4_000_000_500, 501));
        let by_one = Alignment::new([one], CLOCK);
        assert_eq!(by_one.unix_ns(12_000), 4_000_001_500);
        assert_eq!(by_one.error_ns(10_000), Some(501));
        // A second away, by 200 parts in a million.
        assert_eq!(by_one.error_ns(10_000 + CLOCK.hz), Some(501 + 200_000));
        // Another so near by that it says nothing of the speed: the more exact counts.
        let other = Reading {
            error_ns: 100,
            tsc: 20_000,
            unix_ns: 4_000_005_600,
        };
        assert_eq!(
            Alignment::new([other, one], CLOCK),
            Alignment::new([other], CLOCK)
        );
    }

    proptest! {
        /// A target whose clock is off by any time and goes wrong by up to 150 parts in a million, read over
        /// ways whose two directions take different times.
        #[test]
        fn the_truth_lies_within_the_error(
            off in 0u64..1_000_000_000_000,
            wrong in -150i64..150,
            ways in prop::collection::vec((1u64..2_000_000, 1u64..2_000_000, 1u64..30_000_000_000), 1..20),
            looked in prop::collection::vec(0u64..40_000_000_000u64, 20),
        ) {
            let ticks = |truth: u64| {
                let speed = i128::from(CLOCK.hz) * i128::from(1_000_000 + wrong) / 1_000_000;
                let ticks = i128::from(truth) * speed / 1_000_000_000;
                u64::try_from(ticks).unwrap() + off
            };
            let (mut at, mut readings) = (5_000_000_000, Vec::new());
            for (there, back, pause) in ways {
                readings.push(Reading::between(at, at + there + back, ticks(at + there)));
                at += there + back + pause;
            }
            let aligned = Alignment::new(readings, CLOCK);
            let mut looked = looked;
            looked.sort_unstable();
            let mut last = 0;
            for truth in looked {
                let (found, error) = (aligned.unix_ns(ticks(truth)), aligned.error_ns(ticks(truth)).unwrap());
                // Two nanoseconds for what integers cut off.
                prop_assert!(found.abs_diff(truth) <= error + 2, "{} is not {} give or take {}", found, truth, error);
                prop_assert!(found >= last);
                last = found;
                let worst = aligned.worst_ns(ticks(0), ticks(40_000_000_000)).unwrap();
                prop_assert!(worst + 2 >= error, "{} is worse than {}", error, worst);
            }
        }
    }
}
