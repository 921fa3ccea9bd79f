//! Exits of a function: blocks at whose ends control leaves it and does not return.

use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::code::FunctionId;
use crate::placement::{self, branch_target, parts};
use crate::{Addr, Image, Refusal, Rule};

/// An end of a block at which control leaves a function and does not return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionExit {
    /// The function, or the part of it elsewhere, that has the block.
    pub(super) function: FunctionId,
    pub(super) block: BlockIndex,
    /// The instruction that leaves.
    pub(super) at: Addr,
    pub(super) by: Leaves,
}

/// Kind of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// By a return.
    Return,
    /// By a jump to another function (a tail call), to this address.
    Jump(Addr),
    /// By a jump through a register or memory.
    Unknown,
}

/// Every exit of a function, its parts elsewhere included.
///
/// # Errors
/// [`Rule::ExitUnknown`] where it is unknown which ends of blocks leave it, and the rule that forbids hooks in it or
/// its parts.
pub(super) fn exits(image: &Image, cfg: &Cfg) -> Result<Vec<FunctionExit>, Refusal> {
    let mut worklist = parts(image, cfg);
    let mut parts: Vec<Cfg> = Vec::new();
    while let Some(part) = worklist.pop() {
        let is_member = |member: &Cfg| member.function == part;
        if !is_member(cfg) && !parts.iter().any(is_member) {
            let part = Cfg::of(image, part);
            worklist.extend(placement::parts(image, &part));
            parts.push(part);
        }
    }
    parts.sort_by_key(|part| part.function);
    let members = || std::iter::once(cfg).chain(&parts);
    let inside = |at: Addr| members().any(|member| member.span.contains(at));
    let mut exits = Vec::new();
    for member in members() {
        if let Some(refusal) = &member.refusal {
            return Err(refusal.clone());
        }
        for block in &member.blocks {
            let branch = block.instructions.last();
            let target = branch.map_or(Addr(0), |branch| branch_target(image, &branch));
            let by = match block.end {
                BlockEnd::Return => Leaves::Return,
                BlockEnd::TailCall if inside(target) => continue,
                BlockEnd::TailCall => Leaves::Jump(target),
                BlockEnd::Indirect if may_be_table(member) => {
                    return Err(unknown(block, "a jump by a table may stay in the function"));
                }
                BlockEnd::Indirect => Leaves::Unknown,
                BlockEnd::NoReturn => continue,
                _ if !member.exits(block.index) => continue,
                BlockEnd::Conditional if inside(target) => continue,
                BlockEnd::Conditional | BlockEnd::FallThrough | BlockEnd::Jump => {
                    return Err(unknown(block, "only one of its ways leaves the function"));
                }
            };
            exits.push(FunctionExit {
                function: member.function,
                block: block.index,
                at: last(block),
                by,
            });
        }
    }
    Ok(exits)
}

fn unknown(block: &Block, why: &str) -> Refusal {
    Refusal::new(Rule::ExitUnknown, last(block), why)
}

fn last(block: &Block) -> Addr {
    let last = block.instructions.last();
    last.map_or(block.span.start, |last| Addr(last.ip()))
}

/// Returns whether blocks of the function may be targets of indirect jumps, except its start and fixups.
fn may_be_table(cfg: &Cfg) -> bool {
    let fixup = |block: &Block| {
        let mut edges = cfg.edges.iter();
        edges.any(|edge| edge.kind == EdgeKind::Fixup && edge.to == block.index)
    };
    let mut blocks = cfg.blocks.iter().skip(1);
    blocks.any(|block| block.open && !fixup(block))
}
