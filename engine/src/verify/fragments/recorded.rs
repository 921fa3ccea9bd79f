//! Progress of the proof of a block that records its accesses.

use iced_x86::Register;

use crate::cache::{RecordedBlock, RowState};

/// A slot that has a register.
pub(super) struct ProvedSlot {
    pub(super) slot: u32,
    pub(super) register: Register,
    /// Bytes that were added to the stack pointer since.
    pub(super) moved: i64,
}

/// The proof of a block under way.
pub(super) struct RecordProof<'p> {
    pub(super) block: &'p RecordedBlock,
    pub(super) pointer: Register,
    /// Accesses and instructions so far.
    pub(super) accesses: usize,
    pub(super) instructions: usize,
    /// Conditional branches after which the block continues, so far.
    pub(super) exits: usize,
    pub(super) slots: u32,
    pub(super) known: Vec<ProvedSlot>,
    /// Slots that are stored after the instruction.
    pub(super) later: Vec<(u32, Register)>,
    /// The pointer is restored.
    pub(super) is_over: bool,
}

impl RecordProof<'_> {
    /// State of rows while the pointer is held.
    pub(super) fn state(&self) -> RowState {
        RowState::Recording(self.block.pointer)
    }

    pub(super) fn holds(&self, register: Register) -> bool {
        register == self.pointer
    }

    /// The offset of a slot from the end of the group, which the pointer has.
    pub(super) fn offset(&self, slot: u32) -> u64 {
        let before = u64::from(self.block.slots).wrapping_sub(u64::from(slot));
        before.wrapping_mul(8).wrapping_neg()
    }
}
