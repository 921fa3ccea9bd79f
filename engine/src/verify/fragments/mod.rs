//! The independent verifier of translated code: it decodes original and cache side by side and proves that the one
//! does what the other does, with lookups as its only new exits.
//!
//! The proof is by bisimulation. A translation claims pairs of an original address and a place in the cache; each is
//! followed, instruction by instruction, to the end of its block, and all branches there must target places that are
//! claimed, and so proved, for the original targets. Sequences are recognised by their instructions. What the
//! translator states beside, rows, counters and ends of blocks, is compared with what was found.
//!
//! It shares with the translator the decoder and the types of its results.
//!
//! # Not verified
//! - That the original code is what the process has mapped, and does not change: the driver watches that.
//! - That no code reads or writes below its red zone: sequences use 40 bytes there.
//! - Values of flags that are overwritten before they are read, in the frame of a signal.
//! - The tables: a wrong address in them would have to be one of code. What is written there is a [`Landing`] that was
//!   proved.

mod flags;
mod reader;
mod recorded;
mod recording;
mod resident;
mod violation;

use std::cell::{Cell, RefCell};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpKind,
    Register,
};

use self::reader::{CachedBytes, SequenceReader, is_jump, is_word, spills};
use self::recorded::RecordProof;
use super::hash::{Map, Set};
use crate::cache::resident::Resident;
use crate::cache::{
    CacheLayout, CacheRow, CachedBlock, CodeBytes, Counting, Landing, Link, RecordedBlock,
    RowState, Translation,
};
use crate::isa::memory::uses_thread_bases;
use crate::{Addr, Span};

pub use violation::{FragmentRule, FragmentViolation};

/// System calls that change mappings or return elsewhere (include/uapi/asm/unistd_64.h of Linux): mmap, mprotect,
/// munmap, rt_sigreturn, mremap, shmat, arch_prctl, remap_file_pages, pkey_mprotect.
const WATCHED: [u64; 9] = [9, 10, 11, 15, 25, 30, 158, 216, 329];

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
    /// Places in the cache, by original address.
    blocks: Map<Addr, Addr>,
    /// Original targets of branches, by the address of their displacement.
    branches: Map<Addr, Addr>,
    counters: Set<u32>,
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
            blocks: Map::default(),
            branches: Map::default(),
            counters: Set::default(),
        })
    }

    /// Proves what a request adds.
    ///
    /// # Errors
    /// All violations; nothing is believed of the translation then.
    pub fn prove(
        &mut self,
        code: &dyn CodeBytes,
        translation: Translation,
        counting: Counting,
    ) -> Result<ProvedTranslation, Vec<FragmentViolation>> {
        let (proved, blocks, branches) = self.proved(code, translation, counting)?;
        self.blocks.extend(blocks);
        self.branches.extend(branches);
        Ok(proved)
    }

    /// Proves a translation that may be dropped alone, by the bytes of `code` and what was proved before: nothing that
    /// is proved later may branch to it, but by a lookup.
    ///
    /// # Errors
    /// All violations; nothing is believed of the translation then.
    pub fn prove_apart(
        &mut self,
        code: &dyn CodeBytes,
        translation: Translation,
        counting: Counting,
    ) -> Result<ProvedTranslation, Vec<FragmentViolation>> {
        let (proved, _, _) = self.proved(code, translation, counting)?;
        Ok(proved)
    }

    /// Proves a translation; returns the places of its blocks, and its branches to code that is not translated.
    fn proved(
        &mut self,
        code: &dyn CodeBytes,
        translation: Translation,
        counting: Counting,
    ) -> Result<Proved, Vec<FragmentViolation>> {
        let decoder = Decoder::new(64, &translation.bytes, DecoderOptions::NONE);
        let decoder = RefCell::new(decoder);
        let mut proof = Proof {
            before: self,
            code,
            originals: RefCell::new(None),
            counting,
            recorded: recorded(&translation.recorded),
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

/// Proves that an instruction means the same at another address, but for an operand that is relative to it.
fn may_move(instruction: &Instruction) -> Result<(), FragmentRule> {
    let loads = |register| {
        instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == register
    };
    match instruction.memory_base() == Register::EIP || loads(Register::GS) || loads(Register::SS) {
        true => Err(FragmentRule::NotMovable),
        false => Ok(()),
    }
}

/// A proof under way.
struct Proof<'p> {
    before: &'p FragmentProver,
    code: &'p dyn CodeBytes,
    /// The bytes that were decoded last.
    originals: RefCell<Option<OriginalBytes<'p>>>,
    counting: Counting,
    /// Statements of blocks on their accesses, by their first instruction.
    recorded: Map<Addr, &'p RecordedBlock>,
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
            let known = self.before.blocks.contains_key(&original);
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
        found.or_else(|| self.before.blocks.get(&original)).copied()
    }

    fn is_link(&self, link: &Link) -> bool {
        let displacement = i64::from(i32::from_le_bytes(link.bytes)).cast_unsigned();
        self.before.branches.get(&link.at) == Some(&link.target)
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
        let mut record = match self.begin_record(block) {
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
        let next = self.step(original, place, block, counted)?;
        self.record_after(record, original, next)
    }

    /// Proves that the translation of one original instruction is at a place.
    fn step(
        &mut self,
        original: Addr,
        at: Addr,
        block: &CachedBlock,
        counted: &mut u32,
    ) -> Result<Next, FragmentRule> {
        if let Some(after) = self.counter(original, at, block)? {
            *counted += 1;
            return Ok((original, Some(after)));
        }
        let (instruction, bytes) = self.original(original)?;
        if instruction.is_invalid() {
            return Err(FragmentRule::NoOriginal);
        }
        let next = Addr(instruction.next_ip());
        let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        let target = Addr(instruction.near_branch_target());
        if instruction.code() == Code::Endbr64 {
            return Ok((next, Some(at)));
        }
        if self.records() && uses_thread_bases(&instruction) {
            return self.stepped(original, at).map(|_| (next, None));
        }
        // The same bytes are the same instruction, unless it refers to its address.
        let is_copied = instruction.flow_control() == FlowControl::Next
            && !instruction.is_ip_rel_memory_operand()
            && self.bytes.begin_with(at, bytes);
        if is_copied {
            self.row(at, original, self.state)?;
            may_move(&instruction)?;
            return Ok((next, Some(at.add(bytes.len() as u64))));
        }
        let cached = self.bytes.at(at)?;
        if spills(&cached, Register::RCX) && self.stepped(original, at).is_ok() {
            return Ok((next, None));
        }
        match instruction.flow_control() {
            FlowControl::Next => {
                self.row(at, original, self.state)?;
                may_move(&instruction)?;
                self.is_near_copy((&instruction, bytes), &cached)?;
                Ok((next, Some(Addr(cached.next_ip()))))
            }
            FlowControl::UnconditionalBranch if direct => {
                self.row(at, original, RowState::Exact)?;
                if !is_jump(&cached) {
                    return Err(FragmentRule::WrongTarget);
                }
                self.branch(&cached, target)?;
                Ok((next, None))
            }
            FlowControl::ConditionalBranch if direct => {
                let after = self.conditional(&instruction, &cached, target)?;
                Ok((next, Some(after)))
            }
            FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
                self.row(at, original, RowState::Exact)?;
                let after = self.pushed(at, next)?;
                let jump = self.bytes.at(after)?;
                self.row(after, target, RowState::Exact)?;
                if !is_jump(&jump) {
                    return Err(FragmentRule::WrongTarget);
                }
                self.branch(&jump, target)?;
                Ok((next, None))
            }
            FlowControl::Call if instruction.code() == Code::Syscall => {
                let after = self.system_call(original, at, next)?;
                Ok((next, Some(after)))
            }
            FlowControl::Return if instruction.code() == Code::Retnq => {
                self.returns(original, at)?;
                Ok((next, None))
            }
            FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => {
                self.indirect(&instruction, at, None)?;
                Ok((next, None))
            }
            FlowControl::IndirectCall if instruction.code() == Code::Call_rm64 => {
                self.indirect(&instruction, at, Some(next))?;
                Ok((next, None))
            }
            _ => Err(FragmentRule::NotMovable),
        }
    }

    /// Reads the increment of a counter; `None` if there is none.
    fn counter(
        &self,
        original: Addr,
        at: Addr,
        block: &CachedBlock,
    ) -> Result<Option<Addr>, FragmentRule> {
        let is_increment = |instruction: &Instruction| {
            instruction.code() == Code::Inc_rm64
                && instruction.memory_base() == Register::None
                && instruction.memory_index() == Register::None
                && self
                    .before
                    .layout
                    .counters
                    .contains(Addr(instruction.memory_displacement64()))
        };
        if !self.counting.has_counters() || !self.bytes.may_count(at) {
            return Ok(None);
        }
        let first = self.bytes.at(at)?;
        let saved = || {
            if !spills(&first, Register::RAX) {
                return None;
            }
            let mut read = self.sequence(at, FragmentRule::NotACopy);
            read.store(Register::RAX, -160).ok()?;
            read.bytes(&[0x9f]).ok()?;
            let busy = Addr(first.next_ip());
            read.bytes(&[0x0f, 0x90, 0xc0]).ok()?;
            let increment = read.next().ok().filter(is_increment)?;
            read.bytes(&[0x04, 0x7f]).ok()?;
            read.bytes(&[0x9e]).ok()?;
            read.load(Register::RAX, -160).ok()?;
            Some((increment, busy, read.at))
        };
        let (increment, after) = if is_increment(&first) {
            self.row(at, original, RowState::Exact)?;
            let read = |at| self.original(at).ok().map(|(instruction, _)| instruction);
            if !flags::are_dead(&read, original) {
                return Err(FragmentRule::FlagsLive);
            }
            (first, Addr(first.next_ip()))
        } else if let Some((increment, busy, after)) = saved() {
            self.row(at, original, RowState::Exact)?;
            self.rows((busy, after), original, RowState::Busy)?;
            (increment, after)
        } else {
            return Ok(None);
        };
        let word = block
            .counter
            .and_then(|number| self.before.layout.counter(number));
        if word != Some(Addr(increment.memory_displacement64())) {
            return Err(FragmentRule::ForeignCounter);
        }
        // Without a lock, a prefix is in its place, which the driver replaces when a second thread begins.
        let prefix = self.bytes.of(&increment).and_then(<[u8]>::first);
        let expected = match self.counting {
            Counting::Threads => 0xf0,
            Counting::OneThread | Counting::Off | Counting::Accesses => 0x3e,
        };
        if prefix != Some(&expected) {
            return Err(FragmentRule::Unlocked);
        }
        Ok(Some(after))
    }

    /// Proves that an instruction whose operand is relative to it has the same operand at another place.
    fn is_near_copy(
        &self,
        (instruction, bytes): (&Instruction, &[u8]),
        cached: &Instruction,
    ) -> Result<(), FragmentRule> {
        let copied = self.bytes.of(cached).unwrap_or_default();
        // The operand's address is compared as a whole; its displacement is the only difference of the bytes.
        let alike = instruction.is_ip_rel_memory_operand()
            && instruction == cached
            && bytes.len() == copied.len();
        let mut pairs = bytes.iter().zip(copied);
        let first = pairs.clone().position(|(a, b)| a != b);
        let last = pairs.rposition(|(a, b)| a != b);
        let differing = first.zip(last).map_or(0, |(first, last)| last - first + 1);
        match alike && differing <= 4 {
            true => Ok(()),
            false => Err(FragmentRule::NotACopy),
        }
    }

    /// Proves the target of a branch, and keeps the place of its displacement.
    fn branch(&mut self, branch: &Instruction, target: Addr) -> Result<(), FragmentRule> {
        let to = Addr(branch.near_branch_target());
        if self.place(target) == Some(to) {
            return Ok(());
        }
        if !self.stubs.contains(&(to, target)) {
            self.stub(to, target)?;
            self.stubs.insert((to, target));
        }
        if branch.len() >= 5 {
            let field = Addr(branch.next_ip() - 4);
            self.branches.push((field, target));
        }
        Ok(())
    }

    /// Proves a lookup of a constant.
    fn stub(&self, at: Addr, target: Addr) -> Result<(), FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::WrongTarget);
        read.store(Register::RCX, -152)?;
        read.store(Register::RDX, -144)?;
        let is_wide = self.bytes.at(read.at)?.code() == Code::Mov_r64_imm64;
        if is_wide {
            read.expect(|one| one.op0_register() == Register::RCX && one.immediate(1) == target.0)?;
        } else {
            read.address(Register::RCX, target)?;
        }
        let loaded = read.at;
        self.lookup(&mut read)?;
        self.rows((at, loaded), target, RowState::Exact)?;
        self.rows((loaded, read.at), target, RowState::Busy)
    }

    /// Reads `movzx edx, cx; jmp [recent + rdx*8]`.
    fn lookup(&self, read: &mut SequenceReader<'_>) -> Result<(), FragmentRule> {
        read.bytes(&[0x0f, 0xb7, 0xd1])?;
        let recent = self.before.layout.recent;
        let jump = read.expect(|one| {
            one.code() == Code::Jmp_rm64
                && one.op0_kind() == OpKind::Memory
                && is_word(one, recent, Register::RDX)
        });
        jump.map(drop)
    }

    /// Proves that the agent is stopped for to execute an instruction; returns the end.
    fn stepped(&self, original: Addr, at: Addr) -> Result<Addr, FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::NotMovable);
        read.store(Register::RCX, -152)?;
        read.store(Register::RDX, -144)?;
        read.address(Register::RCX, original)?;
        let loaded = read.at;
        if read.jump()? != self.before.step {
            return Err(FragmentRule::NotMovable);
        }
        self.rows((at, loaded), original, RowState::Exact)?;
        self.rows((loaded, read.at), original, RowState::Busy)?;
        Ok(read.at)
    }

    /// Proves `push qword ptr [constant]`; returns its end.
    fn pushed(&self, at: Addr, next: Addr) -> Result<Addr, FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::WrongReturnAddress);
        let push = read.expect(|one| {
            one.code() == Code::Push_rm64
                && one.op0_kind() == OpKind::Memory
                && one.memory_base() == Register::RIP
                && !one.has_segment_prefix()
        })?;
        let constant = self.bytes.word(Addr(push.ip_rel_memory_address()));
        if constant != Some(next.0) {
            return Err(FragmentRule::WrongReturnAddress);
        }
        Ok(read.at)
    }

    fn conditional(
        &mut self,
        instruction: &Instruction,
        cached: &Instruction,
        target: Addr,
    ) -> Result<Addr, FragmentRule> {
        let (original, at) = (Addr(instruction.ip()), Addr(cached.ip()));
        let next = Addr(instruction.next_ip());
        self.row(at, original, RowState::Exact)?;
        if instruction.is_jcc_short_or_near() {
            let same = cached.is_jcc_short_or_near()
                && cached.condition_code() == instruction.condition_code();
            if !same {
                return Err(FragmentRule::NotACopy);
            }
            self.branch(cached, target)?;
            return Ok(Addr(cached.next_ip()));
        }
        // op +2; jmp +5; jmp target
        let original_bytes = self
            .code
            .code_from(original)
            .and_then(|bytes| bytes.get(..instruction.len()));
        let prefix = |bytes: Option<&[u8]>| {
            bytes
                .and_then(<[u8]>::split_last)
                .map(|(_, rest)| rest.to_vec())
        };
        let same = prefix(original_bytes).is_some()
            && prefix(original_bytes) == prefix(self.bytes.of(cached));
        let skip = self.bytes.at(Addr(cached.next_ip()))?;
        let jump = self.bytes.at(Addr(skip.next_ip()))?;
        let after = Addr(jump.next_ip());
        let formed = cached.near_branch_target() == jump.ip()
            && is_jump(&skip)
            && skip.near_branch_target() == after.0
            && is_jump(&jump);
        if !same || !formed {
            return Err(FragmentRule::NotACopy);
        }
        self.row(Addr(skip.ip()), next, RowState::Exact)?;
        self.row(Addr(jump.ip()), target, RowState::Exact)?;
        self.branch(&jump, target)?;
        Ok(after)
    }

    fn returns(&self, original: Addr, at: Addr) -> Result<(), FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::WrongReturn);
        read.store(Register::RCX, -144)?;
        read.store(Register::RDX, -136)?;
        read.bytes(&[0x59])?;
        let popped = read.at;
        self.lookup(&mut read)?;
        self.rows((at, popped), original, RowState::Exact)?;
        self.rows((popped, read.at), original, RowState::Busy)
    }

    /// Proves an indirect branch, or a call that pushes an address.
    fn indirect(
        &self,
        instruction: &Instruction,
        at: Addr,
        pushes: Option<Addr>,
    ) -> Result<(), FragmentRule> {
        let original = Addr(instruction.ip());
        let below = if pushes.is_some() { 8 } else { 0 };
        let mut read = self.sequence(at, FragmentRule::WrongIndirect);
        read.store(Register::RCX, -152 - below)?;
        read.store(Register::RDX, -144 - below)?;
        read.expect(|mov| {
            let alike = match instruction.op0_kind() {
                OpKind::Register => {
                    mov.op1_kind() == OpKind::Register
                        && mov.op1_register() == instruction.op0_register()
                }
                _ => {
                    mov.op1_kind() == OpKind::Memory
                        && mov.memory_base() == instruction.memory_base()
                        && mov.memory_index() == instruction.memory_index()
                        && mov.memory_index_scale() == instruction.memory_index_scale()
                        && mov.memory_displacement64() == instruction.memory_displacement64()
                        && mov.memory_segment() == instruction.memory_segment()
                }
            };
            mov.code() == Code::Mov_r64_rm64 && mov.op0_register() == Register::RCX && alike
        })?;
        let loaded = read.at;
        self.rows((at, loaded), original, RowState::Exact)?;
        if let Some(next) = pushes {
            read.at = self.pushed(read.at, next)?;
            self.rows((loaded, read.at), original, RowState::Evaluated)?;
        }
        let pushed = read.at;
        self.lookup(&mut read)?;
        self.rows((pushed, read.at), original, RowState::Busy)
    }

    fn system_call(&self, original: Addr, at: Addr, next: Addr) -> Result<Addr, FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::WrongSystemCall);
        let mut watched: Vec<u64> = Vec::new();
        let mut steps: Set<Addr> = Set::default();
        let called = loop {
            let instruction = read.next()?;
            if instruction.code() == Code::Syscall {
                break read.at;
            }
            let number = 0_u64.wrapping_sub(instruction.memory_displacement64()) & 0xffff_ffff;
            let tests = instruction.code() == Code::Lea_r32_m
                && instruction.op0_register() == Register::ECX
                && instruction.memory_base() == Register::RAX
                && instruction.memory_index() == Register::None;
            let branch = read.expect(|instruction| instruction.code() == Code::Jrcxz_rel8_64)?;
            if !tests {
                return Err(FragmentRule::WrongSystemCall);
            }
            watched.push(number);
            steps.insert(Addr(branch.near_branch_target()));
        };
        watched.sort_unstable();
        if watched != WATCHED || steps.len() != 1 {
            return Err(FragmentRule::WrongSystemCall);
        }
        self.rows((at, called), original, RowState::Exact)?;
        read.address(Register::RCX, next)?;
        self.rows((called, read.at), next, RowState::Returned)?;
        let jump_at = read.at;
        let after = read.jump()?;
        self.row(jump_at, next, RowState::Exact)?;
        for step in steps {
            if self.stepped(original, step)? != after {
                return Err(FragmentRule::WrongSystemCall);
            }
        }
        Ok(after)
    }

    fn landing(&mut self, landing: &Landing) -> Result<(), FragmentRule> {
        let original = landing.original;
        let mut read = self.sequence(landing.at, FragmentRule::WrongLanding);
        read.bytes(&[0x48, 0xf7, 0xd1])?;
        read.address(Register::RDX, original.add(1))?;
        read.bytes(&[0x48, 0x8d, 0x0c, 0x11])?;
        let equal = read.expect(|one| one.code() == Code::Jrcxz_rel8_64)?;
        if read.jump()? != self.before.differs || equal.near_branch_target() != read.at.0 {
            return Err(FragmentRule::WrongLanding);
        }
        read.load(Register::RCX, -152)?;
        read.load(Register::RDX, -144)?;
        let end = read.at;
        self.rows((landing.at, end), original, RowState::Busy)?;
        if self.place(original) == Some(end) {
            return Ok(());
        }
        self.row(end, original, RowState::Exact)?;
        let jump = self.bytes.at(end).map_err(|_| FragmentRule::WrongLanding)?;
        let target = is_jump(&jump).then(|| Addr(jump.near_branch_target()));
        if target.is_some() && target == self.place(original) {
            Ok(())
        } else {
            Err(FragmentRule::WrongLanding)
        }
    }
}
