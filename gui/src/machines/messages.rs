//! Handling of messages from the threads of additional machines.

use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use ilk_driver::process::ProcessTarget;

use super::Machine;
use crate::app::App;
use crate::state::{NoticeKind, TargetState};
use crate::worker::{TargetNews, machine_planner};

impl App {
    /// Handles a message from a machine's thread.
    pub(crate) fn machine_message(&mut self, number: u64, news: TargetNews) {
        if self.state.machines.of(number).is_none() {
            return;
        }
        match news {
            TargetNews::Step(progress) => {
                self.set_machine_target(number, TargetState::Busy(progress));
            }
            TargetNews::Image(catalogue) => {
                let planner = machine_planner::Planner::start(number, self.workers.mail());
                if let Some(machine) = self.state.machines.of(number) {
                    machine.catalogue = Some(catalogue);
                    machine.planner = Some(planner);
                }
            }
            TargetNews::Connected(mut info) => {
                let machine = self.state.machines.of(number);
                let given = machine.and_then(|machine| machine.given.clone());
                info.host = self.name_for(number, &given.unwrap_or_else(|| info.host.clone()));
                self.set_machine_target(number, TargetState::Ready(info));
            }
            TargetNews::Failed(error) => {
                let words = error.to_string();
                self.pair_failed(number, &words);
                self.member_ended(number, Err(error));
                let machine = self.state.machines.of(number);
                let name = machine.map(|machine| machine.name()).unwrap_or_default();
                self.state
                    .notify(NoticeKind::Bad, format!("{name}: {words}"));
                self.lost(number, words);
            }
            TargetNews::Lost(error) => {
                let words = error.to_string();
                self.pair_failed(number, &words);
                self.member_ended(number, Err(error));
                self.lost(number, words);
            }
            TargetNews::Cancelled => {
                self.member_left(number);
                self.pair_failed(number, "It was disconnected.");
                self.lost(number, "It was disconnected.".to_owned());
            }
            TargetNews::Begun(clock, reading) => self.member_started(number, clock, reading),
            TargetNews::Ended(summary) if self.is_in_pair(number) => {
                self.pair_ended(number, summary);
            }
            TargetNews::Ended(summary) => self.member_ended(number, summary),
            TargetNews::Process(process) => self.state.machines.process = Some(*process),
            // Beside a process, the kernel describes the run of both.
            TargetNews::Started(described) if self.is_in_pair(number) => self.started(described),
            TargetNews::Loaded(described) => self.described_further(*described),
            TargetNews::Aggregates(totals) if self.is_in_pair(number) => self.added_up(totals),
            TargetNews::Stacks(stacks) if self.is_in_pair(number) => self.stacks_kept(stacks),
            TargetNews::NotRead(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
            // Additional machines have no runs of their own, and are not labs.
            TargetNews::Started(_)
            | TargetNews::Recorded(..)
            | TargetNews::Aggregates(_)
            | TargetNews::Stacks(_)
            | TargetNews::Console(_) => {}
        }
    }

    fn set_machine_target(&mut self, number: u64, state: TargetState) {
        if let Some(machine) = self.state.machines.of(number) {
            machine.target = state;
        }
    }

    fn lost(&mut self, number: u64, why: String) {
        self.machine_threads.remove(&number);
        if let Some(machine) = self.state.machines.of(number) {
            machine.target = TargetState::Lost(why);
            (machine.outcome, machine.requested) = (None, None);
            (machine.catalogue, machine.planner) = (None, None);
        }
    }

    /// Stores a machine's plan, or its errors.
    pub(crate) fn machine_planned(
        &mut self,
        number: u64,
        revision: u64,
        outcome: Result<Arc<VerifiedPlan>, Vec<String>>,
    ) {
        let machine = self.state.machines.of(number);
        let is_current = |machine: &&mut Machine| machine.request == revision;
        if let Some(machine) = machine.filter(is_current) {
            // A process has no handler of traps, among others.
            let refusal = |plan: &Arc<VerifiedPlan>| ProcessTarget::refusal(plan.plan());
            let outcome = outcome.and_then(|plan| match refusal(&plan) {
                Some(refusal) if machine.source.is_process() => Err(vec![refusal]),
                _ => Ok(plan),
            });
            machine.outcome = Some(outcome);
        }
    }
}
