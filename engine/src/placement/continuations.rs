//! The continuations of each site's patch, and the dependencies between sites that they cause.

use std::collections::{BTreeMap, BTreeSet};

use super::body::Body;
use super::cover::Requirements;
use super::draft::Draft;
use super::ids::{DraftId, InsnId, InsnRange};
use super::splice::SpliceForm;
use crate::ids::{Id, Ids};

/// An edge, and the instructions that are copied after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopyRun {
    pub(super) from: InsnId,
    pub(super) to: InsnId,
    pub(super) copied: InsnRange,
}

/// The continuations of every site of a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Continuations {
    /// Empty if no site has any.
    by_site: Ids<DraftId, Vec<CopyRun>>,
    /// Instructions copied after edges, and the site whose patch copies them: sorted.
    copies: Vec<(InsnId, DraftId)>,
    /// Sites, and those that they depend on: sorted.
    dependencies: Vec<(DraftId, DraftId)>,
}

/// The draft that begins at an instruction.
pub(super) fn beginning_at(drafts: &Ids<DraftId, Draft>, first: InsnId) -> Option<DraftId> {
    let drafts = drafts.values();
    let position = drafts.binary_search_by_key(&first, |draft| draft.range.first);
    position.ok().map(DraftId::new)
}

/// The draft that displaces an instruction.
pub(super) fn displacing(drafts: &Ids<DraftId, Draft>, at: InsnId) -> Option<DraftId> {
    let end = drafts
        .values()
        .partition_point(|draft| draft.range.first <= at);
    let last = DraftId::new(end.checked_sub(1)?);
    drafts[last].copies(at).then_some(last)
}

impl Continuations {
    /// Follows every patch as far as `requirements` demand, and after `ends`: edges, each with the end of the
    /// row that is copied after it. Drafts are in order of address.
    ///
    /// A call that no site displaces, or whose site is a call again, is not copied: the patch branches to it, and its
    /// execution keeps the processor's stack of return addresses balanced. Only control that is diverted around
    /// such a site executes a copy.
    pub(super) fn of(
        body: &Body<'_>,
        requirements: &Requirements,
        ends: &[(InsnId, InsnRange)],
        drafts: &Ids<DraftId, Draft>,
    ) -> Self {
        if requirements.continued.is_empty() && requirements.diverted.is_empty() && ends.is_empty()
        {
            return Self::default();
        }
        let edges = edges(body, requirements, ends, drafts);
        let mut continuations = Self::default();
        for (site, draft) in drafts.iter() {
            let mut runs_of_site: BTreeSet<CopyRun> = BTreeSet::new();
            let mut worklist = vec![draft.range];
            while let Some(copied) = worklist.pop() {
                let leaving = edges.range(copied.first..copied.end);
                for run in leaving.flat_map(|(_, runs)| runs) {
                    // An instruction that follows in the same copy needs no other.
                    let is_straight = run.to == run.from.next() && run.to < copied.end;
                    if !is_straight && runs_of_site.insert(*run) {
                        worklist.push(run.copied);
                    }
                }
            }
            for run in &runs_of_site {
                let copies = run.copied.iter().map(|at| (at, site));
                continuations.copies.extend(copies);
                let target = beginning_at(drafts, run.to).filter(|&target| target != site);
                // The original of a displaced instruction is not executed while its site is in place.
                let is_diverted = requirements
                    .diverted
                    .binary_search(&(run.from, run.to))
                    .is_ok()
                    && (draft.copies(run.from) || displacing(drafts, run.from).is_none());
                if let Some(target) = target.filter(|_| is_diverted) {
                    continuations.dependencies.push((target, site));
                }
            }
            continuations
                .by_site
                .push(runs_of_site.into_iter().collect());
        }
        continuations.copies.sort_unstable();
        continuations.copies.dedup();
        continuations.dependencies.sort_unstable();
        continuations.dependencies.dedup();
        continuations
    }

    /// The continuations of a site, sorted.
    pub(super) fn of_site(&self, site: DraftId) -> &[CopyRun] {
        self.by_site.find(site).map_or(&[], Vec::as_slice)
    }

    /// All edges after which patches continue, sorted.
    pub(super) fn edges(&self) -> Vec<(InsnId, InsnId)> {
        let all = self.by_site.values().iter().flatten();
        let mut edges: Vec<_> = all.map(|run| (run.from, run.to)).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// The sites whose patches copy an instruction after an edge.
    pub(super) fn copying(&self, at: InsnId) -> impl Iterator<Item = DraftId> {
        entries(&self.copies, at)
    }

    /// The sites that one depends on.
    pub(super) fn prerequisites(&self, site: DraftId) -> impl Iterator<Item = DraftId> {
        entries(&self.dependencies, site)
    }

    /// A site on each cycle of dependencies. If a hook `arrives` at several sites, all of them depend on what any
    /// of them depends on, except each other.
    pub(super) fn cycles<'w>(
        &self,
        drafts: &Ids<DraftId, Draft>,
        arrives: impl Iterator<Item = &'w [InsnId]>,
    ) -> Vec<DraftId> {
        if self.dependencies.is_empty() {
            return Vec::new();
        }
        let mut dependencies = self.dependencies.clone();
        for firsts in arrives.filter(|firsts| firsts.len() > 1) {
            let sites = firsts.iter();
            let sites: Vec<DraftId> = sites
                .filter_map(|&first| beginning_at(drafts, first))
                .collect();
            for &other in &sites {
                let others = self.prerequisites(other).filter(|on| !sites.contains(on));
                dependencies
                    .extend(others.flat_map(|on| sites.iter().map(move |&site| (site, on))));
            }
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        cycles(&dependencies)
    }
}

/// The runs after each instruction.
fn edges(
    body: &Body<'_>,
    requirements: &Requirements,
    ends: &[(InsnId, InsnRange)],
    drafts: &Ids<DraftId, Draft>,
) -> BTreeMap<InsnId, Vec<CopyRun>> {
    let row = |to: InsnId| {
        let rows = &requirements.rows;
        let position = rows.binary_search_by_key(&to, |row| row.first).ok();
        position.and_then(|position| rows.get(position)).copied()
    };
    let mut edges: BTreeMap<InsnId, Vec<CopyRun>> = BTreeMap::new();
    let is_called = |at: InsnId| {
        let site = displacing(drafts, at);
        body.is_call(at) && site.is_none_or(|site| drafts[site].form == SpliceForm::Call)
    };
    let up_to_call = |mut copied: InsnRange| {
        if is_called(copied.last()) {
            copied.end = copied.last();
        }
        copied
    };
    let mut add = |from: InsnId, copied: InsnRange| {
        let to = copied.first;
        if copied.is_empty() {
            return;
        }
        let runs = edges.entry(from).or_default();
        match runs.iter_mut().find(|run| run.to == to) {
            Some(run) => run.copied.end = run.copied.end.max(copied.end),
            None => runs.push(CopyRun { from, to, copied }),
        }
    };
    for &(from, to) in &requirements.continued {
        add(from, up_to_call(row(to).unwrap_or(InsnRange::one(to))));
    }
    for &(from, copied) in ends {
        add(from, up_to_call(copied));
    }
    for &(from, to) in &requirements.diverted {
        let site = beginning_at(drafts, to).map(|site| drafts[site].range);
        add(from, site.unwrap_or_else(|| up_to_call(InsnRange::one(to))));
    }
    edges
}

/// Second entries of the pairs with a first, in pairs that are sorted.
fn entries<K: Ord + Copy, V: Copy>(pairs: &[(K, V)], key: K) -> impl Iterator<Item = V> {
    let first = pairs.partition_point(|&(other, _)| other < key);
    let rest = pairs.iter().skip(first);
    rest.take_while(move |&&(other, _)| other == key)
        .map(|&(_, value)| value)
}

/// A site on each cycle of a graph, given as sorted edges: depth-first search.
fn cycles(dependencies: &[(DraftId, DraftId)]) -> Vec<DraftId> {
    // Visited sites, and whether everything reachable from them has been visited.
    let mut visited: BTreeMap<DraftId, bool> = BTreeMap::new();
    let mut on_cycles = Vec::new();
    for &(start, _) in dependencies {
        if visited.contains_key(&start) {
            continue;
        }
        visited.insert(start, false);
        let mut path = vec![(start, entries(dependencies, start).collect::<Vec<_>>())];
        while let Some((site, rest)) = path.last_mut() {
            let Some(next) = rest.pop() else {
                visited.insert(*site, true);
                path.pop();
                continue;
            };
            match visited.get(&next) {
                Some(false) => on_cycles.push(next),
                Some(true) => {}
                None => {
                    visited.insert(next, false);
                    path.push((next, entries(dependencies, next).collect()));
                }
            }
        }
    }
    on_cycles.sort_unstable();
    on_cycles.dedup();
    on_cycles
}
