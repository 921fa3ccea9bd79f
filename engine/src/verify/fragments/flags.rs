//! Flags that are dead before an original instruction: a reading of the code after it, apart from the translator's.

use iced_x86::{Code, ConditionCode, FlowControl, Instruction, OpKind, Register, RflagsBits};

use crate::Addr;
use crate::verify::hash::Set;

/// OF, SF, ZF, AF and PF, which `inc` changes.
pub(super) const INCREMENTED: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;
/// Those and CF, which `cmp` changes.
pub(super) const COMPARED: u32 = INCREMENTED | RflagsBits::CF;

/// The most instructions that are read.
const MOST_READ: usize = 512;

/// Returns whether every path from an instruction overwrites some flags before it reads one. `original` decodes an
/// original instruction.
pub(super) fn are_dead(
    original: &dyn Fn(Addr) -> Option<Instruction>,
    at: Addr,
    flags: u32,
) -> bool {
    let mut worklist = vec![(at, flags)];
    let mut visited: Set<(Addr, u32)> = Set::default();
    while let Some((at, mut unknown)) = worklist.pop() {
        if visited.len() >= MOST_READ {
            return false;
        }
        if !visited.insert((at, unknown)) {
            continue;
        }
        let Some(instruction) = original(at) else {
            return false;
        };
        if instruction.is_invalid()
            || reads_all(&instruction)
            || instruction.rflags_read() & unknown != 0
        {
            return false;
        }
        if always_writes(&instruction) {
            unknown &= !instruction.rflags_modified();
        }
        if unknown == 0 {
            continue;
        }
        let next = (Addr(instruction.next_ip()), unknown);
        let target = (Addr(instruction.near_branch_target()), unknown);
        let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        match instruction.flow_control() {
            FlowControl::Next => worklist.push(next),
            FlowControl::UnconditionalBranch | FlowControl::Call if direct => worklist.push(target),
            FlowControl::ConditionalBranch if direct => worklist.extend([next, target]),
            // Where they continue is not known.
            _ => return false,
        }
    }
    true
}

/// Instructions that read the flags as a whole, or after which others may.
fn reads_all(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Pushfq | Code::Pushfw | Code::Lahf | Code::Syscall | Code::Sysenter
    )
}

/// Returns whether it changes the flags that its description names whenever it is executed: no shift by a register, no
/// repetition and no condition.
fn always_writes(instruction: &Instruction) -> bool {
    let shifts = (0..instruction.op_count()).any(|number| {
        number > 0
            && instruction.op_kind(number) == OpKind::Register
            && instruction.op_register(number) == Register::CL
    });
    !shifts
        && !instruction.has_rep_prefix()
        && !instruction.has_repne_prefix()
        && instruction.condition_code() == ConditionCode::None
}
