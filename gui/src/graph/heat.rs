//! Hit counts of blocks, from the recording on the timeline, live or from a file.

use std::collections::{BTreeMap, HashMap};

use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, Edge, EdgeKind};
use gilk_engine::{HookType, InstrumentId};
use gilk_samples::compare::{Change, Comparison, SideStats};
use gilk_samples::metadata::InstrumentInfo;

use crate::timeline::Record;

/// An instrument that delivers no samples, so that its hits are unknown.
const SILENT: &str = "elapsed-start";

/// Hit counts of the blocks of one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    hits: BTreeMap<BlockIndex, u64>,
    /// Hit counts of the ways of branches, where they were measured.
    ways: BTreeMap<(BlockIndex, HookType), u64>,
    most: u64,
    /// Changes of the rates against an earlier recording, while two are compared.
    changes: BTreeMap<BlockIndex, BlockChange>,
}

/// Change of a block's hits per second against an earlier recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockChange {
    /// Hits in the earlier recording.
    pub before: u64,
    /// The change relative to the earlier rate; `None` if that was 0.
    pub share: Option<f64>,
    /// The change is a difference, and not chance.
    pub differs: bool,
}

impl BlockChange {
    /// Formats the change of the rate.
    pub(crate) fn words(self) -> String {
        match self.share {
            Some(share) => format!("{:+.0} %", 100.0 * share),
            None => "new".to_owned(),
        }
    }
}

/// Instruments that count hits in a function.
struct Counting<'a> {
    /// The one of each block that counts its hits best: with the most hits, because those that launch later have fewer, and
    /// before the block, because a call may not return to its end.
    blocks: BTreeMap<BlockIndex, &'a InstrumentInfo>,
    /// The most hits of one at each way of a branch.
    ways: BTreeMap<(BlockIndex, HookType), u64>,
}

/// Returns the instruments that count the hits of a function; `None` if the recording has no such function.
fn counting<'a>(record: &'a Record, name: &str) -> Option<Counting<'a>> {
    // One with instruments beside counts of every block is there twice.
    let functions = record.metadata.functions.iter();
    let functions = functions.filter(|one| one.name == name);
    let majors: Vec<u32> = functions.map(|one| one.major).collect();
    if majors.is_empty() {
        return None;
    }
    let mut best: BTreeMap<BlockIndex, ((bool, u64), &InstrumentInfo)> = BTreeMap::new();
    let mut ways: BTreeMap<(BlockIndex, HookType), u64> = BTreeMap::new();
    for info in record.lanes() {
        // A recording may come from another program.
        let Some(id) = InstrumentId::unpack(info.id) else {
            continue;
        };
        let is_silent = info.instrument == SILENT || !info.counts_its_block();
        if !majors.contains(&id.major) || is_silent {
            continue;
        }
        let block = BlockIndex(id.block);
        if id.hook.is_way() {
            let most = ways.entry((block, id.hook)).or_default();
            *most = record.hits(info).max(*most);
            continue;
        }
        let rank = (id.hook == HookType::Pre, record.hits(info));
        let known = best.entry(block).or_insert((rank, info));
        if rank > known.0 {
            *known = (rank, info);
        }
    }
    let best = best.into_iter();
    Some(Counting {
        blocks: best.map(|(block, (_, info))| (block, info)).collect(),
        ways,
    })
}

/// Returns the way of a branch that an edge is.
fn way(cfg: &Cfg, edge: &Edge) -> Option<HookType> {
    let from = cfg.block(edge.from)?;
    match edge.kind {
        EdgeKind::Taken => Some(HookType::Taken),
        EdgeKind::Fallthrough if from.end == BlockEnd::Conditional => Some(HookType::Untaken),
        _ => None,
    }
}

impl Heat {
    /// Returns the hit counts of the function with the session name `name`, or `None` if the
    /// recording has no instrument in it.
    #[must_use]
    pub fn of(record: &Record, name: &str) -> Option<Self> {
        let mut heat = Self::default();
        let counting = counting(record, name)?;
        heat.ways = counting.ways;
        for (&block, info) in &counting.blocks {
            heat.hits.insert(block, record.hits(info));
        }
        // Every block is counted there, for no placement, and those that were not executed are not recorded.
        let mut lanes = record.lanes().iter();
        if record.cache.is_some() && lanes.any(|info| info.placed.is_none()) {
            let mut functions = record.metadata.functions.iter();
            let function = functions.find(|one| one.name == name);
            for (block, _) in (0..).zip(function.iter().flat_map(|one| &one.blocks)) {
                heat.hits.entry(BlockIndex(block)).or_default();
            }
        }
        let counts = heat.hits.values().chain(heat.ways.values());
        heat.most = counts.copied().max()?;
        Some(heat)
    }

    /// Adds the changes of two compared recordings, of which `record` is the later one.
    pub(crate) fn compare(&mut self, record: &Record, name: &str, instruments: &[Comparison]) {
        let by_label: HashMap<&str, &Comparison> = instruments
            .iter()
            .map(|one| (one.label.as_str(), one))
            .collect();
        let counting = counting(record, name);
        for (block, info) in counting.into_iter().flat_map(|counting| counting.blocks) {
            let Some(compared) = by_label.get(info.label.as_str()) else {
                continue;
            };
            let per_second = |side: &SideStats| side.count as f64 / side.seconds.max(1e-9);
            let (before, after) = (per_second(&compared.a), per_second(&compared.b));
            let change = BlockChange {
                before: compared.a.count,
                share: (before > 0.0).then(|| after / before - 1.0),
                differs: compared.rate.as_ref().is_some_and(Change::differs),
            };
            self.changes.insert(block, change);
        }
    }

    /// Returns the change of a block, while two recordings are compared and both measured it.
    #[must_use]
    pub fn change(&self, block: BlockIndex) -> Option<BlockChange> {
        self.changes.get(&block).copied()
    }

    /// Returns the hits of a block that has an instrument.
    #[must_use]
    pub fn block(&self, block: BlockIndex) -> Option<u64> {
        self.hits.get(&block).copied()
    }

    /// Returns the hits of a way of a block's branch that has an instrument.
    #[must_use]
    pub fn way(&self, block: BlockIndex, way: HookType) -> Option<u64> {
        self.ways.get(&(block, way)).copied()
    }

    /// Returns how often an edge was taken, if it was measured, or follows from the hits of blocks: the edge is the only one
    /// out of its source or into its destination.
    #[must_use]
    pub fn edge(&self, cfg: &Cfg, edge: &Edge) -> Option<u64> {
        let measured = way(cfg, edge).and_then(|way| self.way(edge.from, way));
        if measured.is_some() {
            return measured;
        }
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
