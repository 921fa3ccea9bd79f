//! The plan of the session, and the plans that preview the inspector's instrument.

use std::collections::BTreeMap;
use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use gilk_engine::placement::Comparison;
use gilk_engine::plan::Note;
use gilk_engine::session::Placement;

use crate::plan_reply::PlanReply;
use crate::worker::discard;

/// Returns the first error of a refused plan. A refusal without an error is a bug of the planner.
pub(crate) fn first_error(errors: &[String]) -> String {
    debug_assert!(!errors.is_empty(), "a plan was refused without an error");
    let first = errors.first().cloned();
    first.unwrap_or_else(|| "Internal error: a plan was refused without a reason.".to_owned())
}

/// State of the session's plan.
#[derive(Debug, Default)]
pub struct PlanState {
    /// Number of the last request.
    pub requested: u64,
    /// Number of the last reply.
    pub answered: u64,
    /// The plan, or the errors of the session.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// The plan of what is placed when the run begins, if there is one: without libraries that are not loaded.
    pub(crate) start: Option<Arc<VerifiedPlan>>,
    /// Libraries that the process has not mapped, each with the number of placements that wait for it.
    pub waiting: BTreeMap<String, usize>,
    /// Costs in place and whole of each function, by its session name.
    pub compared: BTreeMap<String, Comparison>,
    /// The index of the placement that the errors are about, if they are about one.
    pub fault: Option<usize>,
    /// True until the table of the session has scrolled to the faulty placement.
    pub(crate) fault_unseen: bool,
    /// Size of all patches of the plan in bytes.
    pub(crate) bytes: usize,
    /// The reason why a process cannot execute the plan, if any.
    pub(crate) process_refusal: Option<String>,
}

impl PlanState {
    /// Returns the plan's notes.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        match &self.outcome {
            Some(Ok(plan)) => &plan.plan().notes,
            _ => &[],
        }
    }

    /// Takes a reply of the planner.
    pub(crate) fn answer(&mut self, reply: PlanReply) {
        self.answered = self.requested;
        self.fault_unseen = reply.fault.is_some() && reply.fault != self.fault;
        self.fault = reply.fault;
        self.compared = reply.compared;
        (self.bytes, self.process_refusal) = (reply.bytes, reply.process_refusal);
        self.waiting = reply.waiting;
        if let Some(plan) = std::mem::replace(&mut self.start, reply.start) {
            discard(plan);
        }
        if let Some(Ok(plan)) = self.outcome.replace(reply.outcome) {
            discard(plan);
        }
    }

    /// Returns whether a reply is pending.
    #[must_use]
    pub const fn pending(&self) -> bool {
        self.requested != self.answered
    }
}

/// A plan with the inspector's instrument added.
#[derive(Debug, Default)]
pub struct Preview {
    /// The last request.
    pub(crate) requested: Option<PreviewRequest>,
    /// Number of the last request.
    pub(crate) number: u64,
    /// The plan, or the errors.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// The estimated nanoseconds of a hit of the added instrument, once it is planned.
    pub(crate) hit_ns: Option<f64>,
}

impl Preview {
    /// Stores the answer to the last request, with the estimated nanoseconds of a hit of the added instrument.
    pub(crate) fn answer(
        &mut self,
        outcome: Result<Arc<VerifiedPlan>, Vec<String>>,
        hit_ns: Option<f64>,
    ) {
        self.hit_ns = hit_ns;
        if let Some(Ok(plan)) = self.outcome.replace(outcome) {
            discard(plan);
        }
    }

    /// Returns the reasons why the placement is refused, if it is.
    #[must_use]
    pub fn refused(&self) -> Option<&[String]> {
        self.outcome.as_ref()?.as_ref().err().map(Vec::as_slice)
    }

    /// Makes a request if it differs from the last one, and returns its number.
    pub(crate) fn request(&mut self, wanted: Option<PreviewRequest>) -> Option<(u64, Placement)> {
        if wanted == self.requested {
            return None;
        }
        self.requested = wanted;
        self.number += 1;
        if let Some(Ok(plan)) = self.outcome.take() {
            discard(plan);
        }
        self.hit_ns = None;
        let requested = self.requested.as_ref()?;
        Some((self.number, requested.placement.clone()))
    }
}

/// The plan and placement for which a preview was requested.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreviewRequest {
    pub(crate) plan: u64,
    pub(crate) placement: Placement,
}
