//! The translator: blocks that direct branches reach, laid out as the original code is.

mod work;

use std::sync::Arc;

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{DecodedBlocks, TranslationReach};
use super::dead::FlagReader;
use super::emit::CodeBuffer;
use super::instruments::{ArenaInstruments, CacheInstruments};
use super::resident::Resident;
use super::rows::RowState;
use super::starts::BlockStarts;
use super::translation::{Counting, Link, PatchMoment, Translation};
use super::unlinked::UnlinkedBranches;
use super::{CacheLayout, CodeBytes};
use crate::reads::MemoryReader;
use crate::{Addr, Refusal, Rule, Span};

pub(super) use work::{TranslationWork, conditional};

/// The branch targets of a batch, by original address.
#[derive(Clone, Copy, Debug)]
struct Known {
    at: Addr,
    landing: bool,
}

/// Translates code of one process for one arena.
#[derive(Debug)]
pub struct Translator {
    layout: CacheLayout,
    arena: Span,
    resident: Resident,
    counting: Counting,
    used: Addr,
    counters: u32,
    known: FxHashMap<Addr, Known>,
    /// The addresses of `known`.
    starts: BlockStarts,
    unlinked: UnlinkedBranches,
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
            counters: 0,
            known: FxHashMap::default(),
            starts: BlockStarts::default(),
            unlinked: UnlinkedBranches::default(),
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

    /// Numbers the counters of the next blocks from here, so that arenas share the counters.
    pub fn count_from(&mut self, number: u32) {
        self.counters = number;
    }

    /// The number of the next block's counter.
    #[must_use]
    pub fn counted(&self) -> u32 {
        self.counters
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

    /// The translation of the block that begins at an original address.
    #[must_use]
    pub fn block(&self, original: Addr) -> Option<Addr> {
        self.known.get(&original).map(|known| known.at)
    }

    /// Returns whether lookups of an original address find its translation.
    #[must_use]
    pub fn has_landing(&self, original: Addr) -> bool {
        self.known.get(&original).is_some_and(|known| known.landing)
    }

    /// Translates what direct branches reach from some addresses, each of which gets a landing.
    ///
    /// # Errors
    /// [`Rule::CacheFull`] if the arena or the counters do not suffice; [`Rule::NotText`] if no code is at an address.
    /// Nothing is changed then.
    pub fn translate(
        &mut self,
        code: &dyn CodeBytes,
        seeds: &[Addr],
        reach: TranslationReach,
    ) -> Result<Translation, Refusal> {
        let emitted = self.emit(code, seeds, seeds, reach)?;
        Ok(self.linked(emitted))
    }

    /// Translates the blocks that begin at some addresses, and no others. Some of the addresses get a landing, as do
    /// those that a call of another block returns to. Addresses without code, and blocks that are translated, are left
    /// out.
    ///
    /// # Errors
    /// [`Rule::CacheFull`] if the arena or the counters do not suffice. Nothing is changed then.
    pub fn translate_blocks(
        &mut self,
        code: &dyn CodeBytes,
        blocks: &[Addr],
        landed: &[Addr],
    ) -> Result<Translation, Refusal> {
        let all: FxHashSet<Addr> = blocks.iter().copied().collect();
        let is_code = |at: &Addr| code.code_from(*at).is_some_and(|bytes| !bytes.is_empty());
        let is_block = |at: &Addr| all.contains(at) || self.known.contains_key(at);
        let landed = landed.iter().copied();
        let landed: Vec<Addr> = landed.filter(|at| is_code(at) && is_block(at)).collect();
        let emitted = self.emit(code, blocks, &landed, TranslationReach::NOTHING)?;
        Ok(self.linked(emitted))
    }

    /// Keeps the blocks of a translation, and links earlier ones to it.
    fn linked(&mut self, (mut done, known, unlinked): Emitted) -> Translation {
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
        let (done, _, _) = self.emit(code, &[seed], &[seed], reach)?;
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
        code: &dyn CodeBytes,
        seeds: &[Addr],
        landed: &[Addr],
        reach: TranslationReach,
    ) -> Result<Emitted, Refusal> {
        for &seed in landed {
            if code.code_from(seed).is_none_or(<[u8]>::is_empty) {
                return Err(Refusal::new(Rule::NotText, seed, "no code is there"));
            }
        }
        let is_translated = |at: Addr| self.known.contains_key(&at);
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
            counters: self.counters,
            done: Translation {
                start,
                ..Translation::default()
            },
        };
        work.blocks(&discovered)?;
        for &seed in landed {
            work.landing_apart(seed)?;
        }
        let (done, known, unlinked, counters) = work.finish()?;
        let end = done.start.add(done.bytes.len() as u64);
        if end > self.arena.end {
            return Err(full(self.arena));
        }
        self.used = end;
        self.counters = counters;
        Ok((done, known, unlinked))
    }
}

/// The refusal of code that does not fit into an arena.
fn full(arena: Span) -> Refusal {
    Refusal::new(Rule::CacheFull, arena.end, "the code cache is full")
}

/// A translation, its blocks, and its branches to others.
type Emitted = (Translation, FxHashMap<Addr, Known>, Vec<(Addr, Addr)>);
