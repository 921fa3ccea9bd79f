//! Branches to code after all blocks, resolved at the end of a translation: out of the middle of blocks that record their
//! accesses, and to the patches of blocks with instruments.

use iced_x86::Register;

use super::emit::Field;
use super::translation::PatchMoment;
use crate::Addr;

/// A branch that is taken where the thread's area is full.
pub(super) struct FullArea {
    pub(super) field: Field,
    /// The block.
    pub(super) original: Addr,
    pub(super) pointer: Register,
    /// The pointer has `rcx`.
    pub(super) moved: bool,
}

/// A conditional branch in a block that records its accesses.
pub(super) struct PendingExit {
    pub(super) field: Field,
    pub(super) target: Addr,
    pub(super) pointer: Register,
    /// Bytes of the block's group.
    pub(super) group: u64,
    pub(super) executed: u32,
    /// The index of the block among those that record, and of the branch among its exits.
    pub(super) stated: (usize, usize),
}

/// A conditional branch with instruments on the way that it takes.
pub(super) struct PendingWay {
    pub(super) field: Field,
    pub(super) original: Addr,
    pub(super) target: Addr,
}

/// The branch to a patch with instruments.
pub(super) struct PendingPatch {
    pub(super) field: Field,
    /// The first instruction of the block, the last one, or the conditional branch.
    pub(super) original: Addr,
    pub(super) moment: PatchMoment,
    /// The original instruction that executes after the patch, if this one may not be executed again.
    pub(super) next: Option<Addr>,
    /// The place where the branch begins.
    pub(super) begin: Addr,
    /// The place after the branch.
    pub(super) exit: Addr,
}
