//! Rows: the original instruction, and the state of the registers, at each place of translated code.

use crate::Addr;

/// The registers of a thread in the cache, against those that it would have in the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// They are those before the original instruction.
    Exact,
    /// A few instructions that stand for the original one are under way, none of which can fault.
    Busy,
    /// As [`Exact`](Self::Exact), but for `rcx`, which is 160 bytes below the stack pointer: the target of a call, which
    /// is about to push its return address.
    Evaluated,
    /// The system call before the original instruction has returned: `rcx` is not yet the address of the original
    /// instruction.
    Returned,
    /// As [`Exact`](Self::Exact), but for the stack pointer and perhaps `rax`: the instruments before the original
    /// instruction save registers, none of which they have changed, and a store may fault.
    Saving {
        /// Bytes that are pushed, the red zone included.
        pushed: u32,
        /// The place of `rax`, if that has the flags: bytes below the original stack pointer.
        rax: Option<u32>,
    },
    /// The instruments before the original instruction run: a thread continues to the exit of their
    /// [patch](super::BlockPatch), where it is [`Exact`](Self::Exact) again.
    Instruments,
    /// As [`Exact`](Self::Exact), but for the register of this number, which holds the recorder's: its value is in the
    /// thread's [area](super::AccessArea::KEPT).
    Recording(u8),
}

/// From here to the next row, the code stands for one original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRow {
    /// The first byte.
    pub at: Addr,
    /// The original instruction.
    pub original: Addr,
    /// The state of the registers.
    pub state: RowState,
}

impl CacheRow {
    /// Finds the row of an address among rows in order of address.
    #[must_use]
    pub fn find(rows: &[Self], at: Addr) -> Option<Self> {
        let after = rows.partition_point(|row| row.at <= at);
        rows.get(after.checked_sub(1)?).copied()
    }
}
