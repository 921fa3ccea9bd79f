//! Facts about single instructions that decoding needs: targets of branches, padding, and bytes that are
//! no instructions.

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};

use crate::Addr;

/// Bytes after the `ud2` of a hypervisor's prefix.
pub(crate) const EMULATION: usize = 3;

/// Returns whether the instruction is a `ud2` before the letters `xen` or `kvm`: a guest's request that
/// its hypervisor emulate the next instruction (arch/x86/include/asm/xen/prefix.h). The letters are no
/// instructions.
pub(crate) fn is_emulation_prefix(bytes: &[u8], start: Addr, instruction: &Instruction) -> bool {
    let rest = || {
        usize::try_from(instruction.next_ip() - start.0)
            .ok()
            .and_then(|rest| bytes.get(rest..))
    };
    instruction.code() == Code::Ud2
        && rest().is_some_and(|rest| rest.starts_with(b"xen") || rest.starts_with(b"kvm"))
}

/// Returns whether compilers and linkers put the instruction between functions and before loops.
pub(crate) fn is_padding(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Int3
            | Code::Nopw
            | Code::Nopd
            | Code::Nopq
            | Code::Nop_rm16
            | Code::Nop_rm32
            | Code::Nop_rm64
    )
}

/// The target of a direct branch or call.
pub(crate) fn branch_target(instruction: &Instruction) -> Option<Addr> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(Addr(instruction.near_branch_target()))
        }
        _ => None,
    }
}

/// Returns whether the instruction is a direct call.
pub(crate) fn is_direct_call(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Call
}

/// Returns an address of code that an instruction may compute: `lea`, `push imm32` and `mov`, as in
/// `push 1f; iretq; 1:` of sync_core(). An indirect branch may target it.
pub(crate) fn computed_address(instruction: &Instruction) -> Option<Addr> {
    match instruction.code() {
        Code::Lea_r64_m => match (instruction.memory_base(), instruction.memory_index()) {
            (Register::RIP, _) => Some(Addr(instruction.ip_rel_memory_address())),
            (Register::None, Register::None) => Some(Addr(instruction.memory_displacement64())),
            _ => None,
        },
        Code::Pushq_imm32 => Some(Addr(instruction.immediate(0))),
        Code::Mov_rm64_imm32 | Code::Mov_r64_imm64 => Some(Addr(instruction.immediate(1))),
        _ => None,
    }
}
