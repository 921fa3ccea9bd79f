//! Translations of code that does not change while it is mapped, by regions: what was translated of one that is unmapped,
//! or becomes other code, is dropped, and nothing else.

use std::sync::atomic::Ordering;

use gilk_engine::cache::resident::Resident;
use gilk_engine::cache::{CacheRow, Translation, Translator};
use gilk_engine::{Addr, Refusal, Span};

use super::super::block_counters::BlockCounters;
use super::super::code::ProcessCode;
use super::super::earlier::{BlockList, EarlierBlocks};
use super::super::fragments::{PlacedFragment, TranslatedRegion};
use super::{DEMANDED, ProcessCache, too_far, unproved};
use crate::Result;

/// Blocks of an earlier start that are translated at a time: what is known of them fits into the caches of a processor,
/// and its memory is used again for the next.
const PIECE: usize = 1024;

impl ProcessCache {
    /// Returns the translation of an original address, which is translated first if it was not; `None` if no code is
    /// there. `alone` is true if no thread executes meanwhile.
    ///
    /// # Errors
    /// [`Rule::CacheFull`](gilk_engine::Rule::CacheFull) or [`Rule::OutOfReach`](gilk_engine::Rule::OutOfReach): the process is to be let go.
    pub(in super::super) fn block(
        &mut self,
        code: &ProcessCode,
        original: Addr,
        alone: bool,
    ) -> Result<std::result::Result<Option<Addr>, Refusal>> {
        let Some((region, object)) = code.object(original) else {
            return Ok(Ok(None));
        };
        let Some(index) = self.near(original) else {
            return Ok(Err(too_far(original)));
        };
        let landed = |cache: &Self| {
            let translator = &cache.arenas.get(index)?.translator;
            let has_landing = translator.has_landing(region, original);
            has_landing.then(|| translator.block(region, original))?
        };
        if let Some(place) = landed(self) {
            return Ok(Ok(Some(place)));
        }
        let translated = self.regions.entry(region).or_default();
        translated.object = object;
        if let Err(refusal) = self.translate_earlier(code, (region, original), index, alone)? {
            return Ok(Err(refusal));
        }
        if let Some(place) = landed(self) {
            return Ok(Ok(Some(place)));
        }
        if let Some(translated) = self.regions.get_mut(&region) {
            translated.demanded.push(original);
        }
        let place = (region, original);
        let translated = self.translate(code, place, index, alone, |translator| {
            translator.translate(code, region, &[original], DEMANDED)
        })?;
        Ok(translated.map(|()| landed(self)))
    }

    /// Translates the earlier blocks of a region whose code is first needed.
    fn translate_earlier(
        &mut self,
        code: &ProcessCode,
        (region, original): (Span, Addr),
        index: usize,
        alone: bool,
    ) -> Result<std::result::Result<(), Refusal>> {
        let Some(translated) = self.regions.get_mut(&region) else {
            return Ok(Ok(()));
        };
        let has_begun = std::mem::replace(&mut translated.has_begun, true);
        let Some(object) = translated.object.filter(|_| !has_begun) else {
            return Ok(Ok(()));
        };
        let BlockList { blocks, landed } = self.earlier.of(&object, region);
        // Branches to a later piece can be linked only while no thread executes.
        let most = if alone { PIECE } else { usize::MAX };
        let mut landed = landed.as_slice();
        for piece in blocks.chunks(most) {
            let in_piece = landed.partition_point(|at| Some(at) <= piece.last());
            let landings;
            (landings, landed) = landed.split_at(in_piece);
            let translated =
                self.translate(code, (region, original), index, alone, |translator| {
                    translator.translate_blocks(code, region, piece, landings)
                })?;
            if let Err(refusal) = translated {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(()))
    }

    /// Translates code of a region, proves and writes it.
    fn translate(
        &mut self,
        code: &ProcessCode,
        (region, original): (Span, Addr),
        index: usize,
        alone: bool,
        translate: impl FnOnce(&mut Translator) -> std::result::Result<Translation, Refusal>,
    ) -> Result<std::result::Result<(), Refusal>> {
        let Some(arena) = self.arenas.get_mut(index) else {
            return Ok(Ok(()));
        };
        let translation = match arena.translate(&mut self.free, translate) {
            Ok(translation) => translation,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let proved = arena.prover.prove(code, region, translation, self.counting);
        let proved = proved.map_err(|violations| unproved(self.pid, &violations))?;
        let added = self.add(index, &proved, original)?;
        let translation = proved.translation();
        let translated = self.regions.entry(region).or_default();
        let placed = PlacedFragment::new(index, translation);
        translated.fragments.push(placed);
        // A branch that a thread executes meanwhile is left as it is: it looks its target up.
        if added.is_ok()
            && alone
            && let Some(arena) = self.arenas.get(index)
        {
            for link in &translation.links {
                self.write(arena, &link.bytes, link.at)?;
            }
        }
        Ok(added)
    }

    /// Adds the blocks of now to the earlier ones: those that were executed, if this is counted.
    pub(in super::super) fn keep_blocks(&mut self) {
        for (&region, translated) in &self.regions {
            keep(&mut self.earlier, &self.counters, (region, translated));
        }
    }

    /// Returns whether an address is in a translation of a region that has a byte of some spans.
    pub(in super::super) fn is_translated_from(&self, at: Addr, spans: &[Span]) -> bool {
        let mut regions = self.regions.iter();
        regions.any(|(region, translated)| {
            spans.iter().any(|span| span.overlaps(*region)) && translated.contains(at)
        })
    }

    /// Drops what was translated of the regions that have a byte of some spans, and keeps the addresses of its blocks and
    /// their counts. No thread may be in it, or in resident code.
    pub(in super::super) fn drop_regions(&mut self, spans: &[Span]) -> Result<()> {
        let is_dropped = |region: &Span| spans.iter().any(|span| span.overlaps(*region));
        let dropped = self.regions.extract_if(.., |region, _| is_dropped(region));
        let mut fragments = Vec::new();
        for (region, translated) in dropped {
            // It may be mapped again.
            keep(&mut self.earlier, &self.counters, (region, &translated));
            for arena in &mut self.arenas {
                arena.translator.forget(region);
                arena.prover.forget(region);
            }
            fragments.extend(translated.fragments);
        }
        self.drop_fragments(&fragments)
    }

    /// Drops translations. No thread may be in them, or in resident code; no others branch to them.
    pub(super) fn drop_fragments(&mut self, fragments: &[PlacedFragment]) -> Result<()> {
        for (index, arena) in self.arenas.iter_mut().enumerate() {
            let here = fragments.iter().filter(|one| one.arena == index);
            let mut spans: Vec<Span> = here.map(|one| one.span).collect();
            if !spans.is_empty() {
                spans.sort_unstable();
                remove_rows(&mut arena.rows, &spans);
                arena.patches.remove(&spans);
            }
        }
        for fragment in fragments {
            let Some(arena) = self.arenas.get(fragment.arena) else {
                continue;
            };
            let Resident {
                search, dropped, ..
            } = *arena.translator.resident();
            for landing in &fragment.landings {
                // Its key stays, since searches of others pass it.
                if let Some(write) = self.targets.remove(landing.original, dropped) {
                    self.set(write.at.add(8), write.landing)?;
                }
                let recent = self.recent(landing.original);
                if self.word(recent)?.load(Ordering::Acquire) == landing.at.0 {
                    self.set(recent, search.0)?;
                }
            }
            self.dropped.bytes += fragment.span.len();
            self.dropped.translations += 1;
        }
        self.release_counters(fragments);
        Ok(())
    }
}

/// Adds the blocks of a region to the earlier ones.
fn keep(
    earlier: &mut EarlierBlocks,
    counters: &BlockCounters,
    (region, translated): (Span, &TranslatedRegion),
) {
    let Some(object) = translated.object else {
        return;
    };
    let blocks = translated.fragments.iter().flat_map(|one| &one.blocks);
    let executed = blocks.filter(|block| counters.value(block) != Some(0));
    let list = BlockList {
        blocks: executed.map(|block| block.original.start).collect(),
        landed: translated.demanded.clone(),
    };
    earlier.add(object, region, &list);
}

/// Removes the rows of some spans, which are in order.
fn remove_rows(rows: &mut Vec<CacheRow>, spans: &[Span]) {
    let mut spans = spans.iter().peekable();
    rows.retain(|row| {
        while spans.next_if(|span| span.end <= row.at).is_some() {}
        spans.peek().is_none_or(|span| row.at < span.start)
    });
}
