//! Comparison of the recording on the timeline with an earlier one, as `ilk diff` has it.

use std::path::PathBuf;
use std::sync::Arc;

use gilk_samples::compare::{Change, Comparison, Side, compare};
use gilk_samples::recording::Recording;

use crate::Result;

/// Two recordings side by side.
#[derive(Debug)]
pub struct ComparedRuns {
    /// The first recording.
    pub before: PathBuf,
    /// The second recording.
    pub after: PathBuf,
    /// Instruments of both, those that differ first.
    pub instruments: Vec<Comparison>,
    /// Number of instruments that only one side has.
    pub unmatched: usize,
    /// Number of batches that could not be read.
    pub damaged: usize,
    /// Number of instruments that differ.
    pub(super) differing: usize,
    /// The filter, and the places of the instruments that match it.
    shown: Option<(String, Arc<Vec<usize>>)>,
}

impl ComparedRuns {
    /// Reads and compares two recordings.
    ///
    /// # Errors
    /// A recording that cannot be opened.
    pub(crate) fn of(before: PathBuf, after: PathBuf) -> Result<Self> {
        let (a, b) = (Recording::open(&before)?, Recording::open(&after)?);
        let side = |recording| Side {
            recording,
            span: None,
        };
        let compared = compare(side(&a), side(&b));
        let mut instruments = compared.instruments;
        // Stable: instruments without a difference stay in the order of the first.
        instruments.sort_by(|a, b| largest(b).total_cmp(&largest(a)));
        let differing = instruments.iter().filter(|one| differs(one)).count();
        Ok(Self {
            differing,
            shown: None,
            before,
            after,
            instruments,
            unmatched: compared.only_a.len() + compared.only_b.len(),
            damaged: compared.damaged.len(),
        })
    }

    /// Returns the places of the instruments whose labels contain the filter; searched after a change
    /// of the filter only.
    pub(super) fn shown(&mut self, filter: &str) -> Arc<Vec<usize>> {
        let last = self.shown.take().filter(|(known, _)| known == filter);
        let (_, places) = self.shown.insert(last.unwrap_or_else(|| {
            let wanted = filter.trim().to_lowercase();
            let all = self.instruments.iter().enumerate();
            let matching = all.filter(|(_, one)| one.label.to_lowercase().contains(&wanted));
            let places = matching.map(|(place, _)| place).collect();
            (filter.to_owned(), Arc::new(places))
        }));
        Arc::clone(places)
    }
}

/// Returns whether the rate or the values of an instrument differ.
fn differs(comparison: &Comparison) -> bool {
    let mut changes = [&comparison.rate, &comparison.value].into_iter().flatten();
    changes.any(Change::differs)
}

/// Returns the largest relative difference of an instrument; 0 without a difference.
fn largest(one: &Comparison) -> f64 {
    let share = |change: &Change| change.share().map_or(f64::MAX, f64::abs);
    let changes = [&one.rate, &one.value].into_iter().flatten();
    changes
        .filter(|change| change.differs())
        .map(share)
        .fold(0.0, f64::max)
}
