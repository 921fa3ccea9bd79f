//! Instructions of patches that may fault: each has exactly one row with its recovery, and no
//! others have one.

use crate::verify::reason::Reason;
use iced_x86::Instruction;

use super::phase::Aim;
use super::state::AbstractState;
use super::walk::Walk;
use crate::Addr;
use crate::code::Why;
use crate::patch::Recovery;
use crate::plan::{PatchFault, Plan};
use crate::verify::text::decoded::DecodedInsn;
use crate::verify::text::exception::is_alike;
use crate::verify::text::routine::Routine;
use crate::verify::violation::Violation;

/// Returns the fixup of the instruction, if it has an entry in the exception table.
///
/// # Errors
/// Its copy may not fault.
fn fixup(routine: &Routine, original: &DecodedInsn) -> Result<Option<Addr>, Reason> {
    let mut sites = routine
        .sites_in(original.span())
        .filter(|site| matches!(site.why, Why::Exception { .. }));
    let Some(site) = sites.next() else {
        return Ok(None);
    };
    match (site.why, site.target) {
        (Why::Exception { handler }, Some(target))
            if sites.next().is_none()
                && site.span.start.0 == original.at()
                && is_alike(handler, &original.instruction) =>
        {
            Ok(Some(target))
        }
        _ => Err(Reason::MayFault {
            instruction: original.instruction.to_string(),
            at: Addr(original.at()),
        }),
    }
}

impl Walk<'_> {
    /// Checks a copied instruction that faults as the original does: control leaves the patch for
    /// its fixup.
    pub(crate) fn may_fault(
        &mut self,
        instruction: &Instruction,
        (routine, original): (&Routine, &DecodedInsn),
        state: &AbstractState,
        (goal, copy): (Aim, usize),
    ) -> Result<(), Reason> {
        let Some(to) = fixup(routine, original)? else {
            return Ok(());
        };
        let way = self.cross(goal.at, to.0, copy, false);
        if !self.leads_out(to.0, way)? {
            return Err(Reason::HookOnFault { to });
        }
        if !self.restored(state, self.originals.live_on(goal.at, to.0)) {
            return Err(self.not_restored());
        }
        self.machine.faults.push(PatchFault {
            at: Addr(instruction.ip()),
            recovery: Recovery::Like(Addr(goal.at)),
        });
        Ok(())
    }
}

/// Compares the plan's rows with the instructions that may fault.
pub(crate) fn compare(plan: &Plan, mut walked: Vec<PatchFault>, violations: &mut Vec<Violation>) {
    let mut wrong = |at: Addr, why: Reason| {
        let patch = plan.patches.partition_point(|patch| patch.address <= at);
        let patch = patch.saturating_sub(1);

        violations.push(Violation::Patch { patch, at, why });
    };
    walked.sort_by_key(|fault| fault.at);
    walked.dedup();
    for pair in walked.windows(2) {
        if let [one, other] = *pair
            && one.at == other.at
        {
            wrong(one.at, Reason::FaultsTwice);
        }
    }
    if !plan.faults.is_sorted_by(|one, other| one.at < other.at) {
        wrong(Addr(0), Reason::FaultOrder);
    }
    if plan.faults.len() > plan.layout.faults as usize {
        wrong(Addr(0), Reason::TooManyFaults);
    }
    let (mut said, mut walked) = (plan.faults.iter().peekable(), walked.iter().peekable());
    loop {
        let at = match (said.peek(), walked.peek()) {
            (None, None) => break,
            (Some(one), None) | (None, Some(one)) => one.at,
            (Some(one), Some(other)) => one.at.min(other.at),
        };
        let (planned, known) = (
            said.next_if(|fault| fault.at == at),
            walked.next_if(|fault| fault.at == at),
        );
        match (planned, known) {
            (Some(planned), Some(known)) if planned == known => {}
            (Some(_), None) => wrong(at, Reason::NeverFaults),
            (None, _) => wrong(at, Reason::UnplannedFault),
            _ => wrong(at, Reason::OtherRecovery),
        }
    }
}
