//! The results of plans in a process: lines of counters, totals, and the metadata of a recording.

use std::collections::BTreeMap;

use gilk_engine::plan::PlannedInstrument;
use gilk_engine::{Addr, HookType, Plan};
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::totals::{Total, TotalValue, Totals};
use ilk_driver::client::{TargetInfo, label, metadata, totals_of_banks};
use ilk_driver::possible::PossiblePlan;

use crate::blocks::SparingCounts;

/// Names of the aggregates of a script's instruments that only count, by instrument.
pub(crate) type CounterNames = BTreeMap<String, String>;

/// A verified plan of a measurement.
pub(crate) struct ProcessPlan {
    pub(crate) planned: PossiblePlan,
    pub(crate) names: CounterNames,
    pub(crate) sparing: SparingCounts,
    /// Titles of the static probes that its script may stand on, by address.
    pub(crate) probes: BTreeMap<Addr, String>,
    /// A sentence about each object file of replacements, which stays mapped.
    pub(crate) staying: Vec<String>,
}

impl ProcessPlan {
    /// Returns whether an instrument has results.
    pub(crate) fn measures(&self) -> bool {
        let mut instruments = self.planned.plan.plan().instruments.iter();
        instruments.any(|one| !one.definition.replaces())
    }
}

/// The results of a plan.
pub(crate) struct Results {
    /// Hits and labels of counters.
    pub(crate) lines: Vec<(u64, String)>,
    /// Hits, by identifier, that follow from those of counters.
    pub(crate) following: Vec<(u64, u64)>,
    /// Totals that a recording keeps.
    pub(crate) recorded: Totals,
    /// Those, and counters that a script names.
    pub(crate) shown: Totals,
}

impl ProcessPlan {
    /// Describes a recording.
    pub(crate) fn described(&self, info: &TargetInfo, clock: Clock) -> anyhow::Result<Metadata> {
        let plan = self.planned.plan.plan();
        let mut described = metadata(plan, &self.planned.session, info, clock)?;
        let following = self.sparing.following(plan);
        following.describe(&mut described, &self.planned.session)?;
        for (planned, info) in plan.instruments.iter().zip(&mut described.instruments) {
            if let Some(probe) = self.static_probe(plan, planned) {
                info.label = format!("{} {probe}", info.instrument);
            }
        }
        Ok(described)
    }

    /// Returns the name and place of the static probe that an instrument stands on: `usdt:python:gc__start in
    /// gc_collect+0x71`.
    fn static_probe(&self, plan: &Plan, planned: &PlannedInstrument) -> Option<String> {
        if self.probes.is_empty() || planned.id.hook != HookType::Pre {
            return None;
        }
        let function = plan.function(planned.id.major)?;
        let number = usize::try_from(planned.id.block).ok()?;
        let at = function.outline.blocks.get(number)?.start;
        let title = self.probes.get(&at)?;
        let offset = function.outline.span.start.to(at);
        Some(format!("usdt:{title} in {}+{offset:#x}", function.name))
    }

    /// Returns the results, from the hits of counters and from the words of each load of its objects.
    pub(crate) fn results(
        &self,
        (hits, loads): (&BTreeMap<u64, u64>, &[BTreeMap<u64, u64>]),
        all: bool,
    ) -> Results {
        let plan = self.planned.plan.plan();
        let follows = self.sparing.following(plan).counts(hits);
        let recorded = totals_of_banks(plan, loads);
        let mut shown = recorded.clone();
        let mut lines: Vec<(u64, String)> = Vec::new();
        for planned in plan
            .instruments
            .iter()
            .filter(|planned| planned.counter.is_some())
        {
            // Each counter has a word.
            let hits = hits.get(&planned.id.pack()).copied().unwrap_or_default();
            match self.names.get(&planned.definition.name) {
                // The recording has it as a counter.
                Some(name) => shown.added_up.push(Total {
                    placement: planned.placement,
                    instrument: planned.definition.name.clone(),
                    name: name.clone(),
                    unit: String::new(),
                    may_be_zero: false,
                    value: TotalValue::Number(hits.into()),
                }),
                None if all || hits > 0 => lines.push((hits, label(plan, planned))),
                None => {}
            }
        }
        let following = follows.iter().map(|(id, hits, _)| (*id, *hits)).collect();
        let seen = follows.into_iter().filter(|(_, hits, _)| all || *hits > 0);
        lines.extend(seen.map(|(_, hits, label)| (hits, label)));
        Results {
            lines,
            following,
            recorded,
            shown,
        }
    }
}
