//! A lane with too many samples to keep each: sums over short spans of time.

use super::column::Column;

/// Minimum number of spans of a recording; a screen is 2,000 columns wide.
const SPANS: u64 = 1 << 14;

/// Aggregates of the time spans.
#[derive(Debug)]
pub(super) struct Coarse {
    start: u64,
    /// Binary logarithm of the width of a span in ticks.
    shift: u32,
    spans: Vec<Column>,
}

impl Coarse {
    /// Returns empty spans for samples from `first` to `last`.
    pub(super) fn new(first: u64, last: u64) -> Self {
        let width = last.saturating_sub(first) / SPANS;
        let shift = width.checked_ilog2().unwrap_or(0);
        let spans = (last.saturating_sub(first) >> shift) + 1;
        Self {
            start: first,
            shift,
            spans: vec![Column::default(); usize::try_from(spans).unwrap_or(0)],
        }
    }

    /// Adds a sample; one outside all spans, to the nearest.
    pub(super) fn add(&mut self, tsc: u64, value: u64) {
        let most = self.spans.len().saturating_sub(1);
        let at = usize::try_from(tsc.saturating_sub(self.start) >> self.shift).unwrap_or(most);
        match self.spans.get_mut(at.min(most)) {
            Some(span) => span.add(value),
            None => debug_assert!(false, "a coarse lane has no spans"),
        }
    }

    /// Adds to each of `out` the spans whose middle is in its part of the time from `t0` to `t1`
    /// (exclusive).
    pub(super) fn columns(&self, t0: u64, t1: u64, out: &mut [Column]) {
        let (width, columns) = (u128::from(t1.saturating_sub(t0)), out.len() as u128);
        let from =
            usize::try_from(t0.saturating_sub(self.start) >> self.shift).unwrap_or(usize::MAX);
        for (span, number) in self.spans.iter().zip(0u64..).skip(from) {
            let middle =
                (self.start + (number << self.shift)).saturating_add((1 << self.shift) >> 1);
            if middle >= t1 {
                break;
            }
            if span.count == 0 || middle < t0 {
                continue;
            }
            let column = u128::from(middle - t0) * columns / width;
            if let Some(column) = out.get_mut(column as usize) {
                column.merge(span);
            }
        }
    }
}
