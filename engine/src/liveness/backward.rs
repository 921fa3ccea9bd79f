//! Backward data-flow analysis: live sets, iterated from the ends of the function to a fixpoint.

use iced_x86::{Instruction, Mnemonic};

use super::Live;
use super::effect::{self, CalleeEffects, Effects};
use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::code::Why;
use crate::ids::Ids;
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

/// The depth to which calls are followed: a callee's callees, and theirs.
const DEPTH: usize = 3;

/// The transfer function of an instruction.
struct Transferred {
    at: Addr,
    effect: Effect,
    /// True if it has an entry in the exception table.
    may_fault: bool,
}

/// The live values at the returns of a function.
#[derive(Clone, Copy)]
pub(super) enum Returns {
    /// Values that any caller may use: by the convention if the function keeps it, else everything.
    ToAnyone,
    /// Values that are live after one call.
    With {
        after: Values,
        /// The depth to which its calls are followed.
        depth: usize,
    },
}

/// Returns live values before every instruction, by address, and after every block.
pub(super) fn analyse(
    image: &Image,
    callees: &dyn CalleeEffects,
    cfg: &Cfg,
) -> (Vec<(Addr, Live)>, Ids<BlockIndex, Live>) {
    let solved = Solved::of(image, callees, cfg, Returns::ToAnyone);
    let mut all = Vec::new();
    let mut after_blocks = Ids::new();
    for (index, steps) in solved.steps.iter() {
        let mut live = solved.after(index);
        after_blocks.push(Live::from(live));
        let first = all.len();
        for step in steps.iter().rev() {
            live = Solved::before(step, live);
            all.push((step.at, Live::from(live)));
        }
        all.split_at_mut(first).1.reverse();
    }
    (all, after_blocks)
}

/// Live at the entry of a function, which must have blocks.
pub(super) fn at_entry(
    image: &Image,
    callees: &dyn CalleeEffects,
    cfg: &Cfg,
    returns: Returns,
) -> Values {
    let solved = Solved::of(image, callees, cfg, returns);
    solved.starts[BlockIndex(0)]
}

/// The data-flow equations of a function, and their least fixpoint.
struct Solved {
    /// The instructions of each block.
    steps: Ids<BlockIndex, Vec<Transferred>>,
    /// Live values on the exits of the function at the end of each block.
    leaving: Ids<BlockIndex, Values>,
    successors: Ids<BlockIndex, Vec<BlockIndex>>,
    /// Live at the start of each block.
    starts: Ids<BlockIndex, Values>,
}

impl Solved {
    fn of(image: &Image, callees: &dyn CalleeEffects, cfg: &Cfg, returns: Returns) -> Self {
        let depth = match returns {
            Returns::ToAnyone => DEPTH,
            Returns::With { depth, .. } => depth,
        };
        let mut effects = Effects::following(image, callees, cfg.span, depth);
        let faults: Vec<Addr> = image
            .fixed()
            .overlapping(cfg.span)
            .filter(|site| matches!(site.why, Why::Exception { .. }))
            .map(|site| site.span.start)
            .collect();
        let steps: Ids<BlockIndex, Vec<Transferred>> = cfg
            .blocks
            .iter()
            .map(|block| {
                let step = |(instruction, effect): (Instruction, Effect)| {
                    let at = Addr(instruction.ip());
                    Transferred {
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
        let leaving = cfg
            .blocks
            .iter()
            .map(|block| outside(image, cfg, block, &effects, returns))
            .collect();
        let successors = cfg
            .blocks
            .iter()
            .map(|block| {
                let inside = cfg
                    .successors(block.index)
                    .filter(|edge| edge.kind != EdgeKind::Fixup);
                inside.map(|edge| edge.to).collect()
            })
            .collect();

        let mut solved = Self {
            starts: Ids::like(&steps, Values::NONE),
            steps,
            leaving,
            successors,
        };
        while solved.improve() {}
        solved
    }

    /// Visits all blocks once, and returns whether anything changed.
    fn improve(&mut self) -> bool {
        let mut changed = false;
        for index in self.steps.keys().rev() {
            let steps = self.steps[index].iter().rev();
            let start = steps.fold(self.after(index), |after, step| Self::before(step, after));
            changed |= self.starts[index] != start;
            self.starts[index] = start;
        }
        changed
    }

    /// Live values at the end of a block, on all its edges.
    fn after(&self, index: BlockIndex) -> Values {
        let next = self.successors[index].iter();
        next.fold(self.leaving[index], |live, &to| live.union(self.starts[to]))
    }

    fn before(step: &Transferred, after: Values) -> Values {
        // A fault changes nothing on its own, but the kernel's handlers may read any register
        // (`ex_handler_ucopy_len` of arch/x86/mm/extable.c).
        if step.may_fault {
            Values::ALL
        } else {
            step.effect.before(after)
        }
    }
}

/// Live values on the exits of the function at the end of a block.
fn outside(
    image: &Image,
    cfg: &Cfg,
    block: &Block,
    effects: &Effects<'_>,
    returns: Returns,
) -> Values {
    let last = block.last();
    let after = match returns {
        Returns::ToAnyone if image.keeps_convention(cfg.span.start) => effect::returned(),
        Returns::ToAnyone => Values::ALL,
        Returns::With { after, .. } => after,
    };
    match block.end {
        BlockEnd::Return => {
            let ordinary = is_return(&last) || last.mnemonic() == Mnemonic::Jmp;
            if ordinary { after } else { Values::ALL }
        }
        // A tail call, whose caller continues after it. Of a branch into the middle of another function, or into one of
        // its parts, nothing is known.
        BlockEnd::TailCall | BlockEnd::Conditional | BlockEnd::Jump if cfg.exits(block.index) => {
            match branch_target(&last) {
                Some(to) => effects.callee(to).before(after),
                None => Values::ALL,
            }
        }
        BlockEnd::Indirect => Values::ALL,
        BlockEnd::FallThrough if cfg.exits(block.index) => Values::ALL,
        // Nothing executes after a trap, or after such a call, whose arguments are live because it reads them.
        BlockEnd::NoReturn => Values::NONE,
        BlockEnd::FallThrough | BlockEnd::TailCall | BlockEnd::Conditional | BlockEnd::Jump => {
            Values::NONE
        }
    }
}
