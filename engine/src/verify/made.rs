//! What is made of numbers other than by adding, moving and masking: each operation names its result
//! after its operands, so that the same made of the same is the same.

use super::sum::ones;
use super::value::{Atom, Value, Values};

/// An operation of which only its name is known, and what it does with constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Op {
    Multiply,
    /// The upper half of the product.
    MultiplyHigh,
    DivideUnsigned,
    DivideSigned,
    RemainderUnsigned,
    RemainderSigned,
    And,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    /// From so many bits.
    SignExtend(u8),
    /// 1 if both are equal, else 0.
    Equal,
    /// 1 if the first is less, else 0.
    LessUnsigned,
    LessSigned,
    /// The second if the first is 1, else the third.
    Select,
    /// The number of the highest bit set; nothing is known of it if there is none.
    Highest,
}

impl Op {
    /// What it is of constants, if that is known.
    pub(super) fn of(self, [a, b, c]: [u64; 3]) -> Option<u64> {
        let (i, j) = (a.cast_signed(), b.cast_signed());
        let by = u32::try_from(b & 63).unwrap_or(0);
        Some(match self {
            Self::Multiply => a.wrapping_mul(b),
            Self::MultiplyHigh => {
                let product = u128::from(a) * u128::from(b);
                u64::try_from(product >> 64).unwrap_or(0)
            }
            Self::DivideUnsigned => a.checked_div(b)?,
            Self::DivideSigned => i.checked_div(j)?.cast_unsigned(),
            Self::RemainderUnsigned => a.checked_rem(b)?,
            Self::RemainderSigned => i.checked_rem(j)?.cast_unsigned(),
            Self::And => a & b,
            Self::ShiftLeft => a << by,
            Self::ShiftRight => a >> by,
            Self::ShiftRightSigned => (i >> by).cast_unsigned(),
            Self::SignExtend(bits) => {
                let spare = 64_u32.saturating_sub(bits.into()) & 63;
                ((a << spare).cast_signed() >> spare).cast_unsigned()
            }
            Self::Equal => u64::from(a == b),
            Self::LessUnsigned => u64::from(a < b),
            Self::LessSigned => u64::from(i < j),
            Self::Select => {
                if a == 1 {
                    b
                } else {
                    c
                }
            }
            Self::Highest => u64::from(a.checked_ilog2()?),
        })
    }

    /// Bits that its result has at most.
    fn bits(self) -> u8 {
        match self {
            Self::Equal | Self::LessUnsigned | Self::LessSigned => 1,
            Self::Highest => 6,
            _ => 64,
        }
    }
}

impl Values {
    /// The operation on up to three operands; those it does not have are 0.
    pub(super) fn made(&mut self, op: Op, mut operands: [Value; 3]) -> Value {
        if operands.iter().any(|operand| operand.is_unknown()) {
            return Value::UNKNOWN;
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

    pub(super) fn made_of_two(&mut self, op: Op, a: Value, b: Value) -> Value {
        let none = self.constant(0);
        self.made(op, [a, b, none])
    }

    /// Whether it is 1 or 0.
    pub(super) fn is_truth(&mut self, value: Value) -> bool {
        let small = |values: &Self, value| values.occupied(value).is_some_and(|bits| bits <= 1);
        if small(self, value) {
            return true;
        }
        let other = self.not(value);
        small(self, other)
    }

    /// 1 less a truth.
    pub(super) fn not(&mut self, truth: Value) -> Value {
        let one = self.constant(1);
        self.sub(one, truth)
    }

    pub(super) fn equal(&mut self, a: Value, b: Value) -> Value {
        if a.is_unknown() || b.is_unknown() {
            return Value::UNKNOWN;
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

    pub(super) fn less(&mut self, signed: bool, a: Value, b: Value) -> Value {
        let op = if signed {
            Op::LessSigned
        } else {
            Op::LessUnsigned
        };
        self.made_of_two(op, a, b)
    }

    /// Whether it is not 0.
    pub(super) fn truth(&mut self, value: Value) -> Value {
        if self.is_truth(value) {
            return value;
        }
        let zero = self.constant(0);
        let none = self.equal(value, zero);
        self.not(none)
    }

    /// One of two values, by a truth.
    pub(super) fn select(&mut self, truth: Value, yes: Value, no: Value) -> Value {
        if yes == no && !truth.is_unknown() {
            return yes;
        }
        // Of a truth and its opposite one has no constant in it.
        let other = self.not(truth);
        match (self.as_constant(truth), self.parts(truth)) {
            (Some(0), _) => no,
            (Some(_), _) => yes,
            (None, Some((0, _))) => self.made(Op::Select, [truth, yes, no]),
            _ => self.made(Op::Select, [other, no, yes]),
        }
    }

    /// The low bytes, extended.
    pub(super) fn extend(&mut self, value: Value, bits: u8, signed: bool) -> Value {
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

    /// Whether it cannot be this number: another constant, or what is selected to be another where it would be.
    pub(super) fn is_never(&mut self, value: Value, number: u64) -> bool {
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
