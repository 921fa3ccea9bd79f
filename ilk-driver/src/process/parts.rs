//! Objects that a process has loaded after the start of its measurement, with their plans, and the values of their words
//! at the end of each load. All loads of an object with the same instruments are one part, and are added up.

use std::collections::BTreeMap;

use gilk_engine::{Plan, VerifiedPlan};
use gilk_instruments::program::Scope as VariableScope;
use gilk_samples::InstrumentId;
use gilk_samples::totals::Totals;

use super::objects::Object;
use super::reserved::Reserved;
use crate::client::{is_aggregate_word, label, totals_of_banks};
use crate::{Error, Result};

/// A verified plan for an object that a process has loaded, the addresses that it is for, and what the planner keeps
/// with it.
pub struct LaterPlan<P> {
    /// Addresses that the plan's layout has.
    pub reserved: Reserved,
    /// Instruments of the object alone.
    pub plan: VerifiedPlan,
    /// Kept with the first load.
    pub kept: P,
}

/// An object that was loaded after the start, with the instruments that it had at each load.
#[derive(Debug)]
pub struct LoadedPart<P> {
    /// The path of its file, as the process sees it.
    pub object: String,
    /// Number of the first function of its plan, in the identifiers that are recorded.
    pub first_major: u32,
    /// Number of the first placement of its plan, in the session that is recorded.
    pub first_placement: usize,
    /// The plan of the first load.
    pub plan: VerifiedPlan,
    /// Kept by the planner with that plan.
    pub kept: P,
    /// Values of its words by key, as in the plan, at the end of each load.
    pub loads: Vec<BTreeMap<u64, u64>>,
}

impl<P> LoadedPart<P> {
    /// Returns the identifier in the recording of one in the plan.
    #[must_use]
    pub fn recorded(&self, id: u64) -> u64 {
        InstrumentId::renumbered(id, self.first_major)
    }

    /// Hits of its counters by key, as in the plan, of all loads.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<u64, u64> {
        let mut hits = BTreeMap::new();
        for (key, value) in self.loads.iter().flatten() {
            add(&mut hits, *key, *value);
        }
        hits
    }

    /// Adds its totals of all loads, and of banks of words of those that are mapped, to others of the recording.
    pub fn append_totals(
        &self,
        totals: &mut Totals,
        mapped: impl Iterator<Item = BTreeMap<u64, u64>>,
    ) {
        let banks: Vec<_> = self.loads.iter().cloned().chain(mapped).collect();
        let own = totals_of_banks(self.plan.plan(), &banks);
        totals.append(own, self.first_placement);
    }

    /// Returns it with what `keep` makes of what was kept.
    pub fn keeping<Q>(self, keep: impl FnOnce(P) -> Q) -> LoadedPart<Q> {
        LoadedPart {
            object: self.object,
            first_major: self.first_major,
            first_placement: self.first_placement,
            plan: self.plan,
            kept: keep(self.kept),
            loads: self.loads,
        }
    }
}

/// Adds the value of a word, which may be negative, to those of its key.
fn add(values: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
    let sum = values.entry(key).or_insert(0);
    *sum = sum.wrapping_add(value);
}

/// A variable that all instruments of a session have in common: its name and its instances.
pub(super) type SharedVariable = (String, VariableScope);

/// Returns the variables that the instruments of a plan share.
pub(super) fn shared_variables(plan: &Plan) -> Vec<SharedVariable> {
    let instruments = plan.instruments.iter();
    let probes = instruments.filter_map(|one| one.probe.as_deref());
    let variables = probes.flat_map(|probe| probe.checked.variables.values());
    let shared = variables.filter(|variable| variable.shared);
    shared
        .map(|variable| (variable.name.clone(), variable.scope))
        .collect()
}

/// The parts of a process.
pub(super) struct LoadedParts<P> {
    parts: Vec<LoadedPart<P>>,
    next: NextNumbers,
}

impl<P> Default for LoadedParts<P> {
    fn default() -> Self {
        Self::after(NextNumbers::default())
    }
}

/// The numbers that functions and placements of a plan have in a recording after those of others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextNumbers {
    major: u32,
    placement: usize,
}

impl NextNumbers {
    /// Those after the first plan of a recording.
    pub(super) fn after(plan: &Plan) -> Self {
        Self::default().then(plan)
    }

    /// Those after a further plan, all of whose placements are planned.
    fn then(self, plan: &Plan) -> Self {
        let functions = u32::try_from(plan.functions.len()).unwrap_or(InstrumentId::MAJORS);
        let placements = plan.instruments.iter();
        let placements = placements.map(|one| one.placement + 1);
        Self {
            major: self.major.saturating_add(functions),
            placement: self.placement + placements.max().unwrap_or(0),
        }
    }
}

/// The words of an object that is mapped: the index of its part, and their values by key.
pub(super) type MappedCounts = (usize, Vec<(u64, u64)>);

impl<P> LoadedParts<P> {
    /// No parts yet; the first is numbered from these on.
    pub(super) fn after(next: NextNumbers) -> Self {
        Self {
            parts: Vec::new(),
            next,
        }
    }

    /// Returns the index of the part with the instruments of a plan, and whether it is new.
    ///
    /// # Errors
    /// [`Error::Plan`] if identifiers have no numbers for its functions.
    pub(super) fn part(
        &mut self,
        object: &Object,
        plan: VerifiedPlan,
        kept: P,
    ) -> Result<(usize, bool)> {
        let instruments = |plan: &Plan| -> Vec<(u64, String)> {
            let instruments = plan.instruments.iter();
            let named = instruments.map(|one| (one.id.pack(), label(plan, one)));
            named.collect()
        };
        let wanted = instruments(plan.plan());
        let mut parts = self.parts.iter();
        if let Some(part) = parts.position(|part| instruments(part.plan.plan()) == wanted) {
            return Ok((part, false));
        }
        let next = self.next.then(plan.plan());
        if next.major > InstrumentId::MAJORS {
            return Err(Error::Plan {
                reason: "it has more functions than identifiers have numbers for".to_owned(),
            });
        }
        self.parts.push(LoadedPart {
            object: object.path.clone(),
            first_major: self.next.major,
            first_placement: self.next.placement,
            plan,
            kept,
            loads: Vec::new(),
        });
        self.next = next;
        Ok((self.parts.len() - 1, true))
    }

    /// Returns a part by its index.
    pub(super) fn get(&self, part: usize) -> Option<&LoadedPart<P>> {
        self.parts.get(part)
    }

    /// Number of the first function of a part, in the identifiers that are recorded.
    pub(super) fn first_major(&self, part: usize) -> u32 {
        let part = self.parts.get(part);
        part.map_or(InstrumentId::MAJORS, |part| part.first_major)
    }

    /// The plans of the parts, each with the number of its first function in recorded identifiers.
    pub(super) fn plans(&self) -> impl Iterator<Item = (&Plan, u32)> {
        let parts = self.parts.iter();
        parts.map(|part| (part.plan.plan(), part.first_major))
    }

    /// The variables that instruments share in other objects than one, by its path.
    pub(super) fn shared_with_others(&self, path: &str) -> Vec<SharedVariable> {
        let others = self.parts.iter().filter(|part| part.object != path);
        let shared = others.flat_map(|part| shared_variables(part.plan.plan()));
        shared.collect()
    }

    /// Adds the values of words at the end of a load.
    pub(super) fn add_load(&mut self, part: usize, counts: Vec<(u64, u64)>) {
        if let Some(part) = self.parts.get_mut(part) {
            part.loads.push(counts.into_iter().collect());
        }
    }

    /// The hits up to now, by recorded identifier, of ended loads and of those that are mapped.
    pub(super) fn counts(&self, mapped: &[MappedCounts]) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let mut hits = part.hits();
            for (_, counts) in mapped.iter().filter(|(of, _)| *of == index) {
                for (key, value) in counts {
                    add(&mut hits, *key, *value);
                }
            }
            let hits = hits.into_iter().filter(|(key, _)| !is_aggregate_word(*key));
            all.extend(hits.map(|(key, value)| (part.recorded(key), value)));
        }
        all
    }

    /// Adds the totals up to now, of ended loads and of those that are mapped.
    pub(super) fn append_totals(&self, totals: &mut Totals, mapped: &[MappedCounts]) {
        for (index, part) in self.parts.iter().enumerate() {
            let mapped = mapped.iter().filter(|(of, _)| *of == index);
            let mapped = mapped.map(|(_, counts)| counts.iter().copied().collect());
            part.append_totals(totals, mapped);
        }
    }

    /// All of them, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LoadedPart<P>> {
        self.parts.iter()
    }

    /// Gives the parts away.
    pub(super) fn take(&mut self) -> Vec<LoadedPart<P>> {
        std::mem::take(&mut self.parts)
    }
}
