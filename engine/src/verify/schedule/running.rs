//! The set of running instruments: after each batch exactly those that are due, and none at the
//! end.

use super::parts;
use super::player::{Player, bits};
use crate::plan::{Batch, PatchIndex};
use crate::verify::hash::Set;
use crate::verify::meaning::hooks;
use crate::verify::meaning::state::SiteChange;
use crate::verify::reason::Reason;
use crate::verify::violation::Violation;
use crate::{Addr, InstrumentId};

impl Player<'_> {
    /// Updates the number of points at which instruments run.
    pub(crate) fn count(&mut self, change: &SiteChange, touched: &mut Vec<InstrumentId>) {
        let plan = self.plan;
        let required = self.required;
        let of = |patch: Option<PatchIndex>| {
            let patch =
                patch.and_then(|patch| required.entry(plan.patch(patch), "a patch in place"));
            patch
                .into_iter()
                .flat_map(|patch| &patch.hooks)
                .flat_map(|(_, ids)| ids.iter().copied())
        };
        for id in of(change.before) {
            touched.push(id);
            let count = self.running.get_mut(&id).filter(|count| **count > 0);
            if let Some(count) = required.entry(count, "a running instrument") {
                *count = count.saturating_sub(1);
            }
        }
        for id in of(change.after) {
            touched.push(id);
            *self.running.entry(id).or_default() += 1;
        }
    }

    /// Checks that after a batch exactly the instruments run that are launched and not splashed, at
    /// all their points.
    pub(crate) fn check_running(
        &mut self,
        number: usize,
        batch: &Batch,
        mut touched: Vec<InstrumentId>,
    ) {
        let mut wrong = Vec::new();
        let [launched, splashed] = self.times.remove(&bits(batch.at)).unwrap_or_default();
        for (change, mut due, said) in [
            ("launched", launched, &batch.launched),
            ("splashed", splashed, &batch.splashed),
        ] {
            let mut said = said.clone();
            said.sort_unstable();
            due.sort_unstable();
            if due != said {
                wrong.push(Reason::NotDue { change });
            }
            touched.extend(due);
        }
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            let runs = self.running.get(&id).copied().unwrap_or(0);
            let active = self
                .by_id
                .get(&id)
                .filter(|one| one.launch <= batch.at && batch.at < one.splash);
            let should = active.map_or(0, |one| one.points.len());
            if runs != should {
                wrong.push(Reason::RunsAtPoints {
                    id,
                    runs,
                    expected: should,
                });
            }
        }
        for why in wrong {
            self.batch_is_wrong(number, batch, why);
        }
    }

    pub(crate) fn at_the_end(&mut self) {
        if let Some(part) = self.in_place.keys().next() {
            let part = parts::name(self.plan, *part);
            let why = Reason::LeftInPlace { part };
            self.violations.push(Violation::Plan { why });
        }
        let batches: Set<i64> = self
            .plan
            .batches
            .iter()
            .map(|batch| bits(batch.at))
            .collect();
        let batch_at = |time: f64| batches.contains(&bits(time));
        for instrument in &self.plan.instruments {
            let in_order = 0.0 <= instrument.launch
                && instrument.launch < instrument.splash
                && instrument.splash <= self.plan.duration;
            if !(in_order && batch_at(instrument.launch) && batch_at(instrument.splash)) {
                let why = Reason::NoBatchAt {
                    launch: instrument.launch,
                    splash: instrument.splash,
                };
                let at: Addr = hooks::place(self.plan, instrument);
                self.violations.push(Violation::Instrument {
                    id: instrument.id,
                    at,
                    why,
                });
            }
        }
    }
}
