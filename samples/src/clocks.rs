//! Alignment of several machines' clocks on one timeline.
//!
//! The recording machine requests a target's TSC and reads its own clock before and after. The TSC
//! was read in between, so the middle is correct to within half the round trip ([`Reading`]), even
//! if one direction is slower. A recording has such readings from before its beginning, at
//! intervals, and after its end. Between two of them time is interpolated linearly, which holds as
//! far as quartz does ([`Alignment`]).

use crate::Result;
use crate::metadata::Clock;
use crate::recording::{Mark, MarkKind, Recording};

/// Maximum deviation of a target's clock from its nominal frequency, in parts per million, relative
/// to the recording machine's clock: quartz, and a kernel that has measured it.
const NOMINAL: u64 = 200;
/// Maximum change of two clocks' relative speed between two readings, in parts per million:
/// temperature, and a clock that is slewed back to the right time.
const WANDER: u64 = 20;
const MILLION: u64 = 1_000_000;

/// A reading of one clock by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The target's TSC.
    pub tsc: u64,
    /// The recording machine's clock at that moment, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Maximum error of `unix_ns`, in nanoseconds.
    pub error_ns: u64,
}

impl Reading {
    /// Returns the reading for a TSC that was requested at `before` and received at `after`, both
    /// in nanoseconds since 1970.
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
    /// Returns the reading in this mark, if it is one.
    #[must_use]
    pub fn of(mark: &Mark) -> Option<Self> {
        (mark.kind == MarkKind::Clock).then_some(Self {
            tsc: mark.tsc,
            unix_ns: mark.value,
            error_ns: mark.id,
        })
    }
}

/// Conversion from a recording's ticks to nanoseconds of the recording machine's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// Readings with strictly increasing ticks and nanoseconds.
    readings: Vec<Reading>,
    clock: Clock,
}

impl Alignment {
    /// Aligns by the readings of a recording. Without readings, times follow the recording's own
    /// clock, whose error is unknown.
    ///
    /// # Errors
    /// As for [`Recording::marks`].
    pub fn of(recording: &Recording) -> Result<Self> {
        let marks = recording.marks()?;
        let readings = marks.iter().filter_map(Reading::of);
        Ok(Self::new(readings, recording.metadata().clock))
    }

    /// Aligns by these readings.
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
            // Two readings measure a speed. Where the nominal frequency is more accurate than that,
            // only the more exact of the two readings is kept.
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

    /// Returns nanoseconds since 1970 at this TSC; monotonic.
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
            // Before the first reading and after the last, the average speed applies.
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

    /// Returns the maximum error of [`unix_ns`](Self::unix_ns) at this TSC relative to the
    /// recording machine's clock, in nanoseconds; `None` if it is unknown. The bound holds for
    /// clocks within 200 parts per million of their nominal frequency whose speed changes by at
    /// most 20 between two readings.
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
                    // The average speed is as exact as the readings at its ends.
                    let ends = u128::from(first.error_ns.saturating_add(last.error_ns));
                    let ends = ends * u128::from(apart) / u128::from(span);
                    share(apart, WANDER).saturating_add(u64::try_from(ends).unwrap_or(u64::MAX))
                };
                near.error_ns.saturating_add(off)
            }
        })
    }

    /// Returns the maximum [`error_ns`](Self::error_ns) between two times.
    #[must_use]
    pub fn worst_ns(&self, from: u64, to: u64) -> Option<u64> {
        let inside = |tsc: u64| (from..=to).contains(&tsc);
        // Between two readings the error is greatest in the middle; elsewhere, at an end.
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

/// Returns `parts` millionths of a duration.
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
    fn one_reading_uses_the_nominal_frequency_and_none_the_own_time() {
        let alone = Alignment::new([], CLOCK);
        assert_eq!(alone.unix_ns(500 + 2_000_000_000), 1_001_000_000_000);
        assert_eq!(alone.error_ns(500), None);
        let one = Reading::between(4_000_000_000, 4_000_001_001, 10_000);
        assert_eq!((one.unix_ns, one.error_ns), (4_000_000_500, 501));
        let by_one = Alignment::new([one], CLOCK);
        assert_eq!(by_one.unix_ns(12_000), 4_000_001_500);
        assert_eq!(by_one.error_ns(10_000), Some(501));
        // A second away, by 200 parts per million.
        assert_eq!(by_one.error_ns(10_000 + CLOCK.hz), Some(501 + 200_000));
        // A reading this near says nothing about the speed: the more exact one counts.
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
        /// A target whose clock has any offset and deviates by up to 150 parts per million, read
        /// over connections with different delays in both directions.
        #[test]
        fn the_true_time_is_within_the_error_bound(
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
                // Two nanoseconds for integer truncation.
                prop_assert!(found.abs_diff(truth) <= error + 2, "{} is not {} give or take {}", found, truth, error);
                prop_assert!(found >= last);
                last = found;
                let worst = aligned.worst_ns(ticks(0), ticks(40_000_000_000)).unwrap();
                prop_assert!(worst + 2 >= error, "{} is worse than {}", error, worst);
            }
        }
    }
}
