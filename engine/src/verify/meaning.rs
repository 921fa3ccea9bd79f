//! What is counted: from batch to batch, whether control that takes an edge of the original code
//! runs the instruments that are hit by that, once each, and no others.
//!
//! An edge is taken in the text, inside a patch, or by leaving one. By the text, what stands at its end
//! runs: the list at the entry of the site there, if one is in place. Inside a patch it is the lists of
//! the edge and of the copy behind it, and by leaving one the list of the edge and then what stands at
//! its end. A function is looked at again when a site changes that leads into it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::hooks::{ById, Event};
use super::originals::Originals;
use super::reach::{Asked, Reach, Want};
use super::violation::Violation;
use super::walk::Facts;
use crate::placement::{Edge, Point, SiteIndex, Splice};
use crate::plan::{Patch, Plan};
use crate::{Addr, HookType, InstrumentId};

/// A site goes from one patch to another; `None` is the original code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) site: SiteIndex,
    pub(super) before: Option<usize>,
    pub(super) after: Option<usize>,
    pub(super) rank: u8,
}

/// An instrument and what it is hit by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owed {
    event: Event,
    /// Of several blocks' hooks hit at once.
    turn: u8,
    id: InstrumentId,
}

/// What runs where, and what should.
pub(super) struct Meaning<'a> {
    pub(super) plan: &'a Plan,
    pub(super) originals: &'a Originals<'a>,
    by_id: &'a ById<'a>,
    events: &'a HashMap<InstrumentId, Vec<Event>>,
    /// By site: what its patches do.
    pub(super) facts: Vec<Facts>,
    /// By site: the patch it leads to.
    placed: Vec<Option<usize>>,
    /// Sites by where they begin.
    pub(super) by_start: HashMap<u64, usize>,
    /// By function: the sites whose patches lead into it.
    into: HashMap<Addr, Vec<usize>>,
    /// By function, sorted: what its instruments are hit by.
    owed: HashMap<Addr, Vec<Owed>>,
    active: HashSet<InstrumentId>,
}

impl<'a> Meaning<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        originals: &'a Originals<'a>,
        by_id: &'a ById<'a>,
        events: &'a HashMap<InstrumentId, Vec<Event>>,
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
            into: HashMap::new(),
            owed: HashMap::new(),
            active: HashSet::new(),
        };
        for site in 0..plan.sites.len() {
            for function in meaning.leads_into(site) {
                meaning.into.entry(function).or_default().push(site);
            }
        }
        for (id, event) in events
            .iter()
            .flat_map(|(&id, events)| events.iter().map(move |&event| (id, event)))
        {
            let turn = match (event, id.hook) {
                (Event::On(_), HookType::Pre) => 0,
                (Event::On(_), HookType::Post) => 1,
                (Event::At(_), HookType::Pre) => 2,
                (Event::At(_), HookType::Post) => 3,
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
    fn function_of(&self, event: Event) -> Option<Addr> {
        let start = |at: Addr| Some(self.originals.image.function_at(at)?.span.start);
        match event {
            Event::At(at) => start(at),
            Event::On(Edge { from, to }) => start(to).or_else(|| start(from)),
        }
    }

    /// The functions that a site is in or its patches lead into.
    fn leads_into(&self, site: usize) -> BTreeSet<Addr> {
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
        let mut functions = BTreeSet::new();
        let mut last = crate::Span::default();
        for at in start.into_iter().chain(edges).chain(returns) {
            if last.contains(at) {
                continue;
            }
            if let Some(function) = self.originals.image.function_at(at) {
                last = function.span;
                functions.insert(function.span.start);
            }
        }
        functions
    }

    /// The sites whose patches lead into a function.
    pub(super) fn sites_into(&self, function: Addr) -> &[usize] {
        self.into.get(&function).map_or(&[], Vec::as_slice)
    }

    /// The patch that a site leads to.
    pub(super) fn placed(&self, site: usize) -> Option<usize> {
        self.placed.get(site).copied().flatten()
    }

    /// Takes a batch to be carried out, and checks the time until the next, and the time in between
    /// where the order matters. `staged` have an `int3` that leads to a patch before anything is written.
    pub(super) fn batch(
        &mut self,
        number: usize,
        staged: &[(SiteIndex, usize)],
        changes: &[Change],
        launched: &[InstrumentId],
        splashed: &[InstrumentId],
        violations: &mut Vec<Violation>,
    ) {
        let mut functions: BTreeSet<Addr> = BTreeSet::new();
        for change in changes {
            let site = change.site.0 as usize;
            if let Some(placed) = self.placed.get_mut(site) {
                *placed = change.after;
            }
            functions.extend(self.leads_into(site));
        }
        for id in launched.iter().chain(splashed) {
            let events = self.events.get(id).into_iter().flatten();
            functions.extend(events.filter_map(|&event| self.function_of(event)));
        }
        self.active.extend(launched);
        let either = self.active.clone();
        for id in splashed {
            self.active.remove(id);
        }
        if !violations.is_empty() {
            return;
        }
        for function in functions {
            let want = self.want(function, |id| self.active.contains(&id));
            let mut wrong = Reach::of(self, function, &want, Asked::Exactly, &HashMap::new());
            let early = self.conditional(function, staged, changes, &want);
            if wrong.is_empty() && !early.is_empty() {
                let want = self.want(function, |id| either.contains(&id));
                wrong = self.meanwhile(function, staged, changes, &want, &early);
            }
            violations.extend(wrong.into_iter().map(|(at, why)| Violation::Hits {
                batch: number,
                at,
                why,
            }));
        }
    }

    /// What is owed in a function to some of its instruments.
    fn want(&self, function: Addr, who: impl Fn(InstrumentId) -> bool) -> Want {
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
    pub(super) fn list(patch: &Patch, point: Point) -> &[InstrumentId] {
        let found = patch
            .hooks
            .binary_search_by_key(&point, |(point, _)| *point);
        found
            .ok()
            .and_then(|index| patch.hooks.get(index))
            .map_or(&[], |(_, list)| list)
    }

    /// Sites of a function that count arrivals by some ways only, and so not without others in place.
    fn conditional(
        &self,
        function: Addr,
        staged: &[(SiteIndex, usize)],
        changes: &[Change],
        want: &Want,
    ) -> BTreeSet<usize> {
        let now = self
            .sites_into(function)
            .iter()
            .filter_map(|&site| Some((site, self.placed(site)?)));
        let mut conditional = BTreeSet::new();
        let mut look = |site: usize, patch: usize| {
            let (Some(known), Some(patch)) =
                (self.plan.sites.get(site), self.plan.patches.get(patch))
            else {
                return;
            };
            let always = want.at.get(&known.displaced.start.0);
            let always = always.map_or(&[][..], Vec::as_slice);
            let list = Self::list(patch, Point::Entry);
            if known.splice != Splice::Tracer && list.iter().any(|id| !always.contains(id)) {
                conditional.insert(site);
            }
        };
        let own = |site: usize| {
            self.plan.sites.get(site).is_some_and(|site| {
                let span = self.originals.around(function.0).map(|(own, _)| own.span);
                span.is_some_and(|span| span.contains(site.displaced.start))
            })
        };
        for (site, patch) in now.filter(|&(site, _)| own(site)) {
            look(site, patch);
        }
        for &(site, patch) in staged.iter().filter(|(site, _)| own(site.0 as usize)) {
            look(site.0 as usize, patch);
        }
        for change in changes.iter().filter(|change| own(change.site.0 as usize)) {
            for patch in [change.before, change.after].into_iter().flatten() {
                look(change.site.0 as usize, patch);
            }
        }
        conditional
    }

    /// While a batch is carried out, hits may be missed, but none may be counted that is none.
    fn meanwhile(
        &self,
        function: Addr,
        staged: &[(SiteIndex, usize)],
        changes: &[Change],
        want: &Want,
        early: &BTreeSet<usize>,
    ) -> Vec<(Addr, String)> {
        let into: HashSet<usize> = self.sites_into(function).iter().copied().collect();
        let concerned = |site: SiteIndex| into.contains(&(site.0 as usize));
        let mut other: HashMap<usize, Option<usize>> = HashMap::new();
        for change in changes.iter().filter(|change| concerned(change.site)).rev() {
            other.insert(change.site.0 as usize, change.before);
        }
        let mut wrong = Vec::new();
        let mut look = |other: &HashMap<usize, Option<usize>>| {
            if wrong.is_empty() {
                wrong = Reach::of(self, function, want, Asked::AtMost, other);
            }
        };
        // Threads that are on their way past others of the batch may come to the first int3.
        for &(site, detour) in staged
            .iter()
            .filter(|(site, _)| early.contains(&(site.0 as usize)))
        {
            let mut other = other.clone();
            other.insert(site.0 as usize, Some(detour));
            look(&other);
        }
        // Within a rank the order says nothing.
        let key = |change: &&Change| (change.after.is_none(), change.rank);
        let concerned: Vec<&Change> = changes
            .iter()
            .filter(|change| concerned(change.site))
            .collect();
        for group in concerned.chunk_by(|a, b| key(a) == key(b)) {
            let counts = |change: &&&Change| early.contains(&(change.site.0 as usize));
            for change in group
                .iter()
                .filter(counts)
                .filter(|one| one.after.is_some())
            {
                let mut other = other.clone();
                other.insert(change.site.0 as usize, change.after);
                look(&other);
            }
            let others = group.iter().filter(|change| !counts(change));
            for change in others.filter(|one| one.after.is_none()) {
                other.insert(change.site.0 as usize, change.after);
            }
            look(&other);
            for change in group {
                other.insert(change.site.0 as usize, change.after);
            }
            look(&other);
        }
        // The sites it says it needs are all it needs: only these have been waited for.
        for &site in early {
            let Some(patch) = self.placed(site).and_then(|at| self.plan.patches.get(at)) else {
                continue;
            };
            let mut alone: HashMap<usize, Option<usize>> =
                into.iter().map(|&site| (site, None)).collect();
            alone.insert(site, self.placed(site));
            for id in Self::list(patch, Point::Entry) {
                let one = self.by_id.get(id);
                for need in one.into_iter().flat_map(|one| &one.needs) {
                    let need = need.0 as usize;
                    alone.insert(need, self.placed(need));
                }
            }
            look(&alone);
        }
        wrong
    }
}
