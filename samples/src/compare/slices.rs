//! A span of time cut into slices, and the samples of each instrument in each slice.

use std::collections::HashMap;

use crate::histogram::Histogram;
use crate::metadata::Clock;
use crate::profile::readings_before;
use crate::recording::Recording;
use crate::statistics::{counted, in_place};
use crate::{Error, Meaning};

/// Number of slices of a span.
pub(super) const SLICES: usize = 40;
/// Size of the reservoir from which a slice's median is computed.
const PICKED: usize = 1023;
/// Values from here on are taken for addresses: a double does not hold them exactly.
const QUANTITY: u64 = 1 << 53;

/// Samples of an instrument, by slice.
pub(super) struct Sliced {
    /// Seconds of the span in which the instrument was in place.
    pub(super) seconds: f64,
    /// Number of samples, or of hits if it counts.
    pub(super) count: u64,
    /// Samples or hits per second in each slice.
    pub(super) rates: Vec<f64>,
    /// Median of the values of each non-empty slice; times in nanoseconds.
    pub(super) medians: Vec<f64>,
    /// All values; times in nanoseconds.
    pub(super) values: Histogram,
}

struct Slice {
    count: u64,
    picked: Vec<u64>,
}

struct SliceSamples {
    slices: Vec<Slice>,
    values: Histogram,
    /// Times and values of a running total, from the last one before the span, or 0 at the launch.
    totals: Vec<(u64, u64)>,
    from: u64,
    to: u64,
    meaning: Meaning,
}

/// Slices `span` of a recording, or all of it, for every instrument of its session, by label.
pub(super) fn slice(
    recording: &Recording,
    span: Option<(u64, u64)>,
) -> (HashMap<String, Sliced>, Vec<Error>) {
    let mut damaged = Vec::new();
    let metadata = recording.measured().unwrap_or_else(|error| {
        damaged.push(error);
        recording.metadata().clone()
    });
    let clock = &metadata.clock;
    let span = span.unwrap_or_else(|| {
        recording.whole().unwrap_or_else(|error| {
            damaged.push(error);
            recording.span().unwrap_or_default()
        })
    });
    let mut by_id: HashMap<u64, SliceSamples> = HashMap::new();
    // Instruments that deliver no samples have none to compare.
    let sampling = || {
        let all = metadata.instruments.iter();
        all.filter(|instrument| instrument.delivers.is_samples())
    };
    let before = readings_before(recording, span.0, &metadata, &mut damaged);
    for instrument in sampling() {
        let (from, to) = in_place(instrument, clock, span);
        let slices = (0..SLICES).map(|_| Slice {
            count: 0,
            picked: Vec::new(),
        });
        let gathered = SliceSamples {
            slices: slices.collect(),
            values: Histogram::new(),
            totals: match instrument.meaning {
                Meaning::Count => vec![before.get(&instrument.id).copied().unwrap_or((from, 0))],
                _ => Vec::new(),
            },
            from,
            to,
            meaning: instrument.meaning,
        };
        by_id.insert(instrument.id, gathered);
    }
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    for sample in recording.merged_between(span.0, span.1) {
        match sample {
            Ok((_, sample)) => {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                if let Some(gathered) = by_id.get_mut(&sample.id) {
                    gathered.add(sample.tsc, sample.value, clock, dice);
                }
            }
            Err(error) => damaged.push(error),
        }
    }
    let sliced = sampling().filter_map(|instrument| {
        let gathered = by_id.remove(&instrument.id)?;
        Some((instrument.label.clone(), gathered.sliced(clock)?))
    });
    (sliced.collect(), damaged)
}

impl SliceSamples {
    fn add(&mut self, tsc: u64, value: u64, clock: &Clock, dice: u64) {
        if self.meaning == Meaning::Count {
            self.totals.push((tsc, value));
            return;
        }
        let width = self.to.saturating_sub(self.from);
        if tsc < self.from || tsc >= self.to {
            return;
        }
        let number = u128::from(tsc - self.from) * SLICES as u128 / u128::from(width);
        let Some(slice) = self.slices.get_mut(number as usize) else {
            return;
        };
        slice.count += 1;
        let value = match self.meaning {
            Meaning::Duration => {
                (u128::from(value) * 1_000_000_000 / u128::from(clock.hz.max(1))) as u64
            }
            Meaning::Value | Meaning::Level if value < QUANTITY => value,
            _ => return,
        };
        self.values.add(value);
        if slice.picked.len() < PICKED {
            slice.picked.push(value);
        } else if let Some(place) = slice.picked.get_mut((dice % slice.count) as usize) {
            // Reservoir sampling: each value has the same probability of being kept (Vitter's R).
            *place = value;
        }
    }

    fn sliced(self, clock: &Clock) -> Option<Sliced> {
        let seconds = self.to.checked_sub(self.from)? as f64 / clock.hz.max(1) as f64;
        if seconds <= 0.0 {
            return None;
        }
        let a_slice = seconds / SLICES as f64;
        let edges =
            || (0..=SLICES as u64).map(|n| self.from + (self.to - self.from) / SLICES as u64 * n);
        let counts: Vec<f64> = if self.meaning == Meaning::Count {
            let at: Vec<f64> = edges().map(|edge| total_at(&self.totals, edge)).collect();
            at.windows(2)
                .map(|pair| {
                    pair.iter()
                        .rev()
                        .copied()
                        .reduce(|b, a| b - a)
                        .unwrap_or_default()
                })
                .collect()
        } else {
            self.slices.iter().map(|slice| slice.count as f64).collect()
        };
        let medians = self.slices.into_iter().filter_map(|mut slice| {
            slice.picked.sort_unstable();
            let (low, high) = (
                slice.picked.len().saturating_sub(1) / 2,
                slice.picked.len() / 2,
            );
            let (low, high) = (slice.picked.get(low)?, slice.picked.get(high)?);
            Some((*low as f64 + *high as f64) / 2.0)
        });
        let before = self.totals.first().map(|(_, before)| *before);
        // Of readings at one tick the greatest is the last.
        let last = self.totals.iter().map(|(_, total)| *total).max();
        Some(Sliced {
            seconds,
            count: match before.zip(last) {
                Some((before, last)) => counted(before, last),
                None => counts.iter().sum::<f64>() as u64,
            },
            rates: counts.iter().map(|count| count / a_slice).collect(),
            medians: medians.collect(),
            values: self.values,
        })
    }
}

/// Interpolates a running total linearly at a time.
fn total_at(totals: &[(u64, u64)], tsc: u64) -> f64 {
    let after = totals.partition_point(|&(at, _)| at <= tsc);
    let before = after.checked_sub(1).and_then(|before| totals.get(before));
    match (before, totals.get(after)) {
        (Some(&(t0, v0)), Some(&(t1, v1))) if t1 > t0 => {
            let share = (tsc - t0) as f64 / (t1 - t0) as f64;
            v0 as f64 + share * (v1 as f64 - v0 as f64)
        }
        (Some(&(_, value)), _) | (None, Some(&(_, value))) => value as f64,
        (None, None) => 0.0,
    }
}
