//! Counts of random walks through random functions.

use proptest::prelude::*;

use super::{Circulation, may_end};
use crate::Image;
use crate::cfg::random::{CodePiece, kernel, pieces};
use crate::cfg::{BlockIndex, Cfg, EdgeKind};
use crate::code::FunctionId;
use crate::ids::{Id, Ids};

fn graph(pieces: &[CodePiece]) -> (Image, Cfg) {
    let (fixture, _, _) = kernel(pieces);
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId::new(0));
    (image, cfg)
}

/// Counts the blocks of walks from entries to exits, a step for each choice; the last walk may not end.
fn walked(cfg: &Cfg, choices: &[u32]) -> Option<Ids<BlockIndex, u64>> {
    let entries: Vec<BlockIndex> = cfg
        .blocks
        .iter()
        .filter(|block| block.index.0 == 0 || block.entered || block.open)
        .map(|block| block.index)
        .collect();
    let mut counts = Ids::from(vec![0; cfg.blocks.len()]);
    let mut at: Option<BlockIndex> = None;
    for &choice in choices {
        let block = at.unwrap_or(entries[choice as usize % entries.len()]);
        counts[block] += 1;
        let ways: Vec<BlockIndex> = cfg
            .successors(block)
            .filter(|edge| edge.kind != EdgeKind::Fixup)
            .map(|edge| edge.to)
            .collect();
        let faults = cfg
            .successors(block)
            .any(|edge| edge.kind == EdgeKind::Fixup);
        let ends = (may_end(cfg, block) || faults) && choice % 3 == 0;
        at = match ways.as_slice() {
            [] => None,
            _ if ends => None,
            ways => Some(ways[choice as usize % ways.len()]),
        };
    }
    at.is_none().then_some(counts)
}

proptest! {
    #[test]
    fn counts_of_walks_follow_from_those_of_counted_blocks(
        pieces in pieces(),
        choices in prop::collection::vec(any::<u32>(), 1..400),
        refused in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let (_, cfg) = graph(&pieces);
        prop_assume!(!cfg.blocks.is_empty());
        let refused: Vec<usize> = refused.iter().map(|one| one.index(cfg.blocks.len())).collect();
        let can_count = |block: BlockIndex| !refused.contains(&block.index());
        let chosen = Circulation::of(&cfg, can_count);
        prop_assert!(chosen.counted().all(can_count));
        let counted: Vec<BlockIndex> = chosen.counted().collect();
        let Some(counts) = walked(&cfg, &choices) else {
            return Ok(());
        };
        let all = chosen.complete(|block| counted.contains(&block).then_some(counts[block]));
        for (block, count) in all.iter() {
            if let Some(count) = count {
                prop_assert_eq!(*count, counts[block], "block {} of {:?}", block.0, counts);
            } else {
                // It could not be counted, and does not follow.
                prop_assert!(!can_count(block), "block {}", block.0);
            }
        }
    }
}

#[test]
fn a_loop_with_a_choice_needs_three_counters_for_five_blocks() {
    use crate::cfg::random::Ending::{Branches, Jumps, Returns, RunsOn};
    // 0: branch to 2; 1: jump to 3; 2: falls through; 3: branch to 0; 4: return.
    let ways = [Branches(2), Jumps(3), RunsOn, Branches(0), Returns];
    let pieces: Vec<CodePiece> = ways.into_iter().map(CodePiece::ending_in).collect();
    let (_, cfg) = graph(&pieces);
    let chosen = Circulation::of(&cfg, |_| true);
    // Before them is the tracer's site, after them a return that nothing reaches.
    let counted = chosen.counted().filter(|block| (1..=5).contains(&block.0));
    assert_eq!(counted.count(), 3, "{chosen:?}");
}
