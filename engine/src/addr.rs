//! Addresses in the target: never an offset in a file, never an index of a block.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An address in the target.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Addr(pub u64);

impl Addr {
    /// Returns the address `bytes` after this one; wraps as the processor's adders do.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns the displacement from `self` to `to`.
    #[must_use]
    pub const fn to(self, to: Self) -> i64 {
        to.0.wrapping_sub(self.0).cast_signed()
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// Bytes in the target: `start` up to, not including, `end`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Span {
    /// The first byte.
    pub start: Addr,
    /// One past the last byte.
    pub end: Addr,
}

impl Span {
    /// `len` bytes from `start`.
    #[must_use]
    pub const fn new(start: Addr, len: u64) -> Self {
        Self {
            start,
            end: start.add(len),
        }
    }

    /// Bytes in the span.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Returns whether there is no byte in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns whether `at` is one of its bytes.
    #[must_use]
    pub const fn contains(self, at: Addr) -> bool {
        self.start.0 <= at.0 && at.0 < self.end.0
    }

    /// Returns the one that has a byte at `at` of spans that are sorted, and of which no two have a byte in common.
    pub(crate) fn holding(sorted: &[Self], at: Addr) -> Option<Self> {
        let after = sorted.partition_point(|span| span.start <= at);
        let last = sorted.get(after.checked_sub(1)?).copied();
        last.filter(|span| span.contains(at))
    }

    /// Returns whether the two have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }

    /// Sorts spans, and joins those that overlap or touch.
    #[must_use]
    pub fn merged(mut spans: Vec<Self>) -> Vec<Self> {
        spans.sort_unstable();
        let mut merged: Vec<Self> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merged_spans_hold_the_same_bytes(pairs in proptest::collection::vec((0_u64..200, 1_u64..20), 0..20)) {
            let spans: Vec<Span> = pairs.iter().map(|&(start, len)| Span::new(Addr(start), len)).collect();
            let merged = Span::merged(spans.clone());
            for at in (0..250).map(Addr) {
                let before = spans.iter().any(|span| span.contains(at));
                let after = merged.iter().filter(|span| span.contains(at)).count();
                prop_assert_eq!(usize::from(before), after);
            }
            prop_assert!(merged.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
