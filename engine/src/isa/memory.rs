//! Accesses of memory by single instructions, the implicit ones among them, as far as their addresses are known before
//! the instruction is executed.

use iced_x86::{
    Code, CodeSize, ConditionCode, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
    UsedMemory,
};

use super::RegisterSet;
use super::effect::is_write;

/// The address of an operand without its displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperandBase {
    /// A register of 64 bits, or none.
    pub(crate) base: Register,
    pub(crate) index: Register,
    pub(crate) scale: u32,
    /// Relative to the thread's base of `fs`.
    pub(crate) thread: bool,
}

/// The address of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryPlace {
    Constant {
        at: u64,
        /// Relative to the thread's base of `fs`.
        thread: bool,
    },
    Operand(OperandBase, i64),
    /// From a register on, which a repeated string instruction moves.
    Repeated(Register),
    /// Not known before, or perhaps not accessed: masks, gathers, states of extensions, bits by a register.
    Unknown,
}

/// An access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryAccess {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// Bytes; of one repetition. 0 if unknown.
    pub(crate) size: u32,
    pub(crate) place: MemoryPlace,
}

/// Returns the accesses of an instruction, those that only write last.
pub(crate) fn accesses(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Vec<MemoryAccess> {
    let used = factory.info(instruction).used_memory();
    let real = used
        .iter()
        .filter(|one| !matches!(one.access(), OpAccess::None | OpAccess::NoMemAccess));
    let mut all: Vec<MemoryAccess> = real.map(|one| access(instruction, one)).collect();
    all.sort_by_key(|one| !one.reads);
    all
}

fn access(instruction: &Instruction, used: &UsedMemory) -> MemoryAccess {
    // The decoder gives the operands of a repeated instruction no size.
    let size = match repeats(instruction) {
        true => instruction.memory_size(),
        false => used.memory_size(),
    };
    let size = u32::try_from(size.size()).unwrap_or(0);
    let place = if size == 0 {
        MemoryPlace::Unknown
    } else {
        place(instruction, used)
    };
    MemoryAccess {
        reads: !matches!(used.access(), OpAccess::Write | OpAccess::CondWrite),
        writes: is_write(used.access()),
        size,
        place,
    }
}

fn place(instruction: &Instruction, used: &UsedMemory) -> MemoryPlace {
    let is_wide = |register: Register| register == Register::None || register.is_gpr64();
    let known = used.address_size() == CodeSize::Code64
        && used.segment() != Register::GS
        && is_wide(used.base())
        && is_wide(used.index())
        && !used.index().is_vector_register()
        && !instruction.has_op_mask()
        && !addresses_bits(instruction)
        && instruction.code() != Code::Enterq_imm16_imm8;
    if !known {
        return MemoryPlace::Unknown;
    }
    let thread = used.segment() == Register::FS;
    if repeats(instruction) {
        return match thread {
            true => MemoryPlace::Unknown,
            false => MemoryPlace::Repeated(used.base()),
        };
    }
    // A conditional move reads in any case.
    let perhaps = matches!(used.access(), OpAccess::CondRead | OpAccess::CondWrite);
    if perhaps && instruction.condition_code() == ConditionCode::None {
        return MemoryPlace::Unknown;
    }
    let nothing = used.base() == Register::None && used.index() == Register::None;
    if nothing {
        return MemoryPlace::Constant {
            at: used.displacement(),
            thread,
        };
    }
    let base = OperandBase {
        base: used.base(),
        index: used.index(),
        scale: used.scale(),
        thread,
    };
    MemoryPlace::Operand(base, used.displacement().cast_signed())
}

/// Returns whether it is a string instruction with a prefix of repetition.
fn repeats(instruction: &Instruction) -> bool {
    let has_prefix = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    instruction.is_string_instruction() && has_prefix
}

/// Bit tests whose operand is a string of bits: a register chooses the byte.
fn addresses_bits(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Bt, Btc, Btr, Bts};
    matches!(instruction.mnemonic(), Bt | Btc | Btr | Bts)
        && instruction.op1_kind() == OpKind::Register
}

/// The general registers that an instruction reads or writes.
pub(crate) fn named(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> RegisterSet {
    let used = factory.info(instruction).used_registers();
    used.iter().map(iced_x86::UsedRegister::register).collect()
}

/// The general registers that an instruction writes, or may write.
pub(crate) fn written(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> RegisterSet {
    let used = factory.info(instruction).used_registers().iter();
    let written = used.filter(|used| is_write(used.access()));
    written.map(iced_x86::UsedRegister::register).collect()
}

/// Returns whether an instruction means something by the base of `gs`, or sets the base of `fs`.
pub(crate) fn uses_thread_bases(instruction: &Instruction) -> bool {
    let has_memory =
        (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory);
    has_memory && instruction.memory_segment() == Register::GS
        || instruction.segment_prefix() == Register::GS
        || matches!(
            instruction.code(),
            Code::Wrfsbase_r32
                | Code::Wrfsbase_r64
                | Code::Rdgsbase_r32
                | Code::Rdgsbase_r64
                | Code::Wrgsbase_r32
                | Code::Wrgsbase_r64
        )
}
