//! Locations of the memory operands of instrument code.

use crate::verify::reason::Reason;
use iced_x86::{Instruction, Register};

use super::state::AbstractState;
use crate::layout::{Abi, WordSegment};
use crate::verify::symbolic::atom::SymValue;
use crate::verify::symbolic::value::SymValues;
use crate::verify::text::effects::number;

/// A location of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A word that the patch has pushed; index in the stack of the state.
    Stack(usize),
    /// A word of the target's segment.
    Word(u64),
    /// Any other address.
    Memory(SymValue),
}

/// Returns the location of the memory operand.
///
/// # Errors
/// The operand is not eight bytes, is on the stack outside of the patch's own words, or has an
/// unknown segment.
pub(crate) fn of(
    values: &mut SymValues,
    abi: &Abi,
    instruction: &Instruction,
    state: &AbstractState,
) -> Result<Location, Reason> {
    if instruction.memory_size().size() != 8 {
        return Err(Reason::NarrowMemory);
    }
    if is_word(abi, instruction)? {
        let address = address(values, instruction, state)?;
        let word = values.as_constant(address);
        return word.map(Location::Word).ok_or(Reason::UnknownWord);
    }
    if instruction.memory_base() == Register::RSP {
        let (word, rest) = (
            instruction.memory_displacement64() / 8,
            instruction.memory_displacement64() % 8,
        );
        let from_top = usize::try_from(word)
            .ok()
            .and_then(|word| word.checked_add(1));
        let slot = from_top.and_then(|from_top| state.stack.len().checked_sub(from_top));
        return match slot {
            Some(slot) if rest == 0 && instruction.memory_index() == Register::None => {
                Ok(Location::Stack(slot))
            }
            _ => Err(Reason::ForeignStack),
        };
    }
    Ok(Location::Memory(address(values, instruction, state)?))
}

/// Returns whether the memory operand is relative to the target's segment.
///
/// # Errors
/// It is relative to the other segment with a base.
pub(crate) fn is_word(abi: &Abi, instruction: &Instruction) -> Result<bool, Reason> {
    match (abi.segment, instruction.memory_segment()) {
        (WordSegment::Gs, Register::GS) | (WordSegment::Fs, Register::FS) => Ok(true),
        (_, Register::GS | Register::FS) => Err(Reason::OtherSegment),
        _ => Ok(false),
    }
}

/// Returns the address without its segment. The stack pointer is unknown.
///
/// # Errors
/// The address is not of 64 bits, or is in vector registers.
pub(crate) fn address(
    values: &mut SymValues,
    instruction: &Instruction,
    state: &AbstractState,
) -> Result<SymValue, Reason> {
    if instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Register::RIP {
        return Ok(values.constant(instruction.ip_rel_memory_address()));
    }
    let mut sum = values.constant(instruction.memory_displacement64());
    let index_scale = u64::from(instruction.memory_index_scale());
    for (register, scale) in [
        (instruction.memory_base(), 1),
        (instruction.memory_index(), index_scale),
    ] {
        match number(register) {
            _ if register == Register::None => {}
            Some(number) if register.is_gpr64() => {
                let part = values.scale(state.register(number), scale);
                sum = values.add(sum, part);
            }
            _ => return Err(Reason::AddressRegisters),
        }
    }
    Ok(sum)
}
