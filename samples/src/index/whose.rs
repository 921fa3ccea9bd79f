//! Whose samples a lane has: everybody's, a CPU's, a thread's, or those of all hooks of a level.

use std::collections::BTreeSet;

use super::levels::Levels;
use super::threads::{Thread, Threads};
use super::{Index, Part};
use crate::metadata::{InstrumentInfo, Metadata};
use crate::record::ALL_CPUS;

/// Whose samples of its instrument a lane has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Everybody's.
    #[default]
    All,
    /// Everybody's, and those of all instruments that sample one level, of which this is the first.
    Level,
    /// A CPU's.
    Cpu(u16),
    /// A thread's, and its place in the index by threads.
    Thread(Thread, u16),
}

/// What lanes are told apart by, besides their instruments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// CPU after CPU; then what is no CPU's.
    Cpu,
    /// Thread after thread; then what is no thread's.
    Thread,
}

impl Whose {
    /// These samples of an index.
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

    /// What a person calls a lane of these samples of an instrument, but for whom they are of.
    #[must_use]
    pub fn label(self, info: &InstrumentInfo) -> String {
        match self {
            _ if !info.delivers.is_samples() => info.whole(),
            Self::Level => info.whole(),
            Self::All | Self::Cpu(_) | Self::Thread(..) => info.label.clone(),
        }
    }

    /// What a person calls whom they are of, if not of all.
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
    /// The lanes of instruments, not told apart: the place of each in `ids`. Those that sample one level
    /// together have one lane, at the place of the first.
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

    /// The lanes of instruments, told apart: the place of each in `ids`, and whose samples it has. An
    /// instrument whose samples are nobody's alone, or that has none, has one of everybody's behind them;
    /// where no thread is known, [`By::Thread`] has only [whole](Self::lanes_whole) ones.
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

/// The CPUs, or the places of threads, of each instrument. Totals are told for all at once.
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
