//! Launch and splash times → versions of patches, and which version each site has when.

use std::collections::BTreeMap;

use super::PlannedInstrument;
use crate::placement::Site;
use crate::{Addr, HookType};

/// The instruments that run together at a site for some time: indices in the plan's instruments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) site: Site,
    /// In order.
    pub(super) pre: Vec<usize>,
    /// In order.
    pub(super) post: Vec<usize>,
}

/// A site goes from one version (index) to another; `None` is the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) site: Site,
    pub(super) from: Option<usize>,
    pub(super) to: Option<usize>,
}

/// Every version, by address of the site and then first use; and the changes by time, then address.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    pub(super) versions: Vec<Version>,
    pub(super) times: Vec<(f64, Vec<Change>)>,
}

/// Works out who is active when. A set of instruments that comes back at a site has one version.
pub(super) fn schedule(instruments: &[PlannedInstrument]) -> Schedule {
    let mut by_site: BTreeMap<Addr, (Site, Vec<usize>)> = BTreeMap::new();
    for (index, instrument) in instruments.iter().enumerate() {
        let site = instrument.site;
        by_site
            .entry(site.displaced.start)
            .or_insert_with(|| (site, Vec::new()))
            .1
            .push(index);
    }
    let mut versions: Vec<Version> = Vec::new();
    let mut changes: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    for (site, members) in by_site.into_values() {
        let active = |time: f64, hook: HookType| -> Vec<usize> {
            let mut active: Vec<(u8, usize)> = members
                .iter()
                .filter_map(|&index| instruments.get(index).map(|instrument| (index, instrument)))
                .filter(|(_, one)| one.id.hook == hook && one.launch <= time && time < one.splash)
                .map(|(index, one)| (one.id.order, index))
                .collect();
            active.sort_unstable();
            active.into_iter().map(|(_, index)| index).collect()
        };
        let first = versions.len();
        let mut now = None;
        for bits in times(&members, instruments) {
            let time = f64::from_bits(bits);
            let version = Version {
                site,
                pre: active(time, HookType::Pre),
                post: active(time, HookType::Post),
            };
            let next = if version.pre.is_empty() && version.post.is_empty() {
                None
            } else {
                let known = versions
                    .iter()
                    .skip(first)
                    .position(|known| *known == version);
                Some(known.map_or_else(
                    || {
                        versions.push(version);
                        versions.len() - 1
                    },
                    |known| first + known,
                ))
            };
            if next != now {
                changes.entry(bits).or_default().push(Change {
                    site,
                    from: now,
                    to: next,
                });
                now = next;
            }
        }
    }
    let times = changes
        .into_iter()
        .map(|(bits, changes)| (f64::from_bits(bits), changes))
        .collect();
    Schedule { versions, times }
}

/// Launch and splash times of some instruments, sorted, as bits: times are not negative, so their
/// bits have their order.
fn times(members: &[usize], instruments: &[PlannedInstrument]) -> Vec<u64> {
    let mut times: Vec<u64> = members
        .iter()
        .filter_map(|&index| instruments.get(index))
        .flat_map(|instrument| [instrument.launch.to_bits(), instrument.splash.to_bits()])
        .collect();
    times.sort_unstable();
    times.dedup();
    times
}
