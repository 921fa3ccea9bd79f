//! Live sets: from the ends of the function backward, until nothing changes.

use iced_x86::{Code, Instruction, Mnemonic};

use super::Live;
use super::effect::{self, Effect, Effects, Values};
use crate::cfg::{Block, BlockEnd, Cfg, EdgeKind};
use crate::image::{SiteKind, branch_target};
use crate::{Addr, Image};

impl From<Values> for Live {
    fn from(values: Values) -> Self {
        Self {
            registers: values.union(effect::always()).registers,
            flags: values.flags != 0,
        }
    }
}

/// An instruction as the analysis needs it.
struct Step {
    at: Addr,
    effect: Effect,
    /// Where control goes if it faults: an index of a block, or nowhere known.
    fixup: Option<Option<usize>>,
}

/// Live before every instruction, by address, and behind every block.
pub(super) fn analyse(image: &Image, cfg: &Cfg) -> (Vec<(Addr, Live)>, Vec<Live>) {
    let mut effects = Effects::new(image, cfg.span);
    let faults: Vec<(Addr, Option<usize>)> = image
        .sites()
        .overlapping(cfg.span)
        .filter(|site| site.kind == SiteKind::Exception)
        .map(|site| {
            let fixup = site
                .target
                .and_then(|to| cfg.block_at(to).filter(|block| block.span.start == to));
            (site.span.start, fixup.map(|block| block.index.0 as usize))
        })
        .collect();
    let steps: Vec<Vec<Step>> = cfg
        .blocks
        .iter()
        .map(|block| {
            let step = |(instruction, effect): (&Instruction, Effect)| {
                let at = Addr(instruction.ip());
                let fixup = faults
                    .iter()
                    .find(|(known, _)| *known == at)
                    .map(|(_, fixup)| *fixup);
                Step { at, effect, fixup }
            };
            block
                .instructions
                .iter()
                .zip(effects.of_block(block))
                .map(step)
                .collect()
        })
        .collect();
    let leaving: Vec<Values> = cfg
        .blocks
        .iter()
        .map(|block| outside(image, cfg, block))
        .collect();
    let successors: Vec<Vec<usize>> = cfg
        .blocks
        .iter()
        .map(|block| {
            let inside = cfg
                .successors(block.index)
                .filter(|edge| edge.kind != EdgeKind::Fixup);
            inside.map(|edge| edge.to.0 as usize).collect()
        })
        .collect();

    // Live at the start of each block.
    let mut starts = vec![Values::NONE; cfg.blocks.len()];
    let behind = |starts: &[Values], index: usize| {
        let next = successors.get(index).into_iter().flatten();
        let inside = next
            .filter_map(|&to| starts.get(to))
            .fold(Values::NONE, |live, &start| live.union(start));
        inside.union(leaving.get(index).copied().unwrap_or(Values::ALL))
    };
    let before = |starts: &[Values], step: &Step, after: Values| {
        let live = step.effect.reads.union(after.without(step.effect.kills));
        match step.fixup {
            // It faults before it has written anything.
            Some(Some(fixup)) => live.union(starts.get(fixup).copied().unwrap_or(Values::ALL)),
            Some(None) => Values::ALL,
            None => live,
        }
    };
    let mut changed = true;
    while changed {
        changed = false;
        for (index, steps) in steps.iter().enumerate().rev() {
            let start = steps
                .iter()
                .rev()
                .fold(behind(&starts, index), |after, step| {
                    before(&starts, step, after)
                });
            if let Some(known) = starts.get_mut(index).filter(|known| **known != start) {
                *known = start;
                changed = true;
            }
        }
    }

    let mut all = Vec::new();
    let mut after_blocks = Vec::with_capacity(steps.len());
    for (index, steps) in steps.iter().enumerate() {
        let mut live = behind(&starts, index);
        after_blocks.push(Live::from(live));
        let first = all.len();
        for step in steps.iter().rev() {
            live = before(&starts, step, live);
            all.push((step.at, Live::from(live)));
        }
        if let Some(own) = all.get_mut(first..) {
            own.reverse();
        }
    }
    (all, after_blocks)
}

/// What is live on the ways that leave the function at the end of a block.
fn outside(image: &Image, cfg: &Cfg, block: &Block) -> Values {
    let compiled = image.is_compiled(cfg.span.start);
    let last = block.instructions.last();
    // Into the middle of another function, or into one of its parts, nothing is known.
    let to_another = || match last.and_then(branch_target) {
        Some(to) if compiled && image.is_compiled(to) => effect::tail_called(),
        _ => Values::ALL,
    };
    match block.end {
        BlockEnd::Return => {
            let ordinary = last.is_some_and(|last| {
                matches!(last.code(), Code::Retnq | Code::Retnq_imm16)
                    || last.mnemonic() == Mnemonic::Jmp
            });
            if compiled && ordinary {
                effect::returned()
            } else {
                Values::ALL
            }
        }
        BlockEnd::TailCall | BlockEnd::Conditional | BlockEnd::Jump if cfg.exits(block.index) => {
            to_another()
        }
        BlockEnd::Indirect => Values::ALL,
        BlockEnd::FallThrough if cfg.exits(block.index) => Values::ALL,
        // Nothing comes behind it: a trap, or a call whose arguments are live by what the call reads.
        BlockEnd::NoReturn => Values::NONE,
        BlockEnd::FallThrough | BlockEnd::TailCall | BlockEnd::Conditional | BlockEnd::Jump => {
            Values::NONE
        }
    }
}
