//! Instructions of patches that may fault: each has one row that says what the kernel does then, and
//! nothing else has.

use iced_x86::{FlowControl, Instruction, OpKind};

use super::decoded::Decoded;
use super::routine::Routine;
use super::state::State;
use super::violation::Violation;
use super::walk::Walk;
use super::way::Goal;
use crate::image::SiteKind;
use crate::patch::Recovery;
use crate::plan::{Fault, Plan};
use crate::{Addr, Span};

/// Whether a copy of the instruction with an entry like its own is handled as it is, when it faults.
///
/// The kernel's handlers (arch/x86/mm/extable.c) read the entry, the registers and the instruction's bytes. But a
/// thread that faults on memory of a process may sleep, and then its instruction pointer is in the
/// patch when nobody waits for it any more. So memory may be touched only where the handler is one
/// for the processor's own state (`EX_TYPE_FPU_RESTORE`, 6) or for a word that ends on the
/// next page (`EX_TYPE_ZEROPAD`, 20).
pub(super) fn is_alike(handler: u8, instruction: &Instruction) -> bool {
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

/// Where the kernel goes on if the instruction faults, if it has an entry in the exception table.
///
/// # Errors
/// If its copy may not fault.
fn fixup(routine: &Routine, original: &Decoded) -> Result<Option<Addr>, String> {
    let mut sites = routine
        .sites_in(original.span())
        .filter(|site| matches!(site.kind, SiteKind::Exception { .. }));
    let Some(site) = sites.next() else {
        return Ok(None);
    };
    match (site.kind, site.target) {
        (SiteKind::Exception { handler }, Some(target))
            if sites.next().is_none()
                && site.span.start.0 == original.at()
                && is_alike(handler, &original.instruction) =>
        {
            Ok(Some(target))
        }
        _ => Err(format!(
            "`{}` of {} may fault, and cannot elsewhere",
            original.instruction,
            Addr(original.at())
        )),
    }
}

impl Walk<'_> {
    /// A copied instruction may fault as the original does: control leaves the patch for its fixup.
    pub(super) fn may_fault(
        &mut self,
        instruction: &Instruction,
        (routine, original): (&Routine, &Decoded),
        state: &State,
        (goal, copy): (Goal, usize),
    ) -> Result<(), String> {
        let Some(to) = fixup(routine, original)? else {
            return Ok(());
        };
        let way = self.cross(goal.at, to.0, copy, false);
        if !self.leads_out(to.0, way)? {
            return Err(format!(
                "something stands on the way to {to}, where a fault leads"
            ));
        }
        if !self.restored(state, self.originals.live_on(goal.at, to.0)) {
            return Err(self.not_restored());
        }
        self.machine.faults.push(Fault {
            at: Addr(instruction.ip()),
            recovery: Recovery::Like(Addr(goal.at)),
        });
        Ok(())
    }
}

/// Compares what the plan says may fault with what was found.
pub(super) fn compare(plan: &Plan, mut found: Vec<Fault>, violations: &mut Vec<Violation>) {
    let mut wrong = |at: Addr, why: &str| {
        let patch = plan.patches.partition_point(|patch| patch.address <= at);
        let patch = patch.saturating_sub(1);
        let why = why.into();
        violations.push(Violation::Patch { patch, at, why });
    };
    found.sort_by_key(|fault| fault.at);
    found.dedup();
    for pair in found.windows(2) {
        if let [one, other] = *pair
            && one.at == other.at
        {
            wrong(one.at, "it may fault as two original instructions do");
        }
    }
    if !plan.faults.is_sorted_by(|one, other| one.at < other.at) {
        wrong(Addr(0), "the instructions that may fault are not in order");
    }
    if plan.faults.len() > plan.layout.faults as usize {
        wrong(
            Addr(0),
            "more instructions may fault than the target has room for",
        );
    }
    let (mut said, mut found) = (plan.faults.iter().peekable(), found.iter().peekable());
    loop {
        let at = match (said.peek(), found.peek()) {
            (None, None) => break,
            (Some(one), None) | (None, Some(one)) => one.at,
            (Some(one), Some(other)) => one.at.min(other.at),
        };
        let (told, known) = (
            said.next_if(|fault| fault.at == at),
            found.next_if(|fault| fault.at == at),
        );
        match (told, known) {
            (Some(told), Some(known)) if told == known => {}
            (Some(_), None) => wrong(at, "it may fault by the plan, and does not"),
            (None, _) => wrong(at, "it may fault, and nothing says what comes then"),
            _ => wrong(at, "the plan says that something else comes when it faults"),
        }
    }
}

/// Whether what the kernel has in its exception table of a span's bytes can be done elsewhere too.
pub(super) fn may_be_moved(routine: &Routine, site: Span, handler: u8) -> bool {
    let index = routine.index(site.start.0);
    let decoded = index.and_then(|index| routine.instructions.get(index));
    decoded.is_some_and(|decoded| is_alike(handler, &decoded.instruction))
}
