//! Proof of the counts: from batch to batch, control that takes an edge of the original code runs
//! each instrument that the edge hits one time, and no others.
//!
//! An edge is taken in the text, inside a patch, or by leaving a patch. In the text, the list at
//! the entry of the site at its end runs, if one is in place. Inside a patch the lists of the edge
//! and of the copy at its end run, and on leaving one the list of the edge and then that of the
//! site at its end. A function is analysed again when a site changes that is in it or whose patches
//! branch into it.

use super::hooks::{ById, HitEvent, HitEvents};
use crate::ids::Ids;
use crate::placement::{InsnEdge, Point, SiteIndex};
use crate::plan::{Patch, PatchIndex, Plan};
use crate::verify::hash::{Map, Set};
use crate::verify::internal::Required;
use crate::verify::patch::phase::Facts;
use crate::verify::text::originals::OriginalCode;
use crate::{Addr, HookType, InstrumentId};

/// The change of a site from one patch to another; `None` is the original code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteChange {
    pub(crate) site: SiteIndex,
    pub(crate) before: Option<PatchIndex>,
    pub(crate) after: Option<PatchIndex>,
    pub(crate) rank: u8,
}

/// An instrument and an event that hits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owed {
    event: HitEvent,
    /// Order among the hooks of several blocks that one event hits.
    turn: u8,
    id: InstrumentId,
}

/// The instruments that each event hits, each list in the order of execution.
#[derive(Clone, Debug, Default)]
pub(crate) struct Want {
    /// Before this instruction, for every path to it.
    pub(crate) at: Map<u64, Vec<InstrumentId>>,
    /// On this edge, before those of its target.
    pub(crate) on: Map<InsnEdge, Vec<InstrumentId>>,
}

/// The instruments that run, and those that should, in the current state of the text.
pub(crate) struct Meaning<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) originals: &'a OriginalCode<'a>,
    pub(crate) by_id: &'a ById<'a>,
    pub(crate) events: &'a HitEvents,
    /// The edges and calls of each site's patches.
    pub(crate) facts: Ids<SiteIndex, Option<Facts>>,
    /// The patch of each site in place.
    pub(crate) placed: Ids<SiteIndex, Option<PatchIndex>>,
    /// Sites by start address.
    pub(crate) by_start: Map<u64, SiteIndex>,
    /// By function: the sites in it, and those whose patches branch into it.
    into: Map<Addr, Vec<SiteIndex>>,
    /// The functions that each site is in or that its patches branch into.
    pub(crate) leads: Ids<SiteIndex, Box<[Addr]>>,
    /// By function, sorted: the events that hit its instruments.
    owed: Map<Addr, Vec<Owed>>,
    pub(crate) active: Set<InstrumentId>,
    /// Records absent entries.
    pub(crate) required: &'a Required,
}

impl<'a> Meaning<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        originals: &'a OriginalCode<'a>,
        by_id: &'a ById<'a>,
        events: &'a HitEvents,
        facts: Ids<SiteIndex, Option<Facts>>,
        required: &'a Required,
    ) -> Self {
        let mut meaning = Self {
            plan,
            originals,
            by_id,
            events,
            placed: Ids::like(&facts, None),
            facts,
            by_start: (plan.sites.iter().zip((0..).map(SiteIndex)))
                .map(|(site, number)| (site.displaced.start.0, number))
                .collect(),
            into: Map::default(),
            leads: Ids::new(),
            owed: Map::default(),
            active: Set::default(),
            required,
        };
        for site in meaning.facts.keys() {
            let functions = meaning.leads_into(site);
            for &function in &functions {
                meaning.into.entry(function).or_default().push(site);
            }
            meaning.leads.push(functions.into());
        }
        for &(id, event) in events {
            let turn = match (event, id.hook) {
                (HitEvent::On(_), HookType::Pre) => 0,
                (HitEvent::On(_), HookType::Post) => 1,
                (HitEvent::On(_), HookType::Taken | HookType::Untaken) => 2,
                (HitEvent::At(_), HookType::Pre) => 3,
                (HitEvent::At(_), _) => 4,
            };
            let owed = Owed { event, turn, id };
            let function = meaning.function_of(event);
            if let Some(function) = meaning.required.entry(function, "the function of an event") {
                meaning.owed.entry(function).or_default().push(owed);
            }
        }
        for owed in meaning.owed.values_mut() {
            owed.sort_unstable_by_key(|owed| (owed.event, owed.turn, owed.id.order));
        }
        meaning
    }

    /// Returns the function that an event enters, or else the one that it leaves.
    pub(crate) fn function_of(&self, event: HitEvent) -> Option<Addr> {
        let start = |at: Addr| Some(self.originals.image.function_at(at)?.span.start);
        match event {
            HitEvent::At(at) => start(at),
            HitEvent::On(InsnEdge { from, to }) => start(to).or_else(|| start(from)),
        }
    }

    /// Returns the functions that a site is in or that its patches branch into.
    fn leads_into(&self, site: SiteIndex) -> Vec<Addr> {
        let start = self.required.entry(self.plan.site(site), "a site");
        let start = start.map(|site| site.displaced.start);
        // A site without facts has no patch, or one that breaks a rule.
        let facts = self.facts[site].as_ref();
        let edges = facts
            .into_iter()
            .flat_map(|facts| facts.edges.iter().map(|(edge, _)| edge.to));
        let calls = facts.into_iter().flat_map(|facts| facts.calls.iter());
        let returns = calls.filter_map(|&call| {
            let call = self.originals.instruction(call);
            let call = self
                .required
                .entry(call, "a moved call of the original code");
            call.map(|(_, call)| Addr(call.end()))
        });
        let mut functions = Vec::with_capacity(1);
        let mut last = crate::Span::default();
        for at in start.into_iter().chain(edges).chain(returns) {
            if last.contains(at) {
                continue;
            }
            if let Some(function) = self.originals.image.function_at(at) {
                last = function.span;
                functions.push(function.span.start);
            }
        }
        functions.sort_unstable();
        functions.dedup();
        functions
    }

    /// Returns the sites whose patches branch into a function.
    pub(crate) fn sites_into(&self, function: Addr) -> &[SiteIndex] {
        self.into.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Returns the patch that a site branches to.
    pub(crate) fn placed(&self, site: SiteIndex) -> Option<PatchIndex> {
        let placed = self
            .required
            .entry(self.placed.find(site), "the patch of a site");
        placed.copied().flatten()
    }

    /// Returns the instruments of a function that its events should run, of those that `selected`
    /// includes.
    pub(crate) fn want(&self, function: Addr, selected: impl Fn(InstrumentId) -> bool) -> Want {
        let mut want = Want::default();
        let owed = self.owed.get(&function).into_iter().flatten();
        for owed in owed.filter(|owed| selected(owed.id)) {
            match owed.event {
                HitEvent::At(at) => want.at.entry(at.0).or_default().push(owed.id),
                HitEvent::On(edge) => want.on.entry(edge).or_default().push(owed.id),
            }
        }
        want
    }

    /// Returns the list of a patch at a point.
    pub(crate) fn list(patch: &Patch, point: Point) -> &[InstrumentId] {
        let found = patch
            .hooks
            .binary_search_by_key(&point, |(point, _)| *point);
        found
            .ok()
            .and_then(|index| patch.hooks.get(index))
            .map_or(&[], |(_, list)| &**list)
    }
}
