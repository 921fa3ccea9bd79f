//! Progress of the proof of a block that records its accesses.

use iced_x86::Register;

use crate::cache::{RecordedBlock, RowState};
use crate::isa::memory::OperandBase;

/// A slot that has a base.
pub(super) struct ProvedSlot {
    pub(super) slot: u32,
    pub(super) base: OperandBase,
    /// Bytes that were added to the stack pointer since.
    pub(super) moved: i64,
}

/// The proof of a block under way.
pub(super) struct RecordProof<'p> {
    pub(super) block: &'p RecordedBlock,
    pub(super) pointer: Register,
    pub(super) holder: Register,
    /// Accesses and instructions so far.
    pub(super) accesses: usize,
    pub(super) instructions: usize,
    pub(super) slots: u32,
    pub(super) known: Vec<ProvedSlot>,
    /// Slots that are stored after the instruction.
    pub(super) later: Vec<(u32, Register)>,
    /// The two registers are restored.
    pub(super) is_over: bool,
}

impl RecordProof<'_> {
    /// State of rows while the two registers are held.
    pub(super) fn state(&self) -> RowState {
        RowState::Recording(self.block.holders)
    }

    pub(super) fn holds(&self, register: Register) -> bool {
        register != Register::None && (register == self.pointer || register == self.holder)
    }
}
