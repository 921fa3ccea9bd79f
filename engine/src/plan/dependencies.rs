//! The dependency graph of splices and bounces, and the topological rank of each.

use super::error::{internal, refused};
use super::model::{Dependence, Part, PlannedInstrument};
use crate::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot};
use crate::session::Session;
use crate::{Addr, Error, Refusal, Result, Rule};

/// The graph, and an order that keeps to it.
pub(super) struct Order {
    /// Sorted.
    pub(super) dependences: Vec<Dependence>,
    /// Ranks of sites, then of bounces.
    ranks: Vec<u8>,
    sites: usize,
    /// Sites in reverse topological order: dependents before prerequisites.
    pub(super) downward: Vec<SiteIndex>,
    /// For each site, the first placement of the session that requires it.
    pub(super) blame: Vec<usize>,
}

impl Order {
    /// # Errors
    /// [`Error::Refused`] if parts depend on each other in a cycle; [`Error::Full`] if the order is
    /// deeper than can be numbered.
    pub(super) fn of(
        session: &Session,
        instruments: &[PlannedInstrument],
        sites: &[Site],
        bounces: &[Bounce],
    ) -> Result<Self> {
        let dependences = dependences(instruments, sites, bounces);
        let number = |part: Part| match part {
            Part::Site(SiteIndex(site)) => site as usize,
            Part::Bounce(BounceIndex(bounce)) => sites.len() + bounce as usize,
        };
        let parts = sites.len() + bounces.len();
        // Prerequisites with their dependents, and the number of prerequisites of each part.
        let mut edges: Vec<(usize, usize)> = dependences
            .iter()
            .map(|one| (number(one.on), number(one.what)))
            .collect();
        edges.sort_unstable();
        let mut waits = vec![0_u32; parts];
        for &(_, what) in &edges {
            if let Some(waits) = waits.get_mut(what) {
                *waits += 1;
            }
        }
        let mut ranks = vec![0_u32; parts];
        let mut ready: Vec<usize> = (0..parts).filter(|&n| waits.get(n) == Some(&0)).collect();
        let mut done = 0;
        while let Some(&on) = ready.get(done) {
            done += 1;
            let rank = ranks.get(on).copied().unwrap_or_default() + 1;
            let first = edges.partition_point(|edge| edge.0 < on);
            let whats = edges.iter().skip(first).take_while(|edge| edge.0 == on);
            for &(_, what) in whats {
                let (Some(known), Some(waits)) = (ranks.get_mut(what), waits.get_mut(what)) else {
                    return Err(internal("a dependency names no part of the plan"));
                };
                *known = rank.max(*known);
                *waits -= 1;
                if *waits == 0 {
                    ready.push(what);
                }
            }
        }
        let mut downward: Vec<SiteIndex> = ready
            .iter()
            .rev()
            .filter(|&&part| part < sites.len())
            .filter_map(|&part| Some(SiteIndex(u32::try_from(part).ok()?)))
            .collect();
        let cyclic = (0..sites.len()).find(|&n| waits.get(n).is_some_and(|&waits| waits > 0));
        if cyclic.is_some() {
            downward = (0..).map(SiteIndex).take(sites.len()).collect();
        }
        let blame = blame(instruments, sites, bounces, &downward);
        if let Some(cyclic) = cyclic {
            let at = sites
                .get(cyclic)
                .map_or(Addr(0), |site| site.displaced.start);
            let refusal = Refusal::new(
                Rule::Overlap,
                at,
                "the splice there would have to be in place before others that depend on it",
            );
            let placement = blame.get(cyclic).copied().unwrap_or_default();
            return Err(refused(session, placement, refusal));
        }
        let deepest = ranks.iter().copied().max().unwrap_or_default();
        if deepest > u32::from(u8::MAX) {
            return Err(Error::Full {
                what: "splices that depend on each other in a row",
                needed: u64::from(deepest) + 1,
                available: 256,
            });
        }
        Ok(Self {
            dependences,
            ranks: ranks
                .into_iter()
                .map(|rank| u8::try_from(rank).unwrap_or(u8::MAX))
                .collect(),
            sites: sites.len(),
            downward,
            blame,
        })
    }

    /// The topological rank of a part: 0 depends on nothing.
    pub(super) fn rank(&self, part: Part) -> u8 {
        let number = match part {
            Part::Site(SiteIndex(site)) => site as usize,
            Part::Bounce(BounceIndex(bounce)) => self.sites + bounce as usize,
        };
        self.ranks.get(number).copied().unwrap_or(u8::MAX)
    }
}

fn dependences(
    instruments: &[PlannedInstrument],
    sites: &[Site],
    bounces: &[Bounce],
) -> Vec<Dependence> {
    let mut all = Vec::new();
    for (what, site) in (0..).map(SiteIndex).zip(sites) {
        if let Some(bounce) = site.splice.bounce() {
            all.push(Dependence {
                what: Part::Site(what),
                on: Part::Bounce(bounce),
            });
        }
    }
    for (what, bounce) in (0..).map(BounceIndex).zip(bounces) {
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
                .filter(|&&need| waits(one, sites, site, need))
            {
                let on = Part::Site(need);
                all.push(Dependence {
                    what: Part::Site(site),
                    on,
                });
                // The bounce of a short splice is rewritten when the version changes.
                let site = sites.get(site.0 as usize);
                if let Some(bounce) = site.and_then(|site| site.splice.bounce()) {
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
fn waits(one: &PlannedInstrument, sites: &[Site], site: SiteIndex, need: SiteIndex) -> bool {
    let (Some(this), Some(needed)) = (sites.get(site.0 as usize), sites.get(need.0 as usize))
    else {
        return false;
    };
    let has_points = one.points.iter().any(|&(known, _)| known == need);
    let mut continuations = needed.continuations.iter();
    let mut diverts = || continuations.any(|run_on| run_on.copied.start == this.displaced.start);
    need != site && (!has_points || diverts())
}

/// The first placement that requires each site.
fn blame(
    instruments: &[PlannedInstrument],
    sites: &[Site],
    bounces: &[Bounce],
    downward: &[SiteIndex],
) -> Vec<usize> {
    let mut blame = vec![usize::MAX; sites.len()];
    for one in instruments {
        let points = one.points.iter().map(|(site, _)| site);
        for site in points.chain(&one.needs) {
            if let Some(blame) = blame.get_mut(site.0 as usize) {
                *blame = one.placement.min(*blame);
            }
        }
    }
    for &site in downward {
        let own = blame.get(site.0 as usize).copied();
        if let (Some(own), Some(host)) = (own, host(sites, bounces, site))
            && let Some(blame) = blame.get_mut(host.0 as usize)
        {
            *blame = own.min(*blame);
        }
    }
    blame
}

/// The site that exposes the bounce of a short splice, if it has one.
pub(super) fn host(sites: &[Site], bounces: &[Bounce], site: SiteIndex) -> Option<SiteIndex> {
    let bounce = sites.get(site.0 as usize)?.splice.bounce()?;
    match bounces.get(bounce.0 as usize)?.slot {
        Slot::Exposed(host) => Some(host),
        Slot::Padding => None,
    }
}
