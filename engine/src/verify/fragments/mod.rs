//! The independent verifier of translated code: it decodes original and cache side by side and proves that the one
//! does what the other does, with lookups as its only new exits.
//!
//! The proof is by bisimulation. A translation claims pairs of an original address and a place in the cache; each is
//! followed, instruction by instruction, to the end of its block, and all branches there must target places that are
//! claimed, and so proved, for the original targets. Sequences are recognised by their instructions. What the
//! translator states beside, rows, counters and ends of blocks, is compared with what was found.
//!
//! The patches of instruments are proved by the walk that proves those of splices ([`InstrumentProof`]): each block
//! before which the plan has instruments branches to them, no other block passes that instruction, and all that may be
//! read after them is as it was.
//!
//! It shares with the translator the decoder and the types of its results.
//!
//! # Not verified
//! - That the original code is what the process has mapped, and does not change: the driver watches that.
//! - That no code reads or writes below its red zone: sequences use 40 bytes there.
//! - Values of flags that are overwritten before they are read, in the frame of a signal.
//! - The tables: a wrong address in them would have to be one of code. What is written there is a [`Landing`](crate::cache::Landing) that was
//!   proved.

mod exits;
mod flags;
mod instructions;
mod instruments;
mod places;
mod reader;
mod recorded;
mod recording;
mod regions;
mod resident;
mod violation;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};

use self::places::{ArenaProof, meet};
use self::reader::{CachedBytes, SequenceReader, is_jump};
use self::recorded::RecordProof;
use self::regions::{ProvedRegion, VisibleBytes, counters};
use super::hash::{Map, Set};
use crate::cache::resident::Resident;
use crate::cache::{
    BlockPatch, CacheLayout, CacheRow, CachedBlock, CodeBytes, Counting, Link, PatchMoment,
    RecordedBlock, RowState, Translation,
};
use crate::reads::MemoryReader;
use crate::{Addr, Span};

pub use places::InstrumentProof;
pub use violation::{FragmentRule, FragmentViolation};

/// A translation that was proved: the only form that is written to a process.
#[derive(Clone, Debug)]
pub struct ProvedTranslation(Translation);

impl ProvedTranslation {
    /// Code to write, and the entries of the tables to write after it.
    #[must_use]
    pub fn translation(&self) -> &Translation {
        &self.0
    }
}

/// Blocks, branches and counters of one arena that were proved.
#[derive(Clone, Debug)]
pub struct FragmentProver {
    layout: CacheLayout,
    arena: Span,
    /// The end of what was proved.
    end: Addr,
    differs: Addr,
    dropped: Addr,
    step: Addr,
    /// Blocks and branches that were proved, by region of original code; forgotten ones are not among them.
    regions: Map<Span, ProvedRegion>,
    /// Those of all blocks that are not forgotten.
    counters: Set<u32>,
    /// Those of translations that may be dropped alone, by the first bytes of these.
    apart: Map<Addr, Vec<u32>>,
    /// Instruments of several plans, each for other functions.
    instruments: Vec<ArenaProof>,
}

impl FragmentProver {
    /// Proves the resident code of an arena.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn new(
        layout: CacheLayout,
        arena: Span,
        resident: &Resident,
    ) -> Result<Self, FragmentViolation> {
        let wrong = |rule| FragmentViolation {
            original: Addr(0),
            at: arena.start,
            rule,
        };
        if !layout.is_low() || overlap(&layout) {
            return Err(wrong(FragmentRule::Layout));
        }
        if resident.start != arena.start || resident.end() > arena.end {
            return Err(wrong(FragmentRule::OutsideArena));
        }
        resident::prove(resident, &layout).map_err(wrong)?;
        Ok(Self {
            layout,
            arena,
            end: resident.end(),
            differs: resident.differs,
            dropped: resident.dropped,
            step: resident.step,
            regions: Map::default(),
            counters: Set::default(),
            apart: Map::default(),
            instruments: Vec::new(),
        })
    }

    /// Proves from now on that blocks run these instruments, too, and the code that reads memory for them, which is the
    /// first of the arena after what was proved before.
    ///
    /// # Errors
    /// [`FragmentRule::Reader`]; [`FragmentRule::LateInstruments`]. Nothing is changed then.
    pub fn add_instruments(
        &mut self,
        part: Arc<InstrumentProof>,
        reader: Option<&MemoryReader>,
    ) -> Result<(), FragmentViolation> {
        let at = reader.map_or(self.end, |reader| reader.start);
        let wrong = |rule| FragmentViolation {
            original: Addr(0),
            at,
            rule,
        };
        let end = reader.map_or(Some(at), |reader| {
            reader.start.0.checked_add(MemoryReader::BYTES).map(Addr)
        });
        let end = end
            .filter(|end| at >= self.end && *end <= self.arena.end)
            .ok_or(wrong(FragmentRule::Reader))?;
        let part = ArenaProof::new(part, reader).ok_or(wrong(FragmentRule::Reader))?;
        // A block that was proved without them would pass them.
        let functions = part.functions();
        let mut others = self.instruments.iter().map(ArenaProof::functions);
        if others.any(|others| meet(&functions, &others)) || self.is_proved(&functions) {
            return Err(wrong(FragmentRule::LateInstruments));
        }
        self.instruments.push(part);
        self.end = end;
        Ok(())
    }

    /// Proves from now on that blocks run no instruments in functions that begin in a span: their code is mapped no more.
    ///
    /// # Errors
    /// [`FragmentRule::LateInstruments`] if a block of one of them was proved, and is not [forgotten](Self::forget).
    /// Nothing is changed then.
    pub fn remove_instruments(&mut self, gone: Span) -> Result<(), FragmentViolation> {
        let functions = self.instruments.iter().flat_map(ArenaProof::functions);
        let mut functions: Vec<Span> = functions.filter(|one| gone.contains(one.start)).collect();
        functions.sort_unstable();
        if self.is_proved(&functions) {
            return Err(FragmentViolation {
                original: gone.start,
                at: self.end,
                rule: FragmentRule::LateInstruments,
            });
        }
        self.instruments.retain_mut(|part| part.remove(gone));
        Ok(())
    }

    /// Returns whether a block of functions was proved and is not forgotten; they are in order of their starts.
    fn is_proved(&mut self, functions: &[Span]) -> bool {
        let mut regions = self.regions.values_mut();
        regions.any(|region| meet(functions, region.spans()))
    }

    /// Forgets what was proved of a region, whose code is mapped no more or is other code. Nothing that is proved later
    /// may branch to it, or link it, and its bytes are not used again. No thread is in it, and lookups do not find it any
    /// more, so other blocks may have its counters. What was proved of other regions does not branch to it.
    pub fn forget(&mut self, region: Span) {
        let forgotten = self.regions.remove(&region).unwrap_or_default();
        self.release(forgotten.counters);
    }

    /// Forgets a translation that was [proved apart](Self::prove_apart), by its first byte. No thread is in it, and lookups
    /// do not find it any more, so other blocks may have its counters.
    pub fn forget_apart(&mut self, start: Addr) {
        // One without counters is not known.
        let forgotten = self.apart.remove(&start).unwrap_or_default();
        self.release(forgotten);
    }

    fn release(&mut self, counters: Vec<u32>) {
        for counter in counters {
            self.counters.remove(&counter);
        }
    }

    /// Proves what a request adds to a region of original code, by the bytes of the region and what was proved of it
    /// before: it may branch to nothing else, but by lookups.
    ///
    /// # Errors
    /// All violations; nothing is believed of the translation then.
    pub fn prove(
        &mut self,
        code: &dyn CodeBytes,
        region: Span,
        translation: Translation,
        counting: Counting,
    ) -> Result<ProvedTranslation, Vec<FragmentViolation>> {
        let visible = VisibleBytes { code, region };
        // There is none before its first translation.
        let mut before = self.regions.remove(&region).unwrap_or_default();
        let proved = self.proved((&visible, &before), translation, counting);
        let proved = proved.map(|(proved, blocks, branches)| {
            before.add(proved.translation(), blocks, branches);
            proved
        });
        self.regions.insert(region, before);
        proved
    }

    /// Proves a translation that may be dropped alone, by the bytes of `code`: nothing that was proved before, or is
    /// proved later, may branch to it or be branched to, but by a lookup.
    ///
    /// # Errors
    /// All violations; nothing is believed of the translation then.
    pub fn prove_apart(
        &mut self,
        code: &dyn CodeBytes,
        translation: Translation,
        counting: Counting,
    ) -> Result<ProvedTranslation, Vec<FragmentViolation>> {
        let none = ProvedRegion::default();
        let (proved, _, _) = self.proved((code, &none), translation, counting)?;
        let translation = proved.translation();
        let counters: Vec<u32> = counters(translation).collect();
        if !counters.is_empty() {
            self.apart.insert(translation.start, counters);
        }
        Ok(proved)
    }

    /// Proves a translation; returns the places of its blocks, and its branches to code that is not translated.
    fn proved(
        &mut self,
        (code, region): (&dyn CodeBytes, &ProvedRegion),
        translation: Translation,
        counting: Counting,
    ) -> Result<Proved, Vec<FragmentViolation>> {
        let decoder = Decoder::new(64, &translation.bytes, DecoderOptions::NONE);
        let decoder = RefCell::new(decoder);
        let mut proof = Proof {
            before: self,
            region,
            code,
            originals: RefCell::new(None),
            counting,
            recorded: recorded(&translation.recorded),
            patches: patches(&translation.patches),
            proved: Set::default(),
            state: RowState::Exact,
            factory: InstructionInfoFactory::new(),
            bytes: CachedBytes::new(translation.start, &translation.bytes, &decoder),
            rows: &translation.rows,
            last_row: Cell::new(0),
            blocks: Map::default(),
            stubs: Set::default(),
            branches: Vec::new(),
            counters: Set::default(),
            violations: Vec::new(),
        };
        proof.all(&translation);
        let (blocks, branches, counters) = (proof.blocks, proof.branches, proof.counters);
        let violations = proof.violations;
        if !violations.is_empty() {
            return Err(violations);
        }
        self.end = translation.start.add(translation.bytes.len() as u64);
        self.counters.extend(counters);
        Ok((ProvedTranslation(translation), blocks, branches))
    }
}

/// A translation, the places of its blocks, and the original targets of its branches to other code.
type Proved = (ProvedTranslation, Map<Addr, Addr>, Vec<(Addr, Addr)>);

/// Returns whether two kinds of words have a byte in common.
fn overlap(layout: &CacheLayout) -> bool {
    let mut spans = [
        Span::new(layout.recent, 8 * CacheLayout::RECENT),
        Span::new(layout.targets, 16 << layout.targets_log2),
        Span::new(layout.agent, 4),
        layout.counters,
    ];
    spans.sort_unstable();
    spans
        .iter()
        .zip(spans.iter().skip(1))
        .any(|(one, next)| one.overlaps(*next))
}

/// Statements of blocks on their accesses, by their first instruction.
fn recorded(blocks: &[RecordedBlock]) -> Map<Addr, &RecordedBlock> {
    let first = |block: &RecordedBlock| block.instructions.first().copied();
    let named = blocks
        .iter()
        .map(|block| (first(block).unwrap_or_default(), block));
    named.collect()
}

/// Patches by the first instruction of their block.
fn patches(patches: &[BlockPatch]) -> Map<(Addr, PatchMoment), &BlockPatch> {
    patches
        .iter()
        .map(|patch| ((patch.original, patch.moment), patch))
        .collect()
}

/// A proof under way.
struct Proof<'p> {
    before: &'p FragmentProver,
    /// Blocks and branches of the region that were proved before.
    region: &'p ProvedRegion,
    /// The bytes of the region.
    code: &'p dyn CodeBytes,
    /// The bytes that were decoded last.
    originals: RefCell<Option<OriginalBytes<'p>>>,
    counting: Counting,
    /// Statements of blocks on their accesses, by their first instruction.
    recorded: Map<Addr, &'p RecordedBlock>,
    /// Patches of blocks, by their first instruction.
    patches: Map<(Addr, PatchMoment), &'p BlockPatch>,
    /// Those that were proved.
    proved: Set<(Addr, PatchMoment)>,
    /// The registers before the instruction that is copied next.
    state: RowState,
    factory: InstructionInfoFactory,
    bytes: CachedBytes<'p>,
    rows: &'p [CacheRow],
    /// The index of the row that was found last: most are found in order.
    last_row: Cell<usize>,
    /// The claims of this translation.
    blocks: Map<Addr, Addr>,
    /// Stubs that were proved, by their place and their target.
    stubs: Set<(Addr, Addr)>,
    branches: Vec<(Addr, Addr)>,
    counters: Set<u32>,
    violations: Vec<FragmentViolation>,
}

/// Original code from an address on, with its decoder.
struct OriginalBytes<'p> {
    start: Addr,
    bytes: &'p [u8],
    decoder: Decoder<'p>,
}

impl<'p> OriginalBytes<'p> {
    /// Decodes the instruction at an address; `None` if that is before or after these bytes.
    fn decode(&mut self, at: Addr) -> Option<(Instruction, &'p [u8])> {
        let offset = usize::try_from(at.0.checked_sub(self.start.0)?).ok()?;
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        self.decoder.set_position(offset).ok()?;
        self.decoder.set_ip(at.0);
        let instruction = self.decoder.decode();
        Some((instruction, rest.get(..instruction.len()).unwrap_or(rest)))
    }
}

/// The outcome of one step: the next original address, and its place unless the block ends there.
type Next = (Addr, Option<Addr>);

impl<'p> Proof<'p> {
    fn all(&mut self, translation: &Translation) {
        let end = translation.start.add(translation.bytes.len() as u64);
        if translation.start < self.before.end
            || end > self.before.arena.end
            || end.0 < translation.start.0
        {
            self.violation(Addr(0), translation.start, FragmentRule::OutsideArena);
            return;
        }
        for block in &translation.blocks {
            let original = block.original.start;
            let known = self.region.place(original).is_some();
            if self.blocks.insert(original, block.at).is_some() || known {
                self.violation(original, block.at, FragmentRule::BlockTwice);
            }
        }
        let states = |block: &&CachedBlock| self.recorded.contains_key(&block.original.start);
        let stated = translation.blocks.iter().filter(states).count();
        if stated != translation.recorded.len() {
            self.violation(Addr(0), translation.start, FragmentRule::WrongRecording);
            return;
        }
        for block in &translation.blocks {
            self.block(block);
        }
        // A patch without a block would be proved by none.
        if self.proved.len() != translation.patches.len() {
            self.violation(Addr(0), translation.start, FragmentRule::WrongPatch);
        }
        for landing in &translation.landings {
            if let Err(rule) = self.landing(landing) {
                self.violation(landing.original, landing.at, rule);
            }
        }
        for link in &translation.links {
            if !self.is_link(link) {
                self.violation(link.target, link.at, FragmentRule::WrongLink);
            }
        }
    }

    fn violation(&mut self, original: Addr, at: Addr, rule: FragmentRule) {
        self.violations
            .push(FragmentViolation { original, at, rule });
    }

    fn place(&self, original: Addr) -> Option<Addr> {
        let found = self.blocks.get(&original);
        found.copied().or_else(|| self.region.place(original))
    }

    fn is_link(&self, link: &Link) -> bool {
        let displacement = i64::from(i32::from_le_bytes(link.bytes)).cast_unsigned();
        self.region.branch(link.at) == Some(link.target)
            && self.place(link.target) == Some(link.at.add(4).add(displacement))
    }

    /// Decodes an original instruction; returns its bytes, too.
    fn original(&self, at: Addr) -> Result<(Instruction, &'p [u8]), FragmentRule> {
        let mut originals = self.originals.borrow_mut();
        let current = originals.as_mut().and_then(|current| current.decode(at));
        if let Some(found) = current {
            return Ok(found);
        }
        let bytes = self.code.code_from(at).ok_or(FragmentRule::NoOriginal)?;
        let decoder = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE);
        let read = originals.insert(OriginalBytes {
            start: at,
            bytes,
            decoder,
        });
        read.decode(at).ok_or(FragmentRule::NoOriginal)
    }

    /// The index of the row of an address.
    fn row_index(&self, at: Addr) -> Option<usize> {
        let is_at = |index: usize| {
            let next = self.rows.get(index + 1);
            self.rows.get(index).is_some_and(|row| row.at <= at)
                && next.is_none_or(|next| at < next.at)
        };
        let last = self.last_row.get();
        let near = [last, last + 1].into_iter().find(|index| is_at(*index));
        let found = near.or_else(|| {
            let after = self.rows.partition_point(|row| row.at <= at);
            after.checked_sub(1)
        })?;
        self.last_row.set(found);
        Some(found)
    }

    /// Proves the row of an address.
    fn row(&self, at: Addr, original: Addr, state: RowState) -> Result<(), FragmentRule> {
        self.rows((at, at.add(1)), original, state)
    }

    /// Proves that all rows of a span are of one instruction, in one state.
    fn rows(
        &self,
        (start, end): (Addr, Addr),
        original: Addr,
        state: RowState,
    ) -> Result<(), FragmentRule> {
        let first = self.row_index(start).ok_or(FragmentRule::WrongRow)?;
        let rows = self.rows.iter().skip(first);
        let mut rows = rows.take_while(|row| row.at < end);
        match rows.all(|row| row.original == original && row.state == state) {
            true => Ok(()),
            false => Err(FragmentRule::WrongRow),
        }
    }

    fn sequence(&self, at: Addr, rule: FragmentRule) -> SequenceReader<'p> {
        SequenceReader {
            bytes: self.bytes,
            at,
            rule,
        }
    }

    fn block(&mut self, block: &CachedBlock) {
        let mut counted = 0_u32;
        let mut instructions = 0_u32;
        let mut place = (block.original.start, block.at);
        self.state = RowState::Exact;
        let begin = (block.original.start, PatchMoment::Before);
        let begun = self.patched(begin, None, block.at).and_then(|at| {
            place.1 = at;
            self.begin_record(block, at)
        });
        let mut record = match begun {
            Ok(None) => None,
            Ok(Some((record, from))) => {
                place.1 = from;
                Some(record)
            }
            Err(rule) => {
                self.violation(place.0, place.1, rule);
                return;
            }
        };
        loop {
            let (original, at) = place;
            if original == block.original.end {
                let ended = match record.take() {
                    Some(record) => self.end_record(record, Some((original, at))),
                    None => Ok(None),
                };
                let done =
                    ended.and_then(|end| self.falls_through(original, end.unwrap_or(at), block));
                if let Err(rule) = done {
                    self.violation(original, at, rule);
                }
                break;
            }
            if original != block.original.start
                && self.is_instrumented(original, PatchMoment::Before)
            {
                self.violation(original, at, FragmentRule::PatchMissing);
                return;
            }
            if original > block.original.end {
                self.violation(original, at, FragmentRule::WrongExtent);
                break;
            }
            match self.recorded_step(original, at, block, (&mut counted, &mut record)) {
                Ok((next, Some(after))) => {
                    instructions += u32::from(next != original);
                    place = (next, after);
                }
                Ok((end, None)) => {
                    instructions += 1;
                    if end != block.original.end {
                        self.violation(original, at, FragmentRule::WrongExtent);
                    }
                    let ended = record.take().map(|record| self.end_record(record, None));
                    if let Some(Err(rule)) = ended {
                        self.violation(original, at, rule);
                    }
                    break;
                }
                Err(rule) => {
                    self.violation(original, at, rule);
                    return;
                }
            }
        }
        let expected = u32::from(self.counting.has_counters() && !block.original.is_empty());
        if counted != expected || expected != u32::from(block.counter.is_some()) {
            self.violation(block.original.start, block.at, FragmentRule::CounterMissing);
        }
        if instructions != block.instructions {
            self.violation(block.original.start, block.at, FragmentRule::WrongExtent);
        }
        if let Some(counter) = block.counter {
            let is_new = self.counters.insert(counter) && !self.before.counters.contains(&counter);
            if !is_new || self.before.layout.counter(counter).is_none() {
                self.violation(block.original.start, block.at, FragmentRule::ForeignCounter);
            }
        }
    }

    /// The end of a block whose last instruction falls through: its successor, a jump to it, or a step where the bytes
    /// are no instruction.
    fn falls_through(
        &mut self,
        original: Addr,
        at: Addr,
        block: &CachedBlock,
    ) -> Result<(), FragmentRule> {
        // A block without an instruction would make no progress.
        let is_empty = block.original.is_empty();
        if self.place(original) == Some(at) && !is_empty {
            return Ok(());
        }
        self.row(at, original, RowState::Exact)?;
        let one = self.bytes.at(at)?;
        if is_jump(&one) && !is_empty {
            return self.branch(&one, original);
        }
        // Code that ends there has no instruction either.
        if self
            .original(original)
            .map_or(true, |(one, _)| one.is_invalid())
        {
            return self.stepped(original, at).map(drop);
        }
        Err(FragmentRule::WrongTarget)
    }

    fn records(&self) -> bool {
        self.counting == Counting::Accesses
    }

    /// Proves that the translation of one original instruction is at a place, with the recording of its accesses.
    fn recorded_step(
        &mut self,
        original: Addr,
        at: Addr,
        block: &CachedBlock,
        (counted, record): (&mut u32, &mut Option<RecordProof<'p>>),
    ) -> Result<Next, FragmentRule> {
        let Some(record) = record else {
            self.records_nothing(original)?;
            return self.step(original, at, block, counted);
        };
        let place = self.record_before(record, original, at)?;
        let next = match self.exit(record, original, place)? {
            Some(next) => next,
            None => self.step(original, place, block, counted)?,
        };
        self.record_after(record, original, next)
    }
}
