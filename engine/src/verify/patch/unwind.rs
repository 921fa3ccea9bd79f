//! Proof that the kernel unwinds the stack of a thread that is interrupted anywhere in a patch.

use iced_x86::{FlowControl, Instruction};

use super::phase::{Node, Phase};
use super::state::AbstractState;
use crate::Addr;
use crate::layout::RuntimeLayout;
use crate::placement::{Site, Splice};
use crate::unwind::Row;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::SymValue;
use crate::verify::text::originals::OriginalCode;

/// Number of rbp.
const RBP: u8 = 5;

/// Returns the bytes that the splice of a site pushes: a call pushes the original return address, since it is as long
/// as the original (Intel SDM 2A, CALL).
pub(crate) fn pushed_by(site: &Site) -> u64 {
    if site.splice == Splice::Call { 8 } else { 0 }
}

/// Checks that the rows are in order, and that they exist only if the target uses them.
pub(crate) fn order(layout: &RuntimeLayout, rows: &[Row]) -> Result<(), Reason> {
    if !rows.is_sorted_by(|one, next| one.at < next.at) {
        return Err(Reason::RowOrder);
    }
    if !layout.unwinds && !rows.is_empty() {
        return Err(Reason::UselessRows);
    }
    Ok(())
}

/// Returns the row of an address of a patch, whose rows count from its start.
pub(super) fn row_of((rows, start): (&[Row], Addr), at: u64) -> Option<&Row> {
    let after = rows.partition_point(|row| u64::from(row.at) <= at.wrapping_sub(start.0));
    rows.get(after.checked_sub(1)?)
}

/// Checks the row of a node: the original instruction that is next or in execution, the bytes on
/// the stack above that one's frame, and that rbp has its value.
pub(crate) fn check(
    originals: &OriginalCode<'_>,
    site: &Site,
    rows: &[Row],
    start: Addr,
    instruction: &Instruction,
    ((at, phase), state): (Node, &AbstractState),
) -> Result<(), Reason> {
    let (original, on_top) = match phase {
        Phase::Instruments { goal, .. } | Phase::Straight(goal) => (goal.at, 0),
        Phase::Keyed { at, .. } => (at, 0),
        Phase::HalfPushed { at, .. } | Phase::Called { at, .. } => (at, 8),
    };
    // The tracer calls from its site, and has no other effect on the stack there.
    let traced = site.splice == Splice::Tracer && original == site.displaced.start.0;
    let original = if traced {
        site.displaced.end.0
    } else {
        original
    };
    let row = row_of((rows, start), at).ok_or(Reason::NoRow)?;
    let pushed = pushed_by(site) + state.depth() + on_top;
    let stands = row.original == Addr(original)
        || leads(originals, row.original.0, original)
        || decides(originals, instruction, row.original.0, original);
    if !stands || u64::from(row.pushed) != pushed {
        return Err(Reason::OtherRow {
            original: row.original,
            pushed: row.pushed,
            expected: Addr(original),
            depth: pushed,
        });
    }
    if state.register(RBP) != SymValue::original(RBP) {
        return Err(Reason::FramePointer);
    }
    Ok(())
}

/// Returns whether the original code reaches `to` from `from` by jumps alone: its stack is the
/// same.
fn leads(originals: &OriginalCode<'_>, mut from: u64, to: u64) -> bool {
    // Limit of consecutive jumps.
    for _ in 0..4 {
        match originals.instruction(from) {
            Some((_, jump)) if jump.instruction.is_jmp_short_or_near() => {
                from = jump.instruction.near_branch_target();
            }
            _ => return false,
        }
        if from == to {
            return true;
        }
    }
    false
}

/// Returns whether a jump of the patch is one of the two that follow the copy of a branch at `from` that has no near
/// form (`loop`, `jrcxz`): short to what is next where it is not taken, near to its target. The branch is decided there
/// already, and has left the stack as it is.
fn decides(originals: &OriginalCode<'_>, jump: &Instruction, from: u64, to: u64) -> bool {
    originals.instruction(from).is_some_and(|(_, branch)| {
        let instruction = &branch.instruction;
        instruction.flow_control() == FlowControl::ConditionalBranch
            && !instruction.is_jcc_short_or_near()
            && (jump.is_jmp_short() && to == branch.end()
                || jump.is_jmp_near() && to == instruction.near_branch_target())
    })
}
