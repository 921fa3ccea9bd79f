//! How control comes to an instruction and goes on from it, and whether a patch may do the same.

use crate::cfg::{Block, BlockEnd, Cfg, EdgeKind};
use crate::code::{Decision, Transfer};
use crate::{Addr, Refusal, Rule};

use super::segments::{BlockNumber, Number, Outline, is_call};

impl Outline<'_> {
    /// Whether a patch may do what the instruction does: by a copy, or by the kernel's own means.
    pub(super) fn copyable(&self, at: Number) -> bool {
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

    fn flags_are_dead(&self, at: Number) -> bool {
        let liveness = self.liveness(at);
        liveness.is_some_and(|liveness| !liveness.before(self.start(at)).flags)
    }

    /// Whether the instruction returns control to what stands behind it by its address there.
    pub(super) fn returns(&self, at: Number) -> bool {
        self.instruction(at).as_ref().is_some_and(is_call)
    }

    /// From where control comes to the instruction.
    ///
    /// # Errors
    /// The rule, if it may come from elsewhere than instructions of the outline.
    pub(super) fn ways(&self, at: Number) -> Result<Vec<Number>, Refusal> {
        let number = self.block_of(at);
        if self.first_of(number) != Some(at) {
            return Ok(vec![at - 1]);
        }
        let here = self.start(at);
        let block = self.block(number);
        let ways = block.and_then(|(cfg, block)| cfg.ways_in(self.image, block.index));
        let Some(ways) = ways.filter(|ways| ways.complete) else {
            return Err(Refusal::new(
                Rule::WaysUnknown,
                here,
                "control may come here from nobody knows where, so there are no edges to hook",
            ));
        };
        let base = number - block.map_or(0, |(_, block)| block.index.0);
        let mut from: Vec<Number> = (ways.edges.iter())
            .filter_map(|edge| self.last_of(base + edge.from.0))
            .collect();
        for branch in ways.branches {
            // A call there comes back by the text.
            let source = self.number(branch.source);
            match source.filter(|&source| !self.returns(source)) {
                Some(source) => from.push(source),
                None => {
                    return Err(Refusal::new(
                        Rule::EnteredFromElsewhere,
                        here,
                        format!("another function branches here, from {}", branch.source),
                    ));
                }
            }
        }
        from.sort_unstable();
        from.dedup();
        if from.is_empty() {
            return Err(Refusal::new(Rule::Unreached, here, "nothing leads here"));
        }
        if self.successors(number).is_some_and(|to| to == [at]) {
            return Err(Refusal::new(
                Rule::TooFar,
                here,
                "the block leads to itself alone, and a copy of it would never end",
            ));
        }
        Ok(from)
    }

    fn last_of(&self, block: BlockNumber) -> Option<Number> {
        self.body(block).map(|(_, last)| last)
    }

    /// Where edges of its graph lead from a block, but to fixups.
    fn led_to(&self, cfg: &Cfg, block: &Block, number: BlockNumber) -> Vec<Number> {
        let base = number - block.index.0;
        let edges = (cfg.successors(block.index)).filter(|edge| edge.kind != EdgeKind::Fixup);
        edges
            .filter_map(|edge| self.first_of(base + edge.to.0))
            .collect()
    }

    /// Where control goes on behind a block, by instruction; `None` if that is not all in the outline.
    pub(super) fn successors(&self, number: BlockNumber) -> Option<Vec<Number>> {
        let (cfg, block) = self.block(number)?;
        let mut to = self.led_to(cfg, block, number);
        if cfg.exits(block.index) {
            if matches!(block.end, BlockEnd::Return | BlockEnd::Indirect) {
                return None;
            }
            to.push(self.number(self.target(self.last_of(number)?)?)?);
        }
        to.sort_unstable();
        to.dedup();
        Some(to)
    }

    /// The last instructions of the blocks of the outline that lead into one.
    pub(super) fn from(&self, number: BlockNumber) -> Vec<Number> {
        let Some((cfg, block)) = self.block(number) else {
            return Vec::new();
        };
        let base = number - block.index.0;
        let edges = cfg.predecessors(block.index);
        let own = edges.filter(|edge| edge.kind != EdgeKind::Fixup);
        let own = own.filter_map(|edge| self.last_of(base + edge.from.0));
        let branches = self
            .image
            .branches_into(crate::Span::new(block.span.start, 1));
        let parts = branches.iter().filter_map(|one| self.number(one.source));
        let mut from: Vec<Number> = own.chain(parts).collect();
        from.sort_unstable();
        from.dedup();
        from
    }

    /// Whether a function, and no part of one, begins with the instruction.
    pub(super) fn is_entry(&self, at: Number) -> bool {
        let block = self.block(self.block_of(at));
        let first = block.filter(|(cfg, _)| cfg.span.start == self.start(at));
        let function = first.and_then(|(cfg, _)| self.image.function(cfg.function));
        function.is_some_and(|function| !function.is_part())
    }

    /// Whether they are of different graphs.
    pub(super) fn crosses(&self, from: Number, to: Number) -> bool {
        let graph = |at: Number| self.graph_of(self.block_of(at));
        graph(from) != graph(to)
    }

    /// Whether a block begins with the instruction.
    pub(super) fn begins(&self, at: Number) -> bool {
        self.first_of(self.block_of(at)) == Some(at)
    }

    /// Where in the outline control may go from the instruction, but to a fixup: what a call returns to
    /// included.
    pub(super) fn next(&self, at: Number) -> Vec<Number> {
        if at + 1 < self.len() && !self.begins(at + 1) {
            return vec![at + 1];
        }
        let number = self.block_of(at);
        let Some((cfg, block)) = self.block(number) else {
            return Vec::new();
        };
        let mut to = self.led_to(cfg, block, number);
        if cfg.exits(block.index) {
            // A part of the function that stands elsewhere.
            to.extend(self.target(at).and_then(|target| self.number(target)));
        }
        to
    }

    /// Whether a patch may do what the instruction does, if need be as its last.
    pub(super) fn can_do(&self, at: Number) -> bool {
        let decided = || self.image.decided(self.start(at)).map(|site| site.by);
        match self.stays(at) {
            None => self.instruction(at).is_some(),
            // One that calls nothing now is a nop, and would return all the same.
            Some(Rule::StaticCall) => match decided() {
                Some(Decision::StaticCall { transfer, .. }) => {
                    transfer != Transfer::Call || self.returns(at)
                }
                _ => false,
            },
            Some(_) => self.copyable(at),
        }
    }

    /// Where a branch or a static key leads.
    pub(super) fn target(&self, at: Number) -> Option<Addr> {
        if let Some(site) = self.image.decided(self.start(at)) {
            return match site.by {
                Decision::StaticKey { target, .. } => Some(target),
                Decision::StaticCall { .. } => None,
            };
        }
        let target = self.instruction(at)?.near_branch_target();
        (target != 0 && !self.returns(at)).then_some(Addr(target))
    }
}
