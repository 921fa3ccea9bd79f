//! Comparison of two recordings, or of two spans of one: before and after a change.
//!
//! Both sides are cut into forty slices of time, and a test decides whether slices differ between
//! the sides; the module `difference` describes it, and why it does not compare samples. With
//! thousands of instruments some differ by chance, so probabilities are adjusted for the number of
//! comparisons. One effect no arithmetic can remove: two recordings are two runs, and differences
//! between any two runs appear here too. Compare two recordings of the same setup first.

use std::collections::HashMap;

use serde::Serialize;

use crate::recording::Recording;
use crate::{Error, Meaning};

mod difference;
mod labels;
mod slices;

use difference::{Shift, adjusted, shift};
use labels::matching;
use slices::{Sliced, slice};

/// Accepted probability of a false alarm, over all comparisons together.
pub const ACCEPTED: f64 = 0.05;

/// A recording and a half-open span of it in TSC ticks; `None` is all of it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Recording of this side.
    pub recording: &'a Recording,
    /// Half-open span in TSC ticks.
    pub span: Option<(u64, u64)>,
}

/// Statistics of an instrument on one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SideStats {
    /// Number of samples, or of hits if it counts.
    pub count: u64,
    /// Seconds it was in place.
    pub seconds: f64,
    /// Median of its values, at most 1.6 % too great; times in nanoseconds.
    pub median: u64,
    /// The 99th percentile, likewise.
    pub p99: u64,
}

/// Result of a test on one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Value on the first side: samples per second, or the median of the slices' medians (times in
    /// nanoseconds).
    pub before: f64,
    /// Value on the second side.
    pub after: f64,
    /// Difference of the slices: the median over all pairs.
    pub by: f64,
    /// Confidence interval of `by`, at 95 %.
    pub between: (f64, f64),
    /// Probability of a difference at least this large if there were none, adjusted for the number
    /// of comparisons.
    pub chance: f64,
    /// Correlation of neighbouring slices, 0 to 1, that the test allowed for.
    pub correlation: f64,
}

impl Change {
    /// Returns whether this is a difference, with a probability of a false alarm of [`ACCEPTED`]
    /// over all comparisons.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.chance < ACCEPTED
    }

    /// Returns `by` relative to `before`, if that is not 0.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.by / self.before)
    }
}

/// An instrument on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Label on the second side; that on the first may have another number of the process.
    pub label: String,
    /// Values are durations.
    pub times: bool,
    /// Statistics on the first side.
    pub a: SideStats,
    /// Statistics on the second side.
    pub b: SideStats,
    /// Rate of its samples; `None` with too few slices.
    pub rate: Option<Change>,
    /// Values; `None` if they are not quantities, or with too few slices.
    pub value: Option<Change>,
    /// Probability that a value of the second side is greater than one of the first: 0.5 if they do
    /// not differ. From 0.56, 0.64 and 0.71 (or 0.44, 0.36 and 0.29) a difference is called small,
    /// medium and large (Vargha and Delaney, 2000).
    pub superiority: Option<f64>,
}

/// Comparison of both sides, instrument by instrument.
#[derive(Debug)]
pub struct Compared {
    /// Instruments of both sides, in the order of the first.
    pub instruments: Vec<Comparison>,
    /// Labels that only the first side has.
    pub only_a: Vec<String>,
    /// Labels that only the second side has.
    pub only_b: Vec<String>,
    /// Number of tests that the probabilities are adjusted for.
    pub tests: usize,
    /// An error for each batch that could not be read.
    pub damaged: Vec<Error>,
}

/// Compares the samples of instruments with the same label. The number of a process in it does not count: of several processes
/// of a program, those are compared that were instrumented in the same place of their order.
#[must_use]
pub fn compare(a: Side<'_>, b: Side<'_>) -> Compared {
    let sliced = |side: Side<'_>| slice(side.recording, side.span);
    let ((of_a, mut damaged), (mut of_b, more)) = (sliced(a), sliced(b));
    damaged.extend(more);
    let (mut of_a, mut only_a) = (of_a, Vec::new());
    let labels = [a, b].map(|side| matching(&side.recording.metadata().instruments));
    let [of_first, of_second] = &labels;
    let by_key: HashMap<&str, &str> = of_second
        .iter()
        .map(|(label, key)| (&**key, *label))
        .collect();
    let (mut instruments, mut shifts) = (Vec::new(), Vec::new());
    for instrument in &a.recording.metadata().instruments {
        let Some(before) = of_a.remove(&instrument.label) else {
            continue;
        };
        let key = of_first.get(&*instrument.label);
        let label = key.and_then(|key| by_key.get(&**key));
        let after = label.and_then(|label| Some((*label, of_b.remove(*label)?)));
        let Some((label, after)) = after else {
            only_a.push(instrument.label.clone());
            continue;
        };
        let fired = before.count > 0 || after.count > 0;
        let rate = fired.then(|| shift(&before.rates, &after.rates)).flatten();
        let value = shift(&before.medians, &after.medians);
        shifts.push((rate, value));
        let change = |of: fn(&Sliced) -> f64, shift: Option<Shift>| {
            let shift = shift?;
            Some(Change {
                before: of(&before),
                after: of(&after),
                by: shift.by,
                between: (shift.low, shift.high),
                chance: shift.p,
                correlation: shift.correlation,
            })
        };
        instruments.push(Comparison {
            label: label.to_owned(),
            times: instrument.meaning == Meaning::Duration,
            a: stats(&before),
            b: stats(&after),
            rate: change(|sliced| sliced.count as f64 / sliced.seconds, rate),
            value: change(|sliced| median(&sliced.medians), value),
            superiority: before.values.superiority(&after.values),
        });
    }
    let mut changes: Vec<&mut Change> = instruments
        .iter_mut()
        .flat_map(|of| [&mut of.rate, &mut of.value])
        .filter_map(Option::as_mut)
        .collect();
    let chances: Vec<f64> = changes.iter().map(|change| change.chance).collect();
    for (change, chance) in changes.iter_mut().zip(adjusted(&chances)) {
        change.chance = chance;
    }
    let mut only_b: Vec<String> = of_b.into_keys().collect();
    only_b.sort_unstable();
    Compared {
        instruments,
        only_a,
        only_b,
        tests: chances.len(),
        damaged,
    }
}

fn stats(sliced: &Sliced) -> SideStats {
    SideStats {
        count: sliced.count,
        seconds: sliced.seconds,
        median: sliced.values.quantile(0.5),
        p99: sliced.values.quantile(0.99),
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
    (at(sorted.len().saturating_sub(1) / 2) + at(sorted.len() / 2)) / 2.0
}

#[cfg(test)]
mod tests;
