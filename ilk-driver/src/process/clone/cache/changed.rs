//! Translations of changing code: its pages are watched, read, translated and proved alone, and dropped alone.

use std::os::unix::fs::FileExt as _;

use gilk_engine::{Addr, Refusal, Rule, Span};

use super::super::super::maps;
use super::super::super::refused;
use super::super::changing::{ChangingFragment, PageBytes};
use super::super::code::{self, ProcessCode};
use super::super::fragments::PlacedFragment;
use super::super::writes::page_of;
use super::{DEMANDED, ProcessCache, release, too_far, unproved, unwatched};
use crate::Result;

/// Bytes of changing code that one translation reads, at most.
const MOST_PAGES: u64 = 16 * maps::PAGE;

impl ProcessCache {
    /// Returns the translation of an address of changing code, which is translated first if it was not; `None` if no
    /// such code is there.
    ///
    /// # Errors
    /// [`Rule::CacheFull`], [`Rule::OutOfReach`], or [`Rule::MayChange`] where its writes cannot be watched: the process
    /// is to be let go.
    pub(in super::super) fn changing_block(
        &mut self,
        code: &ProcessCode,
        original: Addr,
        stack: Addr,
    ) -> Result<std::result::Result<Option<Addr>, Refusal>> {
        if let Some(at) = self.changing.place(original) {
            return Ok(Ok(Some(at)));
        }
        let Some(mapping) = code.changing(original) else {
            return Ok(Ok(None));
        };
        if mapping.span.contains(stack) || mapping.name == "[stack]" {
            let why = format!("{} has code, and is a stack", code::named(mapping));
            return Ok(Err(Refusal::new(Rule::MayChange, original, why)));
        }
        let Some(index) = self.near(original) else {
            return Ok(Err(too_far(original)));
        };
        let mut pages = Span::new(page_of(original), maps::PAGE);
        loop {
            if self.is_instrumented(pages) {
                let why = format!("{} has instruments, and may change", code::named(mapping));
                return Ok(Err(Refusal::new(Rule::MayChange, original, why)));
            }
            let bytes = match self.watched(code, mapping, pages)? {
                Ok(bytes) => bytes,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let Some(arena) = self.arenas.get_mut(index) else {
                return Ok(Ok(None));
            };
            let translation = arena.translate(&mut self.free, |translator| {
                translator.translate_apart(&bytes, original, DEMANDED)
            });
            let translation = match translation {
                Ok(translation) => translation,
                Err(refusal) => return Ok(Err(refusal)),
            };
            // An instruction that is in two pages.
            let is_cut = pages.len() < MOST_PAGES && translation.is_cut(&bytes);
            if is_cut && mapping.span.contains(pages.end) {
                pages.end = pages.end.add(maps::PAGE);
                // It is not written.
                release(&mut self.free, &translation.blocks);
                continue;
            }
            let proved = arena
                .prover
                .prove_apart(&bytes, translation, self.counting)
                .map_err(|violations| unproved(self.pid, &violations))?;
            let translation = proved.translation();
            let added = self.add(index, &proved, original)?;
            let place = |at: Addr| {
                let mut blocks = translation.blocks.iter();
                blocks.find(|block| block.original.start == at)
            };
            let landings = &translation.landings;
            let places = landings
                .iter()
                .filter_map(|landing| Some((landing.original, place(landing.original)?.at)));
            let fragment = ChangingFragment {
                pages,
                placed: PlacedFragment::new(index, translation),
            };
            self.changing.add(fragment, places);
            return Ok(added.map(|()| self.changing.place(original)));
        }
    }

    /// Watches pages that may be written, and reads them then.
    fn watched(
        &mut self,
        code: &ProcessCode,
        mapping: &maps::MappedSpan,
        pages: Span,
    ) -> Result<std::result::Result<PageBytes, Refusal>> {
        let bytes = usize::try_from(pages.len()).unwrap_or(0);
        let mut bytes = PageBytes {
            start: pages.start,
            bytes: vec![0; bytes],
        };
        // Also brings the pages into memory.
        self.read_code(&mut bytes)?;
        if !mapping.writable && !mapping.shared {
            return Ok(Ok(bytes));
        }
        let all = pages.start.0..pages.end.0;
        let watched = match &mut self.writes {
            Ok(writes) => all
                .step_by(maps::PAGE as usize)
                .try_for_each(|page| writes.watch(Addr(page), &code.mapped(mapping, Addr(page))))
                .map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = watched {
            return Ok(Err(unwatched(pages.start, code::named(mapping), &why)));
        }
        self.read_code(&mut bytes)?;
        Ok(Ok(bytes))
    }

    /// Reads the bytes of pages that have their start and number.
    fn read_code(&self, pages: &mut PageBytes) -> Result<()> {
        let start = pages.start;
        let read = self.memory.read_exact_at(&mut pages.bytes, start.0);
        read.map_err(|error| {
            refused(
                self.pid,
                format!("its code at {start} cannot be read ({error})"),
            )
        })
    }

    /// Returns whether an address is in a translation that was made from bytes of a span.
    pub(in super::super) fn is_made_from(&self, at: Addr, span: Span) -> bool {
        let mut fragments = self.changing.of(span);
        fragments.any(|one| one.placed.span.contains(at))
    }

    /// Returns whether translations were made from bytes of a span.
    pub(in super::super) fn has_translated(&self, span: Span) -> bool {
        self.changing.of(span).next().is_some()
    }

    /// Drops the translations that were made from bytes of a span. No thread may be in them, or in resident code.
    pub(in super::super) fn drop_changing(&mut self, span: Span) -> Result<()> {
        let dropped = self.changing.take(span);
        for one in &dropped {
            if let Some(arena) = self.arenas.get_mut(one.arena) {
                arena.prover.forget_apart(one.span.start);
            }
        }
        self.drop_fragments(&dropped)
    }
}
