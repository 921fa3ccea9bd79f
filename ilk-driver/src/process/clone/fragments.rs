//! Translations that may be dropped, and the regions of code that does not change while it is mapped: what was translated
//! of one is dropped with it.

use gilk_engine::cache::{CachedBlock, Landing, Translation};
use gilk_engine::{Addr, Span};

use super::earlier::ObjectVersion;

/// A translation in an arena.
#[derive(Clone)]
pub(super) struct PlacedFragment {
    /// The number of its arena.
    pub(super) arena: usize,
    /// Its translated code.
    pub(super) span: Span,
    pub(super) landings: Vec<Landing>,
    pub(super) blocks: Vec<CachedBlock>,
}

impl PlacedFragment {
    /// A translation in the arena of a number.
    pub(super) fn new(arena: usize, translation: &Translation) -> Self {
        Self {
            arena,
            span: Span::new(translation.start, translation.bytes.len() as u64),
            landings: translation.landings.clone(),
            blocks: translation.blocks.clone(),
        }
    }
}

/// Translations of a region: of a mapping of code that does not change.
#[derive(Default)]
pub(super) struct TranslatedRegion {
    /// Its file, if that is known.
    pub(super) object: Option<ObjectVersion>,
    /// The blocks of earlier starts are translated.
    pub(super) has_begun: bool,
    /// Addresses that were translated on demand.
    pub(super) demanded: Vec<Addr>,
    pub(super) fragments: Vec<PlacedFragment>,
}

impl TranslatedRegion {
    /// Returns whether an address is in one of its translations.
    pub(super) fn contains(&self, at: Addr) -> bool {
        self.fragments.iter().any(|one| one.span.contains(at))
    }
}
