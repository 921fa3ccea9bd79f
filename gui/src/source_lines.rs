//! Source lines of blocks, and source files of functions.

use std::sync::Arc;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use ilk_driver::client::StopFlag;
use ilk_driver::sources::{SourceLine, Sources};

use crate::graph::Scene;
use crate::graph::function_source::Listing;

/// The source lines of one block.
#[derive(Debug)]
pub(crate) struct OfBlock {
    of: (FunctionId, BlockIndex),
    /// By offset in the function, one entry per change of line.
    lines: Vec<(u64, SourceLine)>,
}

/// A read of debug information in progress.
#[derive(Debug)]
pub struct SourcesTask {
    /// Progress from 0 to 1; `None` until debug information is found.
    pub share: Option<f32>,
    /// Stops it.
    pub stop: StopFlag,
}

/// The source information of the kernel.
#[derive(Debug, Default)]
pub struct Lines {
    /// The kernel's debug information, once it is open.
    pub sources: Option<Arc<Sources>>,
    /// The source file of every function, by its number, once read.
    pub files: Option<Arc<Vec<Arc<str>>>>,
    /// The read in progress.
    pub reading: Option<SourcesTask>,
    /// The lines of the block shown.
    pub(crate) shown: Option<OfBlock>,
    /// The source of the open function, while it is listed.
    pub listing: Listing,
    /// The function whose source is being looked up.
    pub(crate) listing_requested: Option<(FunctionId, bool)>,
}

impl Lines {
    /// Clears everything: another kernel has other files.
    pub(crate) fn clear(&mut self) {
        if let Some(reading) = &self.reading {
            reading.stop.stop();
        }
        *self = Self::default();
    }

    /// Returns the source lines of a block, each with the offset in the function at which it
    /// starts.
    pub(crate) fn of_block(&mut self, scene: &Scene, block: BlockIndex) -> &[(u64, SourceLine)] {
        let of = (scene.function(), block);
        if self.shown.as_ref().is_none_or(|shown| shown.of != of) {
            let lines = self
                .sources
                .as_ref()
                .map(|sources| changes(sources, scene, block))
                .unwrap_or_default();
            self.shown = Some(OfBlock { of, lines });
        }
        self.shown.as_ref().map_or(&[], |shown| &shown.lines)
    }
}

fn changes(sources: &Sources, scene: &Scene, block: BlockIndex) -> Vec<(u64, SourceLine)> {
    let mut lines: Vec<(u64, SourceLine)> = Vec::new();
    let Some(block) = scene.cfg.block(block) else {
        return lines;
    };
    for instruction in &block.instructions {
        let at = gilk_engine::Addr(instruction.ip());
        let Some(line) = sources.line(at) else {
            continue;
        };
        if lines.last().is_none_or(|(_, last)| *last != line) {
            lines.push((at.0.saturating_sub(scene.cfg.span.start.0), line));
        }
    }
    lines
}
