//! Operators and their results. Constant folding and the interpreter use this definition, and generated code is
//! tested against it.

/// An operator of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-x`, wrapping.
    Negate,
    /// `~x`.
    Invert,
    /// `!x`: 1 if it is 0, 0 otherwise.
    Not,
}

impl UnaryOp {
    /// Returns the result for 64-bit operands.
    #[must_use]
    pub fn apply(self, x: u64) -> u64 {
        match self {
            Self::Negate => x.wrapping_neg(),
            Self::Invert => !x,
            Self::Not => u64::from(x == 0),
        }
    }

    /// The sign in the source.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Negate => "-",
            Self::Invert => "~",
            Self::Not => "!",
        }
    }
}

/// An operator of two operands. Where the sign makes a difference there are two of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `+`, wrapping.
    Add,
    /// `-`, wrapping.
    Subtract,
    /// `*`, wrapping.
    Multiply,
    /// `/` with signs, towards zero. By 0 it is 0; the smallest number by -1 is the smallest number.
    DivideSigned,
    /// `/` without signs. By 0 it is 0.
    DivideUnsigned,
    /// `%` with signs, that of the left one. By 0 it is 0; by -1 it is 0.
    RemainderSigned,
    /// `%` without signs. By 0 it is 0.
    RemainderUnsigned,
    /// `&`.
    And,
    /// `|`.
    Or,
    /// `^`.
    Xor,
    /// `<<`, by the low six bits of the right one.
    ShiftLeft,
    /// `>>` with the sign, by the low six bits of the right one.
    ShiftRightSigned,
    /// `>>` with zeroes, by the low six bits of the right one.
    ShiftRightUnsigned,
    /// `==`: 1 or 0, as all that compare.
    Equal,
    /// `!=`.
    Unequal,
    /// `<` with signs.
    LessSigned,
    /// `<` without.
    LessUnsigned,
    /// `<=` with signs.
    LessOrEqualSigned,
    /// `<=` without.
    LessOrEqualUnsigned,
    /// `>` with signs.
    GreaterSigned,
    /// `>` without.
    GreaterUnsigned,
    /// `>=` with signs.
    GreaterOrEqualSigned,
    /// `>=` without.
    GreaterOrEqualUnsigned,
}

impl BinaryOp {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::DivideSigned,
        Self::DivideUnsigned,
        Self::RemainderSigned,
        Self::RemainderUnsigned,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::ShiftLeft,
        Self::ShiftRightSigned,
        Self::ShiftRightUnsigned,
        Self::Equal,
        Self::Unequal,
        Self::LessSigned,
        Self::LessUnsigned,
        Self::LessOrEqualSigned,
        Self::LessOrEqualUnsigned,
        Self::GreaterSigned,
        Self::GreaterUnsigned,
        Self::GreaterOrEqualSigned,
        Self::GreaterOrEqualUnsigned,
    ];

    /// Returns the result for 64-bit operands.
    #[must_use]
    pub fn apply(self, x: u64, y: u64) -> u64 {
        let (i, j) = (x.cast_signed(), y.cast_signed());
        // The low six bits, as the processor takes them.
        let by = u32::try_from(y & 63).unwrap_or(0);
        match self {
            Self::Add => x.wrapping_add(y),
            Self::Subtract => x.wrapping_sub(y),
            Self::Multiply => x.wrapping_mul(y),
            Self::DivideSigned if y == 0 => 0,
            Self::DivideSigned => i.wrapping_div(j).cast_unsigned(),
            Self::DivideUnsigned => x.checked_div(y).unwrap_or(0),
            Self::RemainderSigned if y == 0 => 0,
            Self::RemainderSigned => i.wrapping_rem(j).cast_unsigned(),
            Self::RemainderUnsigned => x.checked_rem(y).unwrap_or(0),
            Self::And => x & y,
            Self::Or => x | y,
            Self::Xor => x ^ y,
            Self::ShiftLeft => x << by,
            Self::ShiftRightSigned => (i >> by).cast_unsigned(),
            Self::ShiftRightUnsigned => x >> by,
            Self::Equal => u64::from(x == y),
            Self::Unequal => u64::from(x != y),
            Self::LessSigned => u64::from(i < j),
            Self::LessUnsigned => u64::from(x < y),
            Self::LessOrEqualSigned => u64::from(i <= j),
            Self::LessOrEqualUnsigned => u64::from(x <= y),
            Self::GreaterSigned => u64::from(i > j),
            Self::GreaterUnsigned => u64::from(x > y),
            Self::GreaterOrEqualSigned => u64::from(i >= j),
            Self::GreaterOrEqualUnsigned => u64::from(x >= y),
        }
    }

    /// Returns whether it compares: its result is 1 or 0.
    #[must_use]
    pub fn compares(self) -> bool {
        self.operator().is_some_and(|operator| operator.compares)
    }

    /// Returns its sign in the source.
    #[must_use]
    pub fn sign(self) -> &'static str {
        self.operator().map_or("", |operator| operator.sign)
    }

    /// Returns its entry in the table, which a test finds for each.
    fn operator(self) -> Option<&'static Operator> {
        let has = |operator: &&Operator| [operator.signed, operator.unsigned].contains(&Some(self));
        let found = Operator::ALL.iter().find(has);
        debug_assert!(found.is_some(), "{self:?} is not in the table of operators");
        found
    }
}

/// A binary operator of the language. The lexer, the parser and the checker work by this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its sign in the source.
    pub sign: &'static str,
    /// Precedence: a higher number binds tighter.
    pub power: u8,
    /// The operation on signed operands; `None` for `&&` and `||`, which have expressions of their own.
    pub signed: Option<BinaryOp>,
    /// The operation on unsigned operands; `None` for `&&` and `||`.
    pub unsigned: Option<BinaryOp>,
    /// True if the result is 1 or 0, whatever the operands' type is.
    pub compares: bool,
}

impl Operator {
    /// All operators, with C's precedences.
    pub const ALL: [Self; 18] = {
        use BinaryOp as Op;
        [
            Self::logical("||", 1),
            Self::logical("&&", 2),
            Self::new("|", 3, Op::Or, Op::Or),
            Self::new("^", 4, Op::Xor, Op::Xor),
            Self::new("&", 5, Op::And, Op::And),
            Self::comparison("==", 6, Op::Equal, Op::Equal),
            Self::comparison("!=", 6, Op::Unequal, Op::Unequal),
            Self::comparison("<", 7, Op::LessSigned, Op::LessUnsigned),
            Self::comparison("<=", 7, Op::LessOrEqualSigned, Op::LessOrEqualUnsigned),
            Self::comparison(">", 7, Op::GreaterSigned, Op::GreaterUnsigned),
            Self::comparison(
                ">=",
                7,
                Op::GreaterOrEqualSigned,
                Op::GreaterOrEqualUnsigned,
            ),
            Self::new("<<", 8, Op::ShiftLeft, Op::ShiftLeft),
            Self::new(">>", 8, Op::ShiftRightSigned, Op::ShiftRightUnsigned),
            Self::new("+", 9, Op::Add, Op::Add),
            Self::new("-", 9, Op::Subtract, Op::Subtract),
            Self::new("*", 10, Op::Multiply, Op::Multiply),
            Self::new("/", 10, Op::DivideSigned, Op::DivideUnsigned),
            Self::new("%", 10, Op::RemainderSigned, Op::RemainderUnsigned),
        ]
    };

    const fn new(sign: &'static str, power: u8, signed: BinaryOp, unsigned: BinaryOp) -> Self {
        Self {
            sign,
            power,
            signed: Some(signed),
            unsigned: Some(unsigned),
            compares: false,
        }
    }

    const fn comparison(
        sign: &'static str,
        power: u8,
        signed: BinaryOp,
        unsigned: BinaryOp,
    ) -> Self {
        Self {
            compares: true,
            ..Self::new(sign, power, signed, unsigned)
        }
    }

    const fn logical(sign: &'static str, power: u8) -> Self {
        Self {
            sign,
            power,
            signed: None,
            unsigned: None,
            compares: false,
        }
    }

    /// Returns the operation on operands that together are signed or unsigned.
    #[must_use]
    pub fn operation(&self, signed: bool) -> Option<BinaryOp> {
        if signed { self.signed } else { self.unsigned }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_operator_and_every_sign_one_entry() {
        for op in BinaryOp::ALL {
            let has =
                |operator: &&Operator| [operator.signed, operator.unsigned].contains(&Some(op));
            assert_eq!(Operator::ALL.iter().filter(has).count(), 1, "{op:?}");
        }
        for operator in Operator::ALL {
            let same = |other: &&Operator| other.sign == operator.sign;
            assert_eq!(
                Operator::ALL.iter().filter(same).count(),
                1,
                "{}",
                operator.sign
            );
        }
    }
}
