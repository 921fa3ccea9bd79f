//! What is counted: from batch to batch, whether control that takes an edge of the original code
//! runs the instruments that are hit by that, once each, and no others.
//!
//! An edge is taken in the text, inside a patch, or by leaving one. By the text, what stands at its end
//! runs: the list at the entry of the site there, if one is in place. Inside a patch it is the lists of
//! the edge and of the copy behind it, and by leaving one the list of the edge and then what stands at
//! its end. A function is looked at again when a site changes that leads into it.

use super::hooks::{ById, Event, Events};
use crate::placement::{InsnEdge, Point, SiteIndex};
use crate::plan::{Patch, Plan};
use crate::verify::hash::{Map, Set};
use crate::verify::patch::phase::Facts;
use crate::verify::text::originals::Originals;
use crate::{Addr, HookType, InstrumentId};

/// A site goes from one patch to another; `None` is the original code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) site: SiteIndex,
    pub(crate) before: Option<usize>,
    pub(crate) after: Option<usize>,
    pub(crate) rank: u8,
}

/// An instrument and what it is hit by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owed {
    event: Event,
    /// Of several blocks' hooks hit at once.
    turn: u8,
    id: InstrumentId,
}

/// What instruments are hit by, each list in the order in which they run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Want {
    /// Before this instruction, wherever control comes from.
    pub(crate) at: Map<u64, Vec<InstrumentId>>,
    /// On this edge, before those.
    pub(crate) on: Map<InsnEdge, Vec<InstrumentId>>,
}

/// What runs where, and what should.
pub(crate) struct Meaning<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) originals: &'a Originals<'a>,
    pub(crate) by_id: &'a ById<'a>,
    pub(crate) events: &'a Events,
    /// By site: what its patches do.
    pub(crate) facts: Vec<Facts>,
    /// By site: the patch it leads to.
    pub(crate) placed: Vec<Option<usize>>,
    /// Sites by where they begin.
    pub(crate) by_start: Map<u64, usize>,
    /// By function: the sites in it, and those whose patches lead into it.
    into: Map<Addr, Vec<usize>>,
    /// By site: the functions that it is in or that its patches lead into.
    pub(crate) leads: Vec<Box<[Addr]>>,
    /// By function, sorted: what its instruments are hit by.
    owed: Map<Addr, Vec<Owed>>,
    pub(crate) active: Set<InstrumentId>,
}

impl<'a> Meaning<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        originals: &'a Originals<'a>,
        by_id: &'a ById<'a>,
        events: &'a Events,
        facts: Vec<Facts>,
    ) -> Self {
        let mut meaning = Self {
            plan,
            originals,
            by_id,
            events,
            facts,
            placed: vec![None; plan.sites.len()],
            by_start: (plan.sites.iter().zip(0..))
                .map(|(site, number)| (site.displaced.start.0, number))
                .collect(),
            into: Map::default(),
            leads: Vec::with_capacity(plan.sites.len()),
            owed: Map::default(),
            active: Set::default(),
        };
        for site in 0..plan.sites.len() {
            let functions = meaning.leads_into(site);
            for &function in &functions {
                meaning.into.entry(function).or_default().push(site);
            }
            meaning.leads.push(functions.into());
        }
        for &(id, event) in events {
            let turn = match (event, id.hook) {
                (Event::On(_), HookType::Pre) => 0,
                (Event::On(_), HookType::Post) => 1,
                (Event::On(_), HookType::Taken | HookType::Untaken) => 2,
                (Event::At(_), HookType::Pre) => 3,
                (Event::At(_), _) => 4,
            };
            let owed = Owed { event, turn, id };
            if let Some(function) = meaning.function_of(event) {
                meaning.owed.entry(function).or_default().push(owed);
            }
        }
        for owed in meaning.owed.values_mut() {
            owed.sort_unstable_by_key(|owed| (owed.event, owed.turn, owed.id.order));
        }
        meaning
    }

    /// The function that control comes into by an event, or else that it leaves.
    pub(crate) fn function_of(&self, event: Event) -> Option<Addr> {
        let start = |at: Addr| Some(self.originals.image.function_at(at)?.span.start);
        match event {
            Event::At(at) => start(at),
            Event::On(InsnEdge { from, to }) => start(to).or_else(|| start(from)),
        }
    }

    /// The functions that a site is in or its patches lead into.
    fn leads_into(&self, site: usize) -> Vec<Addr> {
        let start = self.plan.sites.get(site).map(|site| site.displaced.start);
        let facts = self.facts.get(site);
        let edges = facts
            .into_iter()
            .flat_map(|facts| facts.edges.iter().map(|(edge, _)| edge.to));
        let calls = facts.into_iter().flat_map(|facts| facts.calls.iter());
        let returns = calls.map(|&call| {
            let call = self.originals.instruction(call);
            Addr(call.map_or(0, |(_, call)| call.end()))
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

    /// The sites whose patches lead into a function.
    pub(crate) fn sites_into(&self, function: Addr) -> &[usize] {
        self.into.get(&function).map_or(&[], Vec::as_slice)
    }

    /// The patch that a site leads to.
    pub(crate) fn placed(&self, site: usize) -> Option<usize> {
        self.placed.get(site).copied().flatten()
    }

    /// What is owed in a function to some of its instruments.
    pub(crate) fn want(&self, function: Addr, who: impl Fn(InstrumentId) -> bool) -> Want {
        let mut want = Want::default();
        let owed = self.owed.get(&function).into_iter().flatten();
        for owed in owed.filter(|owed| who(owed.id)) {
            match owed.event {
                Event::At(at) => want.at.entry(at.0).or_default().push(owed.id),
                Event::On(edge) => want.on.entry(edge).or_default().push(owed.id),
            }
        }
        want
    }

    /// The list at the entry of a site's patch.
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
