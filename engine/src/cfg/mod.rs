//! Functions → basic blocks and edges.

mod build;
mod decode;
pub mod dot;
mod instructions;
mod leaders;
mod outline;
mod padding;
#[cfg(test)]
pub(crate) mod random;
#[cfg(test)]
mod tests;
pub mod text;

use std::ops::Index;

use iced_x86::Instruction;
use serde::{Deserialize, Serialize};

use crate::code::{Branch, FunctionId};
use crate::ids::{self, Id, id};
use crate::{Addr, Image, Refusal, Span};

pub use instructions::{Instructions, Iter};
pub use outline::Outline;
pub(crate) use padding::padding_after;

id!(
    /// Index of a block in its function's graph, in order of address: what sessions and identifiers name.
    #[derive(Serialize, Deserialize)]
    pub BlockIndex(pub)
);

/// The end of a block. A call does not end a block, unless it never returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockEnd {
    /// Falls through into the next block: the report's follow-on arc.
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

/// The reason for an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EdgeKind {
    /// Into the block that follows: not taken, or no branch at all.
    Fallthrough,
    /// A conditional branch taken.
    Taken,
    /// An unconditional branch.
    Jump,
    /// A static key that is off or on: the edge that is not taken now.
    StaticKey,
    /// To the fixup of an instruction that faulted.
    Fixup,
    /// By a jump through a table. See [`Cfg::tables`].
    Table,
}

/// An edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// From the end of this block.
    pub from: BlockIndex,
    /// To the start of this one.
    pub to: BlockIndex,
    /// The reason for it.
    pub kind: EdgeKind,
}

/// A basic block: entered only at its start, left only at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its index in the graph.
    pub index: BlockIndex,
    /// Its bytes.
    pub span: Span,
    /// Its instructions in order; never empty. `ip` is the live address.
    pub instructions: Instructions,
    /// Its last instruction's flow of control.
    pub end: BlockEnd,
    /// True if it is entered from outside the function (entry, other functions' branches, tables, fixups).
    pub entered: bool,
    /// True if it has entries from unknown sources: it begins a function, or follows the tracer's site of
    /// one, it is a fixup, or its address may be in a pointer. If not, [`Cfg::ways_in`] has all entries.
    pub open: bool,
    /// True if it is one instruction of which a branch skips the `lock` prefix ([`Rule::SkippedPrefix`](crate::Rule)).
    pub skipped: bool,
}

/// The entries into a block whose source is known.
#[derive(Clone, Debug, PartialEq)]
pub struct WaysIn<'a> {
    /// Edges of its own function. All but fixups come from the last instruction of the block they leave.
    pub edges: Vec<&'a Edge>,
    /// Branches, calls and static keys of other functions, and calls of its own.
    pub branches: &'a [Branch],
    /// True if there are no others. See [`Block::open`].
    pub complete: bool,
}

id!(
    /// Index of an edge in its graph.
    EdgeIndex
);

/// The control-flow graph of one function.
///
/// Padding (unreachable `int3` and nops after a jump or return) belongs to no block; all other bytes
/// belong to one. Every branch inside the function has its edge, both branches of every static key have,
/// and so has every fixup. Indirect jumps have no edges among these: every 8-byte aligned value in read-only data and
/// every value computed by an instruction that is the address of an instruction counts as a possible
/// target, and its block has [`Block::entered`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cfg {
    /// The function's identifier.
    pub function: FunctionId,
    /// The function's name.
    pub name: String,
    /// Its bytes.
    pub span: Span,
    /// Its blocks in order of address; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// Its edges, sorted by (from, to).
    pub edges: Vec<Edge>,
    /// Edges of jumps through tables whose targets are known, sorted as those; apart from them, since nothing is decided by
    /// them: their targets count as entered and open.
    pub tables: Vec<Edge>,
    /// The edges, sorted by target.
    by_target: Vec<EdgeIndex>,
    /// The refusal of all its blocks, if none may be hooked.
    pub refusal: Option<Refusal>,
}

impl Cfg {
    /// Analyses one function: never fails, but may refuse. A function whose code cannot be read as
    /// instructions with certainty has no blocks; one that is only forbidden has.
    #[must_use]
    pub fn of(image: &Image, function: FunctionId) -> Self {
        build::build(image, function)
    }

    /// Returns a block, or `None` if the graph has no such index: for an index that a person or a file names. One
    /// that is of this graph indexes it.
    #[must_use]
    pub fn block(&self, index: BlockIndex) -> Option<&Block> {
        self.blocks.get(index.index())
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

    /// The edges into a block, sorted by source.
    pub fn predecessors(&self, index: BlockIndex) -> impl Iterator<Item = &Edge> {
        let edge = |&number: &EdgeIndex| ids::entry(&self.edges, number);
        let first = self
            .by_target
            .partition_point(|number| edge(number).to < index);
        self.by_target
            .iter()
            .skip(first)
            .map(edge)
            .take_while(move |edge| edge.to == index)
    }

    /// The entries into a block whose source is known; `complete` if there are no others.
    #[must_use]
    pub fn ways_in<'a>(&'a self, image: &'a Image, index: BlockIndex) -> Option<WaysIn<'a>> {
        let block = self.block(index)?;
        Some(WaysIn {
            edges: self.predecessors(index).collect(),
            branches: image.branches_into(Span::new(block.span.start, 1)),
            complete: !block.open,
        })
    }

    /// Returns whether control may leave the function at the end of a block: by a return, a branch to
    /// another function (also as one edge of a conditional branch), or by falling through into it.
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

impl Index<BlockIndex> for Cfg {
    type Output = Block;

    /// One block. Panics at an index of another graph; see [`Cfg::block`].
    fn index(&self, index: BlockIndex) -> &Block {
        ids::entry(&self.blocks, index)
    }
}

impl Block {
    /// The first byte that each execution of the block executes: the one after a `lock` prefix that a branch skips.
    #[must_use]
    pub const fn first_executed(&self) -> Addr {
        self.span.start.add(self.skipped as u64)
    }

    /// Decodes the last instruction.
    pub(crate) fn last(&self) -> Instruction {
        let last = self.instructions.last();
        debug_assert!(last.is_some(), "block {} has no instruction", self.index.0);
        last.unwrap_or_default()
    }

    /// The address of the last instruction.
    pub(crate) fn last_at(&self) -> Addr {
        self.instructions.last_at()
    }
}
