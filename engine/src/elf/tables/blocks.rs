//! The blocks of a function under analysis, by the numbers of their first instructions, and the ways between them.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};

use super::{Flow, ObjectCode};
use crate::isa::decode::branch_target;

/// The blocks of a function with the ways that are known.
#[derive(Default)]
pub(super) struct Blocks {
    /// The number of instructions of each: to the next leader, branch, or call that never returns.
    lengths: BTreeMap<usize, usize>,
    after: BTreeMap<usize, BTreeSet<usize>>,
    before: BTreeMap<usize, BTreeSet<usize>>,
    /// The blocks that jump through tables, by their targets.
    listing: BTreeMap<usize, BTreeSet<usize>>,
    /// Those that control is known to reach.
    reached: BTreeSet<usize>,
}

impl Blocks {
    /// Returns the blocks with the direct ways between them.
    pub(super) fn of(flow: &Flow<'_>, code: &ObjectCode<'_>) -> Self {
        let mut blocks = Self::default();
        for &leader in &flow.leaders {
            let next = flow.leaders.range(leader + 1..).next().copied();
            let block = flow
                .instructions
                .get(leader..next.unwrap_or(flow.instructions.len()));
            let block = block.unwrap_or_default();
            let end = block.iter().position(|at| code.ends_block(at));
            let block = end.and_then(|end| block.get(..=end)).unwrap_or(block);
            blocks.lengths.insert(leader, block.len());
            let after = blocks.after.entry(leader).or_default();
            let last = block.last().filter(|last| code.ends_block(last));
            let is_branch = |last: &&Instruction| last.flow_control() != FlowControl::Call;
            let target = last.filter(is_branch).and_then(branch_target);
            after.extend(target.and_then(|target| flow.at.get(&target.0)));
            let continues = last.is_none_or(|last| {
                matches!(
                    last.flow_control(),
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
                )
            });
            let next = leader + block.len();
            if continues && next < flow.instructions.len() {
                after.insert(next);
            }
            for &to in &*after {
                blocks.before.entry(to).or_default().insert(leader);
            }
        }
        blocks
    }

    /// Returns the instructions of a block.
    pub(super) fn instructions<'f>(&self, flow: &'f Flow<'_>, leader: usize) -> &'f [Instruction] {
        let length = self.lengths.get(&leader).copied();
        debug_assert!(length.is_some(), "no block begins at {leader}");
        let end = leader + length.unwrap_or(0);
        flow.instructions.get(leader..end).unwrap_or_default()
    }

    /// Adds the ways of a jump through a table.
    pub(super) fn add_table(&mut self, from: usize, to: &BTreeSet<usize>) {
        self.after.entry(from).or_default().extend(to);
        for &to in to {
            self.listing.entry(to).or_default().insert(from);
        }
    }

    /// Finds the blocks that control reaches by the ways that are known now.
    pub(super) fn reach(&mut self, entered: &BTreeSet<usize>) {
        self.reached.clone_from(entered);
        let mut worklist: Vec<usize> = entered.iter().copied().collect();
        while let Some(leader) = worklist.pop() {
            let after = self.after.get(&leader).into_iter().flatten();
            worklist.extend(after.filter(|&&to| self.reached.insert(to)));
        }
    }

    /// Returns whether control is known to reach a block.
    pub(super) fn is_reached(&self, leader: usize) -> bool {
        self.reached.contains(&leader)
    }

    /// Returns the blocks from which control comes to a block without a jump through a table.
    pub(super) fn before(&self, leader: usize) -> impl Iterator<Item = usize> {
        self.before.get(&leader).into_iter().flatten().copied()
    }

    /// Returns the blocks whose jumps through tables target a block.
    pub(super) fn listing(&self, leader: usize) -> impl Iterator<Item = usize> {
        self.listing.get(&leader).into_iter().flatten().copied()
    }
}
