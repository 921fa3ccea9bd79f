//! Functions → basic blocks and edges.

mod build;
mod decode;
pub mod dot;
mod instructions;
mod leaders;
mod outline;
mod padding;
#[cfg(test)]
pub(crate) mod soup;
#[cfg(test)]
mod tests;
pub mod text;

use serde::{Deserialize, Serialize};

use crate::code::{Branch, FunctionId};
use crate::{Addr, Image, Refusal, Span};

pub use instructions::{Instructions, Iter};
pub use outline::Outline;
pub(crate) use padding::padding_after;

/// Index of a block in its function's graph, in order of address: what sessions and identifiers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockIndex(pub u32);

/// How control leaves a block. A call does not end a block, unless it never returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockEnd {
    /// Runs on into the next block: the report's follow-on arc.
    FallThrough,
    /// An unconditional branch inside the function.
    Jump,
    /// A conditional branch (`jcc`, `loop`, `jrcxz`), or a static key: a nop or a jump that the kernel swaps.
    Conditional,
    /// `ret`, or a jump to a return thunk.
    Return,
    /// A branch to another function.
    TailCall,
    /// A jump through a register or memory, also by retpoline.
    Indirect,
    /// A call that does not return, or a trap that ends the path.
    NoReturn,
}

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EdgeKind {
    /// Into the block that follows: not taken, or no branch at all.
    Fallthrough,
    /// A conditional branch taken.
    Taken,
    /// An unconditional branch.
    Jump,
    /// A static key that is off or on: the way it does not go now.
    StaticKey,
    /// To the fixup of an instruction that faulted.
    Fixup,
}

/// An edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// From the end of this block.
    pub from: BlockIndex,
    /// To the start of this one.
    pub to: BlockIndex,
    /// Why.
    pub kind: EdgeKind,
}

/// A basic block: entered only at its start, left only at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its index.
    pub index: BlockIndex,
    /// Its bytes.
    pub span: Span,
    /// Its instructions in order; never empty. `ip` is the live address.
    pub instructions: Instructions,
    /// How control leaves it.
    pub end: BlockEnd,
    /// Whether control can come from outside the function (entry, other functions' branches, tables, fixups).
    pub entered: bool,
    /// Whether control can come from nobody knows where: it begins a function, or behind the tracer's
    /// site of one, it is a fixup, or its address may be in a pointer. If not, [`Cfg::ways_in`] has
    /// every way into it.
    pub open: bool,
}

/// The ways into a block whose source is known.
#[derive(Clone, Debug, PartialEq)]
pub struct WaysIn<'a> {
    /// Edges of its own function. All but fixups come from the last instruction of the block they leave.
    pub edges: Vec<&'a Edge>,
    /// Branches, calls and static keys of other functions, and calls of its own.
    pub branches: &'a [Branch],
    /// Whether there is no other way. See [`Block::open`].
    pub complete: bool,
}

/// The control-flow graph of one function.
///
/// Padding (`int3` and nops behind a jump or return, that nothing leads to) belongs to no block;
/// all other bytes belong to one. Every branch inside the function has its edge, both ways of every
/// static key have, and so has every fixup. Not in the graph are indirect jumps: their targets are
/// known, by the tables they are taken from, and are blocks with [`Block::entered`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cfg {
    /// The function.
    pub function: FunctionId,
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub span: Span,
    /// Its blocks in order of address; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// Its edges, sorted by (from, to).
    pub edges: Vec<Edge>,
    /// Numbers of edges, by where they lead.
    by_target: Vec<u32>,
    /// Why no block of it may be hooked, if so.
    pub refusal: Option<Refusal>,
}

impl Cfg {
    /// Analyses one function: never fails, but may refuse. A function whose code cannot be read as
    /// instructions with certainty has no blocks; one that is only forbidden has.
    #[must_use]
    pub fn of(image: &Image, function: FunctionId) -> Self {
        build::build(image, function)
    }

    /// One block.
    #[must_use]
    pub fn block(&self, index: BlockIndex) -> Option<&Block> {
        self.blocks.get(index.0 as usize)
    }

    /// The block one of whose bytes is at `at`.
    #[must_use]
    pub fn block_at(&self, at: Addr) -> Option<&Block> {
        let after = self.blocks.partition_point(|block| block.span.start <= at);
        self.blocks
            .get(after.checked_sub(1)?)
            .filter(|block| block.span.contains(at))
    }

    /// The edges that leave a block.
    pub fn successors(&self, index: BlockIndex) -> impl Iterator<Item = &Edge> {
        let first = self.edges.partition_point(|edge| edge.from < index);
        self.edges
            .iter()
            .skip(first)
            .take_while(move |edge| edge.from == index)
    }

    /// The edges that lead into a block, in order of where they come from.
    pub fn predecessors(&self, index: BlockIndex) -> impl Iterator<Item = &Edge> {
        let edge = |&number: &u32| self.edges.get(number as usize);
        let first = self
            .by_target
            .partition_point(|number| edge(number).is_some_and(|edge| edge.to < index));
        self.by_target
            .iter()
            .skip(first)
            .filter_map(edge)
            .take_while(move |edge| edge.to == index)
    }

    /// Every way into a block whose source is known, and whether there is no other.
    #[must_use]
    pub fn ways_in<'a>(&'a self, image: &'a Image, index: BlockIndex) -> Option<WaysIn<'a>> {
        let block = self.block(index)?;
        Some(WaysIn {
            edges: self.predecessors(index).collect(),
            branches: image.branches_into(Span::new(block.span.start, 1)),
            complete: !block.open,
        })
    }

    /// Whether control may leave the function at the end of a block: by a return, a branch to another
    /// function (also the one way of a conditional branch), or by running on into it.
    #[must_use]
    pub fn exits(&self, index: BlockIndex) -> bool {
        let ways = self
            .successors(index)
            .filter(|edge| edge.kind != EdgeKind::Fixup)
            .count();
        self.block(index).is_some_and(|block| match block.end {
            BlockEnd::Return | BlockEnd::TailCall | BlockEnd::Indirect => true,
            BlockEnd::NoReturn => false,
            BlockEnd::Conditional => ways < 2,
            BlockEnd::FallThrough | BlockEnd::Jump => ways < 1,
        })
    }
}
