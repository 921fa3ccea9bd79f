//! Abstract values of a native function's registers and stack slots.

use iced_x86::Register;

/// Numbers from one to another, both among them. The least and the greatest there are stand for no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Range {
    pub(super) const ALL: Self = Self {
        from: i64::MIN,
        to: i64::MAX,
    };
    /// The numbers that a write of 32 bits leaves in a register.
    pub(super) const WORD: Self = Self::up_to(u32::MAX as i64);

    pub(super) const fn exactly(number: i64) -> Self {
        Self {
            from: number,
            to: number,
        }
    }

    pub(super) const fn up_to(most: i64) -> Self {
        Self { from: 0, to: most }
    }

    pub(super) fn exact(self) -> Option<i64> {
        (self.from == self.to).then_some(self.from)
    }

    fn covers(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// Sums. What wraps round may be anything.
    pub(super) fn plus(self, other: Self) -> Self {
        let below = self.from == i64::MIN || other.from == i64::MIN;
        let above = self.to == i64::MAX || other.to == i64::MAX;
        let ends = (
            self.from.checked_add(other.from),
            self.to.checked_add(other.to),
        );
        match ends {
            _ if below && above => Self::ALL,
            (_, Some(to)) if below => Self { from: i64::MIN, to },
            (Some(from), _) if above => Self { from, to: i64::MAX },
            (Some(from), Some(to)) if !below && !above => Self { from, to },
            _ => Self::ALL,
        }
    }

    fn times(self, factor: i64) -> Self {
        let bounded = self.from != i64::MIN && self.to != i64::MAX;
        match (self.from.checked_mul(factor), self.to.checked_mul(factor)) {
            (Some(from), Some(to)) if bounded => Self { from, to },
            _ => Self::ALL,
        }
    }

    fn negated(self) -> Self {
        match (self.from.checked_neg(), self.to.checked_neg()) {
            (Some(to), Some(from)) if self.to != i64::MAX => Self { from, to },
            _ => Self::ALL,
        }
    }

    /// Both; a bound that has moved is none any more, so that loops come to an end.
    fn widened(self, other: Self) -> Self {
        Self {
            from: if other.from < self.from {
                i64::MIN
            } else {
                self.from
            },
            to: if other.to > self.to {
                i64::MAX
            } else {
                self.to
            },
        }
    }
}

/// The value of a register or of a stack slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    /// The top of the lattice: any value.
    #[default]
    Unknown,
    /// The initial value of a register.
    Original(Register),
    /// One of these numbers.
    Number(Range),
    /// An address on the stack, in bytes above the return address, computed from constants of the code alone. It is
    /// a range only after the stack was aligned.
    Stack(Range),
    /// A range of stack addresses: computed from a stack address and a register, or different by the path.
    Within(Range),
}

impl Value {
    pub(super) const fn number(number: i64) -> Self {
        Self::Number(Range::exactly(number))
    }

    /// More by a number that stands in the instruction.
    pub(super) fn shifted(self, by: i64) -> Self {
        let by = Range::exactly(by);
        match self {
            Self::Stack(at) => Self::Stack(at.plus(by)),
            Self::Within(at) => Self::Within(at.plus(by)),
            Self::Number(number) => Self::Number(number.plus(by)),
            Self::Unknown | Self::Original(_) => Self::Unknown,
        }
    }

    /// Returns the sum with a number, or with an unknown value.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Self::Number(one.plus(other)),
            (Self::Stack(at) | Self::Within(at), Self::Number(by))
            | (Self::Number(by), Self::Stack(at) | Self::Within(at)) => Self::Within(at.plus(by)),
            (Self::Stack(_) | Self::Within(_), Self::Unknown | Self::Original(_))
            | (Self::Unknown | Self::Original(_), Self::Stack(_) | Self::Within(_)) => {
                Self::Within(Range::ALL)
            }
            _ => Self::Unknown,
        }
    }

    /// Returns the difference of two values.
    pub(super) fn minus(self, other: Self) -> Self {
        match other {
            Self::Number(by) => self.plus(Self::Number(by.negated())),
            Self::Unknown | Self::Original(_) => self.plus(Self::Unknown),
            Self::Stack(_) | Self::Within(_) => Self::Unknown,
        }
    }

    /// As an index that counts for `scale` bytes each.
    pub(super) fn times(self, scale: u32) -> Self {
        match self {
            _ if scale == 1 => self,
            Self::Number(number) => Self::Number(number.times(scale.into())),
            _ => Self::Unknown,
        }
    }

    /// Without the bits that are 0 in `mask`.
    pub(super) fn masked(self, mask: i64) -> Self {
        // What is taken away is at most the bits of the mask's complement.
        let down = Range {
            from: mask.saturating_add(1),
            to: 0,
        };
        match self {
            _ if mask >= 0 => Self::Number(Range::up_to(mask)),
            Self::Stack(at) => Self::Stack(at.plus(down)),
            Self::Within(at) => Self::Within(at.plus(down)),
            _ => Self::Unknown,
        }
    }

    /// The lower 32 bits.
    pub(super) fn word(self) -> Self {
        match self {
            Self::Number(number) if Range::WORD.covers(number) => self,
            _ => Self::Number(Range::WORD),
        }
    }

    /// Returns the meet in the lattice: facts that hold for both values.
    pub(super) fn meet(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Number(one), Self::Number(other)) if one.covers(other) => self,
            (Self::Number(one), Self::Number(other))
                if Range::WORD.covers(one) && Range::WORD.covers(other) =>
            {
                Self::Number(Range::WORD)
            }
            (Self::Stack(at) | Self::Within(at), Self::Stack(other) | Self::Within(other)) => {
                Self::Within(at.widened(other))
            }
            _ => Self::Unknown,
        }
    }
}
