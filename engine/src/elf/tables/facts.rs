//! Knowledge of values.

use super::value::Numbers;

/// Knowledge of a value: the numbers that it may be, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueFact {
    pub(super) numbers: Numbers,
    /// True if the value was read or passed whole, so that as an address of code it is one that a pointer
    /// has, and not the result of a computation.
    pub(super) whole: bool,
}

impl ValueFact {
    pub(super) const UNKNOWN: Self = Self {
        numbers: Numbers::Any,
        whole: false,
    };
    pub(super) const WHOLE: Self = Self {
        numbers: Numbers::Any,
        whole: true,
    };

    /// Returns what is known of a value that is one or the other.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self {
            numbers: self.numbers.union(&other.numbers),
            whole: self.whole && other.whole,
        }
    }
}
