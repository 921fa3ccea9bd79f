//! The save and the restore of the flags. `lahf` and `seto al` save them in rax, which may be pushed;
//! `add al, 0x7f` restores the overflow flag, and `sahf` the others.

use iced_x86::{Instruction, Mnemonic, OpKind, Register, RflagsBits};

use super::machine::InstrumentMachine;
use super::state::{AbstractState, Compare, RAX};
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Atom, FlagsStage};

/// The flags of `lahf` and `sahf`: all status flags but the overflow flag.
const LOW: u32 = RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF | RflagsBits::CF;
/// The operand of the addition that overflows if, and only if, al is 1.
const OVERFLOWS: u64 = 0x7f;

impl InstrumentMachine<'_> {
    /// Executes an instruction of a save or a restore. Returns whether it is one.
    ///
    /// # Errors
    /// [`Reason::OtherFlags`] if rax does not have what the instruction before it leaves there.
    pub(super) fn flags(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
    ) -> Result<bool, Reason> {
        let is_al = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::AL;
        let (before, after) = match instruction.mnemonic() {
            Mnemonic::Lahf => {
                let at = instruction.ip();
                for stage in [FlagsStage::Low, FlagsStage::Saved, FlagsStage::Overflow] {
                    state.forget(&self.values, &Atom::Flags(at, stage));
                }
                state.saved_flags = Some((at, state.flags));
                let low = self.values.atom(Atom::Flags(at, FlagsStage::Low));
                state.set(RAX, low);
                return Ok(true);
            }
            Mnemonic::Seto if is_al => (FlagsStage::Low, FlagsStage::Saved),
            Mnemonic::Add if is_al => (FlagsStage::Saved, FlagsStage::Overflow),
            Mnemonic::Sahf => (FlagsStage::Overflow, FlagsStage::Overflow),
            _ => return Ok(false),
        };
        let saved = match (self.values.as_atom(state.register(RAX)), state.saved_flags) {
            (Some(&Atom::Flags(at, stage)), Some((last, saved)))
                if stage == before && at == last =>
            {
                saved
            }
            _ => return Err(Reason::OtherFlags),
        };
        let Some((at, _)) = state.saved_flags else {
            return Err(Reason::OtherFlags);
        };
        match instruction.mnemonic() {
            // The flag is saved as it is now, which is as it was if no instruction has changed it.
            Mnemonic::Seto => {
                let now = state.flags | LOW;
                state.saved_flags = Some((at, saved & now));
            }
            Mnemonic::Add if instruction.immediate(1) == OVERFLOWS => {
                state.flags = saved & RflagsBits::OF;
            }
            Mnemonic::Sahf => state.flags = state.flags & RflagsBits::OF | saved & LOW,
            _ => return Err(Reason::OtherFlags),
        }
        if instruction.mnemonic() != Mnemonic::Seto {
            state.compare = Compare::Unknown;
        }
        let value = self.values.atom(Atom::Flags(at, after));
        state.set(RAX, value);
        Ok(true)
    }
}
