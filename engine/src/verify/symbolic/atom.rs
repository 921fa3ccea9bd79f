//! Symbolic values and the atoms that they are made of.

use gilk_instruments::program::{Event, Input, UserRead};

use crate::ids::{Id, id};
use crate::patch::Home;

/// A symbolic value; values that are proven equal have the same identity. It belongs to a
/// [`SymValues`](super::value::SymValues).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SymValue(u32);

impl SymValue {
    /// The unknown value, which equals nothing, not even itself.
    pub(crate) const UNKNOWN: Self = Self(0);

    pub(crate) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// The value of a register in the original code: the same in every proof.
    pub(crate) fn original(number: u8) -> Self {
        Self(u32::from(number) + 1)
    }

    /// Returns whether it is the value of a register in the original code.
    pub(crate) fn is_original(self) -> bool {
        (1..=u32::from(REGISTERS)).contains(&self.0)
    }
}

impl Id for SymValue {
    fn new(index: usize) -> Self {
        debug_assert!(u32::try_from(index).is_ok(), "{index} values");
        // Beyond the limit of values it is unknown.
        u32::try_from(index).map_or(Self::UNKNOWN, Self)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

id!(
    /// The key of an atom in its [`SymValues`](super::value::SymValues).
    pub(crate) AtomId
);

/// The origin of bits. A read of memory or of a clock is named by the instruction that executed it
/// last: see `State::forget` of `patch::state`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Atom {
    /// Value of this register in the original code.
    Register(u8),
    /// Rax with saved flags: the `lahf` that saved them, and how much of the save or the restore has executed.
    Flags(u64, FlagsStage),
    /// `gs:[head]`.
    Head(u64),
    /// The join of several reads of `gs:[head]` in rax, at this address.
    Joined(u64),
    /// `gs:[limit]`.
    Limit(u64),
    /// The time-stamp counter.
    Tsc(u64),
    /// The number of the CPU, below that of its node, as it was read with the time-stamp counter.
    ClockCpu(u64),
    /// The number of the CPU, in the thread's area for restartable sequences.
    CpuOf(u64),
    /// The pointer to the running task.
    Task,
    /// The stack pointer of the original code.
    Stack,
    /// A word of an entry of the table of storage.
    Timer {
        /// The instruction that read it.
        at: u64,
        /// 0 for the owner, 8 for the value.
        word: u8,
        /// The entry, in bytes from the start of the table.
        entry: SymValue,
        /// The step of the program that read it: a later step may follow a store of the program's own.
        step: u16,
    },
    /// A value with overlapping fields, taken as a whole.
    Whole(SymValue),
    /// A bitwise or of two values.
    Or(SymValue, SymValue),
    /// A bitwise exclusive or of different values.
    Xor(Vec<SymValue>),
    /// An uninterpreted operation on values.
    Made(Op, [SymValue; 3]),
    /// A value that a step of a program reads of its environment, one time.
    Read(Source, u16),
    /// The word of an aggregate's maximum.
    Largest(u64),
    /// Return value of a native function, by return address.
    Returned(u64),
}

/// A stage of the save and the restore of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FlagsStage {
    /// After `lahf`: ah has all but the overflow flag.
    Low,
    /// After `seto al`: al has the overflow flag.
    Saved,
    /// After `add al, 0x7f`: the overflow flag is restored, and ah has the others.
    Overflow,
}

/// Number of general registers.
pub(crate) const REGISTERS: u8 = 16;

/// An operation that is uninterpreted, except on constants.
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
    /// Sign extension from this number of bits.
    SignExtend(u8),
    /// 1 if both are equal, else 0.
    Equal,
    /// 1 if the first is less, else 0.
    LessUnsigned,
    LessSigned,
    /// The second if the first is 1, else the third.
    Select,
    /// Index of the highest set bit; undefined for 0.
    Highest,
}

impl Op {
    /// Evaluates the operation on constants, if it is defined there.
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

    /// Returns the number of bits of its result.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Equal | Self::LessUnsigned | Self::LessSigned => 1,
            Self::Highest => 6,
            _ => 64,
        }
    }
}

/// A value of the environment, which a step of a probe (its predicate or one action) reads at most
/// one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A word of the target, at its location in the layout.
    Input(Input),
    /// A per-CPU word.
    Cpus(u64),
    /// A word that all CPUs share.
    Shared(u64),
    /// The word that makes scaled TSC ticks nanoseconds of the target's monotonic clock.
    ClockOffset,
    /// The value of a key in the table of storage.
    Kept(Key),
    /// A hardware event counter, or 0 where it is not available.
    Event(Event),
    /// Kernel memory, or 0 where it cannot be read.
    Memory { address: SymValue, bytes: u8 },
    /// A read of the running process, or 0 where its memory cannot be read.
    User { address: SymValue, read: UserRead },
}

/// A key of the table of storage.
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
