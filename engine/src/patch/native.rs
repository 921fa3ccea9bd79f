//! The call sequence of a native function, fit to what it is called with.

use gilk_instruments::Parameter;
use gilk_instruments::program::Input;
use iced_x86::{Code, Instruction, Register};

use super::emit::Emitter;
use super::registers::Registers;
use super::{Called, Hooked};
use crate::isa::abi::{ARGUMENTS, input_register};
use crate::isa::encode::at;
use crate::layout::RuntimeLayout;

/// Emits the call. Whatever it may change is saved by now, and what is read of that lies on the stack: so
/// no parameter is in the way of another.
pub(super) fn call(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    called: Called<'_>,
    registers: &Registers,
    layout: &RuntimeLayout,
) {
    for (&parameter, to) in called.native.parameters.iter().zip(ARGUMENTS) {
        let constant = match parameter {
            Parameter::Input(Input::Identifier) => Some(hooked.id.pack()),
            Parameter::Input(Input::Block) => Some(hooked.id.block.into()),
            Parameter::Counter => {
                let Some(word) = hooked.counter.and_then(|slot| layout.counter(slot)) else {
                    return e.lacks("counter of a native function");
                };
                Some(word.0)
            }
            Parameter::Input(_) => None,
        };
        let from = match parameter {
            Parameter::Input(input) => input_register(input),
            Parameter::Counter => None,
        };
        e.op(match (constant, from) {
            (Some(bits), _) => Instruction::with2(Code::Mov_r64_imm64, to, bits),
            (None, Some(from)) => match registers.slot(from) {
                Some(slot) => Instruction::with2(Code::Mov_r64_rm64, to, at(Register::RSP, slot)),
                None => Instruction::with2(Code::Mov_r64_rm64, to, from),
            },
            (None, None) => continue,
        });
    }
    e.op(Instruction::with_branch(
        Code::Call_rel32_64,
        called.entry.0,
    ));
}
