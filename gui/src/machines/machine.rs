//! State of the additional machines.

use std::sync::Arc;

use super::pair_run::PairRun;
use super::together::{Member, Together};
use crate::args::Source;
use crate::catalogue::Catalogue;
use crate::target_state::TargetState;
use crate::worker::machine_planner;
use gilk_engine::VerifiedPlan;
use gilk_engine::cfg::BlockIndex;
use ilk_driver::process::ProcessLayouts;

/// The additional machines, and the session that runs on all machines.
#[derive(Debug, Default)]
pub struct Machines {
    /// The machines, in the order in which they were added.
    pub others: Vec<Machine>,
    /// The running session on all machines, or the last one.
    pub together: Option<Together>,
    /// The name given to the target, if any.
    pub(crate) first: Option<String>,
    /// The process that a target is, if one is.
    pub(crate) process: Option<ProcessLayouts>,
    /// The running session in a process and its kernel.
    pub(crate) pair: Option<PairRun>,
}

/// An additional machine.
#[derive(Debug)]
pub struct Machine {
    /// Number of its thread, unique among all targets.
    pub number: u64,
    /// Its agent, or the process that it is.
    pub source: Source,
    /// The name to display before it has reported its own.
    pub(super) label: String,
    /// The name given to it, if any.
    pub(super) given: Option<String>,
    /// Status of its target.
    pub target: TargetState,
    /// Its image, once it is loaded.
    pub catalogue: Option<Arc<Catalogue>>,
    /// The plan of the session for it, or the errors.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// The document and revision of the last plan request, and the process that alone is to hit it.
    pub(super) requested: Option<((u64, u64), Option<u32>)>,
    /// Number of the last plan request.
    pub(super) request: u64,
    pub(super) planner: Option<machine_planner::Planner>,
    /// The function and block that were open when it was shown last.
    pub(super) open: Option<(String, Option<BlockIndex>)>,
}

impl Machine {
    /// Returns the machine's name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.target {
            TargetState::Ready(info) => info.host.clone(),
            _ => self.label.clone(),
        }
    }

    /// Returns the reason why a session cannot run on it, if any.
    fn hindrance(&self) -> Option<String> {
        let name = self.name();
        match (&self.target, &self.outcome) {
            (TargetState::Ready(_), Some(Ok(_))) => None,
            (TargetState::Ready(_), Some(Err(wrong))) => {
                Some(format!("On {name}: {}", wrong.join(" ")))
            }
            (TargetState::Ready(_), None) => {
                Some(format!("The session is being planned for {name}."))
            }
            (TargetState::Lost(_) | TargetState::None | TargetState::Offline, _) => Some(format!(
                "{name} is lost; reconnect or remove it in the bar below the menus."
            )),
            (TargetState::Busy(_), _) => Some(format!("{name} is not ready yet.")),
        }
    }

    /// Returns the machine's part in the last run.
    pub(crate) fn part<'a>(&self, together: Option<&'a Together>) -> Option<&'a Member> {
        together?.member(self.number)
    }
}

impl Machines {
    /// Returns the number of the process that a target is, if one is.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ProcessLayouts::pid)
    }

    /// Returns the reason why a session cannot start on all machines, if any.
    pub(crate) fn hindrance(&self) -> Option<String> {
        self.others.iter().find_map(Machine::hindrance)
    }

    /// Returns the machine with that number.
    pub(super) fn of(&mut self, number: u64) -> Option<&mut Machine> {
        self.others.iter_mut().find(|one| one.number == number)
    }
}
