//! The hits between two batches, and while a batch is written.

use super::reach::{Reach, Requirement};
use super::state::{Meaning, SiteChange};
use super::transition::Written;
use crate::placement::SiteIndex;
use crate::plan::PatchIndex;
use crate::verify::hash::{Map, Set};
use crate::verify::progress::{ProofProgress, REPORTED};
use crate::verify::violation::Violation;
use crate::{Addr, InstrumentId};

impl Meaning<'_> {
    /// Applies a batch, and checks the hits until the next batch, and during the batch where the
    /// order of writes matters. Sites of `staged` have an `int3` that diverts to the patch before
    /// the first write.
    ///
    /// # Errors
    /// That of `report`.
    pub(crate) fn batch(
        &mut self,
        number: usize,
        (staged, changes): (&[(SiteIndex, PatchIndex)], &[SiteChange]),
        (launched, splashed): (&[InstrumentId], &[InstrumentId]),
        report: &mut ProofProgress<'_>,
        violations: &mut Vec<Violation>,
    ) -> crate::Result<()> {
        let mut functions: Vec<Addr> = Vec::new();
        for change in changes {
            let placed = self.placed.find_mut(change.site);
            if let Some(placed) = self.required.entry(placed, "the site of a change") {
                *placed = change.after;
            }
            let leads = self
                .required
                .entry(self.leads.find(change.site), "the functions of a site");
            functions.extend(leads.into_iter().flatten());
        }
        for &id in launched.iter().chain(splashed) {
            let first = self.events.partition_point(|(known, _)| *known < id);
            let events = self.events.iter().skip(first);
            let events = events.take_while(|(known, _)| *known == id);
            functions.extend(events.filter_map(|&(_, event)| self.function_of(event)));
        }
        functions.sort_unstable();
        functions.dedup();
        self.active.extend(launched);
        for id in splashed {
            self.active.remove(id);
        }
        // The analysis relies on correct patches and splices.
        if !violations.is_empty() {
            return Ok(());
        }
        let ended: Set<InstrumentId> = splashed.iter().copied().collect();
        let written = Written::new(staged, changes);
        for (index, function) in functions.into_iter().enumerate() {
            if index.is_multiple_of(REPORTED) {
                report()?;
            }
            let want = self.want(function, |id| self.active.contains(&id));
            let mut wrong = Reach::of(self, function, &want, Requirement::Exactly, &Map::default());
            let early = self.conditional(function, &written, &want);
            if wrong.is_empty() && !early.is_empty() {
                let either = |id| self.active.contains(&id) || ended.contains(&id);
                let want = self.want(function, either);
                wrong = self.meanwhile(function, &written, &want, &early);
            }
            violations.extend(wrong.into_iter().map(|(at, why)| Violation::Hits {
                batch: number,
                at,
                why,
            }));
        }
        Ok(())
    }
}
