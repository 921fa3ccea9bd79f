//! Facts about the lanes of a recording, found when it is opened: recordings have up to 10,000 lanes, and
//! no frame looks through all of them.

use std::collections::{HashMap, HashSet};

use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::Meaning;
use gilk_samples::statistics::is_quantity;

use super::{Record, list};

/// Facts about the lanes of a recording.
#[derive(Debug, Default)]
pub(crate) struct LaneFacts {
    /// Number of the recording.
    pub(super) opened: u64,
    /// Places of the lanes that sample levels.
    pub(super) levels: Vec<usize>,
    /// Place of the first lane with values.
    pub(super) first_valued: Option<usize>,
    places: HashMap<u64, usize>,
    /// The blocks that have instruments, by function.
    blocks: HashMap<String, HashSet<u32>>,
}

impl LaneFacts {
    /// Finds the facts about a recording.
    pub(super) fn of(opened: u64, record: &Record) -> Self {
        let mut facts = Self {
            opened,
            ..Self::default()
        };
        for (place, info) in record.lanes().iter().enumerate() {
            facts.places.entry(info.id).or_insert(place);
            match info.meaning {
                Meaning::Level => facts.levels.push(place),
                Meaning::Duration | Meaning::Value if is_quantity(&record.metadata, info) => {
                    facts.first_valued.get_or_insert(place);
                }
                _ => {}
            }
            // Recordings of other programs have other identifiers.
            let Some(id) = InstrumentId::unpack(info.id) else {
                continue;
            };
            if let Some(function) = list::function(&record.metadata, id.major) {
                let blocks = facts.blocks.entry(function.to_owned()).or_default();
                blocks.insert(id.block);
            }
        }
        facts
    }

    /// Returns the place of the first lane with an identifier.
    pub(super) fn place(&self, id: u64) -> Option<usize> {
        self.places.get(&id).copied()
    }

    /// Returns whether an instrument is at a block of a function.
    pub(super) fn measures(&self, function: &str, block: BlockIndex) -> bool {
        let blocks = self.blocks.get(function);
        blocks.is_some_and(|blocks| blocks.contains(&block.0))
    }
}
