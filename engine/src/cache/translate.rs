//! The translator: blocks that direct branches reach, laid out as the original code is.

mod work;

use std::sync::Arc;

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{DecodedBlocks, TranslationReach};
use super::counters::CounterNumbers;
use super::dead::FlagReader;
use super::emit::CodeBuffer;
use super::instruments::{ArenaInstruments, CacheInstruments};
use super::regions::{Emitted, Known, RegionBlocks, RegionBytes};
use super::resident::Resident;
use super::rows::RowState;
use super::translation::{Counting, PatchMoment, Translation};
use super::{CacheLayout, CodeBytes};
use crate::reads::MemoryReader;
use crate::{Addr, Refusal, Rule, Span};

pub(super) use work::{TranslationWork, conditional};

/// Translates code of one process for one arena.
#[derive(Debug)]
pub struct Translator {
    layout: CacheLayout,
    arena: Span,
    resident: Resident,
    counting: Counting,
    used: Addr,
    counters: CounterNumbers,
    regions: FxHashMap<Span, RegionBlocks>,
    /// Instruments of several plans, each for other objects.
    instruments: Vec<ArenaInstruments>,
}

impl Translator {
    /// Begins with the resident code alone.
    ///
    /// # Errors
    /// [`Rule::OutOfReach`] if the words are not in the lower 2 GiB.
    pub fn new(layout: CacheLayout, arena: Span, counting: Counting) -> Result<Self, Refusal> {
        if !layout.is_low() {
            let why = "the words of the code cache are not in the lower 2 GiB";
            return Err(Refusal::new(Rule::OutOfReach, layout.targets, why));
        }
        let resident = Resident::new(arena.start, &layout);
        Ok(Self {
            layout,
            arena,
            used: resident.end(),
            resident,
            counting,
            counters: CounterNumbers::default(),
            regions: FxHashMap::default(),
            instruments: Vec::new(),
        })
    }

    /// The code to write before any other.
    #[must_use]
    pub fn resident(&self) -> &Resident {
        &self.resident
    }

    /// The code that reads memory for instruments, of each plan whose instruments read.
    pub fn readers(&self) -> impl Iterator<Item = &MemoryReader> {
        self.instruments.iter().filter_map(ArenaInstruments::reader)
    }

    /// The instruments of the plan that has some at a place.
    pub(super) fn instruments(&self, at: (Addr, PatchMoment)) -> Option<&ArenaInstruments> {
        self.instruments.iter().find(|part| part.has(at))
    }

    /// The arena, which begins with the resident code.
    #[must_use]
    pub fn arena(&self) -> Span {
        self.arena
    }

    /// Bytes of the arena that are written.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.0 - self.arena.start.0
    }

    /// Exchanges the numbers of the next blocks' counters, so that arenas share the counters.
    pub fn swap_counters(&mut self, numbers: &mut CounterNumbers) {
        std::mem::swap(&mut self.counters, numbers);
    }

    /// Sets how blocks that are translated from now on count.
    pub fn set_counting(&mut self, counting: Counting) {
        self.counting = counting;
    }

    /// Runs instruments in the blocks that are translated from now on, beside those of other plans. No block of their
    /// functions was translated before. Returns the code that reads memory for them, to write before any translation;
    /// `None` if none of them reads.
    ///
    /// # Errors
    /// [`Rule::CacheFull`] if that code does not fit into the arena. Nothing is changed then.
    pub fn add_instruments(
        &mut self,
        part: Arc<CacheInstruments>,
    ) -> Result<Option<&MemoryReader>, Refusal> {
        let part = part.in_arena(self.used);
        if let Some(reader) = part.reader() {
            let end = reader.start.add(MemoryReader::BYTES);
            if end > self.arena.end {
                return Err(full(self.arena));
            }
            self.used = end;
        }
        self.instruments.push(part);
        Ok(self.instruments.last().and_then(ArenaInstruments::reader))
    }

    /// Runs no instruments any more in functions that begin in a span, whose code is mapped no more. Nothing of them is
    /// translated, and no thread is in code that reads memory. Returns the bytes of such code that are not needed any more.
    pub fn remove_instruments(&mut self, gone: Span) -> u64 {
        let mut bytes = 0;
        self.instruments.retain_mut(|part| {
            let is_needed = part.remove(gone);
            if !is_needed && part.reader().is_some() {
                bytes += MemoryReader::BYTES;
            }
            is_needed
        });
        bytes
    }

    /// The translation of the block of a region that begins at an original address.
    #[must_use]
    pub fn block(&self, region: Span, original: Addr) -> Option<Addr> {
        self.known(region, original).map(|known| known.at)
    }

    /// Returns whether lookups of an original address of a region find its translation.
    #[must_use]
    pub fn has_landing(&self, region: Span, original: Addr) -> bool {
        self.known(region, original)
            .is_some_and(|known| known.landing)
    }

    fn known(&self, region: Span, original: Addr) -> Option<Known> {
        let blocks = self.regions.get(&region)?;
        blocks.known.get(&original).copied()
    }

    /// Translates what direct branches reach from some addresses of a region, each of which gets a landing. Nothing is
    /// read or branched to outside of the region, but by lookups.
    ///
    /// # Errors
    /// [`Rule::CacheFull`] if the arena or the counters do not suffice; [`Rule::NotText`] if no code is at an address.
    /// Nothing is changed then.
    pub fn translate(
        &mut self,
        code: &dyn CodeBytes,
        region: Span,
        seeds: &[Addr],
        reach: TranslationReach,
    ) -> Result<Translation, Refusal> {
        let code = RegionBytes { code, region };
        self.in_region(&code, (seeds, seeds), reach)
    }

    /// Translates the blocks of a region that begin at some addresses, and no others. Some of the addresses get a
    /// landing, as do those that a call of another block returns to. Addresses without code, and blocks that are
    /// translated, are left out.
    ///
    /// # Errors
    /// [`Rule::CacheFull`] if the arena or the counters do not suffice. Nothing is changed then.
    pub fn translate_blocks(
        &mut self,
        code: &dyn CodeBytes,
        region: Span,
        blocks: &[Addr],
        landed: &[Addr],
    ) -> Result<Translation, Refusal> {
        let code = RegionBytes { code, region };
        let all: FxHashSet<Addr> = blocks.iter().copied().collect();
        let is_code = |at: &Addr| code.code_from(*at).is_some_and(|bytes| !bytes.is_empty());
        let is_block = |at: &Addr| all.contains(at) || self.block(region, *at).is_some();
        let landed = landed.iter().copied();
        let landed: Vec<Addr> = landed.filter(|at| is_code(at) && is_block(at)).collect();
        self.in_region(&code, (blocks, &landed), TranslationReach::NOTHING)
    }

    /// Translates code of a region, and keeps and links its blocks.
    fn in_region(
        &mut self,
        code: &RegionBytes<'_>,
        (seeds, landed): (&[Addr], &[Addr]),
        reach: TranslationReach,
    ) -> Result<Translation, Refusal> {
        // There is none before its first translation.
        let mut blocks = self.regions.remove(&code.region).unwrap_or_default();
        let emitted = self.emit((code, &blocks), seeds, landed, reach);
        let done = emitted.map(|emitted| blocks.linked(emitted));
        self.regions.insert(code.region, blocks);
        done
    }

    /// Forgets what was translated of a region. Its bytes of the arena are not used again.
    pub fn forget(&mut self, region: Span) {
        self.regions.remove(&region);
    }

    /// Translates code that may be dropped alone, since its bytes may change: other translations reach its blocks only
    /// by lookups, and it is not linked to what is translated later.
    ///
    /// # Errors
    /// Those of [`translate`](Self::translate).
    pub fn translate_apart(
        &mut self,
        code: &dyn CodeBytes,
        seed: Addr,
        reach: TranslationReach,
    ) -> Result<Translation, Refusal> {
        let none = RegionBlocks::default();
        let (done, _, _) = self.emit((code, &none), &[seed], &[seed], reach)?;
        Ok(done)
    }

    /// Returns whether instruments run at an instruction.
    pub(super) fn is_instrumented(
        &self,
        code: &dyn CodeBytes,
        at: Addr,
        moment: PatchMoment,
    ) -> bool {
        let mut parts = self.instruments.iter();
        parts.any(|part| part.all.is_place(code, (at, moment)))
    }

    /// Emits what is reached from some addresses, with its blocks, and the targets and displacements of its branches to
    /// other code. Some addresses get a landing.
    fn emit(
        &mut self,
        (code, region): (&dyn CodeBytes, &RegionBlocks),
        seeds: &[Addr],
        landed: &[Addr],
        reach: TranslationReach,
    ) -> Result<Emitted, Refusal> {
        for &seed in landed {
            if code.code_from(seed).is_none_or(<[u8]>::is_empty) {
                return Err(Refusal::new(Rule::NotText, seed, "no code is there"));
            }
        }
        let is_translated = |at: Addr| region.known.contains_key(&at);
        let is_instrumented = |at: Addr| self.is_instrumented(code, at, PatchMoment::Before);
        let discovered = DecodedBlocks::search(
            (code, self.arena),
            self.counting == Counting::Accesses,
            is_instrumented,
            is_translated,
            seeds,
            reach,
        );
        let start = Addr(self.used.0.next_multiple_of(16));
        let mut work = TranslationWork {
            translator: self,
            region,
            code,
            flags: FlagReader::new(code, self.arena),
            out: CodeBuffer::new(start, discovered.instructions.len()),
            known: FxHashMap::default(),
            branches: Vec::new(),
            constants: Vec::new(),
            full: Vec::new(),
            exits: Vec::new(),
            patched: Vec::new(),
            ways: Vec::new(),
            state: RowState::Exact,
            factory: InstructionInfoFactory::new(),
            counted: 0,
            done: Translation {
                start,
                ..Translation::default()
            },
        };
        work.blocks(&discovered)?;
        for &seed in landed {
            work.landing_apart(seed)?;
        }
        let (done, known, unlinked, counted) = work.finish()?;
        let end = done.start.add(done.bytes.len() as u64);
        if end > self.arena.end {
            return Err(full(self.arena));
        }
        self.used = end;
        self.counters.take(counted);
        Ok((done, known, unlinked))
    }
}

/// The refusal of code that does not fit into an arena.
fn full(arena: Span) -> Refusal {
    Refusal::new(Rule::CacheFull, arena.end, "the code cache is full")
}
