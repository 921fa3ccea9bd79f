//! Comparison of the recording on the timeline with an earlier one, as `ilk diff` has it.

use std::path::PathBuf;

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
        Ok(Self {
            before,
            after,
            instruments,
            unmatched: compared.only_a.len() + compared.only_b.len(),
            damaged: compared.damaged.len(),
        })
    }

    /// Returns the instruments whose labels contain the filter.
    pub(crate) fn shown(&self, filter: &str) -> Vec<&Comparison> {
        let wanted = filter.trim().to_lowercase();
        let matches = |one: &&Comparison| one.label.to_lowercase().contains(&wanted);
        self.instruments.iter().filter(matches).collect()
    }
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
