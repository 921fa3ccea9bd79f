//! Equality of an original instruction and its relocated copy.

use iced_x86::{Instruction, OpKind, Register};

/// Returns whether two instructions have the same effect, each at its own address: same operation,
/// same operands, and a RIP-relative operand with the same address.
pub(crate) fn same(original: &Instruction, moved: &Instruction) -> bool {
    let prefixes = |i: &Instruction| {
        (
            i.has_lock_prefix(),
            i.has_rep_prefix(),
            i.has_repne_prefix(),
        )
    };
    let vector = |i: &Instruction| {
        (
            i.op_mask(),
            i.zeroing_masking(),
            i.suppress_all_exceptions(),
            i.is_broadcast(),
            i.rounding_control(),
        )
    };
    original.code() == moved.code()
        && original.op_count() == moved.op_count()
        && prefixes(original) == prefixes(moved)
        && vector(original) == vector(moved)
        && (0..original.op_count()).all(|operand| same_operand(original, moved, operand))
}

fn same_operand(original: &Instruction, moved: &Instruction, operand: u32) -> bool {
    let kind = original.op_kind(operand);
    kind == moved.op_kind(operand)
        && match kind {
            OpKind::Register => original.op_register(operand) == moved.op_register(operand),
            OpKind::Memory => same_memory(original, moved),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                original.near_branch_target() == moved.near_branch_target()
            }
            OpKind::FarBranch16 | OpKind::FarBranch32 => false,
            OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI => original.memory_segment() == moved.memory_segment(),
            OpKind::MemoryESDI | OpKind::MemoryESEDI | OpKind::MemoryESRDI => true,
            _ => match (
                original.try_immediate(operand),
                moved.try_immediate(operand),
            ) {
                (Ok(original), Ok(moved)) => original == moved,
                _ => false,
            },
        }
}

fn same_memory(original: &Instruction, moved: &Instruction) -> bool {
    let address = |i: &Instruction| match (i.memory_base(), i.is_ip_rel_memory_operand()) {
        (_, true) => i.ip_rel_memory_address(),
        _ => i.memory_displacement64(),
    };
    let index = |i: &Instruction| {
        (
            i.memory_index(),
            if i.memory_index() == Register::None {
                1
            } else {
                i.memory_index_scale()
            },
        )
    };
    // An operand relative to the low half of RIP cannot be relocated.
    original.memory_base() != Register::EIP
        && original.memory_base() == moved.memory_base()
        && index(original) == index(moved)
        && original.memory_segment() == moved.memory_segment()
        && original.memory_size() == moved.memory_size()
        && address(original) == address(moved)
}

/// Returns whether two conditional branches have the same condition, whatever their targets.
pub(crate) fn same_condition(original: &Instruction, moved: &Instruction) -> bool {
    if original.is_jcc_short_or_near() {
        moved.is_jcc_short_or_near() && original.condition_code() == moved.condition_code()
    } else {
        original.code() == moved.code()
    }
}

/// Returns whether one of two `jcc` branches if and only if the other does not.
pub(crate) fn opposite_condition(original: &Instruction, moved: &Instruction) -> bool {
    let mut negated = *original;
    negated.negate_condition_code();
    original.is_jcc_short_or_near()
        && moved.is_jcc_short_or_near()
        && negated.condition_code() == moved.condition_code()
}
