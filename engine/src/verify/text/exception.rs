//! Which instructions with an entry in the kernel's exception table may be moved.

use iced_x86::{FlowControl, Instruction, OpKind};

use super::routine::Routine;
use crate::Span;

/// Whether a copy of the instruction with an entry like its own is handled as it is, when it faults.
///
/// The kernel's handlers (arch/x86/mm/extable.c) read the entry, the registers and the instruction's bytes. But a
/// thread that faults on memory of a process may sleep, and then its instruction pointer is in the
/// patch when nobody waits for it any more. So memory may be touched only where the handler is one
/// for the processor's own state (`EX_TYPE_FPU_RESTORE`, 6) or for a word that ends on the
/// next page (`EX_TYPE_ZEROPAD`, 20).
pub(crate) fn is_alike(handler: u8, instruction: &Instruction) -> bool {
    let plain = |operand| match instruction.op_kind(operand) {
        OpKind::Register => true,
        _ => instruction.try_immediate(operand).is_ok(),
    };
    let known = matches!(handler, 1..=6 | 8..=20);
    let restful = matches!(handler, 6 | 20) || (0..instruction.op_count()).all(plain);
    instruction.flow_control() == FlowControl::Next
        && instruction.stack_pointer_increment() == 0
        && known
        && restful
}

/// Whether what the kernel has in its exception table of a span's bytes can be done elsewhere too.
pub(crate) fn may_be_moved(routine: &Routine, site: Span, handler: u8) -> bool {
    let index = routine.index(site.start.0);
    let decoded = index.and_then(|index| routine.instructions.get(index));
    decoded.is_some_and(|decoded| is_alike(handler, &decoded.instruction))
}
