//! What the threads of machines beside the target say, and what becomes of it.

use std::sync::Arc;

use gilk_engine::VerifiedPlan;

use super::Machine;
use crate::app::App;
use crate::state::{NoticeKind, TargetState};
use crate::worker::{TargetNews, beside};

impl App {
    /// Takes what a machine's thread has said.
    pub(crate) fn news_beside(&mut self, number: u64, news: TargetNews) {
        if self.state.machines.of(number).is_none() {
            return;
        }
        match news {
            TargetNews::Step(progress) => {
                self.beside_is(number, TargetState::Busy(progress));
            }
            TargetNews::Image(catalogue) => {
                let planner = beside::Planner::start(number, self.workers.mail());
                if let Some(machine) = self.state.machines.of(number) {
                    machine.catalogue = Some(catalogue);
                    machine.planner = Some(planner);
                }
            }
            TargetNews::Connected(mut info) => {
                let machine = self.state.machines.of(number);
                let given = machine.and_then(|machine| machine.place.name.clone());
                info.host = self.name_for(number, &given.unwrap_or(info.host));
                self.beside_is(number, TargetState::Ready(info));
            }
            TargetNews::Failed(error) => {
                let words = error.to_string();
                self.member_ended(number, Err(error));
                let machine = self.state.machines.of(number);
                let name = machine.map(|machine| machine.name()).unwrap_or_default();
                self.state.tell(NoticeKind::Bad, format!("{name}: {words}"));
                self.lost(number, words);
            }
            TargetNews::Cancelled => {
                self.member_left(number);
                self.lost(number, "It was left.".to_owned());
            }
            TargetNews::Begun(clock, reading) => self.member_started(number, clock, reading),
            TargetNews::Ended(summary) => self.member_ended(number, summary),
            // Machines beside the target run nothing alone, and are no labs.
            TargetNews::Started(_) | TargetNews::Console(_) => {}
        }
    }

    fn beside_is(&mut self, number: u64, state: TargetState) {
        if let Some(machine) = self.state.machines.of(number) {
            machine.target = state;
        }
    }

    fn lost(&mut self, number: u64, why: String) {
        self.beside.remove(&number);
        if let Some(machine) = self.state.machines.of(number) {
            machine.target = TargetState::Lost(why);
            (machine.outcome, machine.asked) = (None, None);
            (machine.catalogue, machine.planner) = (None, None);
        }
    }

    /// A machine's plan, or what is wrong with the session there.
    pub(crate) fn planned_beside(
        &mut self,
        number: u64,
        revision: u64,
        outcome: Result<Arc<VerifiedPlan>, Vec<String>>,
    ) {
        let machine = self.state.machines.of(number);
        let asked = |machine: &&mut Machine| machine.asked_as == revision;
        if let Some(machine) = machine.filter(asked) {
            machine.outcome = Some(outcome);
        }
    }
}
