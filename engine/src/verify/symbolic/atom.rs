//! Symbolic values and the atoms that they are made of.

use gilk_instruments::program::Event;

use crate::patch::Home;

/// A number; equal ones have the same identity. Lives in its [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub(crate) u32);

impl Value {
    /// Nothing is known of it, not even that it equals itself.
    pub(crate) const UNKNOWN: Self = Self(0);

    pub(crate) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// What the original code would have in this register: the same in every proof.
    pub(crate) fn original(number: u8) -> Self {
        Self(u32::from(number) + 1)
    }

    /// Whether it is what the original code would have in some register.
    pub(crate) fn is_original(self) -> bool {
        (1..=u32::from(REGISTERS)).contains(&self.0)
    }
}

/// Where bits come from. What is read from memory or a clock is named by the instruction that read
/// it last: see [`State::forget`](crate::verify::patch::state::State::forget).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Atom {
    /// What the original code would have in this register, by number.
    Register(u8),
    /// The flags register, of which these flags are what the original code would have.
    Flags(u32),
    /// `gs:[head]`.
    Head(u64),
    /// One of several reads of `gs:[head]`, in rax, where ways of the code meet at this address.
    Joined(u64),
    /// `gs:[limit]`.
    Limit(u64),
    /// The time-stamp counter.
    Tsc(u64),
    /// The pointer to the running task.
    Task,
    /// The stack pointer, as the original code has it.
    Stack,
    /// A word of the entry of the table of timers that is `entry` bytes from its start.
    Timer {
        /// The instruction that read it.
        at: u64,
        /// 0 for the check, 8 for the time.
        word: u8,
        /// The entry.
        entry: Value,
    },
    /// A value whose bits are taken apart though it is no sum of fields that do not meet.
    Whole(Value),
    /// A bitwise or of two values.
    Or(Value, Value),
    /// A bitwise exclusive or of different values.
    Xor(Vec<Value>),
    /// Something made of values in another way.
    Made(Op, [Value; 3]),
    /// What a step of a program read of its surroundings, once.
    Read(Source, u16),
    /// The word of an aggregate that keeps the largest value.
    Largest(u64),
    /// What a native function returned to this address.
    Returned(u64),
}

/// General registers.
pub(crate) const REGISTERS: u8 = 16;

/// An operation of which only its name is known, and what it does with constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
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
    pub(crate) fn of(self, [a, b, c]: [u64; 3]) -> Option<u64> {
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
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Equal | Self::LessUnsigned | Self::LessSigned => 1,
            Self::Highest => 6,
            _ => 64,
        }
    }
}

/// What is read of the surroundings, at most once in a step of a probe: its predicate, or one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Cpu,
    Thread,
    Process,
    /// Eight bytes of the name, from this one on.
    Comm(u8),
    /// A per-CPU word.
    Cpus(u64),
    /// A word that all CPUs share.
    Shared(u64),
    /// The value in the table of timers under a key.
    Kept(Key),
    /// A counter of the processor's, or 0 where there is none.
    Event(Event),
    /// Memory of the kernel's, or 0 where it cannot be read.
    Memory {
        address: Value,
        bytes: u8,
    },
}

/// A key of the table of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// A number of the running task.
    Thread(u8),
    /// A number of the stack pointer at the hook.
    Call(u16),
}

impl Key {
    pub(crate) fn of(home: Home) -> Option<Self> {
        match home {
            Home::Thread(number) => Some(Self::Thread(number)),
            Home::Call(number) => Some(Self::Call(number)),
            Home::Cpu(_) | Home::Shared(_) => None,
        }
    }
}
