//! Owners of a lane's samples: all, a CPU, a thread, or a level.

use std::collections::BTreeSet;

use super::threads::Thread;
use super::{Index, Part};
use crate::metadata::{InstrumentInfo, Metadata};
use crate::record::ALL_CPUS;

/// Owner of a lane's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Owner {
    /// All samples of the instrument.
    #[default]
    All,
    /// All samples of all instruments that sample one level; the lane's instrument is the first of
    /// them.
    Level,
    /// The samples of this CPU.
    Cpu(u16),
    /// The samples of this thread, and its place in the index by threads.
    Thread(Thread, u16),
}

/// Criterion by which an instrument's samples are split into lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A lane per CPU, then one for samples without a CPU.
    Cpu,
    /// A lane per thread, then one for samples without a thread.
    Thread,
}

impl Owner {
    /// Returns the owner's samples in an index.
    #[must_use]
    pub fn part(self, index: &Index) -> Part<'_> {
        match self {
            Self::All => index.part(None),
            Self::Level => index.by_level().unwrap_or(index).part(None),
            Self::Cpu(cpu) => index.part(Some(cpu)),
            Self::Thread(_, place) => index.by_thread().unwrap_or(index).part(Some(place)),
        }
    }

    /// Returns the label of an instrument's lane, without the owner's name.
    #[must_use]
    pub fn label(self, info: &InstrumentInfo) -> String {
        match self {
            _ if !info.delivers.is_samples() => info.whole(),
            Self::Level => info.whole(),
            Self::All | Self::Cpu(_) | Self::Thread(..) => info.label.clone(),
        }
    }

    /// Returns the owner's name; `None` for all.
    #[must_use]
    pub fn name(self, metadata: &Metadata, index: &Index) -> Option<String> {
        match self {
            Self::All | Self::Level => None,
            Self::Cpu(cpu) => Some(metadata.cpu_name(cpu)),
            Self::Thread(thread, _) => index.threads().map(|threads| threads.name(thread)),
        }
    }
}

impl Index {
    /// Returns one lane per instrument, as its position in `ids`. Instruments of one level share a
    /// lane, at the position of the first.
    #[must_use]
    pub fn lanes_whole(&self, ids: &[u64]) -> Vec<(usize, Owner)> {
        let lanes = ids.iter().enumerate();
        let lanes = lanes.filter_map(|(lane, id)| {
            match self.levels().and_then(|levels| levels.head(*id)) {
                Some(head) => (head == *id).then_some((lane, Owner::Level)),
                None => Some((lane, Owner::All)),
            }
        });
        lanes.collect()
    }

    /// Returns the lanes of instruments split by owner, as a position in `ids` and the owner. An
    /// instrument whose samples have no owner, or that has no samples, has a lane for all after the
    /// others; where no thread is known, [`By::Thread`] returns [whole](Self::lanes_whole) lanes
    /// only.
    #[must_use]
    pub fn lanes_by(&self, by: By, ids: &[u64]) -> Vec<(usize, Owner)> {
        match (by, self.threads().zip(self.by_thread())) {
            (By::Cpu, _) => {
                let cpus = owners(self, ids);
                let all: BTreeSet<u16> = cpus.iter().flatten().copied().collect();
                split(&cpus, all.into_iter().map(|cpu| (cpu, Owner::Cpu(cpu))))
            }
            (By::Thread, Some((threads, index))) => {
                let places = threads.places().into_iter();
                let places = places.map(|(thread, place)| (place, Owner::Thread(thread, place)));
                split(&owners(index, ids), places)
            }
            (By::Thread, None) => self.lanes_whole(ids),
        }
    }
}

/// Returns the CPUs, or the places of threads, of each instrument. Samples over all CPUs are not
/// split.
fn owners(index: &Index, ids: &[u64]) -> Vec<BTreeSet<u16>> {
    let cpus = |id: &u64| {
        let mut cpus = index.cpus(*id);
        cpus.remove(&ALL_CPUS);
        cpus
    };
    ids.iter().map(cpus).collect()
}

/// Returns the lanes of each owner in `order`, then those of instruments without an owner.
fn split(
    owners: &[BTreeSet<u16>],
    order: impl Iterator<Item = (u16, Owner)>,
) -> Vec<(usize, Owner)> {
    let lanes = || owners.iter().enumerate();
    let mut split = Vec::new();
    for (place, owner) in order {
        let owned = lanes().filter(|(_, owners)| owners.contains(&place));
        split.extend(owned.map(|(lane, _)| (lane, owner)));
    }
    let unowned = lanes().filter(|(_, owners)| owners.is_empty());
    split.extend(unowned.map(|(lane, _)| (lane, Owner::All)));
    split
}
