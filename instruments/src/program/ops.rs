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
        matches!(self.sign(), "==" | "!=" | "<" | "<=" | ">" | ">=")
    }

    /// The sign in the source.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::DivideSigned | Self::DivideUnsigned => "/",
            Self::RemainderSigned | Self::RemainderUnsigned => "%",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRightSigned | Self::ShiftRightUnsigned => ">>",
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::LessSigned | Self::LessUnsigned => "<",
            Self::LessOrEqualSigned | Self::LessOrEqualUnsigned => "<=",
            Self::GreaterSigned | Self::GreaterUnsigned => ">",
            Self::GreaterOrEqualSigned | Self::GreaterOrEqualUnsigned => ">=",
        }
    }

    /// The operator of that sign for operands that together are of a type.
    #[must_use]
    pub fn of(sign: &str, signed: bool) -> Option<Self> {
        // In `ALL` the one with signs stands before the one without.
        let mut both = Self::ALL.iter().filter(|op| op.sign() == sign);
        let first = both.next()?;
        Some(*if signed {
            first
        } else {
            both.next().unwrap_or(first)
        })
    }
}
