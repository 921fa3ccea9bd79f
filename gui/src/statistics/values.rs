//! Percentiles of values, as `ilk stats` has them: exact up to a number of values, and from a
//! histogram beyond it.

use gilk_samples::histogram::{Histogram, rank};
use gilk_samples::profile::EXACT_VALUES;

/// Values, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Values {
    /// All of them, as long as there are few.
    all: Vec<u64>,
    /// Their histogram.
    pub histogram: Histogram,
    min: Option<u64>,
    max: u64,
}

impl Values {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: u64) {
        self.histogram.add(value);
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = self.max.max(value);
        if self.all.len() < EXACT_VALUES {
            self.all.push(value);
        }
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// Returns the least and the greatest value, if there are any.
    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        Some((self.min?, self.max))
    }

    /// Returns the values at nearest rank of some shares of their number; 0 without values.
    pub(crate) fn percentiles<const N: usize>(&mut self, shares: [f64; N]) -> [u64; N] {
        if self.count() != self.all.len() as u64 {
            return shares.map(|share| self.histogram.quantile(share).min(self.max));
        }
        self.all.sort_unstable();
        let count = self.count();
        shares.map(|share| {
            let place = usize::try_from(rank(count, share)).ok();
            place
                .and_then(|place| self.all.get(place))
                .copied()
                .unwrap_or(0)
        })
    }
}
