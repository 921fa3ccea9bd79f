//! How control comes to an instruction and goes on from it, and whether a patch may do the same.

use crate::cfg::{BlockEnd, EdgeKind};
use crate::image::{Decision, Transfer};
use crate::relocate::refuse;
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
            None => !is_call(instruction),
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
        self.instruction(at).is_some_and(is_call)
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
            return refuse(
                Rule::WaysUnknown,
                here,
                "control may come here from nobody knows where, so there are no edges to hook",
            );
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
                    return refuse(
                        Rule::EnteredFromElsewhere,
                        here,
                        format!("another function branches here, from {}", branch.source),
                    );
                }
            }
        }
        from.sort_unstable();
        from.dedup();
        if from.is_empty() {
            return refuse(Rule::Unreached, here, "nothing leads here");
        }
        Ok(from)
    }

    fn last_of(&self, block: BlockNumber) -> Option<Number> {
        self.body(block).map(|(_, last)| last)
    }

    /// Where control goes on behind a block, by instruction; `None` if that is not all in the outline.
    pub(super) fn successors(&self, number: BlockNumber) -> Option<Vec<Number>> {
        let (cfg, block) = self.block(number)?;
        let base = number - block.index.0;
        let edges = (cfg.successors(block.index)).filter(|edge| edge.kind != EdgeKind::Fixup);
        let mut to: Vec<Number> = edges
            .filter_map(|edge| self.first_of(base + edge.to.0))
            .collect();
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

    /// Where a branch or a static key leads.
    fn target(&self, at: Number) -> Option<Addr> {
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
