//! Launch and splash times → versions of patches, and the version of each site at each time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;

use super::dependencies::{Order, host};
use super::functions::Functions;
use super::model::PlannedInstrument;
use crate::placement::{Bounce, Point, Site, SiteIndex};

/// The instruments that run together at a site for some time, by point and then in order: a range of
/// [`Schedule::listed`].
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) site: SiteIndex,
    pub(super) listed: Range<u32>,
}

/// A change of a site from one version to another; `None` is the original code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Index of the time.
    pub(super) time: u32,
    pub(super) site: SiteIndex,
    pub(super) from: Option<VersionIndex>,
    pub(super) to: Option<VersionIndex>,
}

/// Index of a version. There may be a million changes, so an `Option` of it takes no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct VersionIndex(NonZeroU32);

impl VersionIndex {
    fn new(index: usize) -> Self {
        let next = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        Self(NonZeroU32::new(next).unwrap_or(NonZeroU32::MAX))
    }

    pub(super) const fn get(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The versions of each site by time.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Launch and splash times, seconds, sorted.
    pub(super) times: Vec<f64>,
    /// By site, and then by first use.
    pub(super) versions: Vec<Version>,
    /// The instruments of versions: indices in the plan's instruments, and in their points.
    pub(super) listed: Vec<(u32, u32)>,
    /// By site, and then by time.
    pub(super) changes: Vec<Change>,
    /// Versions to which threads are diverted while another is installed, where these differ.
    pub(super) detours: HashMap<VersionIndex, VersionIndex>,
}

/// An instrument at a point of a site. Its order is that in which instruments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    site: SiteIndex,
    point: Point,
    turn: u8,
    order: u8,
    instrument: u32,
    /// Index in its points.
    nth: u32,
    /// Indices of times.
    active: (u32, u32),
}

/// Computes the active instruments of each site by time. A set of instruments that recurs at a site has one version.
pub(super) fn schedule(
    functions: &Functions<'_>,
    instruments: &[PlannedInstrument],
    sites: &[Site],
    bounces: &[Bounce],
    order: &Order,
) -> Schedule {
    let mut times: Vec<f64> = instruments
        .iter()
        .flat_map(|one| [one.launch, one.splash])
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    let index = |time: f64| {
        let found = times.partition_point(|known| known.total_cmp(&time).is_lt());
        u32::try_from(found).unwrap_or(u32::MAX)
    };
    let mut members = Vec::with_capacity(instruments.len());
    // Times at which a site must be in place whether or not an instrument runs there.
    let mut kept: HashMap<SiteIndex, Vec<(u32, u32)>> = HashMap::new();
    for (number, one) in (0..).zip(instruments) {
        let active = (index(one.launch), index(one.splash));
        for (nth, &(at, point)) in (0..).zip(&one.points) {
            let Some(site) = sites.get(at.0 as usize) else {
                continue;
            };
            members.push(Member {
                site: at,
                point,
                turn: functions.turn(one.id, site, point),
                order: one.id.order,
                instrument: number,
                nth,
                active,
            });
        }
        for &need in &one.needs {
            kept.entry(need).or_default().push(active);
        }
    }
    members.sort_unstable();
    let of = |site: SiteIndex| {
        let first = members.partition_point(|member| member.site < site);
        let rest = members.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|member| member.site == site))
            .unwrap_or_default()
    };
    // From dependents to prerequisites: a host must be in place as long as its bounces.
    for &site in &order.downward {
        if let Some(host) = host(sites, bounces, site) {
            let own = kept.get(&site).into_iter().flatten().copied();
            let in_place: Vec<_> = of(site)
                .iter()
                .map(|member| member.active)
                .chain(own)
                .collect();
            kept.entry(host).or_default().extend(in_place);
        }
    }
    let needing: Vec<bool> = instruments
        .iter()
        .map(|one| !one.needs.is_empty())
        .collect();
    // Most sites have one version, which is installed and removed once.
    let mut done = Schedule {
        times: Vec::new(),
        versions: Vec::with_capacity(sites.len()),
        listed: Vec::with_capacity(members.len()),
        changes: Vec::with_capacity(2 * sites.len()),
        detours: HashMap::new(),
    };
    let mut versions = Versions::default();
    for (at, site) in (0..).map(SiteIndex).zip(sites) {
        let kept = kept.get(&at).map_or(&[][..], Vec::as_slice);
        // Threads may take the detour before anything else of the batch is in place.
        let early = site.splice.is_staged(site.overwritten);
        versions.of_site(&mut done, at, of(at), kept, |instrument: u32| {
            early
                && needing
                    .get(instrument as usize)
                    .copied()
                    .unwrap_or_default()
        });
    }
    done.times = times;
    done
}

/// The versions of one site; buffers that are used again for the next.
#[derive(Default)]
struct Versions {
    known: HashMap<Vec<u32>, VersionIndex>,
    bounds: Vec<u32>,
    active: Vec<u32>,
}

impl Versions {
    fn of_site(
        &mut self,
        done: &mut Schedule,
        site: SiteIndex,
        members: &[Member],
        kept: &[(u32, u32)],
        is_too_early: impl Fn(u32) -> bool,
    ) {
        self.known.clear();
        let spans = members.iter().map(|member| &member.active).chain(kept);
        self.bounds.clear();
        self.bounds
            .extend(spans.flat_map(|&(launch, splash)| [launch, splash]));
        self.bounds.sort_unstable();
        self.bounds.dedup();
        let mut now = None;
        for &time in &self.bounds {
            let lasts = |&(launch, splash): &(u32, u32)| launch <= time && time < splash;
            self.active.clear();
            let active = (0..)
                .zip(members)
                .filter(|(_, member)| lasts(&member.active));
            self.active
                .extend(active.map(|(number, _): (u32, _)| number));
            let in_place = !self.active.is_empty() || kept.iter().any(lasts);
            let next =
                in_place.then(|| version(done, &mut self.known, site, members, &self.active));
            if next == now {
                continue;
            }
            let early = self.active.iter().any(|&number| {
                let member = members.get(number as usize);
                member.is_some_and(|member| is_too_early(member.instrument))
            });
            if let (None, Some(next), true) = (now, next, early) {
                let detour = version(done, &mut self.known, site, members, &[]);
                done.detours.insert(next, detour);
            }
            done.changes.push(Change {
                time,
                site,
                from: now,
                to: next,
            });
            now = next;
        }
    }
}

/// The version of a site with these of its members, known or new.
fn version(
    done: &mut Schedule,
    known: &mut HashMap<Vec<u32>, VersionIndex>,
    site: SiteIndex,
    members: &[Member],
    active: &[u32],
) -> VersionIndex {
    if let Some(&known) = known.get(active) {
        return known;
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let first = number(done.listed.len());
    let listed = active.iter().filter_map(|&n| members.get(n as usize));
    done.listed
        .extend(listed.map(|member| (member.instrument, member.nth)));
    done.versions.push(Version {
        site,
        listed: first..number(done.listed.len()),
    });
    let new = VersionIndex::new(done.versions.len() - 1);
    known.insert(active.to_vec(), new);
    new
}
