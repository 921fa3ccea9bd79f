//! The patches of instruments in the arenas of a process.

use std::collections::BTreeMap;

use gilk_engine::cache::{BlockPatch, PatchMoment};
use gilk_engine::{Addr, Span};

/// A patch of instruments.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct PlacedPatch {
    pub(in super::super) original: Addr,
    pub(in super::super) moment: PatchMoment,
    /// The original instruction that executes after the patch, if this one may not be executed again.
    pub(in super::super) next: Option<Addr>,
    /// The place at which threads leave it.
    pub(in super::super) exit: Addr,
}

/// The patches of an arena.
#[derive(Default)]
pub(super) struct PlacedPatches {
    /// Their exits, by the instruction before which they run.
    pub(super) exits: BTreeMap<Addr, Addr>,
    /// The branches to those that run after an instruction that may not be executed again.
    pub(super) begins: BTreeMap<(Addr, PatchMoment), Addr>,
    /// Their code, and the branches to them, by the first byte.
    spans: BTreeMap<Addr, (Addr, PlacedPatch)>,
}

impl PlacedPatches {
    /// Adds those of a translation.
    pub(super) fn add(&mut self, patches: &[BlockPatch]) {
        for patch in patches {
            if patch.moment == PatchMoment::Before {
                self.exits.insert(patch.original, patch.exit);
            }
            if patch.next.is_some() {
                let after = (patch.original, patch.moment);
                self.begins.insert(after, patch.begin);
            }
            let placed = PlacedPatch {
                original: patch.original,
                moment: patch.moment,
                next: patch.next,
                exit: patch.exit,
            };
            self.spans.insert(patch.begin, (patch.exit, placed));
            self.spans
                .insert(patch.span.start, (patch.span.end, placed));
        }
    }

    /// Removes those whose code is in some spans.
    pub(super) fn remove(&mut self, spans: &[Span]) {
        let is_left = |at: &Addr| !spans.iter().any(|span| span.contains(*at));
        self.exits.retain(|_, exit| is_left(exit));
        self.begins.retain(|_, begin| is_left(begin));
        self.spans.retain(|begin, _| is_left(begin));
    }

    /// The patch that an address is in, or in the branch to it.
    pub(super) fn find(&self, at: Addr) -> Option<PlacedPatch> {
        let (_, (end, placed)) = self.spans.range(..=at).next_back()?;
        (at < *end).then_some(*placed)
    }
}
