//! Reads of the kernel's stack by programs. The target's code reads it; its contract is that of `stacks` in `struct
//! ilk_info`: it replaces one word that the patch has pushed by the number of the stack, and leaves all else as it is.
//! Proven are the called code, and that it begins with the frame of the original instruction: the frame of the unwind
//! row, which [`unwind::check`](super::unwind::check) proves of the instruction that calls.

use gilk_instruments::program::Input;
use iced_x86::{Instruction, OpKind};

use super::hit::Progress;
use super::machine::InstrumentMachine;
use super::state::AbstractState;
use super::unwind::row_of;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::Source;

/// Bytes of the two words that are pushed for the call.
const PUSHED: u32 = 16;

impl InstrumentMachine<'_> {
    /// Executes a call in the code of a program.
    pub(super) fn read_stack(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        let reader = self.layout.stacks.ok_or(Reason::UnplannedCall)?;
        let expected = self.program().ok_or(Reason::UnplannedCall)?;
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        if !direct || instruction.near_branch_target() != reader.0 {
            let function = "the code that reads stacks".to_owned();
            return Err(Reason::OtherFunction {
                function,
                entry: reader,
            });
        }
        let row = row_of(self.unwind_rows, instruction.ip()).ok_or(Reason::NoRow)?;
        let slot = state.stack.len().checked_sub(2).ok_or(Reason::OtherFrame)?;
        let word = |slot| {
            let word = state.stack.get(slot).copied();
            word.and_then(|word| self.values.as_constant(word))
        };
        let extent = word(slot).ok_or(Reason::OtherFrame)?;
        let depth = u8::try_from(extent >> 16).map_err(|_| Reason::OtherFrame)?;
        let pushed = u64::from(row.pushed).checked_sub(PUSHED.into());
        if word(slot + 1) != Some(row.original.0) || pushed != Some(extent & 0xffff) {
            return Err(Reason::OtherFrame);
        }
        let input = Input::KernelStack(depth);
        if !self.hit(expected).inputs(progress, state).contains(&input) {
            return Err(Reason::OtherStack);
        }
        let number = self.once(Source::Input(input), 64, state, progress)?;
        let missing = "a pushed word";
        let word = state.stack.get_mut(slot);
        *word.ok_or(Reason::Internal { missing })? = number;
        Ok(())
    }
}
