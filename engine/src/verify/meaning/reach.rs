//! The paths of control through one function, in the text and in patches, with the instruments on
//! them.

use iced_x86::Mnemonic;

use super::state::{Meaning, Want};
use crate::ids::Id;
use crate::placement::{InsnEdge, Point, SiteIndex, Splice};
use crate::plan::{Patch, PatchIndex};
use crate::verify::hash::{Map, Set};
use crate::verify::reason::Reason;
use crate::verify::text::routine::Routine;
use crate::{Addr, InstrumentId};

/// The requirement for the instruments that run on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// All instruments that the edge hits run, and no others.
    Exactly,
    /// Only instruments that the edge hits run.
    AtMost,
}

/// Sites whose patch differs from the current one; `None` is the original code.
pub(crate) type PlacedOtherwise = Map<SiteIndex, Option<PatchIndex>>;

/// A traversal of the paths through one function.
pub(crate) struct Reach<'a> {
    meaning: &'a Meaning<'a>,
    routine: &'a Routine,
    want: &'a Want,
    requirement: Requirement,
    /// Sites whose patch differs from the current one, for states within a batch.
    other: &'a PlacedOtherwise,
    /// Text instructions that were reached.
    seen: Vec<bool>,
    worklist: Vec<usize>,
    /// Sites whose patches were entered.
    entered: Set<SiteIndex>,
    wrong: Vec<(Addr, Reason)>,
}

impl<'a> Reach<'a> {
    /// Returns the places where the instruments that run differ from the required ones, with the
    /// reasons.
    pub(crate) fn of(
        meaning: &'a Meaning<'a>,
        function: Addr,
        want: &'a Want,
        requirement: Requirement,
        other: &'a PlacedOtherwise,
    ) -> Vec<(Addr, Reason)> {
        let Some((routine, _)) = meaning.originals.around(function.0) else {
            // Such a function has no sites: patches of others branch there, and nothing runs.
            let nothing = (want.at.is_empty() && want.on.is_empty()).then_some(());
            meaning
                .required
                .entry(nothing, "the code of a hooked function");
            return Vec::new();
        };
        let mut reach = Self {
            meaning,
            routine,
            want,
            requirement,
            other,
            seen: vec![false; routine.instructions.len()],
            worklist: Vec::new(),
            entered: Set::default(),
            wrong: Vec::new(),
        };
        reach.ways_in();
        while let Some(index) = reach.worklist.pop() {
            reach.step(index);
        }
        reach.wrong
    }

    /// Returns the patch that a site branches to.
    fn patch(&self, site: SiteIndex) -> Option<&'a Patch> {
        let placed = match self.other.get(&site) {
            Some(other) => *other,
            None => self.meaning.placed(site),
        };
        let patch = self.meaning.plan.patch(placed?);
        self.meaning.required.entry(patch, "a patch in place")
    }

    /// Returns the site in place that begins at `at`.
    fn site_at(&self, at: u64) -> Option<(SiteIndex, &'a Patch)> {
        let site = *self.meaning.by_start.get(&at)?;
        Some((site, self.patch(site)?))
    }

    fn is_tracers(&self, site: SiteIndex) -> bool {
        let site = self.meaning.plan.site(site);
        let site = self.meaning.required.entry(site, "a site in place");
        site.is_some_and(|site| site.splice == Splice::Tracer)
    }

    /// Returns the list that runs when control reaches `at` in the text. The list of a tracer site
    /// runs after the bytes of the tracer.
    fn entry(&self, at: u64) -> &'a [InstrumentId] {
        match self.site_at(at) {
            Some((site, patch)) if !self.is_tracers(site) => Meaning::list(patch, Point::Entry),
            _ => &[],
        }
    }

    /// Returns whether a site in place displaces the instruction at `at`.
    fn is_displaced(&self, at: Addr) -> bool {
        let sites = &self.meaning.plan.sites;
        let after = sites.partition_point(|site| site.displaced.start <= at);
        let before = after.checked_sub(1).map(SiteIndex::new);
        before.is_some_and(|index| {
            let site = self.meaning.plan.site(index);
            site.is_some_and(|site| site.displaced.contains(at)) && self.patch(index).is_some()
        })
    }

    /// Enters the function wherever control may come from elsewhere.
    fn ways_in(&mut self) {
        let routine = self.routine;
        let image = self.meaning.originals.image;
        let part = image
            .function_at(routine.span.start)
            .is_some_and(crate::code::Function::is_part);
        let start = (!part).then_some(routine.span.start);
        for &at in image.pointed_at(routine.span).iter().chain(&start) {
            self.by_text(None, at.0);
        }
        // An indirect branch may land wherever an `endbr64` is, whether or not a pointer to it was found.
        let landings = routine.instructions.iter().filter(|decoded| {
            matches!(
                decoded.instruction.mnemonic(),
                Mnemonic::Endbr64 | Mnemonic::Endbr32
            )
        });
        for landing in landings {
            self.by_text(None, landing.at());
        }
        for branch in image.branches_into(routine.span) {
            if !self.is_displaced(branch.source) {
                self.by_text(Some(branch.source.0), branch.target.0);
            }
        }
        // Assembly may fall through into the next function.
        let outside: Vec<InsnEdge> = (self.want.on.keys().copied())
            .filter(|edge| !routine.span.contains(edge.from) && routine.span.contains(edge.to))
            .collect();
        for edge in outside {
            if !self.is_displaced(edge.from) {
                self.by_text(Some(edge.from.0), edge.to.0);
            }
        }
        for &site in self.meaning.sites_into(routine.span.start) {
            let foreign = self.meaning.plan.site(site);
            let foreign = self.meaning.required.entry(foreign, "a site in place");
            let foreign = foreign.is_some_and(|site| !routine.span.contains(site.displaced.start));
            if let Some(patch) = self.patch(site).filter(|_| foreign) {
                self.run(site, patch);
            }
        }
    }

    /// Takes an edge in the text. Without `from` the source is unknown.
    fn by_text(&mut self, from: Option<u64>, to: u64) {
        self.owes(from, to, [self.entry(to), &[], &[]]);
        self.arrive(to);
    }

    /// Continues at `to` in the text.
    fn arrive(&mut self, to: u64) {
        if !self.routine.span.contains(Addr(to)) {
            return;
        }
        if let Some((site, patch)) = self.site_at(to) {
            return self.run(site, patch);
        }
        let Some(index) = self.routine.executed_from(to) else {
            let why = Reason::InsideInstruction;
            self.wrong.push((Addr(to), why));
            return;
        };
        let seen = self.seen.get_mut(index);
        if let Some(seen) = self.meaning.required.entry(seen, "a reached instruction")
            && !*seen
        {
            *seen = true;
            self.worklist.push(index);
        }
    }

    /// Executes a text instruction: continues along its successors.
    fn step(&mut self, index: usize) {
        let decoded = self.routine.instructions.get(index);
        let decoded = self
            .meaning
            .required
            .entry(decoded, "a reached instruction");
        let Some(decoded) = decoded else {
            return;
        };
        if decoded.runs_on {
            self.by_text(Some(decoded.at()), decoded.end());
        }
        for &to in &decoded.leads_to {
            self.by_text(Some(decoded.at()), to);
        }
    }

    /// Executes the patch of a site: takes each of its edges.
    fn run(&mut self, site: SiteIndex, patch: &'a Patch) {
        if !self.entered.insert(site) {
            return;
        }
        let facts = self.meaning.facts.find(site).and_then(Option::as_ref);
        let facts = self.meaning.required.entry(facts, "the edges of a patch");
        let known = self.meaning.plan.site(site);
        let known = self.meaning.required.entry(known, "a site in place");
        let Some((facts, known)) = facts.zip(known) else {
            return;
        };
        let start = known.displaced.start;
        for &(edge, leaves) in &facts.edges {
            let before = if self.is_tracers(site) && edge.from == start {
                Meaning::list(patch, Point::Entry)
            } else {
                &[]
            };
            let list_at_end = if leaves {
                self.entry(edge.to.0)
            } else {
                Meaning::list(patch, Point::Before(edge.to))
            };
            let on = Meaning::list(patch, Point::On(edge));
            self.owes(Some(edge.from.0), edge.to.0, [before, on, list_at_end]);
            if leaves {
                self.arrive(edge.to.0);
            }
        }
        for &call in &facts.calls {
            let call = self.meaning.originals.instruction(call);
            let call = self.meaning.required.entry(call, "a moved call");
            if let Some((_, call)) = call.filter(|(_, call)| call.runs_on) {
                self.by_text(Some(call.at()), call.end());
            }
        }
    }

    /// Compares the instruments that run on an edge with the required ones.
    fn owes(&mut self, from: Option<u64>, to: u64, runs: [&[InstrumentId]; 3]) {
        if !self.routine.span.contains(Addr(to)) {
            return;
        }
        let on = from.and_then(|from| {
            self.want.on.get(&InsnEdge {
                from: Addr(from),
                to: Addr(to),
            })
        });
        let at = self.want.at.get(&to);
        let runs = runs.iter().copied().flatten();
        let mut want = on.into_iter().chain(at).flatten();
        let right = match self.requirement {
            Requirement::Exactly => runs.clone().eq(want.clone()),
            Requirement::AtMost => runs.clone().all(|id| want.any(|wanted| wanted == id)),
        };
        if !right {
            let names = |ids: Vec<&InstrumentId>| {
                let names: Vec<String> = ids.iter().map(|id| id.to_string()).collect();
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                }
            };
            let from = from.map_or_else(|| "elsewhere".into(), |from| Addr(from).to_string());
            let want = on.into_iter().chain(at).flatten().collect();
            let (runs, hits) = (names(runs.collect()), names(want));
            let why = Reason::WrongHits { from, runs, hits };
            self.wrong.push((Addr(to), why));
        }
    }
}
