//! Selection of the samples of levels, renamed so that all hooks of a level share a lane.

use std::collections::HashMap;

use crate::metadata::{InstrumentInfo, Metadata};
use crate::{Batch, Meaning, Sample};

/// The levels of a recording: each is identified by its first instrument.
#[derive(Debug)]
pub struct Levels {
    heads: HashMap<u64, u64>,
}

impl Levels {
    /// Returns the levels; `None` if no instrument of a recording samples one.
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        let heads = heads(metadata);
        (!heads.is_empty()).then_some(Self { heads })
    }

    /// Returns those samples of a CPU that belong to levels, under the identifiers of their levels.
    pub(super) fn select(&self, batch: &Batch) -> Batch {
        let of_level = |sample: &Sample| {
            let id = *self.heads.get(&sample.id)?;
            Some(Sample { id, ..*sample })
        };
        Batch {
            cpu: batch.cpu,
            samples: batch.samples.iter().filter_map(of_level).collect(),
        }
    }

    /// Returns the identifier of the level that an instrument samples, if it samples one.
    #[must_use]
    pub fn head(&self, id: u64) -> Option<u64> {
        self.heads.get(&id).copied()
    }
}

/// Returns the instruments that sample levels: the identifier of each, and that of the first
/// instrument of its level, which identifies the level.
#[must_use]
pub fn heads(metadata: &Metadata) -> HashMap<u64, u64> {
    let mut firsts: HashMap<u32, u64> = HashMap::new();
    let levels = metadata.instruments.iter().filter(|info| is_level(info));
    let head = |info: &InstrumentInfo| match &info.placed {
        Some(placed) => *firsts.entry(placed.placement).or_insert(info.id),
        None => info.id,
    };
    let ids: Vec<u64> = levels.clone().map(|info| info.id).collect();
    ids.into_iter().zip(levels.map(head)).collect()
}

fn is_level(info: &InstrumentInfo) -> bool {
    info.meaning == Meaning::Level
}
