//! A second index of the samples of levels, with one lane for all hooks of a level.

use std::collections::HashMap;

use super::Index;
use crate::metadata::Metadata;
use crate::{Batch, Sample, level};

/// The levels of an index: each has a lane, under the identifier of its first instrument.
#[derive(Debug, Default)]
pub struct Levels {
    heads: HashMap<u64, u64>,
    index: Index,
}

impl Levels {
    /// Returns an empty index; `None` if no instrument of a recording samples a level.
    pub(super) fn of(metadata: &Metadata, index: Index) -> Option<Self> {
        let heads = level::heads(metadata);
        (!heads.is_empty()).then_some(Self { heads, index })
    }

    /// Appends those samples of a CPU that belong to levels.
    pub(super) fn append(&mut self, batch: &Batch) {
        let of_level = |sample: &Sample| {
            let id = *self.heads.get(&sample.id)?;
            Some(Sample { id, ..*sample })
        };
        let samples: Vec<Sample> = batch.samples.iter().filter_map(of_level).collect();
        if !samples.is_empty() {
            let cpu = batch.cpu;
            self.index.append(&Batch { cpu, samples });
        }
    }

    /// Returns the identifier of the level that an instrument samples, if it samples one.
    #[must_use]
    pub fn head(&self, id: u64) -> Option<u64> {
        self.heads.get(&id).copied()
    }

    /// Returns the index of the samples.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }
}
