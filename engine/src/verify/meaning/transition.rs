//! The hits while a batch is written.

use crate::verify::reason::Reason;
use std::collections::BTreeSet;

use super::reach::{PlacedOtherwise, Reach, Requirement};
use super::state::{Meaning, SiteChange, Want};
use crate::Addr;
use crate::placement::{Point, SiteIndex, Splice};
use crate::plan::PatchIndex;

/// The writes of a batch, by site.
pub(crate) struct Written<'b> {
    /// Sites that get an `int3` before the first write, with the patch that it diverts to; sorted.
    staged: Vec<(SiteIndex, PatchIndex)>,
    changes: &'b [SiteChange],
    /// Sites and the indices of their changes, sorted.
    by_site: Vec<(SiteIndex, usize)>,
}

/// Returns the entries of a site.
fn of<T: Copy>(all: &[(SiteIndex, T)], site: SiteIndex) -> impl Iterator<Item = (SiteIndex, T)> {
    let first = all.partition_point(|(known, _)| *known < site);
    let rest = all.iter().copied().skip(first);
    rest.take_while(move |(known, _)| *known == site)
}

impl<'b> Written<'b> {
    pub(crate) fn new(staged: &[(SiteIndex, PatchIndex)], changes: &'b [SiteChange]) -> Self {
        let mut staged = staged.to_vec();
        staged.sort_unstable();
        let numbered = changes.iter().zip(0..);
        let mut by_site: Vec<(SiteIndex, usize)> = numbered
            .map(|(change, number)| (change.site, number))
            .collect();
        by_site.sort_unstable();
        Self {
            staged,
            changes,
            by_site,
        }
    }

    fn staged(&self, site: SiteIndex) -> impl Iterator<Item = (SiteIndex, PatchIndex)> {
        of(&self.staged, site)
    }

    /// Returns the changes of a site with their indices.
    fn changes(&self, site: SiteIndex) -> impl Iterator<Item = (usize, &'b SiteChange)> {
        let numbers = of(&self.by_site, site);
        numbers.filter_map(|(_, number)| Some((number, self.changes.get(number)?)))
    }
}

impl Meaning<'_> {
    /// Returns the sites of a function that count arrivals on some paths only, and therefore depend
    /// on other sites.
    pub(crate) fn conditional(
        &self,
        function: Addr,
        written: &Written<'_>,
        want: &Want,
    ) -> BTreeSet<SiteIndex> {
        let mut conditional = BTreeSet::new();
        let mut look = |site: SiteIndex, patch: PatchIndex| {
            let site_and_patch = self.plan.site(site).zip(self.plan.patch(patch));
            let site_and_patch = self.required.entry(site_and_patch, "a changed site");
            let Some((known, patch)) = site_and_patch else {
                return;
            };
            let always = want.at.get(&known.displaced.start.0);
            let always = always.map_or(&[][..], Vec::as_slice);
            let list = Self::list(patch, Point::Entry);
            if known.splice != Splice::Tracer && list.iter().any(|id| !always.contains(id)) {
                conditional.insert(site);
            }
        };
        let span = self.originals.around(function.0).map(|(own, _)| own.span);
        let own = |site: &SiteIndex| {
            let site = self.required.entry(self.plan.site(*site), "a site");
            site.is_some_and(|site| span.is_some_and(|span| span.contains(site.displaced.start)))
        };
        for site in self.sites_into(function).iter().copied().filter(own) {
            let staged = written.staged(site).map(|(_, detour)| detour);
            let changes = written.changes(site);
            let changed = changes.flat_map(|(_, change)| [change.before, change.after]);
            let patches = staged.chain(changed.flatten()).chain(self.placed(site));
            for patch in patches {
                look(site, patch);
            }
        }
        conditional
    }

    /// Checks the states within a batch: hits may be missed, and none may be counted that did not
    /// happen.
    pub(crate) fn meanwhile(
        &self,
        function: Addr,
        written: &Written<'_>,
        want: &Want,
        early: &BTreeSet<SiteIndex>,
    ) -> Vec<(Addr, Reason)> {
        let into = self.sites_into(function);
        let concerned = into.iter().flat_map(|&site| written.changes(site));
        let mut concerned: Vec<(usize, &SiteChange)> = concerned.collect();
        concerned.sort_unstable_by_key(|(number, _)| *number);
        let concerned: Vec<&SiteChange> = concerned.into_iter().map(|(_, change)| change).collect();
        let mut other = PlacedOtherwise::default();
        for change in concerned.iter().rev() {
            other.insert(change.site, change.before);
        }
        let mut wrong = Vec::new();
        let mut look = |other: &PlacedOtherwise| {
            if wrong.is_empty() {
                wrong = Reach::of(self, function, want, Requirement::AtMost, other);
            }
        };
        // A thread that has passed other sites of the batch may execute the first int3.
        for &site in early {
            for (_, detour) in written.staged(site) {
                let mut other = other.clone();
                other.insert(site, Some(detour));
                look(&other);
            }
        }
        // Within a rank the order is unspecified.
        let key = |change: &&SiteChange| (change.after.is_none(), change.rank);
        for group in concerned.chunk_by(|a, b| key(a) == key(b)) {
            let counts = |change: &&&SiteChange| early.contains(&(change.site));
            for change in group
                .iter()
                .filter(counts)
                .filter(|one| one.after.is_some())
            {
                let mut other = other.clone();
                other.insert(change.site, change.after);
                look(&other);
            }
            let others = group.iter().filter(|change| !counts(change));
            for change in others.filter(|one| one.after.is_none()) {
                other.insert(change.site, change.after);
            }
            look(&other);
            for change in group {
                other.insert(change.site, change.after);
            }
            look(&other);
        }
        // The site with its stated dependences alone, transitively: the driver has waited for these
        // only.
        for &site in early.iter().filter(|&&site| self.placed(site).is_some()) {
            let mut alone: PlacedOtherwise = into.iter().map(|&site| (site, None)).collect();
            let mut worklist = vec![site];
            while let Some(site) = worklist.pop() {
                let placed = self.placed(site);
                if alone.insert(site, placed).flatten().is_some() {
                    continue;
                }
                let patch = placed
                    .and_then(|at| self.required.entry(self.plan.patch(at), "a patch in place"));
                let ids = patch.map_or(&[][..], |patch| Self::list(patch, Point::Entry));
                let ones = ids.iter().filter_map(|id| {
                    self.required
                        .entry(self.by_id.get(id), "an instrument of a patch")
                });
                worklist.extend(ones.flat_map(|one| one.needs.iter().copied()));
            }
            look(&alone);
        }
        wrong
    }
}
