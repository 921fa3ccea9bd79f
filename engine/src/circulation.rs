//! Counts of blocks that follow from those of other blocks of the function.
//!
//! What flows out of blocks flows into their successors, so not every block needs a counter: with a
//! spanning tree of the graph whose nodes are the places where blocks meet and whose arcs are the
//! blocks, the counters are at the arcs outside of the tree, and those of the tree are solved for (D. E.
//! Knuth, F. R. Stevenson: Optimal measurement points for program frequency counts, BIT 13, 1973). The
//! tree takes the blocks that are probably executed most.
//!
//! Nothing is assumed of calls: a block in which one may end (a call, a system call, a trap) and every
//! block that is entered from unknown code meets the outside of the function. A count is wrong by as many
//! threads as are in the middle of the function when the counting begins or ends, or leave it there by a
//! signal or a fault.

use crate::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::ids::{Id, Ids, id};

id!(
    /// A place where blocks meet: flow that comes out of some goes into others.
    Junction
);

/// A block as an arc between two junctions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowArc {
    from: Junction,
    to: Junction,
    counted: bool,
}

/// Blocks of a function that need a counter, so that all counts follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circulation {
    arcs: Ids<BlockIndex, FlowArc>,
    junctions: usize,
}

impl Circulation {
    /// Chooses blocks among those that can be counted.
    #[must_use]
    pub fn of(cfg: &Cfg, can_count: impl Fn(BlockIndex) -> bool) -> Self {
        let blocks = cfg.blocks.len();
        // Before and after each block, and outside.
        let mut sets = DisjointSets::new(2 * blocks + 1);
        let before = |block: BlockIndex| 2 * block.index();
        let after = |block: BlockIndex| 2 * block.index() + 1;
        let outside = 2 * blocks;
        for (number, block) in cfg.blocks.iter().enumerate() {
            if number == 0 || block.entered || block.open {
                sets.join(before(block.index), outside);
            }
            if may_end(cfg, block.index) {
                sets.join(after(block.index), outside);
            }
        }
        for edge in &cfg.edges {
            match edge.kind {
                // From the middle of its block.
                EdgeKind::Fixup => {
                    sets.join(after(edge.from), outside);
                    sets.join(before(edge.to), outside);
                }
                _ => sets.join(after(edge.from), before(edge.to)),
            }
        }
        let depths = depths(cfg);
        let mut order: Vec<BlockIndex> = (0..blocks).map(BlockIndex::new).collect();
        order.sort_by_key(|&block| (can_count(block), std::cmp::Reverse(depths[block])));
        let mut tree = DisjointSets::new(2 * blocks + 1);
        let mut arcs: Ids<BlockIndex, FlowArc> = Ids::from(
            cfg.blocks
                .iter()
                .map(|block| FlowArc {
                    from: Junction::new(sets.find(before(block.index))),
                    to: Junction::new(sets.find(after(block.index))),
                    counted: false,
                })
                .collect::<Vec<_>>(),
        );
        for block in order {
            let FlowArc { from, to, .. } = arcs[block];
            let is_tree = tree.find(from.index()) != tree.find(to.index());
            tree.join(from.index(), to.index());
            arcs[block].counted = !is_tree && can_count(block);
        }
        let mut chosen = Self {
            arcs,
            junctions: 2 * blocks + 1,
        };
        // Counts that would follow from those of blocks that cannot be counted.
        let known = chosen.complete(|_| Some(0));
        for (block, known) in known.iter() {
            if known.is_none() && can_count(block) {
                chosen.arcs[block].counted = true;
            }
        }
        chosen
    }

    /// The blocks that need a counter.
    pub fn counted(&self) -> impl Iterator<Item = BlockIndex> {
        let counted = self.arcs.iter().filter(|(_, arc)| arc.counted);
        counted.map(|(block, _)| block)
    }

    /// Returns the counts of all blocks from those of counted ones; `None` where one is missing.
    ///
    /// A count below 0, which means that flow was not conserved, is 0.
    #[must_use]
    pub fn complete(
        &self,
        count: impl Fn(BlockIndex) -> Option<u64>,
    ) -> Ids<BlockIndex, Option<u64>> {
        let mut counts: Ids<BlockIndex, Option<i128>> = Ids::like(&self.arcs, None);
        let mut around: Ids<Junction, Vec<BlockIndex>> =
            Ids::from(vec![Vec::new(); self.junctions]);
        for (block, arc) in self.arcs.iter() {
            if arc.counted {
                counts[block] = count(block).map(i128::from);
            }
            // What flows through a block from a junction to the same one changes nothing there.
            if arc.from != arc.to {
                around[arc.from].push(block);
                around[arc.to].push(block);
            }
        }
        // Of each junction, the blocks without a count.
        let mut unknown: Ids<Junction, usize> = Ids::like(&around, 0);
        for (junction, blocks) in around.iter() {
            unknown[junction] = blocks
                .iter()
                .filter(|&&block| counts[block].is_none())
                .count();
        }
        let mut worklist: Vec<Junction> = (0..self.junctions).map(Junction::new).collect();
        while let Some(junction) = worklist.pop() {
            if unknown[junction] != 1 {
                continue;
            }
            let mut balance = 0;
            let mut missing = None;
            for &block in &around[junction] {
                match counts[block] {
                    Some(count) if self.arcs[block].to == junction => balance += count,
                    Some(count) => balance -= count,
                    None => missing = Some(block),
                }
            }
            let Some(block) = missing else {
                debug_assert!(false, "no block is missing at a junction that lacks one");
                continue;
            };
            let arc = self.arcs[block];
            let inwards = arc.to == junction;
            counts[block] = Some(if inwards { -balance } else { balance });
            for end in [arc.from, arc.to] {
                unknown[end] -= 1;
                worklist.push(end);
            }
        }
        let counts = counts.into_values().into_iter();
        let counts = counts.map(|count| Some(u64::try_from(count?.max(0)).unwrap_or(u64::MAX)));
        Ids::from(counts.collect::<Vec<_>>())
    }
}

/// Returns whether control may not reach the end of a block, or leaves the function there.
fn may_end(cfg: &Cfg, block: BlockIndex) -> bool {
    let ends = |instruction: &iced_x86::Instruction| {
        use iced_x86::FlowControl::{Call, Exception, IndirectCall, Interrupt};
        matches!(
            instruction.flow_control(),
            Call | IndirectCall | Interrupt | Exception
        )
    };
    cfg.exits(block)
        || cfg[block].end == BlockEnd::NoReturn
        || cfg[block].instructions.iter().any(|one| ends(&one))
}

/// Estimates how often blocks are executed: the number of branches backwards around each.
fn depths(cfg: &Cfg) -> Ids<BlockIndex, u32> {
    let mut changes = vec![0_i64; cfg.blocks.len() + 1];
    let back = cfg.edges.iter().filter(|edge| edge.to <= edge.from);
    for edge in back {
        for (at, change) in [(edge.to.index(), 1), (edge.from.index() + 1, -1)] {
            if let Some(total) = changes.get_mut(at) {
                *total += change;
            }
        }
    }
    let mut depth = 0_i64;
    let depths = changes.iter().take(cfg.blocks.len()).map(|change| {
        depth += change;
        u32::try_from(depth).unwrap_or(0)
    });
    Ids::from(depths.collect::<Vec<_>>())
}

/// Sets of numbers, joined (union by halving of paths).
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn new(numbers: usize) -> Self {
        Self((0..numbers).collect())
    }

    /// The representative of a number's set.
    fn find(&mut self, number: usize) -> usize {
        let mut at = number;
        while let Some(&parent) = self.0.get(at)
            && parent != at
        {
            let grandparent = self.0.get(parent).copied().unwrap_or(parent);
            if let Some(entry) = self.0.get_mut(at) {
                *entry = grandparent;
            }
            at = grandparent;
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        if let Some(entry) = self.0.get_mut(one) {
            *entry = other;
        }
    }
}

#[cfg(test)]
mod tests;
