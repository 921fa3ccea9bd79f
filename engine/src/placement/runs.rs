//! How far each site's patch runs on, and which sites wait for which.

use std::collections::{BTreeMap, BTreeSet};

use super::cover::Needs;
use super::draft::Draft;
use super::segments::Number;

/// An edge, and the instructions from the second up to the third number that are copied behind it.
pub(super) type Run = (Number, Number, Number, Number);

/// For every site of a function the edges behind which its patch runs on.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// By site; empty if no site runs on.
    by_site: Vec<Vec<Run>>,
    /// What is copied behind edges, and the site whose patch does it: sorted.
    copies: Vec<(Number, u32)>,
    /// Sites that wait, and for which: sorted.
    waits: Vec<(u32, u32)>,
}

impl Runs {
    /// Follows every patch as far as `needs` says, and behind `ends`: edges, and one past the last
    /// of the row behind each. `drafts` are in order of address.
    pub(super) fn of(needs: &Needs, ends: &[(Number, Number, Number)], drafts: &[Draft]) -> Self {
        if needs.runs.is_empty() && needs.past.is_empty() && ends.is_empty() {
            return Self::default();
        }
        let row = |to: Number| {
            let found = needs.rows.binary_search_by_key(&to, |row| row.0).ok();
            found.and_then(|row| needs.rows.get(row)).map(|row| row.1)
        };
        let mut edges: BTreeMap<Number, Vec<Run>> = BTreeMap::new();
        let mut edge = |from: Number, to: Number, behind: Number| {
            let runs = edges.entry(from).or_default();
            match runs.iter_mut().find(|run| run.1 == to) {
                Some(run) => run.3 = run.3.max(behind),
                None => runs.push((from, to, to, behind)),
            }
        };
        for &(from, to) in &needs.runs {
            edge(from, to, row(to).unwrap_or(to + 1));
        }
        for &(from, to, behind) in ends {
            edge(from, to, behind);
        }
        for &(from, to) in &needs.past {
            let behind = at(drafts, to)
                .and_then(|site| drafts.get(site))
                .map_or(to + 1, |site| site.behind);
            edge(from, to, behind);
        }
        let displaced = |from: Number| {
            let behind = drafts.partition_point(|draft| draft.first <= from);
            let draft = behind.checked_sub(1).and_then(|draft| drafts.get(draft));
            draft.is_some_and(|draft| draft.copies(from))
        };
        let mut runs = Self::default();
        for (site, draft) in (0_u32..).zip(drafts) {
            let mut own: BTreeSet<Run> = BTreeSet::new();
            let mut copies: Vec<(Number, Number)> = vec![(draft.first, draft.behind)];
            while let Some((first, behind)) = copies.pop() {
                for run in edges.range(first..behind).flat_map(|(_, runs)| runs) {
                    // What follows in the same copy needs no other.
                    let straight = run.1 == run.0 + 1 && run.1 < behind;
                    if !straight && own.insert(*run) {
                        copies.push((run.2, run.3));
                    }
                }
            }
            for &(from, to, first, behind) in &own {
                runs.copies.extend((first..behind).map(|at| (at, site)));
                let awaited = at(drafts, to)
                    .and_then(|to| u32::try_from(to).ok())
                    .filter(|&to| to != site);
                // Where a site displaces it, nobody runs it in the text once that is in place.
                let leads = needs.past.binary_search(&(from, to)).is_ok()
                    && (draft.copies(from) || !displaced(from));
                if let Some(waits) = awaited.filter(|_| leads) {
                    runs.waits.push((waits, site));
                }
            }
            runs.by_site.push(own.into_iter().collect());
        }
        runs.copies.sort_unstable();
        runs.copies.dedup();
        runs.waits.sort_unstable();
        runs.waits.dedup();
        runs
    }

    /// The run-ons of a site, sorted.
    pub(super) fn of_site(&self, site: usize) -> &[Run] {
        self.by_site
            .get(site)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// All edges behind which patches run on, sorted.
    pub(super) fn edges(&self) -> Vec<(Number, Number)> {
        let all = self.by_site.iter().flatten();
        let mut edges: Vec<_> = all.map(|&(from, to, ..)| (from, to)).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// The sites whose patches copy an instruction behind an edge.
    pub(super) fn copying(&self, at: Number) -> impl Iterator<Item = u32> {
        let first = self.copies.partition_point(|&(copied, _)| copied < at);
        let behind = self.copies.iter().skip(first);
        behind
            .take_while(move |&&(copied, _)| copied == at)
            .map(|&(_, site)| site)
    }

    /// The sites that one waits for.
    pub(super) fn awaited(&self, site: u32) -> impl Iterator<Item = u32> {
        awaited(&self.waits, site)
    }

    /// A site on each cycle of sites that wait for each other, if there is one. A hook that `arrives` at
    /// several has all of them wait for what any of them waits for, but for each other.
    pub(super) fn cycles<'w>(
        &self,
        drafts: &[Draft],
        arrives: impl Iterator<Item = &'w [Number]>,
    ) -> Vec<u32> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let mut waits = self.waits.clone();
        for firsts in arrives.filter(|firsts| firsts.len() > 1) {
            let sites = firsts.iter().filter_map(|&first| at(drafts, first));
            let sites: Vec<u32> = sites.filter_map(|site| u32::try_from(site).ok()).collect();
            for &other in &sites {
                let awaited = self.awaited(other).filter(|on| !sites.contains(on));
                waits.extend(awaited.flat_map(|on| sites.iter().map(move |&site| (site, on))));
            }
        }
        waits.sort_unstable();
        waits.dedup();
        cycles(&waits)
    }
}

/// The draft that begins at an instruction, by index.
fn at(drafts: &[Draft], first: Number) -> Option<usize> {
    drafts
        .binary_search_by_key(&first, |draft| draft.first)
        .ok()
}

/// What a site waits for, of all waits, sorted.
fn awaited(waits: &[(u32, u32)], site: u32) -> impl Iterator<Item = u32> {
    let first = waits.partition_point(|&(waiting, _)| waiting < site);
    let behind = waits.iter().skip(first);
    behind
        .take_while(move |&&(waiting, _)| waiting == site)
        .map(|&(_, on)| on)
}

/// A site on each cycle.
fn cycles(waits: &[(u32, u32)]) -> Vec<u32> {
    // Whether all that a site waits for has been seen, and it is on no cycle that has not been found.
    let mut done: BTreeMap<u32, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for &(start, _) in waits {
        if done.contains_key(&start) {
            continue;
        }
        done.insert(start, false);
        let mut way = vec![(start, awaited(waits, start).collect::<Vec<_>>())];
        while let Some((site, on)) = way.last_mut() {
            let Some(next) = on.pop() else {
                done.insert(*site, true);
                way.pop();
                continue;
            };
            match done.get(&next) {
                Some(false) => found.push(next),
                Some(true) => {}
                None => {
                    done.insert(next, false);
                    way.push((next, awaited(waits, next).collect()));
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
