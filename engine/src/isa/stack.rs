//! Moves of the stack pointer by single instructions: the rules for every analysis of the planner that follows it.

use iced_x86::{Code, Instruction, InstructionInfoFactory, Register};

use super::effect::{is_call, is_return, is_write};

/// Returns the number of bytes that an instruction adds to the stack pointer, if it is a constant of the instruction:
/// 0 if it leaves the stack pointer alone, and for calls and returns, since callees restore it. `None` if the new
/// value depends on a register or on memory, as in `leave`, `and rsp, -64` or `mov rsp, rbp`.
pub(crate) fn stack_shift(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Option<i64> {
    let written = factory
        .info(instruction)
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == Register::RSP && is_write(used.access()));
    if !written || is_call(instruction) || is_return(instruction) {
        return Some(0);
    }
    let is_destination = instruction.op0_register() == Register::RSP;
    match instruction.code() {
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if is_destination => {
            Some(instruction.immediate(1).cast_signed())
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if is_destination => {
            instruction.immediate(1).cast_signed().checked_neg()
        }
        Code::Lea_r64_m
            if instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            Some(instruction.memory_displacement64().cast_signed())
        }
        Code::Leaveq => None,
        _ if is_destination => None,
        _ => match instruction.stack_pointer_increment() {
            0 => None,
            bytes => Some(i64::from(bytes)),
        },
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Returns the shift by the instruction that `bytes` encode.
    fn shift(bytes: &[u8]) -> Option<i64> {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        stack_shift(&mut InstructionInfoFactory::new(), &instruction)
    }

    #[test]
    fn constants_of_the_instruction_are_known_and_values_of_registers_are_not() {
        let cases: [(&[u8], Option<i64>, &str); 15] = [
            (&[0x53], Some(-8), "push rbx"),
            (&[0x66, 0x53], Some(-2), "push bx"),
            (&[0x9c], Some(-8), "pushfq"),
            (&[0x5b], Some(8), "pop rbx"),
            (&[0x48, 0x83, 0xec, 0x28], Some(-0x28), "sub rsp, 0x28"),
            (&[0x48, 0x83, 0xc4, 0x28], Some(0x28), "add rsp, 0x28"),
            (
                &[0x48, 0x8d, 0x64, 0x24, 0xf0],
                Some(-16),
                "lea rsp, [rsp - 16]",
            ),
            (&[0x48, 0x89, 0xe0], Some(0), "mov rax, rsp"),
            (&[0xe8, 0, 0, 0, 0], Some(0), "call"),
            (&[0xc3], Some(0), "ret"),
            (&[0xc9], None, "leave"),
            (&[0x5c], None, "pop rsp"),
            (&[0x48, 0x83, 0xe4, 0xc0], None, "and rsp, -64"),
            (&[0x48, 0x89, 0xec], None, "mov rsp, rbp"),
            (&[0x48, 0x8d, 0x65, 0xf0], None, "lea rsp, [rbp - 16]"),
        ];
        for (bytes, expected, text) in cases {
            assert_eq!(shift(bytes), expected, "{text}");
        }
    }
}
