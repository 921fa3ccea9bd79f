//! Hit counts of blocks, from the recording on the timeline, live or from a file.

use std::collections::BTreeMap;

use gilk_engine::cfg::{BlockIndex, Cfg, Edge};
use gilk_engine::{HookType, InstrumentId};

use crate::timeline::Record;

/// An instrument that delivers no samples, so that its hits are unknown.
const SILENT: &str = "elapsed-start";

/// Hit counts of the blocks of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    hits: BTreeMap<BlockIndex, u64>,
    most: u64,
}

impl Heat {
    /// Returns the hit counts of the function with the session name `name`, or `None` if the
    /// recording has no instrument in it.
    #[must_use]
    pub fn of(record: &Record, name: &str) -> Option<Self> {
        let functions = &record.metadata.functions;
        let major = functions.iter().find(|one| one.name == name)?.major;
        let mut heat = Self::default();
        let mut pre: BTreeMap<BlockIndex, u64> = BTreeMap::new();
        for info in record.lanes() {
            // A recording may come from another program.
            let Some(id) = InstrumentId::unpack(info.id) else {
                continue;
            };
            if id.major != major || info.instrument == SILENT || !info.counts_its_block() {
                continue;
            }
            let block = BlockIndex(id.block);
            let hits = record.hits(info);
            // Instruments that launch later have fewer hits: the maximum is the most accurate.
            // Pre-hooks take precedence, because a call may not return to the post-hook.
            let table = match id.hook {
                HookType::Pre => &mut pre,
                HookType::Post => &mut heat.hits,
                HookType::Taken | HookType::Untaken => continue,
            };
            let known = table.entry(block).or_insert(0);
            *known = hits.max(*known);
        }
        heat.hits.extend(pre);
        heat.most = heat.hits.values().copied().max().unwrap_or(0);
        (!heat.hits.is_empty()).then_some(heat)
    }

    /// Returns the hits of a block that has an instrument.
    #[must_use]
    pub fn block(&self, block: BlockIndex) -> Option<u64> {
        self.hits.get(&block).copied()
    }

    /// Returns how often an edge was taken, if it follows from the hits of blocks: the edge is the
    /// only one out of its source or into its destination.
    #[must_use]
    pub fn edge(&self, cfg: &Cfg, edge: &Edge) -> Option<u64> {
        let only = |mut edges: Box<dyn Iterator<Item = &Edge> + '_>| {
            edges.next().is_some() && edges.next().is_none()
        };
        let out = only(Box::new(cfg.successors(edge.from)));
        let entered = cfg.block(edge.to).is_some_and(|block| block.entered);
        let into = !entered && only(Box::new(cfg.predecessors(edge.to)));
        let from = self.block(edge.from).filter(|_| out);
        from.or_else(|| self.block(edge.to).filter(|_| into))
    }

    /// Returns the heat of a hit count, from 0 to 1.
    #[must_use]
    pub fn share(&self, hits: u64) -> f32 {
        (1.0 + hits as f32).ln() / (1.0 + self.most as f32).ln().max(f32::MIN_POSITIVE)
    }
}
