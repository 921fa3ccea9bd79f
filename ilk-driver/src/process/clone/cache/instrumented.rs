//! Instruments in the translations of a process.

use gilk_engine::{Addr, Span};

use super::ProcessCache;

impl ProcessCache {
    /// Returns whether instruments run in the cache.
    pub(in super::super) fn has_instruments(&self) -> bool {
        self.instruments.is_some()
    }

    /// Returns whether a span of original code has an instruction with instruments.
    pub(in super::super) fn is_instrumented(&self, span: Span) -> bool {
        let instruments = self.instruments.as_ref();
        instruments.is_some_and(|instruments| instruments.translated.any_in(span))
    }

    /// The place at which threads leave the instruments before an original instruction, which was translated.
    pub(in super::super) fn exit(&self, original: Addr) -> Option<Addr> {
        let mut arenas = self.arenas.iter();
        arenas.find_map(|arena| arena.exits.get(&original).copied())
    }
}
