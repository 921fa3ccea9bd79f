//! A lane of which there is too much to keep every sample: sums over short spans of time.

use super::Column;

/// Spans that a recording is cut into at least; a screen is 2,000 columns wide.
const SPANS: u64 = 1 << 14;

/// What lies in each span of time.
#[derive(Debug)]
pub(super) struct Coarse {
    start: u64,
    /// Width of a span in ticks, as a power of two.
    shift: u32,
    spans: Vec<Column>,
}

impl Coarse {
    /// For samples from `first` to `last`.
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

    /// Adds a sample; one that is outside, to the span that is nearest.
    pub(super) fn add(&mut self, tsc: u64, value: u64) {
        let most = self.spans.len().saturating_sub(1);
        let at = usize::try_from(tsc.saturating_sub(self.start) >> self.shift).unwrap_or(most);
        let span = self.spans.get_mut(at.min(most));
        span.into_iter().for_each(|span| span.add(value));
    }

    /// Adds to each of `out` the spans whose middle lies in its part of the time from `t0` up to but
    /// without `t1`.
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
            let out = out.get_mut(column as usize);
            out.into_iter().for_each(|column| column.merge(span));
        }
    }
}
