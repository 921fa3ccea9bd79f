//! Launch and splash times → versions of patches, and the version of each site at each time.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::dependencies::Order;
use super::functions::Functions;
use super::model::PlannedInstrument;
use super::placed::PlacedParts;
use crate::ids::{Id, Ids, Slices, id};
use crate::placement::{Point, SiteIndex};

id!(
    /// An instrument of the plan, in the order of the session.
    pub(super) InstrumentIndex
);
id!(
    /// A launch or splash time of the plan, in order.
    pub(super) TimeIndex
);

/// A change of a site from one version to another; `None` is the original code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) time: TimeIndex,
    pub(super) site: SiteIndex,
    pub(super) from: Option<VersionIndex>,
    pub(super) to: Option<VersionIndex>,
}

/// Index of a version. There may be a million changes, so an `Option` of it takes no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct VersionIndex(NonZeroU32);

impl Id for VersionIndex {
    fn new(index: usize) -> Self {
        let next = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        debug_assert!(next.is_some(), "{index} versions");
        Self(next.unwrap_or(NonZeroU32::MAX))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The versions of each site by time.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Launch and splash times, seconds, sorted.
    pub(super) times: Ids<TimeIndex, f64>,
    /// The site of each version: by site, and then by first use.
    pub(super) versions: Ids<VersionIndex, SiteIndex>,
    /// The instruments that run together in a version, by point and then in order.
    pub(super) listed: Slices<VersionIndex, InstrumentAt>,
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
    instrument: InstrumentIndex,
    /// Index in its points.
    nth: u32,
    active: Active,
}

/// An instrument, and the number of a point among its points.
pub(super) type InstrumentAt = (InstrumentIndex, u32);

/// Times from which on, and until which, something is in place.
type Active = (TimeIndex, TimeIndex);

/// Computes the active instruments of each site by time. A set of instruments that recurs at a site has one version.
pub(super) fn schedule(
    functions: &Functions<'_>,
    instruments: &Ids<InstrumentIndex, PlannedInstrument>,
    placed: &PlacedParts,
    order: &Order,
) -> Schedule {
    let mut times: Vec<f64> = instruments
        .values()
        .iter()
        .flat_map(|one| [one.launch, one.splash])
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    let index =
        |time: f64| TimeIndex::new(times.partition_point(|known| known.total_cmp(&time).is_lt()));
    let mut members = Vec::with_capacity(instruments.len());
    // Times at which a site must be in place whether or not an instrument runs there.
    let mut kept: HashMap<SiteIndex, Vec<Active>> = HashMap::new();
    for (number, one) in instruments.iter() {
        let active = (index(one.launch), index(one.splash));
        for (nth, &(at, point)) in (0..).zip(&one.points) {
            let site = &placed.sites[at];
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
        let (_, rest) = members.split_at(first);
        rest.split_at(rest.partition_point(|member| member.site == site))
            .0
    };
    // From dependents to prerequisites: a host must be in place as long as its bounces.
    for &site in &order.downward {
        if let Some(host) = placed.host(site) {
            let own = kept.get(&site).into_iter().flatten().copied();
            let in_place: Vec<_> = of(site)
                .iter()
                .map(|member| member.active)
                .chain(own)
                .collect();
            kept.entry(host).or_default().extend(in_place);
        }
    }
    // Most sites have one version, which is installed and removed once.
    let mut done = Schedule {
        times: Ids::new(),
        versions: Vec::with_capacity(placed.sites.len()).into(),
        listed: Slices::with_capacity(placed.sites.len(), members.len()),
        changes: Vec::with_capacity(2 * placed.sites.len()),
        detours: HashMap::new(),
    };
    let mut versions = Versions::default();
    for (at, site) in placed.sites.iter() {
        let kept = kept.get(&at).map_or(&[][..], Vec::as_slice);
        // Threads may take the detour before anything else of the batch is in place.
        let early = site.splice.is_staged(site.overwritten);
        versions.of_site(&mut done, at, of(at), kept, |instrument| {
            early && !instruments[instrument].needs.is_empty()
        });
    }
    done.times = times.into();
    done
}

/// The versions of one site; buffers that are used again for the next.
#[derive(Default)]
struct Versions {
    known: HashMap<Vec<InstrumentAt>, VersionIndex>,
    bounds: Vec<TimeIndex>,
    active: Vec<InstrumentAt>,
}

impl Versions {
    fn of_site(
        &mut self,
        done: &mut Schedule,
        site: SiteIndex,
        members: &[Member],
        kept: &[Active],
        is_too_early: impl Fn(InstrumentIndex) -> bool,
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
            let lasts = |&(launch, splash): &Active| launch <= time && time < splash;
            self.active.clear();
            let active = members.iter().filter(|member| lasts(&member.active));
            self.active
                .extend(active.map(|member| (member.instrument, member.nth)));
            let in_place = !self.active.is_empty() || kept.iter().any(lasts);
            let next = in_place.then(|| version(done, &mut self.known, site, &self.active));
            if next == now {
                continue;
            }
            let early = self.active.iter().any(|&(one, _)| is_too_early(one));
            if let (None, Some(next), true) = (now, next, early) {
                let detour = version(done, &mut self.known, site, &[]);
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

/// The version of a site with these instruments, known or new.
fn version(
    done: &mut Schedule,
    cache: &mut HashMap<Vec<InstrumentAt>, VersionIndex>,
    site: SiteIndex,
    active: &[InstrumentAt],
) -> VersionIndex {
    if let Some(&version) = cache.get(active) {
        return version;
    }
    let new = done.versions.push(site);
    done.listed.push(active);
    cache.insert(active.to_vec(), new);
    new
}
