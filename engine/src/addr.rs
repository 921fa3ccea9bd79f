//! Addresses in the target: never an offset in a file, never an index of a block.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An address in the target's kernel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Addr(pub u64);

impl Addr {
    /// The address `bytes` further on; wraps as the processor's adders do.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The displacement that leads from `self` to `to`.
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

    /// Whether there is no byte in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether `at` is one of its bytes.
    #[must_use]
    pub const fn contains(self, at: Addr) -> bool {
        self.start.0 <= at.0 && at.0 < self.end.0
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }
}
