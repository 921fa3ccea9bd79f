//! The instructions that can be executed at another address.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::layout::Abi;
use crate::{Addr, Refusal, Rule};

/// Checks whether the instruction, by its kind, may be copied to a patch of a target with the conventions of `abi`. Its
/// surroundings (fixed sites, exception entries) are checked by [`placement`](crate::placement).
///
/// # Errors
/// [`Rule::Undecodable`], [`Rule::Endbr`], [`Rule::Trap`], [`Rule::System`] or
/// [`Rule::Unrelocatable`], at the instruction's address.
pub fn movable(instruction: &Instruction, abi: &Abi) -> Result<(), Refusal> {
    let at = Addr(instruction.ip());
    if instruction.is_invalid() {
        return Err(Refusal::new(
            Rule::Undecodable,
            at,
            "the bytes there are not an instruction",
        ));
    }
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Endbr64 | Mnemonic::Endbr32
    ) {
        return Err(Refusal::new(
            Rule::Endbr,
            at,
            "endbr64 must stay where indirect branches land",
        ));
    }
    match instruction.flow_control() {
        FlowControl::Exception => Err(Refusal::new(
            Rule::Trap,
            at,
            "the kernel knows this ud2 (BUG or WARN) by its address",
        )),
        FlowControl::Interrupt => Err(Refusal::new(
            Rule::System,
            at,
            "an interrupt instruction is known by its address",
        )),
        FlowControl::XbeginXabortXend => Err(Refusal::new(
            Rule::Unrelocatable,
            at,
            "a transaction's fallback address is relative to it",
        )),
        FlowControl::IndirectBranch
            if abi.moves_indirect_jumps && instruction.code() == Code::Jmp_rm64 =>
        {
            Ok(())
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            let why = match abi.moves_indirect_jumps {
                true => "an indirect call, or a far jump, is not moved",
                false => "an indirect branch stays where the kernel's mitigations put it",
            };
            Err(Refusal::new(Rule::Unrelocatable, at, why))
        }
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::Call
        | FlowControl::Return => branch(instruction, at),
        FlowControl::Next => sequential(instruction, at),
    }
}

fn branch(instruction: &Instruction, at: Addr) -> Result<(), Refusal> {
    match instruction.code() {
        Code::Retnq | Code::Retnq_imm16 => Ok(()),
        _ if instruction.op0_kind() == OpKind::NearBranch64 => Ok(()),
        _ => Err(Refusal::new(
            Rule::System,
            at,
            "a far or system transfer is not moved",
        )),
    }
}

fn sequential(instruction: &Instruction, at: Addr) -> Result<(), Refusal> {
    let into_ss = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::SS
        && matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop);
    if into_ss || instruction.mnemonic() == Mnemonic::Sti {
        return Err(Refusal::new(
            Rule::System,
            at,
            "it holds off interrupts until the instruction after it has run",
        ));
    }
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Hlt | Mnemonic::Mwait | Mnemonic::Mwaitx | Mnemonic::Monitor | Mnemonic::Monitorx
    ) {
        return Err(Refusal::new(
            Rule::System,
            at,
            "the way into the idle state may not be stretched",
        ));
    }
    // What switches address spaces, descriptor tables, per-CPU bases or stacks under the patch.
    let switches = matches!(
        instruction.mnemonic(),
        Mnemonic::Swapgs
            | Mnemonic::Wrgsbase
            | Mnemonic::Lgdt
            | Mnemonic::Lidt
            | Mnemonic::Lldt
            | Mnemonic::Ltr
            | Mnemonic::Wrmsr
            | Mnemonic::Xrstors
            | Mnemonic::Xrstors64
    ) || writes_system_register(instruction);
    if switches {
        return Err(Refusal::new(
            Rule::System,
            at,
            "it changes the state of the processor that patches rely on",
        ));
    }
    if writes_stack_or_gs_selector(instruction) {
        return Err(Refusal::new(
            Rule::System,
            at,
            "it loads the segment that per-CPU data is reached by",
        ));
    }
    if instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Register::EIP {
        return Err(Refusal::new(
            Rule::Unrelocatable,
            at,
            "its operand is relative to the low half of its address",
        ));
    }
    Ok(())
}

fn writes_system_register(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && (instruction.op0_register().is_cr() || instruction.op0_register().is_dr())
}

fn writes_stack_or_gs_selector(instruction: &Instruction) -> bool {
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::GS
        && matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
}
