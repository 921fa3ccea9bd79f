//! The planner's answer to a change of the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use gilk_engine::placement::Comparison;

/// A reply of the planner.
#[derive(Debug)]
pub struct PlanReply {
    /// The plan, or the errors of the session.
    pub(crate) outcome: Result<Arc<VerifiedPlan>, Vec<String>>,
    /// The plan of what is placed when the run begins.
    pub(crate) start: Option<Arc<VerifiedPlan>>,
    /// Libraries that the process has not mapped, each with the number of placements that wait for it.
    pub(crate) waiting: BTreeMap<String, usize>,
    /// Costs in place and whole of each function, by its session name.
    pub(crate) compared: BTreeMap<String, Comparison>,
    /// The index of the placement that the errors are about, if they are about one.
    pub(crate) fault: Option<usize>,
    /// Size of all patches of the plan in bytes.
    pub(crate) bytes: usize,
    /// The reason why a process cannot execute the plan, if any.
    pub(crate) process_refusal: Option<String>,
}
