//! Instructions with an entry in the kernel's exception table, and which of them may be moved.

use iced_x86::{FlowControl, Instruction, OpKind};

use super::routine::Routine;
use crate::Span;

/// Returns whether a fault of a copy with an entry like the original's is handled in the same way.
///
/// The kernel's handlers (arch/x86/mm/extable.c) read the entry, the registers and the bytes of the
/// instruction. But a thread that faults on user memory may sleep, with its instruction pointer in
/// the patch when no wait covers it any more. So memory may be accessed only where the handler is
/// for the processor's own state (`EX_TYPE_FPU_RESTORE`, 6) or for a word that ends on the next
/// page (`EX_TYPE_ZEROPAD`, 20).
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

/// Returns whether the instructions of a span with exception entries may be moved.
pub(crate) fn may_be_moved(routine: &Routine, site: Span, handler: u8) -> bool {
    let index = routine.index(site.start.0);
    let decoded = index.and_then(|index| routine.instructions.get(index));
    decoded.is_some_and(|decoded| is_alike(handler, &decoded.instruction))
}
