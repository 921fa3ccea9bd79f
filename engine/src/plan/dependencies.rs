//! The dependency graph of splices and bounces, and the topological rank of each.

use super::error::refused;
use super::model::{Dependence, Part, PlannedInstrument};
use super::placed::{PerPart, PlacedParts};
use crate::ids::Ids;
use crate::placement::{Site, SiteIndex, Slot};
use crate::session::Session;
use crate::{Error, Refusal, Result, Rule};

/// The graph, and an order that keeps to it.
pub(super) struct Order {
    /// Sorted.
    pub(super) dependences: Vec<Dependence>,
    ranks: PerPart<u8>,
    /// Sites in reverse topological order: dependents before prerequisites.
    pub(super) downward: Vec<SiteIndex>,
    /// For each site, the first placement of the session that requires it.
    pub(super) blame: Ids<SiteIndex, usize>,
}

impl Order {
    /// # Errors
    /// [`Error::Refused`] if parts depend on each other in a cycle; [`Error::Full`] if the order is
    /// deeper than can be numbered.
    pub(super) fn of(
        session: &Session,
        instruments: &[PlannedInstrument],
        placed: &PlacedParts,
    ) -> Result<Self> {
        let dependences = dependences(instruments, placed);
        // Prerequisites with their dependents, and the number of prerequisites of each part.
        let mut edges: Vec<(Part, Part)> =
            dependences.iter().map(|one| (one.on, one.what)).collect();
        edges.sort_unstable();
        let mut waits = PerPart::new(placed, 0_u32);
        for &(_, what) in &edges {
            waits[what] += 1;
        }
        let mut ranks = PerPart::new(placed, 0_u8);
        // Parts in topological order, of which the first `done` have been visited.
        let mut ready: Vec<Part> = placed.parts().filter(|&part| waits[part] == 0).collect();
        let mut done = 0;
        while let Some(&on) = ready.get(done) {
            done += 1;
            let first = edges.partition_point(|edge| edge.0 < on);
            let whats = edges.iter().skip(first).take_while(|edge| edge.0 == on);
            for &(_, what) in whats {
                let rank = ranks[on].checked_add(1).ok_or(Error::Full {
                    what: "splices that depend on each other in a row",
                    needed: u64::from(u8::MAX) + 2,
                    available: u64::from(u8::MAX) + 1,
                })?;
                ranks[what] = rank.max(ranks[what]);
                waits[what] -= 1;
                if waits[what] == 0 {
                    ready.push(what);
                }
            }
        }
        let cyclic = placed
            .sites
            .keys()
            .find(|&site| waits[Part::Site(site)] > 0);
        if let Some(cyclic) = cyclic {
            let downward: Vec<SiteIndex> = placed.sites.keys().collect();
            let refusal = Refusal::new(
                Rule::Overlap,
                placed.sites[cyclic].displaced.start,
                "the splice there would have to be in place before others that depend on it",
            );
            let placement = blame(instruments, placed, &downward)[cyclic];
            return Err(refused(session, placement, refusal));
        }
        let downward = ready.iter().rev().filter_map(|&part| match part {
            Part::Site(site) => Some(site),
            Part::Bounce(_) => None,
        });
        let downward: Vec<SiteIndex> = downward.collect();
        Ok(Self {
            dependences,
            ranks,
            blame: blame(instruments, placed, &downward),
            downward,
        })
    }

    /// The topological rank of a part: 0 depends on nothing.
    pub(super) fn rank(&self, part: Part) -> u8 {
        self.ranks[part]
    }
}

fn dependences(instruments: &[PlannedInstrument], placed: &PlacedParts) -> Vec<Dependence> {
    let mut all = Vec::new();
    for (what, site) in placed.sites.iter() {
        if let Some(bounce) = site.splice.bounce() {
            all.push(Dependence {
                what: Part::Site(what),
                on: Part::Bounce(bounce),
            });
        }
    }
    for (what, bounce) in placed.bounces.iter() {
        if let Slot::Exposed(host) = bounce.slot {
            all.push(Dependence {
                what: Part::Bounce(what),
                on: Part::Site(host),
            });
        }
    }
    for one in instruments.iter().filter(|one| !one.needs.is_empty()) {
        for &(site, _) in &one.points {
            for &need in one
                .needs
                .iter()
                .filter(|&&need| waits(one, &placed.sites, site, need))
            {
                let on = Part::Site(need);
                all.push(Dependence {
                    what: Part::Site(site),
                    on,
                });
                // The bounce of a short splice is rewritten when the version changes.
                if let Some(bounce) = placed.sites[site].splice.bounce() {
                    all.push(Dependence {
                        what: Part::Bounce(bounce),
                        on,
                    });
                }
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns whether an instrument's points at a site mean its hook alone only if `need` is in place too. If
/// `need` has a point of its own, that holds only for the sites that its patch is diverted around.
fn waits(
    instrument: &PlannedInstrument,
    sites: &Ids<SiteIndex, Site>,
    site: SiteIndex,
    need: SiteIndex,
) -> bool {
    let start = sites[site].displaced.start;
    let has_points = instrument.points.iter().any(|&(known, _)| known == need);
    let mut continuations = sites[need].continuations.iter();
    let mut diverts = || continuations.any(|run_on| run_on.copied.start == start);
    need != site && (!has_points || diverts())
}

/// The first placement that requires each site; `usize::MAX`, which is none, for a site that nothing requires.
fn blame(
    instruments: &[PlannedInstrument],
    placed: &PlacedParts,
    downward: &[SiteIndex],
) -> Ids<SiteIndex, usize> {
    let mut blame = Ids::like(&placed.sites, usize::MAX);
    for one in instruments {
        let points = one.points.iter().map(|(site, _)| site);
        for &site in points.chain(&one.needs) {
            blame[site] = one.placement.min(blame[site]);
        }
    }
    for &site in downward {
        if let Some(host) = placed.host(site) {
            blame[host] = blame[site].min(blame[host]);
        }
    }
    blame
}
