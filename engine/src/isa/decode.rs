//! Facts about single instructions that decoding needs: targets of branches, padding, and bytes that are
//! no instructions.

use iced_x86::{Code, FlowControl, Instruction, OpKind};

use crate::Addr;

/// Bytes behind the `ud2` of a hypervisor's prefix.
pub(crate) const EMULATION: usize = 3;

/// A `ud2` and the letters `xen` or `kvm`, by which a guest asks its hypervisor to emulate the
/// instruction behind them (arch/x86/include/asm/xen/prefix.h): the letters are no instructions.
pub(crate) fn is_emulation_prefix(bytes: &[u8], start: Addr, instruction: &Instruction) -> bool {
    let behind = || {
        usize::try_from(instruction.next_ip() - start.0)
            .ok()
            .and_then(|behind| bytes.get(behind..))
    };
    instruction.code() == Code::Ud2
        && behind().is_some_and(|rest| rest.starts_with(b"xen") || rest.starts_with(b"kvm"))
}

/// What compilers and the linker put between functions and before loops.
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

/// The address that a direct branch or call leads to.
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
