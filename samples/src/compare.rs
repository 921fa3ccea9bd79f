//! Two recordings, or two spans of one, side by side: before and after a change.
//!
//! What is compared is cut into forty slices of time, and a test asks whether slices differ
//! between the sides; the module `difference` says how, and why not the samples themselves. With
//! thousands of instruments some differ by chance: chances are adjusted for the number of
//! comparisons. One thing no arithmetic can repair: two recordings are two runs, and what differs
//! between runs for no reason differs here too. Compare two recordings of the same first.

use serde::Serialize;

use crate::recording::Recording;
use crate::{Error, Meaning};

mod difference;
mod slices;

use difference::{Shift, adjusted, shift};
use slices::{Sliced, slice};

/// The chance of a false alarm that is accepted, over all comparisons together.
pub const ACCEPTED: f64 = 0.05;

/// A recording, and the span of it that is meant, in TSC ticks; all of it if that is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// From when up to but without when.
    pub span: Option<(u64, u64)>,
}

/// What an instrument says on one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Samples, or hits if it counts.
    pub count: u64,
    /// Seconds it was in place.
    pub seconds: f64,
    /// The median of its values, up to 1.6 % above; times in nanoseconds.
    pub median: u64,
    /// The 99th percentile, likewise.
    pub p99: u64,
}

/// Whether something is another on the second side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it was: samples a second, or the median of the slices' medians (times in nanoseconds).
    pub before: f64,
    /// What it is.
    pub after: f64,
    /// By how much slices differ: the median over all pairs.
    pub by: f64,
    /// Where that lies with 95 % confidence.
    pub between: (f64, f64),
    /// The chance of such a difference if there were none, adjusted for the number of comparisons.
    pub chance: f64,
    /// How like neighbouring slices are, 0 to 1: what was allowed for.
    pub correlation: f64,
}

impl Change {
    /// Whether this is a difference, with a chance of a false alarm of [`ACCEPTED`] over everything that
    /// was compared.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.chance < ACCEPTED
    }

    /// `by` as a share of what it was, if it was not 0.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.by / self.before)
    }
}

/// An instrument on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Its label, which it has on both sides.
    pub label: String,
    /// Whether its values are times.
    pub times: bool,
    /// What it says on the first side.
    pub a: Told,
    /// What it says on the second side.
    pub b: Told,
    /// How often it fires; `None` if there are too few slices to tell.
    pub rate: Option<Change>,
    /// Its values; `None` if they are no quantities, or too few to tell.
    pub value: Option<Change>,
    /// The chance that a value of the second side is greater than one of the first: 0.5 if they do
    /// not differ. From 0.56, 0.64 and 0.71 on (or 0.44, 0.36 and 0.29) one speaks of small, medium
    /// and large differences (Vargha and Delaney, 2000).
    pub superiority: Option<f64>,
}

/// Both sides, instrument by instrument.
#[derive(Debug)]
pub struct Compared {
    /// Instruments of both sides, in the order of the first.
    pub instruments: Vec<Comparison>,
    /// Labels that only the first side has.
    pub only_a: Vec<String>,
    /// Labels that only the second side has.
    pub only_b: Vec<String>,
    /// How many tests the chances are adjusted for.
    pub tests: usize,
    /// One for each batch that could not be read.
    pub damaged: Vec<Error>,
}

/// Compares what instruments of the same label delivered.
#[must_use]
pub fn compare(a: Side<'_>, b: Side<'_>) -> Compared {
    let sliced = |side: Side<'_>| {
        slice(
            side.recording,
            side.span.unwrap_or_else(|| whole(side.recording)),
        )
    };
    let ((of_a, mut damaged), (mut of_b, more)) = (sliced(a), sliced(b));
    damaged.extend(more);
    let (mut of_a, mut only_a) = (of_a, Vec::new());
    let (mut instruments, mut shifts) = (Vec::new(), Vec::new());
    for known in &a.recording.metadata().instruments {
        let Some(before) = of_a.remove(&known.label) else {
            continue;
        };
        let Some(after) = of_b.remove(&known.label) else {
            only_a.push(known.label.clone());
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
            label: known.label.clone(),
            times: known.meaning == Meaning::Duration,
            a: told(&before),
            b: told(&after),
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

/// From the start of the instrumentation to the last thing that happened.
fn whole(recording: &Recording) -> (u64, u64) {
    let start = recording.metadata().clock.start;
    let last = recording.blocks().iter().map(|block| block.last).max();
    (start, last.unwrap_or(start).saturating_add(1))
}

fn told(sliced: &Sliced) -> Told {
    Told {
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
