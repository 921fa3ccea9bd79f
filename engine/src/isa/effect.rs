//! Registers and status flags that single instructions read and write.

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};

use super::RegisterSet;

/// The status flags, as iced's bits. Others (DF, IF, AC) are left alone by instrument code.
pub(crate) const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Registers and status flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) registers: RegisterSet,
    pub(crate) flags: u32,
}

impl Values {
    pub(crate) const NONE: Self = Self {
        registers: RegisterSet::EMPTY,
        flags: 0,
    };
    pub(crate) const ALL: Self = Self {
        registers: RegisterSet::ALL,
        flags: STATUS,
    };

    pub(crate) fn of(registers: &[Register]) -> Self {
        Self {
            registers: RegisterSet::of(registers),
            flags: 0,
        }
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self {
            registers: self.registers.union(other.registers),
            flags: self.flags | other.flags,
        }
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self {
            registers: self.registers.difference(other.registers),
            flags: self.flags & !other.flags,
        }
    }
}

/// The transfer function of an instruction: before = reads ∪ (after − kills).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Values it may read.
    pub(crate) reads: Values,
    /// Values that are dead before it unless it reads them: it overwrites all of them whenever it executes.
    pub(crate) kills: Values,
    /// Registers of which it may change any part.
    pub(crate) writes: RegisterSet,
}

impl Effect {
    /// The effect of unknown code: it may read everything, and overwrite everything.
    pub(crate) const UNKNOWN: Self = Self {
        reads: Values::ALL,
        kills: Values::NONE,
        writes: RegisterSet::ALL,
    };

    /// Live values before the instruction, from those after it.
    pub(crate) const fn before(&self, after: Values) -> Values {
        self.reads.union(after.without(self.kills))
    }
}

/// Returns whether it is a call, direct or not.
pub(crate) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Returns whether it is a return such as compilers write.
pub(crate) fn is_return(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16)
}

/// Returns whether an operand may be written.
pub(crate) fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Instructions whose registers are more than their operands: firmware, hypervisors and enclaves
/// answer them (VMware's port reads `rbx`, `rsi` and `rdi` after an `in`), or they switch contexts.
pub(crate) fn is_opaque(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::In
            | M::Insb
            | M::Insd
            | M::Insw
            | M::Out
            | M::Outsb
            | M::Outsd
            | M::Outsw
            | M::Vmcall
            | M::Vmmcall
            | M::Vmfunc
            | M::Vmlaunch
            | M::Vmresume
            | M::Vmrun
            | M::Vmgexit
            | M::Tdcall
            | M::Seamcall
            | M::Encls
            | M::Enclu
            | M::Enclv
            | M::Getsec
            | M::Pconfig
            | M::Syscall
            | M::Sysenter
            | M::Sysret
            | M::Sysretq
            | M::Sysexit
            | M::Sysexitq
            | M::Iret
            | M::Iretd
            | M::Iretq
            | M::Rsm
    )
}

/// Instructions that may leave their destination as it was, whatever their description says: sources
/// of zero (Intel SDM 2A, BSF: "If the content of the source operand is 0, the content of the
/// destination operand is undefined"; processors leave it) and failed conditions.
fn writes_perhaps(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
        || matches!(
            instruction.mnemonic(),
            M::Bsf | M::Bsr | M::Lar | M::Lsl | M::Cmpxchg | M::Cmpxchg8b | M::Cmpxchg16b
        )
        || (instruction.condition_code() != ConditionCode::None
            && instruction.flow_control() == FlowControl::Next)
}

/// Shifts by `cl` leave the flags as they were if `cl` is zero.
fn shifts_by_cl(instruction: &Instruction) -> bool {
    let last = instruction.op_count().saturating_sub(1);
    last > 0
        && instruction.op_kind(last) == OpKind::Register
        && instruction.op_register(last) == Register::CL
        && instruction.flow_control() == FlowControl::Next
        && !matches!(instruction.code(), Code::Mov_r8_rm8 | Code::Mov_rm8_r8)
}

/// An instruction that does what its description says and no more.
pub(crate) fn plain(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Effect {
    let mut effect = Effect {
        reads: Values::NONE,
        kills: Values::NONE,
        writes: RegisterSet::EMPTY,
    };
    let perhaps = writes_perhaps(instruction);
    for used in factory.info(instruction).used_registers() {
        let register = used.register();
        if matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            effect.reads.registers.insert(register);
        }
        if is_write(used.access()) {
            effect.writes.insert(register);
        }
        // A write of 32 bits clears the upper half; one of 8 or 16 leaves the rest (Intel SDM 1, 3.4.1.1).
        if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite)
            && register.size() >= 4
            && !perhaps
        {
            effect.kills.registers.insert(register);
        }
    }
    (effect.reads.flags, effect.kills.flags) = flags(instruction);
    effect
}

/// The status flags that an instruction reads, and those that it overwrites whenever it executes.
pub(crate) fn flags(instruction: &Instruction) -> (u32, u32) {
    let reads = instruction.rflags_read() & STATUS;
    match writes_perhaps(instruction) || shifts_by_cl(instruction) {
        true => (reads, 0),
        false => (reads, instruction.rflags_modified() & STATUS),
    }
}
