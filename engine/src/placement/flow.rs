//! Control flow of a body by instruction, and what a patch may execute of it.

use super::body::{Body, is_call};
use super::ids::{BlockId, InsnId};
use crate::cfg::{Block, BlockEnd, Cfg, EdgeKind};
use crate::code::{Decision, Transfer};
use crate::{Addr, Refusal, Rule, Span};

impl Body<'_> {
    /// Returns whether a patch may execute the instruction's equivalent anywhere: a copy, or an emulation
    /// that reads the kernel's own decision.
    pub(super) fn is_copyable(&self, at: InsnId) -> bool {
        let Some(instruction) = self.instruction(at) else {
            return false;
        };
        let decided = || self.image.decided(self.start(at)).map(|site| site.by);
        match self.stays(at) {
            None => !is_call(&instruction),
            Some(Rule::StaticKey) => {
                matches!(decided(), Some(Decision::StaticKey { .. })) && self.flags_are_dead(at)
            }
            Some(Rule::StaticCall) => matches!(
                decided(),
                Some(Decision::StaticCall {
                    transfer: Transfer::Conditional(_),
                    ..
                })
            ),
            Some(_) => false,
        }
    }

    /// Returns whether a patch may execute the instruction's equivalent, if necessary as its last.
    pub(super) fn is_executable(&self, at: InsnId) -> bool {
        let decided = || self.image.decided(self.start(at)).map(|site| site.by);
        match self.stays(at) {
            None => self.instruction(at).is_some(),
            // A static call without a target is a nop now, and would return all the same.
            Some(Rule::StaticCall) => match decided() {
                Some(Decision::StaticCall { transfer, .. }) => {
                    transfer != Transfer::Call || self.is_call(at)
                }
                _ => false,
            },
            Some(_) => self.is_copyable(at),
        }
    }

    fn flags_are_dead(&self, at: InsnId) -> bool {
        let liveness = self.liveness(at);
        liveness.is_some_and(|liveness| !liveness.before(self.start(at)).flags)
    }

    /// Returns whether the instruction is a call: its callee returns to the original code after it.
    pub(super) fn is_call(&self, at: InsnId) -> bool {
        self.instruction(at).as_ref().is_some_and(is_call)
    }

    /// The instructions from which control reaches `at`.
    ///
    /// # Errors
    /// The rule, if control may come from other places than instructions of the body.
    pub(super) fn predecessors(&self, at: InsnId) -> Result<Vec<InsnId>, Refusal> {
        let number = self.block_of(at);
        if self.first_of(number) != Some(at) {
            let previous = at.previous();
            debug_assert!(previous.is_some(), "the first instruction begins a block");
            return Ok(previous.into_iter().collect());
        }
        let start = self.start(at);
        let block = self.block(number);
        let ways = block.and_then(|(cfg, block)| cfg.ways_in(self.image, block.index));
        let Some(ways) = ways.filter(|ways| ways.complete) else {
            return Err(Refusal::new(
                Rule::WaysUnknown,
                start,
                "the block may be the target of unknown indirect branches, so its edges cannot be hooked",
            ));
        };
        let base = self.base_of(number);
        let mut from: Vec<InsnId> = (ways.edges.iter())
            .filter_map(|edge| self.last_of(base.after(edge.from.0)))
            .collect();
        for branch in ways.branches {
            // A call there returns to the original code.
            let source = self.starting_at(branch.source);
            match source.filter(|&source| !self.is_call(source)) {
                Some(source) => from.push(source),
                None => {
                    return Err(Refusal::new(
                        Rule::EnteredFromElsewhere,
                        start,
                        format!("another function branches here, from {}", branch.source),
                    ));
                }
            }
        }
        from.sort_unstable();
        from.dedup();
        if from.is_empty() {
            let why = "no instruction of the kernel branches to this block";
            return Err(Refusal::new(Rule::Unreached, start, why));
        }
        if self.successors(number).is_some_and(|to| to == [at]) {
            return Err(Refusal::new(
                Rule::TooFar,
                start,
                "the block is its own only successor, and a copy of it would never end",
            ));
        }
        Ok(from)
    }

    fn last_of(&self, block: BlockId) -> Option<InsnId> {
        self.ends_of(block).map(|(_, last)| last)
    }

    /// The number of the first block of the graph that a block belongs to.
    fn base_of(&self, number: BlockId) -> BlockId {
        let block = self.block(number);
        let base = block.and_then(|(cfg, _)| self.base(cfg.function));
        debug_assert!(base.is_some(), "{number:?} is in no graph");
        base.unwrap_or(number)
    }

    /// Targets of the block's edges in its graph, except those to fixups.
    fn targets(&self, cfg: &Cfg, block: &Block, number: BlockId) -> Vec<InsnId> {
        let base = self.base_of(number);
        let edges = (cfg.successors(block.index)).filter(|edge| edge.kind != EdgeKind::Fixup);
        edges
            .filter_map(|edge| self.first_of(base.after(edge.to.0)))
            .collect()
    }

    /// The instructions that control reaches from the end of a block; `None` if some are not in the body.
    pub(super) fn successors(&self, number: BlockId) -> Option<Vec<InsnId>> {
        let (cfg, block) = self.block(number)?;
        let mut to = self.targets(cfg, block, number);
        if cfg.exits(block.index) {
            if matches!(block.end, BlockEnd::Return | BlockEnd::Indirect) {
                return None;
            }
            to.push(self.starting_at(self.target(self.last_of(number)?)?)?);
        }
        to.sort_unstable();
        to.dedup();
        Some(to)
    }

    /// The last instructions of the body's blocks from which control reaches a block.
    pub(super) fn sources(&self, number: BlockId) -> Vec<InsnId> {
        let Some((cfg, block)) = self.block(number) else {
            return Vec::new();
        };
        let base = self.base_of(number);
        let edges = cfg.predecessors(block.index);
        let edges = edges.filter(|edge| edge.kind != EdgeKind::Fixup);
        let inside = edges.filter_map(|edge| self.last_of(base.after(edge.from.0)));
        let start = Span::new(block.span.start, 1);
        let branches = self.image.branches_into(start).iter();
        let parts = branches.filter_map(|branch| self.starting_at(branch.source));
        let mut from: Vec<InsnId> = inside.chain(parts).collect();
        from.sort_unstable();
        from.dedup();
        from
    }

    /// Returns whether a function, not a part of one, begins with the instruction.
    pub(super) fn is_entry(&self, at: InsnId) -> bool {
        let block = self.block(self.block_of(at));
        let first = block.filter(|(cfg, _)| cfg.span.start == self.start(at));
        first.is_some_and(|(cfg, _)| !self.image[cfg.function].is_part())
    }

    /// Returns whether the instructions belong to different graphs.
    pub(super) fn crosses(&self, from: InsnId, to: InsnId) -> bool {
        let graph = |at: InsnId| self.graph_of(self.block_of(at));
        graph(from) != graph(to)
    }

    /// Returns whether a block begins with the instruction.
    pub(super) fn begins_block(&self, at: InsnId) -> bool {
        self.first_of(self.block_of(at)) == Some(at)
    }

    /// The instructions of the body that control may reach from one, except fixups: those after a call
    /// included.
    pub(super) fn next(&self, at: InsnId) -> Vec<InsnId> {
        let following = at.next();
        if self.insns().contains(following) && !self.begins_block(following) {
            return vec![following];
        }
        let number = self.block_of(at);
        let Some((cfg, block)) = self.block(number) else {
            return Vec::new();
        };
        let mut to = self.targets(cfg, block, number);
        if cfg.exits(block.index) {
            // A part of the function elsewhere.
            let target = self.target(at);
            to.extend(target.and_then(|target| self.starting_at(target)));
        }
        to
    }

    /// The target of a branch or a static key.
    pub(super) fn target(&self, at: InsnId) -> Option<Addr> {
        if let Some(site) = self.image.decided(self.start(at)) {
            return match site.by {
                Decision::StaticKey { target, .. } => Some(target),
                Decision::StaticCall { .. } => None,
            };
        }
        let target = self.instruction(at)?.near_branch_target();
        (target != 0 && !self.is_call(at)).then_some(Addr(target))
    }
}
