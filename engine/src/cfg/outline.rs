//! Blocks and edges of a graph without its instructions: a plan keeps the outline of each of its functions.

use std::ops::Index;

use super::{BlockIndex, Cfg};
use crate::Span;
use crate::code::FunctionId;
use crate::ids::{self, Id};

/// The outline of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The function's identifier.
    pub function: FunctionId,
    /// Its bytes.
    pub span: Span,
    /// The blocks' bytes, by block index.
    pub blocks: Box<[Span]>,
    /// From the end of a block to the start of one, in order; some pairs twice, for different reasons.
    pub edges: Box<[(BlockIndex, BlockIndex)]>,
}

impl Outline {
    /// The bytes of one block, or `None` if the function has no such block.
    #[must_use]
    pub fn block(&self, index: BlockIndex) -> Option<Span> {
        self.blocks.get(index.index()).copied()
    }
}

impl Index<BlockIndex> for Outline {
    type Output = Span;

    /// The bytes of one block. Panics at an index of another function.
    fn index(&self, index: BlockIndex) -> &Span {
        ids::entry(&self.blocks, index)
    }
}

impl From<&Cfg> for Outline {
    fn from(cfg: &Cfg) -> Self {
        Self {
            function: cfg.function,
            span: cfg.span,
            blocks: cfg.blocks.iter().map(|block| block.span).collect(),
            edges: cfg.edges.iter().map(|edge| (edge.from, edge.to)).collect(),
        }
    }
}
