//! How far each site's patch runs on, and which sites wait for which.

use std::collections::BTreeMap;

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
    /// Follows every patch as far as `needs` says. `drafts` are in order of address.
    pub(super) fn of(needs: &Needs, drafts: &[Draft]) -> Self {
        if needs.runs.is_empty() && needs.past.is_empty() {
            return Self::default();
        }
        let at = |to: Number| drafts.binary_search_by_key(&to, |draft| draft.first).ok();
        let mut edges: BTreeMap<Number, Vec<Run>> = BTreeMap::new();
        let mut edge = |from: Number, to: Number, behind: Number| {
            let runs = edges.entry(from).or_default();
            match runs.iter_mut().find(|run| run.1 == to) {
                Some(run) => run.3 = run.3.max(behind),
                None => runs.push((from, to, to, behind)),
            }
        };
        for &(from, to) in &needs.runs {
            edge(from, to, to + 1);
        }
        for &(from, to) in &needs.past {
            let behind = at(to)
                .and_then(|site| drafts.get(site))
                .map_or(to + 1, |site| site.behind);
            edge(from, to, behind);
        }
        let mut runs = Self::default();
        for (site, draft) in (0_u32..).zip(drafts) {
            let mut own: Vec<Run> = Vec::new();
            let mut copies: Vec<(Number, Number)> = vec![(draft.first, draft.behind)];
            while let Some((first, behind)) = copies.pop() {
                for run in edges.range(first..behind).flat_map(|(_, runs)| runs) {
                    if !own.contains(run) {
                        own.push(*run);
                        copies.push((run.2, run.3));
                    }
                }
            }
            own.sort_unstable();
            for &(from, to, first, behind) in &own {
                runs.copies.extend((first..behind).map(|at| (at, site)));
                let awaited = at(to)
                    .and_then(|to| u32::try_from(to).ok())
                    .filter(|&to| to != site);
                if let Some(waits) = awaited.filter(|_| needs.past.contains(&(from, to))) {
                    runs.waits.push((waits, site));
                }
            }
            runs.by_site.push(own);
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
        let first = self.waits.partition_point(|&(waits, _)| waits < site);
        let behind = self.waits.iter().skip(first);
        behind
            .take_while(move |&&(waits, _)| waits == site)
            .map(|&(_, on)| on)
    }

    /// A site on each cycle of sites that wait for each other, if there is one.
    pub(super) fn cycles(&self) -> Vec<u32> {
        // 1: on the way, 2: done.
        let mut state: BTreeMap<u32, u8> = BTreeMap::new();
        let mut found = Vec::new();
        for &(start, _) in &self.waits {
            let mut way = vec![(start, self.awaited(start).collect::<Vec<_>>())];
            if state.insert(start, 1).is_some_and(|state| state == 2) {
                state.insert(start, 2);
                continue;
            }
            while let Some((site, on)) = way.last_mut() {
                let Some(next) = on.pop() else {
                    state.insert(*site, 2);
                    way.pop();
                    continue;
                };
                match state.get(&next) {
                    Some(1) => found.push(next),
                    Some(_) => {}
                    None => {
                        state.insert(next, 1);
                        way.push((next, self.awaited(next).collect()));
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}
