//! Cold regions: connected blocks that are not executed, which the graph can show as one box.
//!
//! With hit counts a block is cold if it was not hit. Without them it is cold if it does not return,
//! or if it is only reached through edges that are not taken now: static keys that are off, and
//! fixups. Blocks without an own verdict follow from their neighbours, by iteration to a fixpoint.

use std::collections::BTreeSet;

use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};

/// Minimum number of blocks of a region.
const LEAST: usize = 2;

/// Returns the cold regions of a function, each with its blocks in order. `is_hit` is whether a block
/// was hit, if that is known. The entry and the blocks of `opened` are in no region.
pub(crate) fn regions(
    cfg: &Cfg,
    is_hit: impl Fn(BlockIndex) -> Option<bool>,
    opened: &BTreeSet<BlockIndex>,
) -> Vec<Vec<BlockIndex>> {
    let cold: BTreeSet<BlockIndex> = cold(cfg, is_hit).difference(opened).copied().collect();
    let mut met = BTreeSet::new();
    let mut regions = Vec::new();
    for &first in &cold {
        if !met.insert(first) {
            continue;
        }
        let mut region = Vec::new();
        let mut worklist = vec![first];
        while let Some(block) = worklist.pop() {
            region.push(block);
            let out = cfg.successors(block).map(|edge| edge.to);
            let neighbours = out.chain(cfg.predecessors(block).map(|edge| edge.from));
            worklist.extend(neighbours.filter(|block| cold.contains(block) && met.insert(*block)));
        }
        if region.len() >= LEAST {
            region.sort_unstable();
            regions.push(region);
        }
    }
    regions
}

/// Returns the cold blocks.
fn cold(cfg: &Cfg, is_hit: impl Fn(BlockIndex) -> Option<bool>) -> BTreeSet<BlockIndex> {
    let entry = BlockIndex(0);
    let verdicts: Vec<Option<bool>> = cfg.blocks.iter().map(|block| is_hit(block.index)).collect();
    let is_counted = verdicts.iter().any(Option::is_some);
    let mut cold = BTreeSet::new();
    loop {
        let before = cold.len();
        for (block, verdict) in cfg.blocks.iter().zip(&verdicts) {
            let is_cold = match verdict {
                Some(hit) => !hit,
                None => {
                    let is_dead_end = block.end == BlockEnd::NoReturn && !is_counted;
                    let mut ways_in = cfg.predecessors(block.index).peekable();
                    let is_reached = block.entered || ways_in.peek().is_none();
                    let unreached = !is_reached
                        && ways_in.all(|edge| {
                            let is_off = matches!(edge.kind, EdgeKind::StaticKey | EdgeKind::Fixup);
                            is_off || cold.contains(&edge.from)
                        });
                    let mut ways_out = cfg.successors(block.index).peekable();
                    let leaves = ways_out.peek().is_none();
                    let all_out_are_cold = !leaves && ways_out.all(|edge| cold.contains(&edge.to));
                    is_dead_end || unreached || all_out_are_cold
                }
            };
            if is_cold && block.index != entry {
                cold.insert(block.index);
            }
        }
        if cold.len() == before {
            return cold;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_engine::Image;
    use proptest::prelude::*;

    fn copy_process() -> Cfg {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../engine/tests/data/fork.image"
        );
        let parts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
        let image = Image::from_live(&parts).unwrap();
        Cfg::of(&image, image.function_named("copy_process").unwrap().id)
    }

    #[test]
    fn without_counts_what_does_not_return_is_cold() {
        let cfg = copy_process();
        let cold = cold(&cfg, |_| None);
        let dead_ends = cfg
            .blocks
            .iter()
            .filter(|block| block.end == BlockEnd::NoReturn);
        assert!(dead_ends.clone().count() > 0);
        assert!(dead_ends.clone().all(|block| cold.contains(&block.index)));
        assert!(cold.len() < cfg.blocks.len() / 2, "{}", cold.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn regions_are_connected_and_have_no_block_that_was_hit(hits in prop::collection::vec(any::<Option<bool>>(), 400)) {
            let cfg = copy_process();
            let is_hit = |block: BlockIndex| hits[block.0 as usize];
            let regions = regions(&cfg, is_hit, &BTreeSet::new());
            let mut all = BTreeSet::new();
            for region in &regions {
                prop_assert!(region.len() >= LEAST && region.is_sorted());
                for &block in region {
                    prop_assert!(block != BlockIndex(0) && is_hit(block) != Some(true));
                    prop_assert!(all.insert(block), "{:?} is in two regions", block);
                    let mut ways = cfg.successors(block).map(|edge| edge.to)
                        .chain(cfg.predecessors(block).map(|edge| edge.from));
                    prop_assert!(ways.any(|other| other != block && region.contains(&other)));
                }
            }
            let cold = cold(&cfg, is_hit);
            // A cold block outside of all regions has no cold neighbour.
            for &block in cold.difference(&all) {
                let mut ways = cfg.successors(block).map(|edge| edge.to)
                    .chain(cfg.predecessors(block).map(|edge| edge.from));
                prop_assert!(!ways.any(|other| other != block && cold.contains(&other)));
            }
        }
    }
}
