//! Branches to functions that replace the original one.

use iced_x86::Instruction;

use super::hit::{Expected, Progress};
use super::joins::NodeId;
use super::phase::Aim;
use super::state::AbstractState;
use super::walk::Walk;
use crate::Addr;
use crate::placement::Point;
use crate::verify::reason::Reason;
use crate::verify::text::effects::Mask;

impl Walk<'_> {
    /// Returns whether an instruction is the branch to the replacement.
    pub(crate) fn branches_to_replacement(
        &self,
        instruction: &Instruction,
        expected: Option<&Expected>,
        progress: Progress,
    ) -> bool {
        let to = expected.and_then(|expected| expected.replacement);
        progress.is_nothing()
            && instruction.is_jmp_near()
            && to == Some(Addr(instruction.near_branch_target()))
    }

    /// Leaves for the replacement, with all that the function was called with. It calls the original function at the
    /// next instruction, so the state there is that of a call.
    pub(crate) fn replace(
        &mut self,
        since: Option<NodeId>,
        instruction: &Instruction,
        state: &AbstractState,
        at: (Option<Point>, usize, Progress, Aim),
    ) -> Result<(), Reason> {
        let (point, done, _, goal) = at;
        // No flag has a meaning at the entry of a function.
        if !self.restored(state, Mask::ALL.without(Mask::FLAGS)) {
            return Err(self.explain(self.not_restored(), at));
        }
        if self.machine.entered != 0 {
            return Err(Reason::BytesPushed {
                bytes: self.machine.entered,
            });
        }
        let expected = point.and_then(|point| self.list(point).get(done));
        let Some(expected) = expected else {
            let missing = "the instrument of a replacement";
            return Err(Reason::Internal { missing });
        };
        let original = (expected.id, Addr(instruction.next_ip()));
        if !self.replaced.contains(&original) {
            self.replaced.push(original);
        }
        let phase = self.kept(point, done + 1, Progress::default(), goal)?;
        let called = AbstractState::original(Mask::NONE);
        self.on(since, instruction.next_ip(), phase, called)
    }
}
