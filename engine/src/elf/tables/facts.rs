//! Facts about expressions, by expression: a sorted list, since it is copied and compared at every branch.

use super::value::{ExpressionId, Numbers};

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

/// ExpressionFacts by the expression that they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExpressionFacts(Vec<(ExpressionId, ValueFact)>);

impl ExpressionFacts {
    /// Returns the fact about an expression.
    pub(super) fn get(&self, id: ExpressionId) -> Option<&ValueFact> {
        let at = self.0.binary_search_by_key(&id, |(own, _)| *own).ok()?;
        self.0.get(at).map(|(_, fact)| fact)
    }

    /// Sets the fact about an expression.
    pub(super) fn insert(&mut self, id: ExpressionId, fact: ValueFact) {
        match self.0.binary_search_by_key(&id, |(own, _)| *own) {
            Ok(at) => {
                if let Some((_, known)) = self.0.get_mut(at) {
                    *known = fact;
                }
            }
            Err(at) => self.0.insert(at, (id, fact)),
        }
    }

    /// Keeps the facts about expressions that satisfy a predicate.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(ExpressionId) -> bool) {
        self.0.retain(|(id, _)| keep(*id));
    }

    /// Iterates over the facts in order of expression.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ExpressionId, &mut ValueFact)> {
        self.0.iter_mut().map(|(id, fact)| (*id, fact))
    }
}

impl FromIterator<(ExpressionId, ValueFact)> for ExpressionFacts {
    fn from_iter<I: IntoIterator<Item = (ExpressionId, ValueFact)>>(facts: I) -> Self {
        let mut all = Self::default();
        for (id, fact) in facts {
            all.insert(id, fact);
        }
        all
    }
}
