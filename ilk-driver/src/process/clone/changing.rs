//! Translations of code that may change: each is dropped alone when its pages do.

use std::collections::BTreeMap;

use gilk_engine::cache::CodeBytes;
use gilk_engine::{Addr, Span};

use super::fragments::PlacedFragment;

/// The bytes of some pages, as they were after they were watched. A translation and its proof see nothing else of
/// changing code, so it depends on no other page.
pub(super) struct PageBytes {
    pub(super) start: Addr,
    pub(super) bytes: Vec<u8>,
}

impl CodeBytes for PageBytes {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        let offset = usize::try_from(at.0.checked_sub(self.start.0)?).ok()?;
        self.bytes.get(offset..).filter(|rest| !rest.is_empty())
    }
}

/// A translation of changing code.
pub(super) struct ChangingFragment {
    /// The original pages that it was made from.
    pub(super) pages: Span,
    pub(super) placed: PlacedFragment,
}

/// The translations of changing code.
#[derive(Default)]
pub(super) struct ChangingFragments {
    all: Vec<ChangingFragment>,
    /// Blocks that lookups find, by their original address.
    places: BTreeMap<Addr, Addr>,
}

impl ChangingFragments {
    /// The block that lookups of an original address find.
    pub(super) fn place(&self, original: Addr) -> Option<Addr> {
        self.places.get(&original).copied()
    }

    /// Adds a translation, with the blocks of its landings.
    pub(super) fn add(
        &mut self,
        fragment: ChangingFragment,
        places: impl IntoIterator<Item = (Addr, Addr)>,
    ) {
        self.places.extend(places);
        self.all.push(fragment);
    }

    /// Takes all translations.
    pub(super) fn take_all(&mut self) -> Vec<PlacedFragment> {
        self.places.clear();
        self.all.drain(..).map(|one| one.placed).collect()
    }

    /// The translations that were made from bytes of a span.
    pub(super) fn of(&self, span: Span) -> impl Iterator<Item = &ChangingFragment> {
        self.all.iter().filter(move |one| one.pages.overlaps(span))
    }

    /// Takes the translations that were made from bytes of a span.
    pub(super) fn take(&mut self, span: Span) -> Vec<PlacedFragment> {
        let is_taken = |one: &mut ChangingFragment| one.pages.overlaps(span);
        let taken = self.all.extract_if(.., is_taken);
        let taken: Vec<PlacedFragment> = taken.map(|one| one.placed).collect();
        for landing in taken.iter().flat_map(|one| &one.landings) {
            self.places.remove(&landing.original);
        }
        taken
    }
}
