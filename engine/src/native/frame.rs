//! The frame of a native function: its effect on the stack and on callee-saved registers, by abstract
//! interpretation of its control flow.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpKind};

use super::state::State;
use crate::Addr;

/// The stack usage of a function, and its calls.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// The most bytes below the return address.
    pub(super) bytes: u64,
    /// Functions that it calls, with the stack depth below the return address, at most, at the call.
    pub(super) calls: BTreeMap<Addr, u64>,
}

impl Frame {
    /// Follows `function` through `code`, which are the instructions of the file by address.
    ///
    /// # Errors
    /// Where it does what it may not, and what.
    pub(super) fn of(
        function: Addr,
        code: &BTreeMap<Addr, Instruction>,
        kernel: &BTreeSet<Addr>,
    ) -> Result<Self, (Addr, String)> {
        let mut frame = Self::default();
        let mut info = InstructionInfoFactory::new();
        let mut states = BTreeMap::from([(function, State::entry())]);
        let mut worklist = BTreeSet::from([function]);
        while let Some(at) = worklist.pop_first() {
            let wrong = |why: &str| (at, why.to_owned());
            let instruction = code
                .get(&at)
                .ok_or_else(|| wrong("is a branch target, and no instruction begins there"))?;
            let state = states.get(&at).cloned();
            debug_assert!(state.is_some(), "{at} is reached in no state");
            let mut state = state.ok_or_else(|| wrong("is reached in an unknown state"))?;
            let depth = state.depth().map_err(wrong)?;
            let mut on = vec![Addr(instruction.next_ip())];
            match instruction.flow_control() {
                FlowControl::Return => {
                    state.comes_back().map_err(|why| (at, why))?;
                    on.clear();
                }
                FlowControl::Call => {
                    let to = branch(instruction)
                        .ok_or_else(|| wrong("branches to a computed address"))?;
                    let deepest = frame.calls.entry(to).or_default();
                    *deepest = depth.max(*deepest);
                    state.called();
                }
                FlowControl::UnconditionalBranch => {
                    on = branch(instruction).into_iter().collect();
                }
                FlowControl::Next | FlowControl::ConditionalBranch => {
                    state.step(instruction, &mut info).map_err(wrong)?;
                    frame.bytes = frame.bytes.max(state.depth().map_err(wrong)?);
                    on.extend(branch(instruction));
                }
                _ => return Err(wrong("branches to a computed address")),
            }
            for to in on {
                if kernel.contains(&to) {
                    // The kernel's function returns for it.
                    state.comes_back().map_err(|why| (at, why))?;
                    continue;
                }
                match states.get_mut(&to) {
                    None => {
                        states.insert(to, state.clone());
                        worklist.insert(to);
                    }
                    Some(there) => {
                        if there.meet(&state).map_err(|why| (to, why.to_owned()))? {
                            worklist.insert(to);
                        }
                    }
                }
            }
        }
        Ok(frame)
    }
}

/// Returns the target of a direct branch or call.
pub(super) fn branch(instruction: &Instruction) -> Option<Addr> {
    let direct = instruction.op0_kind() == OpKind::NearBranch64;
    direct.then(|| Addr(instruction.near_branch_target()))
}
