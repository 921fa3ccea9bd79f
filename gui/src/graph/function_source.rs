//! The source of the open function: its file, and the lines of each block.

use std::collections::BTreeSet;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use ilk_driver::sources::Sources;

use super::scene::Scene;

/// The source of a function.
#[derive(Debug, Default, PartialEq)]
pub struct Listing {
    /// The function that was looked up; none before the first.
    pub(crate) function: Option<FunctionId>,
    /// True if debug information was open.
    pub(crate) has_sources: bool,
    /// Its source file, and the lines of the file if it is on this machine.
    pub(crate) file: Option<String>,
    pub(crate) text: Vec<String>,
    /// The lines of each block in the file, from 1.
    pub(crate) lines: Vec<BTreeSet<u32>>,
    /// The block that was scrolled to last.
    pub(super) seen: Option<BlockIndex>,
}

impl Listing {
    /// Looks up the lines of a function, and reads its file.
    #[must_use]
    pub(crate) fn of(scene: &Scene, sources: Option<&Sources>) -> Self {
        let mut listing = Self {
            function: Some(scene.function()),
            has_sources: sources.is_some(),
            ..Self::default()
        };
        let Some(sources) = sources else {
            return listing;
        };
        let Some(start) = sources.line(scene.cfg.span.start) else {
            return listing;
        };
        if let Some(path) = sources.local(&start)
            && let Ok(text) = std::fs::read(path)
        {
            let text = String::from_utf8_lossy(&text).replace('\t', "        ");
            listing.text = text.lines().map(str::to_owned).collect();
        }
        // Lines of other files are of functions that the compiler has put here.
        let lines = scene.cfg.blocks.iter().map(|block| {
            let instructions = block.instructions.iter();
            let lines = instructions.filter_map(|one| sources.line(gilk_engine::Addr(one.ip())));
            let own = lines.filter(|line| line.file == start.file);
            own.map(|line| line.line).collect()
        });
        listing.lines = lines.collect();
        listing.file = Some(start.file);
        listing
    }

    /// Returns whether it is of a function, with the debug information that is open now.
    pub(crate) fn answers(&self, function: FunctionId, has_sources: bool) -> bool {
        self.function == Some(function) && self.has_sources == has_sources
    }

    /// Returns the first block with a line.
    pub(super) fn block_at(&self, line: u32) -> Option<BlockIndex> {
        let found = self.lines.iter().position(|lines| lines.contains(&line))?;
        u32::try_from(found).ok().map(BlockIndex)
    }
}
