//! Values of an instrument over a span of time, and events split into bursts.

use crate::histogram::{Histogram, rank};
use crate::index::Part;

/// Number of values up to which percentiles are found by sorting; above it, they are estimated.
const EXACT_VALUES: u64 = 1 << 22;

/// Statistics of an instrument over a span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Number of samples.
    pub count: u64,
    /// Minimum of the values.
    pub min: u64,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// Maximum of the values.
    pub max: u64,
    /// Median: half of the values do not exceed it.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// `p50` and `p99` are values that occurred; otherwise they are at most 1.6 % too great.
    pub exact: bool,
}

/// Returns the statistics of lane `id` from `t0` to `t1` (exclusive), or `None` if it has no
/// samples there, or the index keeps only sums of it ([`Part::is_coarse`]).
///
/// Beyond four million samples the percentiles are taken from a histogram instead of the values.
#[must_use]
pub fn stats(index: Part<'_>, id: u64, t0: u64, t1: u64) -> Option<Stats> {
    stats_up_to(index, id, t0, t1, EXACT_VALUES)
}

fn stats_up_to(index: Part<'_>, id: u64, t0: u64, t1: u64, exact_values: u64) -> Option<Stats> {
    if index.is_coarse(id) {
        return None;
    }
    let total = index.total(id, t0, t1);
    let mean = total.mean()?;
    let exact = total.count <= exact_values;
    let [p50, p99] = if exact {
        let mut values = Vec::with_capacity(usize::try_from(total.count).unwrap_or_default());
        index.visit(id, t0, t1, |point| values.push(point.value));
        [0.5, 0.99].map(|share| nth(&mut values, rank(total.count, share)))
    } else {
        let mut histogram = Histogram::new();
        index.visit(id, t0, t1, |point| histogram.add(point.value));
        [0.5, 0.99].map(|share| {
            histogram
                .nth(rank(total.count, share))
                .clamp(total.min, total.max)
        })
    };
    Some(Stats {
        count: total.count,
        min: total.min,
        mean,
        max: total.max,
        p50,
        p99,
        exact,
    })
}

/// Returns the value at `rank` in sorted order.
fn nth(values: &mut [u64], rank: u64) -> u64 {
    match usize::try_from(rank) {
        Ok(rank) if rank < values.len() => *values.select_nth_unstable(rank).1,
        _ => 0,
    }
}

/// Events in close succession.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Time of the first event, in TSC ticks.
    pub first: u64,
    /// Time of the last event, in TSC ticks.
    pub last: u64,
    /// Number of events.
    pub count: u64,
}

/// Splits events into bursts: a new one begins where the distance from the previous event exceeds
/// `gap` ticks. `times` must be in order.
#[must_use]
pub fn bursts(times: impl IntoIterator<Item = u64>, gap: u64) -> Vec<Burst> {
    let mut bursts: Vec<Burst> = Vec::new();
    for time in times {
        match bursts.last_mut() {
            Some(burst) if time.saturating_sub(burst.last) <= gap => {
                burst.last = time;
                burst.count += 1;
            }
            _ => bursts.push(Burst {
                first: time,
                last: time,
                count: 1,
            }),
        }
    }
    bursts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::Index;
    use crate::{Batch, Sample};

    fn index(values: &[u64]) -> Index {
        let samples = values
            .iter()
            .zip(0..)
            .map(|(&value, tsc)| Sample { id: 1, value, tsc });
        let mut index = Index::new();
        index.append(&Batch {
            cpu: 0,
            samples: samples.collect(),
        });
        index
    }

    #[test]
    fn five_groups_of_thirty_two_are_five_bursts() {
        // Pulsar's pattern: five rounds of 32 forks, a tick apart, with a sleep of 10,000 between.
        let times = (0..5u64).flat_map(|round| (0..32).map(move |n| 7 + round * 10_031 + n));
        let counted = bursts(times, 1000);
        assert_eq!(
            counted.iter().map(|burst| burst.count).collect::<Vec<_>>(),
            [32; 5]
        );
        assert_eq!(
            counted[1],
            Burst {
                first: 10_038,
                last: 10_069,
                count: 32
            }
        );
        assert!(bursts([], 1).is_empty());
    }

    #[test]
    fn known_numbers() {
        let values: Vec<u64> = (1..=100).collect();
        let found = stats(index(&values).part(None), 1, 0, 500).unwrap();
        assert_eq!(
            (found.count, found.min, found.max, found.p50, found.p99),
            (100, 1, 100, 50, 99)
        );
        assert_eq!((found.mean, found.exact), (50.5, true));
        assert_eq!(stats(index(&values).part(None), 1, 100, 200), None);
        assert_eq!(stats(index(&values).part(None), 2, 0, 200), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_the_nearest_rank_or_slightly_above(
            values in prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 1..500),
        ) {
            let index = index(&values);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let expected = [50, 99].map(|percent| sorted[(values.len() * percent).div_ceil(100) - 1]);
            let exact = stats(index.part(None), 1, 0, 500).unwrap();
            prop_assert_eq!([exact.p50, exact.p99], expected);
            let rough = stats_up_to(index.part(None), 1, 0, 500, 0).unwrap();
            prop_assert!(!rough.exact);
            for (rough, exact) in [rough.p50, rough.p99].into_iter().zip(expected) {
                prop_assert!(rough >= exact && rough - exact <= exact / 64, "{} for {}", rough, exact);
            }
        }
    }
}
