//! How control leaves a patch: as the displaced instructions would have gone on.

use iced_x86::{FlowControl, Instruction};

use super::same::{same, same_condition};
use super::state::State;
use super::walk::{Node, Phase, Walk};
use crate::Addr;

impl Walk<'_> {
    /// Whether the instruction is the one that ends the block, or leads on to what follows it.
    pub(super) fn is_block_end(&mut self, instruction: &Instruction, state: &State) -> bool {
        let leaves = instruction.is_jmp_short_or_near()
            && !self.span.contains(Addr(instruction.near_branch_target()));
        let ends = match self.displaced.block_end() {
            None => leaves,
            Some(end) if end.is_call() => Some(end.end()) == pushed(instruction),
            Some(end) => match end.instruction.flow_control() {
                FlowControl::UnconditionalBranch => leaves,
                FlowControl::ConditionalBranch => same_condition(&end.instruction, instruction),
                _ => same(&end.instruction, instruction),
            },
        };
        ends && self.restored(state, self.displaced.live_at_split)
    }

    pub(super) fn block_end(
        &mut self,
        node: Node,
        instruction: &Instruction,
        state: State,
    ) -> Result<(), String> {
        let follows = self.displaced.span.end.0;
        let Some(end) = self.displaced.block_end() else {
            return self.jump(node, instruction, state, follows);
        };
        if end.is_call() {
            return self.on(node, instruction.next_ip(), Phase::Called, state);
        }
        let target = end.instruction.near_branch_target();
        match end.instruction.flow_control() {
            FlowControl::UnconditionalBranch => self.jump(node, instruction, state, target),
            FlowControl::ConditionalBranch => {
                let taken = instruction.near_branch_target();
                if self.span.contains(Addr(taken)) {
                    self.on(node, taken, Phase::Leaving(target), state.clone())?;
                } else if taken != target {
                    return Err(leads_wrong(taken, target));
                }
                self.on(node, instruction.next_ip(), Phase::Leaving(follows), state)
            }
            FlowControl::Return
                if self.bytes_from(instruction.next_ip()).first() == Some(&0xcc) =>
            {
                Ok(())
            }
            FlowControl::Return => Err("no int3 stands behind the return".into()),
            _ => Err("what ends the block cannot be moved".into()),
        }
    }

    /// A jump on the way to an address of the original code.
    pub(super) fn jump(
        &mut self,
        node: Node,
        instruction: &Instruction,
        state: State,
        to: u64,
    ) -> Result<(), String> {
        let target = instruction.near_branch_target();
        if !instruction.is_jmp_short_or_near() {
            return Err(format!(
                "`{instruction}` stands where a jump should lead to {}",
                Addr(to)
            ));
        }
        if self.span.contains(Addr(target)) {
            return self.on(node, target, Phase::Leaving(to), state);
        }
        if target == to {
            self.check_behind(instruction)
        } else {
            Err(leads_wrong(target, to))
        }
    }

    /// Behind what leaves the patch stands int3, for processors that speculate past it, or code.
    pub(super) fn check_behind(&self, instruction: &Instruction) -> Result<(), String> {
        match self.bytes_from(instruction.next_ip()).first() {
            Some(_) => Ok(()),
            None => Err("nothing keeps speculation from running past the end of the patch".into()),
        }
    }
}

fn leads_wrong(is: u64, should: u64) -> String {
    format!(
        "it leads to {}, and should lead to {}",
        Addr(is),
        Addr(should)
    )
}

/// The address that the instruction pushes, if that is all it does.
fn pushed(instruction: &Instruction) -> Option<u64> {
    let pushes =
        instruction.mnemonic() == iced_x86::Mnemonic::Push && !instruction.has_lock_prefix();
    // `push imm16` moves the stack by two bytes only.
    let wide = instruction.stack_pointer_increment() == -8;
    if pushes && wide {
        instruction.try_immediate(0).ok()
    } else {
        None
    }
}
