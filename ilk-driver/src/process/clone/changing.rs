//! Translations of code that may change: each is dropped alone when its pages do.

use std::collections::BTreeMap;

use gilk_engine::cache::{CodeBytes, Landing};
use gilk_engine::{Addr, Span};

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

/// A translation that may be dropped.
pub(super) struct ChangingFragment {
    /// The number of its arena.
    pub(super) arena: usize,
    /// Its translated code.
    pub(super) span: Span,
    /// The original pages that it was made from.
    pub(super) pages: Span,
    pub(super) landings: Vec<Landing>,
}

/// The translations of changing code.
#[derive(Default)]
pub(super) struct ChangingFragments {
    all: Vec<ChangingFragment>,
    /// Blocks that lookups find, by their original address.
    places: BTreeMap<Addr, Addr>,
    /// Bytes of arenas that dropped translations have left.
    pub(super) dropped_bytes: u64,
    /// Translations that were dropped.
    pub(super) dropped: u64,
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

    /// Forgets all translations, and the bytes that they have left.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.places.clear();
        self.dropped_bytes = 0;
    }

    /// The translations that were made from bytes of a span.
    pub(super) fn of(&self, span: Span) -> impl Iterator<Item = &ChangingFragment> {
        self.all.iter().filter(move |one| one.pages.overlaps(span))
    }

    /// Takes the translations that were made from bytes of a span.
    pub(super) fn take(&mut self, span: Span) -> Vec<ChangingFragment> {
        let (taken, kept) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|one: &ChangingFragment| one.pages.overlaps(span));
        self.all = kept;
        let taken: Vec<ChangingFragment> = taken;
        for fragment in &taken {
            for landing in &fragment.landings {
                self.places.remove(&landing.original);
            }
            self.dropped_bytes += fragment.span.len();
            self.dropped += 1;
        }
        taken
    }
}
