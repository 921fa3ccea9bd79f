//! Live sets: from the ends of the function backward, until nothing changes.

use iced_x86::{Instruction, Mnemonic};

use super::callees::DEPTH;
use super::effect::{self, Effects};
use super::{Analysis, Live};
use crate::cfg::{Block, BlockEnd, Cfg, EdgeKind};
use crate::code::Why;
use crate::isa::decode::branch_target;
use crate::isa::effect::{Effect, Values, is_return};
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
    /// Whether it has an entry in the exception table.
    may_fault: bool,
}

/// What is live where a function returns.
#[derive(Clone, Copy)]
pub(super) enum Returns {
    /// What its callers may use: by the convention if they were compiled to it, else everything.
    ToAnyone,
    /// What is live behind one call of it.
    With {
        after: Values,
        /// How deep calls in it are followed.
        depth: usize,
    },
}

/// Live before every instruction, by address, and behind every block.
pub(super) fn analyse(analysis: &Analysis<'_>, cfg: &Cfg) -> (Vec<(Addr, Live)>, Vec<Live>) {
    let solved = Solved::of(analysis, cfg, Returns::ToAnyone);
    let mut all = Vec::new();
    let mut after_blocks = Vec::with_capacity(solved.steps.len());
    for (index, steps) in solved.steps.iter().enumerate() {
        let mut live = solved.behind(index);
        after_blocks.push(Live::from(live));
        let first = all.len();
        for step in steps.iter().rev() {
            live = Solved::before(step, live);
            all.push((step.at, Live::from(live)));
        }
        if let Some(own) = all.get_mut(first..) {
            own.reverse();
        }
    }
    (all, after_blocks)
}

/// Live at the entry of a function.
pub(super) fn at_entry(analysis: &Analysis<'_>, cfg: &Cfg, returns: Returns) -> Values {
    let solved = Solved::of(analysis, cfg, returns);
    solved.starts.first().copied().unwrap_or(Values::ALL)
}

/// A function's equations, and their solution.
struct Solved {
    /// The instructions of each block.
    steps: Vec<Vec<Step>>,
    /// What is live on the ways that leave the function at the end of each block.
    leaving: Vec<Values>,
    successors: Vec<Vec<usize>>,
    /// Live at the start of each block.
    starts: Vec<Values>,
}

impl Solved {
    fn of(analysis: &Analysis<'_>, cfg: &Cfg, returns: Returns) -> Self {
        let image = analysis.image();
        let depth = match returns {
            Returns::ToAnyone => DEPTH,
            Returns::With { depth, .. } => depth,
        };
        let mut effects = Effects::following(analysis, cfg.span, depth);
        let faults: Vec<Addr> = image
            .fixed()
            .overlapping(cfg.span)
            .filter(|site| matches!(site.why, Why::Exception { .. }))
            .map(|site| site.span.start)
            .collect();
        let steps: Vec<Vec<Step>> = cfg
            .blocks
            .iter()
            .map(|block| {
                let step = |(instruction, effect): (Instruction, Effect)| {
                    let at = Addr(instruction.ip());
                    Step {
                        at,
                        effect,
                        may_fault: faults.binary_search(&at).is_ok(),
                    }
                };
                let instructions = block.instructions.iter();
                instructions
                    .zip(effects.of_block(block))
                    .map(step)
                    .collect()
            })
            .collect();
        let leaving: Vec<Values> = cfg
            .blocks
            .iter()
            .map(|block| outside(image, cfg, block, &effects, returns))
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

        let mut solved = Self {
            starts: vec![Values::NONE; steps.len()],
            steps,
            leaving,
            successors,
        };
        while solved.improve() {}
        solved
    }

    /// Goes over all blocks once; whether anything changed.
    fn improve(&mut self) -> bool {
        let mut changed = false;
        for index in (0..self.steps.len()).rev() {
            let steps = self.steps.get(index).into_iter().flatten().rev();
            let start = steps.fold(self.behind(index), |after, step| Self::before(step, after));
            if let Some(known) = self.starts.get_mut(index).filter(|known| **known != start) {
                *known = start;
                changed = true;
            }
        }
        changed
    }

    fn behind(&self, index: usize) -> Values {
        let next = self.successors.get(index).into_iter().flatten();
        let inside = next
            .filter_map(|&to| self.starts.get(to))
            .fold(Values::NONE, |live, &start| live.union(start));
        inside.union(self.leaving.get(index).copied().unwrap_or(Values::ALL))
    }

    fn before(step: &Step, after: Values) -> Values {
        // A fault changes nothing on its own, but the kernel's handlers may read what they like
        // (`ex_handler_ucopy_len` of arch/x86/mm/extable.c).
        if step.may_fault {
            Values::ALL
        } else {
            step.effect.before(after)
        }
    }
}

/// What is live on the ways that leave the function at the end of a block.
fn outside(
    image: &Image,
    cfg: &Cfg,
    block: &Block,
    effects: &Effects<'_>,
    returns: Returns,
) -> Values {
    let last = block.instructions.last();
    let after = match returns {
        Returns::ToAnyone if image.keeps_convention(cfg.span.start) => effect::returned(),
        Returns::ToAnyone => Values::ALL,
        Returns::With { after, .. } => after,
    };
    match block.end {
        BlockEnd::Return => {
            let ordinary =
                last.is_some_and(|last| is_return(&last) || last.mnemonic() == Mnemonic::Jmp);
            if ordinary { after } else { Values::ALL }
        }
        // A call after which our caller goes on. Into the middle of another function, or into one of
        // its parts, nothing is known.
        BlockEnd::TailCall | BlockEnd::Conditional | BlockEnd::Jump if cfg.exits(block.index) => {
            match last.as_ref().and_then(branch_target) {
                Some(to) => effects.callee(to).before(after),
                None => Values::ALL,
            }
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
