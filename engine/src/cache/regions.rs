//! Regions of original code: mappings, each of which is unmapped or becomes other code as a whole. Branches of a region's
//! translations target its own blocks alone, and others reach these by lookups, so it can be forgotten alone.

use rustc_hash::FxHashMap;

use super::CodeBytes;
use super::starts::BlockStarts;
use super::translation::{Link, Translation};
use super::unlinked::UnlinkedBranches;
use crate::{Addr, Span};

/// The branch targets of a batch, by original address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) at: Addr,
    pub(super) landing: bool,
}

/// The blocks of a region that are translated in one arena.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionBlocks {
    pub(super) known: FxHashMap<Addr, Known>,
    /// The addresses of `known`.
    pub(super) starts: BlockStarts,
    unlinked: UnlinkedBranches,
}

/// A translation, its blocks, and its branches to others.
pub(super) type Emitted = (Translation, FxHashMap<Addr, Known>, Vec<(Addr, Addr)>);

impl RegionBlocks {
    /// Keeps the blocks of a translation, and links earlier ones to it.
    pub(super) fn linked(&mut self, (mut done, known, unlinked): Emitted) -> Translation {
        self.known.extend(known);
        for block in &done.blocks {
            let target = block.original.start;
            self.starts.insert(target);
            for at in self.unlinked.take(target) {
                let displacement = i32::try_from(at.add(4).to(block.at));
                done.links
                    .extend(displacement.ok().map(|displacement| Link {
                        at,
                        target,
                        bytes: displacement.to_le_bytes(),
                    }));
            }
        }
        for (target, at) in unlinked {
            self.unlinked.add(target, at);
        }
        done
    }
}

/// The bytes of one region.
pub(super) struct RegionBytes<'c> {
    pub(super) code: &'c dyn CodeBytes,
    pub(super) region: Span,
}

impl CodeBytes for RegionBytes<'_> {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        if !self.region.contains(at) {
            return None;
        }
        let bytes = self.code.code_from(at)?;
        let rest = usize::try_from(self.region.end.0 - at.0).unwrap_or(usize::MAX);
        Some(bytes.get(..rest).unwrap_or(bytes))
    }
}
