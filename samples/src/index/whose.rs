//! Owners of a lane's samples: all, a CPU, a thread, or a level.

use std::collections::BTreeSet;

use super::levels::Levels;
use super::threads::{Thread, Threads};
use super::{Index, Part};
use crate::metadata::{InstrumentInfo, Metadata};
use crate::record::ALL_CPUS;

/// Owner of a lane's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Whose {
    /// All samples of the instrument.
    #[default]
    All,
    /// All samples of all instruments that sample one level; the lane's instrument is the first of
    /// them.
    Level,
    /// A CPU.
    Cpu(u16),
    /// A thread, and its place in the index by threads.
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

impl Whose {
    /// Returns the owner's samples in an index.
    #[must_use]
    pub fn part(self, index: &Index) -> Part<'_> {
        match self {
            Self::All => index.part(None),
            Self::Level => index.levels().map_or(index, Levels::index).part(None),
            Self::Cpu(cpu) => index.part(Some(cpu)),
            Self::Thread(_, place) => index
                .threads()
                .map_or(index, Threads::index)
                .part(Some(place)),
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
    pub fn lanes_whole(&self, ids: &[u64]) -> Vec<(usize, Whose)> {
        let lanes = ids.iter().enumerate();
        let lanes = lanes.filter_map(|(lane, id)| {
            match self.levels().and_then(|levels| levels.head(*id)) {
                Some(head) => (head == *id).then_some((lane, Whose::Level)),
                None => Some((lane, Whose::All)),
            }
        });
        lanes.collect()
    }

    /// Returns the lanes of instruments split by owner, as a position in `ids` and the owner. An
    /// instrument whose samples have no owner, or that has no samples, has a lane for all after the
    /// others; where no thread is known, [`By::Thread`] returns [whole](Self::lanes_whole) lanes
    /// only.
    #[must_use]
    pub fn lanes_by(&self, by: By, ids: &[u64]) -> Vec<(usize, Whose)> {
        match (by, self.threads()) {
            (By::Cpu, _) => {
                let cpus = own(self, ids);
                let all: BTreeSet<u16> = cpus.iter().flatten().copied().collect();
                apart(&cpus, all.into_iter().map(|cpu| (cpu, Whose::Cpu(cpu))))
            }
            (By::Thread, Some(threads)) => {
                let places = threads.places().into_iter();
                let places = places.map(|(thread, place)| (place, Whose::Thread(thread, place)));
                apart(&own(threads.index(), ids), places)
            }
            (By::Thread, None) => self.lanes_whole(ids),
        }
    }
}

/// Returns the CPUs, or the places of threads, of each instrument. Samples over all CPUs are not
/// split.
fn own(index: &Index, ids: &[u64]) -> Vec<BTreeSet<u16>> {
    let cpus = |id: &u64| {
        let mut cpus = index.cpus(*id);
        cpus.remove(&ALL_CPUS);
        cpus
    };
    ids.iter().map(cpus).collect()
}

fn apart(own: &[BTreeSet<u16>], order: impl Iterator<Item = (u16, Whose)>) -> Vec<(usize, Whose)> {
    let lanes = || own.iter().enumerate();
    let mut found = Vec::new();
    for (place, whose) in order {
        let here = lanes().filter(|(_, own)| own.contains(&place));
        found.extend(here.map(|(lane, _)| (lane, whose)));
    }
    let nobodys = lanes().filter(|(_, own)| own.is_empty());
    found.extend(nobodys.map(|(lane, _)| (lane, Whose::All)));
    found
}
