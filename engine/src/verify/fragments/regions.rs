//! Regions of original code, each of which is forgotten as a whole: the proof of a translation reads the bytes of its
//! region alone, and what was proved of that.

use crate::cache::{CodeBytes, Translation};
use crate::verify::hash::Map;
use crate::{Addr, Span};

/// Blocks and branches of a region that were proved.
#[derive(Clone, Debug, Default)]
pub(super) struct ProvedRegion {
    /// Places in the cache, by original address.
    blocks: Map<Addr, Addr>,
    /// The original code of these blocks.
    spans: Vec<Span>,
    /// Original targets of branches to code that was not translated, by the address of their displacement.
    branches: Map<Addr, Addr>,
    /// The counters of its blocks.
    pub(super) counters: Vec<u32>,
}

impl ProvedRegion {
    /// Adds what was proved of a translation.
    pub(super) fn add(
        &mut self,
        translation: &Translation,
        blocks: Map<Addr, Addr>,
        branches: Vec<(Addr, Addr)>,
    ) {
        let added = translation.blocks.iter();
        self.spans.extend(added.map(|block| block.original));
        self.counters.extend(counters(translation));
        self.blocks.extend(blocks);
        self.branches.extend(branches);
    }

    /// The place of the block at an original address.
    pub(super) fn place(&self, original: Addr) -> Option<Addr> {
        self.blocks.get(&original).copied()
    }

    /// The original target of the branch whose displacement is at an address.
    pub(super) fn branch(&self, displacement: Addr) -> Option<Addr> {
        self.branches.get(&displacement).copied()
    }

    /// The original code of all blocks, in order.
    pub(super) fn spans(&mut self) -> &[Span] {
        self.spans.sort_unstable();
        &self.spans
    }
}

/// The counters of a translation's blocks.
pub(super) fn counters(translation: &Translation) -> impl Iterator<Item = u32> {
    translation.blocks.iter().filter_map(|block| block.counter)
}

/// The bytes of a region: no others decide whether a translation of it is right.
pub(super) struct VisibleBytes<'c> {
    pub(super) code: &'c dyn CodeBytes,
    pub(super) region: Span,
}

impl CodeBytes for VisibleBytes<'_> {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        let Span { start, end } = self.region;
        if at < start || at >= end {
            return None;
        }
        let bytes = self.code.code_from(at)?;
        match usize::try_from(end.0 - at.0) {
            Ok(length) if length < bytes.len() => bytes.get(..length),
            _ => Some(bytes),
        }
    }
}
