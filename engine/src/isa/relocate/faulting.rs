//! Relocation of instructions with an exception-table entry: the patch gets an entry like the original's.

use iced_x86::{FlowControl, Instruction, OpKind};

/// Handler type for a bad FPU state (`EX_TYPE_FPU_RESTORE` of
/// arch/x86/include/asm/extable_fixup_types.h).
const FPU_RESTORE: u8 = 6;
/// Handler type for a read past the end of a kernel page (`EX_TYPE_ZEROPAD`).
const ZEROPAD: u8 = 20;
/// Entries of programs that the kernel compiles itself (`EX_TYPE_BPF`).
const BPF: u8 = 7;
/// The last kind that is known.
const LAST: u8 = 20;

/// Returns whether an instruction whose entry has a handler of this type may be copied to a patch with an entry
/// like that one: the handlers use only the entry and the bytes of the instruction.
///
/// An access to memory of a process may not. Its fault may sleep until a page is read, with the instruction pointer
/// in the patch, and no wait for quiescence covers that thread.
#[must_use]
pub fn faults_alike(handler: u8, instruction: &Instruction) -> bool {
    let memory = (0..instruction.op_count()).any(|operand| {
        !matches!(
            instruction.op_kind(operand),
            OpKind::Register
                | OpKind::Immediate8
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        )
    });
    let sleeps = memory && !matches!(handler, FPU_RESTORE | ZEROPAD);
    instruction.flow_control() == FlowControl::Next
        && instruction.stack_pointer_increment() == 0
        && (1..=LAST).contains(&handler)
        && handler != BPF
        && !sleeps
}
