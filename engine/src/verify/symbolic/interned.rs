//! Hash-consed uninterpreted operations: an operation on equal operands is the same value.

use super::atom::{Atom, Op, SymValue};
use super::sum::ones;
use super::value::SymValues;

impl SymValues {
    /// Applies an operation to up to three operands; the missing ones are 0.
    pub(crate) fn made(&mut self, op: Op, mut operands: [SymValue; 3]) -> SymValue {
        if operands.iter().any(|operand| operand.is_unknown()) {
            return SymValue::UNKNOWN;
        }
        let [a, b, c] = operands.map(|operand| self.as_constant(operand));
        if let (Some(a), Some(b), Some(c)) = (a, b, c)
            && let Some(known) = op.of([a, b, c])
        {
            return self.constant(known);
        }
        if matches!(op, Op::Multiply | Op::MultiplyHigh | Op::And | Op::Equal)
            && let [a, b, _] = &mut operands
            && b < a
        {
            std::mem::swap(a, b);
        }
        let bits = match (op, operands) {
            (Op::And, [a, b, _]) if self.is_truth(a) && self.is_truth(b) => 1,
            _ => op.bits(),
        };
        self.field(Atom::Made(op, operands), 0, bits)
    }

    pub(crate) fn made_of_two(&mut self, op: Op, a: SymValue, b: SymValue) -> SymValue {
        let none = self.constant(0);
        self.made(op, [a, b, none])
    }

    /// Returns whether the value is 1 or 0.
    pub(crate) fn is_truth(&mut self, value: SymValue) -> bool {
        let small = |values: &Self, value| values.occupied(value).is_some_and(|bits| bits <= 1);
        if small(self, value) {
            return true;
        }
        let other = self.not(value);
        small(self, other)
    }

    /// Negates a truth value.
    pub(crate) fn not(&mut self, truth: SymValue) -> SymValue {
        let one = self.constant(1);
        self.sub(one, truth)
    }

    pub(crate) fn equal(&mut self, a: SymValue, b: SymValue) -> SymValue {
        if a.is_unknown() || b.is_unknown() {
            return SymValue::UNKNOWN;
        }
        let difference = self.sub(a, b);
        if let Some(difference) = self.as_constant(difference) {
            return self.constant(u64::from(difference == 0));
        }
        for (one, other) in [(a, b), (b, a)] {
            if self.as_constant(one) == Some(0) && self.is_truth(other) {
                return self.not(other);
            }
        }
        self.made_of_two(Op::Equal, a, b)
    }

    pub(crate) fn less(&mut self, signed: bool, a: SymValue, b: SymValue) -> SymValue {
        let op = if signed {
            Op::LessSigned
        } else {
            Op::LessUnsigned
        };
        self.made_of_two(op, a, b)
    }

    /// Returns the truth value of a value: whether it is not 0.
    pub(crate) fn truth(&mut self, value: SymValue) -> SymValue {
        if self.is_truth(value) {
            return value;
        }
        let zero = self.constant(0);
        let none = self.equal(value, zero);
        self.not(none)
    }

    /// Selects one of two values by a truth value.
    pub(crate) fn select(&mut self, truth: SymValue, yes: SymValue, no: SymValue) -> SymValue {
        if yes == no && !truth.is_unknown() {
            return yes;
        }
        // Of a truth value and its negation, one has no constant term.
        let other = self.not(truth);
        match (self.as_constant(truth), self.parts(truth)) {
            (Some(0), _) => no,
            (Some(_), _) => yes,
            (None, Some((0, _))) => self.made(Op::Select, [truth, yes, no]),
            _ => self.made(Op::Select, [other, no, yes]),
        }
    }

    /// Extends the low bits.
    pub(crate) fn extend(&mut self, value: SymValue, bits: u8, signed: bool) -> SymValue {
        if bits >= 64 {
            return value;
        }
        let low = self.mask(value, ones(bits));
        if !signed {
            return low;
        }
        let none = self.constant(0);
        self.made(Op::SignExtend(bits), [low, none, none])
    }

    /// Returns whether the value is provably different from `number`: another constant, or a
    /// selection between others.
    pub(crate) fn is_never(&mut self, value: SymValue, number: u64) -> bool {
        if let Some(constant) = self.as_constant(value) {
            return constant != number;
        }
        let Some(&Atom::Made(Op::Select, [truth, yes, no])) = self.as_atom(value) else {
            return false;
        };
        let number_itself = self.constant(number);
        let yes_is = self.equal(yes, number_itself);
        let yes_is_not = self.not(yes_is);
        let no_is = self.equal(no, number_itself);
        (truth == yes_is_not || self.is_never(yes, number))
            && (truth == no_is || self.is_never(no, number))
    }
}
