//! The instructions of a function that execute in patches when it is relocated whole.

use super::ids::InsnId;
use crate::ids::Ids;

/// Instructions that execute in patches when a site stands at each entrance that hosts one.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// True if a patch has a copy of the instruction.
    pub(super) copied: Ids<InsnId, bool>,
    /// True if the original instruction is executed too.
    pub(super) original: Ids<InsnId, bool>,
    /// Entrances with a site: sorted. The function tracer's bytes may be one.
    pub(super) entrances: Vec<InsnId>,
    /// Edges between instructions that both execute in patches: sorted.
    pub(super) edges: Vec<(InsnId, InsnId)>,
}

impl Spread {
    /// Returns whether the instruction executes in patches alone.
    pub(super) fn covers(&self, at: InsnId) -> bool {
        self.copied[at] && !self.original[at]
    }
}
