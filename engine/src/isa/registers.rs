//! Sets of general-purpose registers.

use std::fmt;

use iced_x86::Register;

/// A set of general-purpose registers, by their number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5,
/// rsi 6, rdi 7, r8 to r15 (Intel SDM 2, table 2-2).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RegisterSet(pub u16);

/// The 64-bit registers by number.
pub(crate) const BY_NUMBER: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The number of a general register.
pub(crate) fn number_of(register: Register) -> u8 {
    debug_assert!(register.is_gpr(), "{register:?} is no general register");
    u8::try_from(register.full_register().number()).unwrap_or(u8::MAX)
}

impl RegisterSet {
    /// No register.
    pub const EMPTY: Self = Self(0);
    /// All sixteen.
    pub const ALL: Self = Self(0xffff);

    /// The bit of a register or of a part of it (`al`, `ax`, `eax`, `rax`); 0 for any other kind.
    fn bit(register: Register) -> u16 {
        // Of `ah` … `bh`, the full register is what counts: their own numbers are 4 … 7.
        if register.is_gpr() {
            1 << register.full_register().number()
        } else {
            0
        }
    }

    /// The set of the registers listed.
    #[must_use]
    pub fn of(registers: &[Register]) -> Self {
        registers.iter().copied().collect()
    }

    /// Adds the register that `register` is, or is a part of. Other kinds are ignored.
    pub fn insert(&mut self, register: Register) {
        self.0 |= Self::bit(register);
    }

    /// Takes out the register that `register` is, or is a part of.
    pub fn remove(&mut self, register: Register) {
        self.0 &= !Self::bit(register);
    }

    /// Returns whether the register that `register` is, or is a part of, is in the set.
    #[must_use]
    pub fn contains(self, register: Register) -> bool {
        self.0 & Self::bit(register) != 0
    }

    /// Registers in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Registers in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Registers in `self` and not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The number of registers in it.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether it has no register.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The 64-bit register of a number below 16.
    pub(crate) fn numbered(number: usize) -> Option<Register> {
        BY_NUMBER.get(number).copied()
    }

    /// The 64-bit registers, by number.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        BY_NUMBER
            .into_iter()
            .enumerate()
            .filter_map(move |(number, register)| (self.0 >> number & 1 == 1).then_some(register))
    }
}

impl FromIterator<Register> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = Register>>(registers: I) -> Self {
        let mut set = Self::EMPTY;
        for register in registers {
            set.insert(register);
        }
        set
    }
}

impl fmt::Debug for RegisterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
