//! Emits the translation of one request: blocks, their transfers, and the stubs and landings after them.

use iced_x86::{Code, Instruction, InstructionInfoFactory, MemoryOperand, OpKind, Register};
use rustc_hash::FxHashMap;

use super::super::CodeBytes;
use super::super::accesses::RecordPlan;
use super::super::blocks::{DecodedBlock, DecodedBlocks, DecodedInstruction};
use super::super::dead::{FlagReader, INCREMENTED};
use super::super::emit::{CodeBuffer, Field, KEPT, RCX, RDX};
use super::super::flow::{FlowKind, reaches};
use super::super::instruments::not_copied;
use super::super::pending::{FullArea, PendingExit, PendingPatch, PendingWay};
use super::super::regions::{Known, RegionBlocks};
use super::super::rows::RowState;
use super::super::translation::{CachedBlock, Counting, Landing, PatchMoment, Translation};
use super::Translator;
use crate::ids::{part, to_u32};
use crate::isa::effect::STATUS;
use crate::{Addr, Refusal, Rule, Span};

/// The system calls that may change code or the bases of segments, filter system calls, or return to another address
/// (`arch/x86/entry/syscalls/syscall_64.tbl` of Linux): the agent looks on.
const WATCHED: [i32; 11] = [
    9,   // mmap
    10,  // mprotect
    11,  // munmap
    15,  // rt_sigreturn
    25,  // mremap
    30,  // shmat
    157, // prctl
    158, // arch_prctl
    216, // remap_file_pages
    317, // seccomp
    329, // pkey_mprotect
];

/// One request in the making.
pub(in crate::cache) struct TranslationWork<'w> {
    pub(in crate::cache) translator: &'w Translator,
    /// Blocks of the region that were translated before.
    pub(super) region: &'w RegionBlocks,
    pub(in crate::cache) code: &'w dyn CodeBytes,
    pub(super) flags: FlagReader<'w>,
    pub(in crate::cache) out: CodeBuffer,
    pub(super) known: FxHashMap<Addr, Known>,
    /// Displacements of branches, with their original targets.
    pub(super) branches: Vec<(Field, Addr)>,
    /// Displacements of operands that read an address.
    pub(super) constants: Vec<(Field, Addr)>,
    /// Branches that are taken where the thread's area is full.
    pub(in crate::cache) full: Vec<FullArea>,
    /// Conditional branches after which a block that records its accesses continues.
    pub(in crate::cache) exits: Vec<PendingExit>,
    /// Branches to patches.
    pub(in crate::cache) patched: Vec<PendingPatch>,
    /// Conditional branches with instruments on the way that they take.
    pub(in crate::cache) ways: Vec<PendingWay>,
    /// The registers before the instruction that is copied next.
    pub(in crate::cache) state: RowState,
    pub(in crate::cache) factory: InstructionInfoFactory,
    /// Counters that its blocks have.
    pub(super) counted: u32,
    pub(in crate::cache) done: Translation,
}

/// The opcode of a conditional branch with a displacement of 32 bits.
pub(in crate::cache) fn conditional(instruction: &Instruction) -> [u8; 2] {
    // iced numbers conditions from 1 in the order of the opcodes' low four bits.
    let condition = (instruction.condition_code() as u8).saturating_sub(1);
    [0x0f, 0x80 | condition]
}

/// A request that is done: its known addresses, its branches to others, and the number of its counters.
pub(super) type Done = (Translation, FxHashMap<Addr, Known>, Vec<(Addr, Addr)>, u32);

impl TranslationWork<'_> {
    pub(super) fn blocks(&mut self, discovered: &DecodedBlocks) -> Result<(), Refusal> {
        // Where a block ends without a branch, the next one follows, or a jump to it.
        let mut later = discovered.blocks.as_slice();
        while let Some((block, after)) = later.split_first() {
            later = after;
            if discovered.returned.contains(&block.start) {
                self.landing(block.start)?;
            }
            let next = self.block(block, discovered.decoded(block), later)?;
            if let Some(next) = next {
                let follows = later.first().is_some_and(|block| block.start == next)
                    && !discovered.returned.contains(&next);
                if !follows {
                    self.out.row(next, RowState::Exact);
                    self.branch(&[0xe9], next);
                }
            }
        }
        Ok(())
    }

    /// Emits a block; `later` are those that follow it, in order. Returns the original address that it falls through to.
    fn block(
        &mut self,
        block: &DecodedBlock,
        decoded: &[DecodedInstruction],
        later: &[DecodedBlock],
    ) -> Result<Option<Addr>, Refusal> {
        let leader = block.start;
        let at = self.out.here();
        let landing = self.done.landings.last();
        let landing = landing.is_some_and(|landing| landing.original == leader);
        self.known.insert(leader, Known { at, landing });
        if self.is_instrumented(leader, PatchMoment::Before) {
            self.branch_to_patch((leader, PatchMoment::Before), None);
        }
        let bytes = self.code.code_from(leader).unwrap_or_default();
        // The next block may begin before the last of them.
        let mut starts = self.region.starts.near(leader);
        let mut later = later.iter().map(|block| block.start).peekable();
        let mut begins = |at: Addr| {
            while later.next_if(|one| *one < at).is_some() {}
            later.peek() == Some(&at) || starts.contains(at)
        };
        let following = decoded.iter().skip(1);
        let count = following
            .clone()
            .position(|one| begins(one.at()))
            .map_or(decoded.len(), |position| position + 1);
        let instructions = part(decoded, 0..count);
        let last = instructions.last().copied();
        let end = last.map_or(leader, |last| last.next());
        // What follows is another block, or no instruction.
        let ends = last.is_some_and(|last| !last.flow.is_sequential());
        let is_next = ends || count < decoded.len() || count > 0 && begins(end);
        let undecodable = (!block.continues && !is_next).then_some(end);
        let counter = match instructions {
            [] => None,
            _ => self.counter()?,
        };
        let point = counter.map(|_| self.point(instructions));
        let plan = match self.translator.counting {
            Counting::Accesses => RecordPlan::new(&mut self.factory, instructions),
            _ => None,
        };
        let mut recording = match plan {
            Some(plan) => Some(self.begin_recording(plan, instructions)?),
            None => None,
        };
        for (number, decoded) in instructions.iter().enumerate() {
            if let Some(recording) = &mut recording {
                self.record_before(recording, number, decoded)?;
            }
            let counts = counter
                .zip(point)
                .filter(|&(_, (position, _))| position == number);
            if let Some((counter, (_, saves))) = counts {
                self.count(decoded.at(), counter, saves);
            }
            match decoded.flow {
                FlowKind::Copied => self.copied(decoded, bytes, leader)?,
                FlowKind::LeftOut => {}
                flow => {
                    if let Some(recording) = &mut recording
                        && self.record_exit(recording, number, decoded)
                    {
                        continue;
                    }
                    self.out.row(decoded.at(), RowState::Exact);
                    self.transfer(&decoded.instruction, flow)?;
                }
            }
            if let Some(recording) = &recording {
                self.record_after(recording, number, decoded)?;
            }
            if self.is_instrumented(decoded.at(), PatchMoment::After) {
                if !decoded.flow.is_sequential() {
                    return Err(not_copied(decoded.at()));
                }
                self.way((decoded.at(), PatchMoment::After), decoded.next());
            }
        }
        if let Some(recording) = recording {
            self.end_recording(recording, end)?;
        }
        self.done.blocks.push(CachedBlock {
            original: Span { start: leader, end },
            at,
            counter,
            instructions: to_u32(instructions.len()),
        });
        if let Some(at) = undecodable {
            self.out.row(at, RowState::Exact);
            self.step(at)?;
            return Ok(None);
        }
        let falls_through = last.is_none_or(|last| {
            last.flow.is_sequential()
                || matches!(
                    last.flow,
                    FlowKind::Conditional(_) | FlowKind::ShortConditional(_) | FlowKind::SystemCall
                )
        });
        Ok(falls_through.then_some(end))
    }

    fn counter(&mut self) -> Result<Option<u32>, Refusal> {
        if !self.translator.counting.has_counters() {
            return Ok(None);
        }
        let number = self.next_number();
        if self.translator.layout.counter(number).is_none() {
            let why = "the code cache has no more counters";
            return Err(Refusal::new(Rule::CacheFull, self.out.here(), why));
        }
        Ok(Some(number))
    }

    /// Takes the number of a block.
    pub(in crate::cache) fn next_number(&mut self) -> u32 {
        let number = self.translator.counters.after(self.counted);
        self.counted += 1;
        number
    }

    /// Returns the first instruction of a block before which the counter may change flags; else the first, with true.
    fn point(&mut self, instructions: &[DecodedInstruction]) -> (usize, bool) {
        let Some(last) = instructions.last() else {
            return (0, true);
        };
        let mut live = self.flags.after(&last.instruction, last.flow, INCREMENTED);
        let mut point = None;
        for (number, decoded) in instructions.iter().enumerate().rev() {
            // Both may read all flags, whatever their description says.
            live = match decoded.flow {
                FlowKind::SystemCall | FlowKind::Stepped => INCREMENTED,
                _ => FlagReader::before(&decoded.instruction, live),
            };
            if live & INCREMENTED == 0 {
                point = Some(number);
            }
        }
        point.map_or((0, true), |number| (number, false))
    }

    /// Returns whether all status flags are dead where a block begins.
    pub(in crate::cache) fn status_is_dead(&mut self, instructions: &[DecodedInstruction]) -> bool {
        let Some((last, before)) = instructions.split_last() else {
            return false;
        };
        let live =
            |flags: &mut FlagReader<'_>, decoded: &DecodedInstruction, after| match decoded.flow {
                FlowKind::SystemCall | FlowKind::Stepped => STATUS,
                FlowKind::Conditional(_) => {
                    let either = flags.after(&decoded.instruction, decoded.flow, STATUS);
                    FlagReader::before(&decoded.instruction, after | either)
                }
                _ => FlagReader::before(&decoded.instruction, after),
            };
        let after = self.flags.after(&last.instruction, last.flow, STATUS);
        let mut status = live(&mut self.flags, last, after);
        for decoded in before.iter().rev() {
            status = live(&mut self.flags, decoded, status);
        }
        status & STATUS == 0
    }

    /// Emits the increment of a counter.
    fn count(&mut self, original: Addr, counter: u32, saves: bool) {
        let word = self.translator.layout.counter(counter);
        debug_assert!(
            word.is_some(),
            "counter {counter} was numbered without a word"
        );
        let word = word.unwrap_or_default();
        // A lock, or a prefix without an effect in its place.
        let lock = match self.translator.counting {
            Counting::Threads => 0xf0,
            Counting::Off | Counting::OneThread | Counting::Accesses => 0x3e,
        };
        self.out.row(original, RowState::Exact);
        if saves {
            self.out.spill(Register::RAX, KEPT);
            self.out.row(original, RowState::Busy);
            self.out.push(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
        }
        self.out.low(&[lock, 0x48, 0xff, 0x04, 0x25], word); // inc qword ptr [word]
        if saves {
            self.out.push(&[0x04, 0x7f, 0x9e]); // add al, 0x7f; sahf
            self.out.reload(Register::RAX, KEPT);
        }
    }

    /// Copies an instruction of a block, whose bytes begin at `leader`.
    fn copied(
        &mut self,
        decoded: &DecodedInstruction,
        bytes: &[u8],
        leader: Addr,
    ) -> Result<(), Refusal> {
        let at = decoded.at();
        let offset = usize::try_from(at.0 - leader.0).unwrap_or(usize::MAX);
        let original = part(bytes, offset..offset + decoded.instruction.len());
        self.out.row(at, self.state);
        match decoded.displacement {
            None => {
                self.out.push(original);
                Ok(())
            }
            Some(field) => {
                let operand = Addr(decoded.instruction.ip_rel_memory_address());
                self.out.copy_near(original, field, operand)
            }
        }
    }

    /// A branch to a translated address, resolved at the end.
    pub(in crate::cache) fn branch(&mut self, opcode: &[u8], target: Addr) {
        let field = self.out.later(opcode);
        self.branches.push((field, target));
    }

    fn transfer(&mut self, instruction: &Instruction, flow: FlowKind) -> Result<(), Refusal> {
        let ip = Addr(instruction.ip());
        let next = Addr(instruction.next_ip());
        match flow {
            FlowKind::Copied | FlowKind::LeftOut => {}
            FlowKind::Jump(to) => self.branch(&[0xe9], to),
            FlowKind::Conditional(to) => {
                self.conditional_branch(&conditional(instruction), ip, to);
                if self.is_instrumented(ip, PatchMoment::Untaken) {
                    self.branch_to_patch((ip, PatchMoment::Untaken), None);
                }
            }
            FlowKind::ShortConditional(to) => self.short_conditional(instruction, to),
            FlowKind::Call(to) => {
                self.push_return(next);
                self.out.row(to, RowState::Exact);
                self.branch(&[0xe9], to);
            }
            FlowKind::Return => {
                self.out.spill(Register::RCX, RCX + 8);
                self.out.spill(Register::RDX, RDX + 8);
                self.out.push(&[0x59]); // pop rcx
                self.out.row(ip, RowState::Busy);
                self.out.jump_recent(self.translator.layout.recent);
            }
            FlowKind::IndirectJump => {
                self.out.spill(Register::RCX, RCX);
                self.out.spill(Register::RDX, RDX);
                self.target(instruction)?;
                self.out.row(ip, RowState::Busy);
                self.out.jump_recent(self.translator.layout.recent);
            }
            FlowKind::IndirectCall => {
                self.out.spill(Register::RCX, RCX - 8);
                self.out.spill(Register::RDX, RDX - 8);
                self.target(instruction)?;
                self.out.row(ip, RowState::Evaluated);
                self.push_return(next);
                self.out.row(ip, RowState::Busy);
                self.out.jump_recent(self.translator.layout.recent);
            }
            FlowKind::SystemCall => self.system_call(ip, next)?,
            FlowKind::Stepped => self.step(ip)?,
        }
        Ok(())
    }

    /// `push qword ptr [constant]`.
    fn push_return(&mut self, next: Addr) {
        let field = self.out.later(&[0xff, 0x35]);
        self.constants.push((field, next));
    }

    /// `mov rcx, operand`, of an indirect branch.
    fn target(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let ip = Addr(instruction.ip());
        let mov = if instruction.op0_kind() == OpKind::Register {
            Instruction::with2(
                Code::Mov_r64_rm64,
                Register::RCX,
                instruction.op0_register(),
            )
        } else {
            let memory = MemoryOperand::new(
                instruction.memory_base(),
                instruction.memory_index(),
                instruction.memory_index_scale(),
                instruction.memory_displacement64().cast_signed(),
                instruction.memory_displ_size(),
                false,
                instruction.segment_prefix(),
            );
            Instruction::with2(Code::Mov_r64_rm64, Register::RCX, memory)
        };
        self.out.encoded(mov, ip)
    }

    fn system_call(&mut self, ip: Addr, next: Addr) -> Result<(), Refusal> {
        // The system call overwrites rcx.
        let mut watched = Vec::new();
        for number in WATCHED {
            self.out.with(&[0x8d, 0x88], -number); // lea ecx, [rax-number]
            self.out.push(&[0xe3, 0]); // jrcxz
            watched.push(self.out.bytes.len());
        }
        self.out.push(&[0x0f, 0x05]); // syscall
        self.out.row(next, RowState::Returned);
        self.out.reach(&[0x48, 0x8d, 0x0d], next)?; // lea rcx, [next]
        self.out.row(next, RowState::Exact);
        let over = self.out.bytes.len() + 2;
        self.out.push(&[0xeb, 0]); // jmp over the step
        for after in watched {
            self.short_to_here(after);
        }
        self.out.row(ip, RowState::Exact);
        self.step(ip)?;
        self.short_to_here(over);
        Ok(())
    }

    /// Has the displacement of eight bits that ends at an offset be that of the next byte.
    pub(in crate::cache) fn short_to_here(&mut self, after: usize) {
        let distance = self.out.bytes.len() - after;
        let place = self.out.bytes.get_mut(after - 1);
        debug_assert!(
            place.is_some() && distance < 128,
            "a short branch is too long"
        );
        if let Some(place) = place {
            *place = u8::try_from(distance).unwrap_or(0x7f);
        }
    }

    /// Spills, and loads an original address into `rcx`.
    pub(in crate::cache) fn load(&mut self, original: Addr) -> Result<(), Refusal> {
        self.out.row(original, RowState::Exact);
        self.out.spill(Register::RCX, RCX);
        self.out.spill(Register::RDX, RDX);
        self.out.reach(&[0x48, 0x8d, 0x0d], original)?; // lea rcx, [original]
        self.out.row(original, RowState::Busy);
        Ok(())
    }

    /// Has the agent execute an instruction.
    fn step(&mut self, original: Addr) -> Result<(), Refusal> {
        self.load(original)?;
        self.out.reach(&[0xe9], self.translator.resident.step)
    }

    /// The landing of an address, whose block follows.
    fn landing(&mut self, original: Addr) -> Result<(), Refusal> {
        self.done.landings.push(Landing {
            original,
            at: self.out.here(),
        });
        self.out.row(original, RowState::Busy);
        self.out.push(&[0x48, 0xf7, 0xd1]); // not rcx
        self.out.reach(&[0x48, 0x8d, 0x15], original.add(1))?; // lea rdx, [original+1]
        self.out.push(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx+rdx]
        self.out.push(&[0xe3, 5]); // jrcxz
        self.out.reach(&[0xe9], self.translator.resident.differs)?;
        self.out.reload(Register::RCX, RCX);
        self.out.reload(Register::RDX, RDX);
        self.out.row(original, RowState::Exact);
        Ok(())
    }

    /// The landing of an address, unless it has one, and a jump to its block.
    pub(super) fn landing_apart(&mut self, original: Addr) -> Result<(), Refusal> {
        let in_map = |map: &FxHashMap<Addr, Known>| map.get(&original).copied();
        let block = in_map(&self.known).or_else(|| in_map(&self.region.known));
        if block.is_some_and(|block| block.landing) {
            return Ok(());
        }
        self.landing(original)?;
        self.branch(&[0xe9], original);
        if let Some(block) = block {
            let landed = Known {
                landing: true,
                ..block
            };
            self.known.insert(original, landed);
        }
        Ok(())
    }

    fn translated(&self, original: Addr) -> Option<Addr> {
        let known = self.known.get(&original);
        let known = known.or_else(|| self.region.known.get(&original));
        known.map(|known| known.at)
    }

    /// Resolves all branches: to blocks, or to stubs that look their target up.
    pub(super) fn finish(mut self) -> Result<Done, Refusal> {
        let mut unlinked = Vec::new();
        let mut stubs: FxHashMap<Addr, Addr> = FxHashMap::default();
        self.exit_stubs()?;
        self.instrumented_ways()?;
        for (field, target) in std::mem::take(&mut self.branches) {
            let translation = self.translated(target);
            let at = match translation.or_else(|| stubs.get(&target).copied()) {
                Some(at) => at,
                None => {
                    let at = self.out.here();
                    stubs.insert(target, at);
                    self.stub(target)?;
                    at
                }
            };
            if translation.is_none() {
                unlinked.push((target, self.out.start.add(field.at as u64)));
            }
            self.out.resolve(field, at)?;
        }
        self.full_stubs()?;
        self.out.align(8);
        let mut constants: FxHashMap<Addr, Addr> = FxHashMap::default();
        for (field, value) in std::mem::take(&mut self.constants) {
            let at = *constants.entry(value).or_insert_with(|| {
                let at = self.out.here();
                self.out.push(&value.0.to_le_bytes());
                at
            });
            self.out.resolve(field, at)?;
        }
        self.patches()?;
        self.done.bytes = self.out.bytes;
        self.done.rows = self.out.rows;
        Ok((self.done, self.known, unlinked, self.counted))
    }

    /// Looks up a target that is not translated, or out of reach.
    fn stub(&mut self, target: Addr) -> Result<(), Refusal> {
        if reaches(self.translator.arena, target) {
            self.load(target)?;
        } else {
            self.out.row(target, RowState::Exact);
            self.out.spill(Register::RCX, RCX);
            self.out.spill(Register::RDX, RDX);
            self.out.push(&[0x48, 0xb9]); // mov rcx, target
            self.out.push(&target.0.to_le_bytes());
            self.out.row(target, RowState::Busy);
        }
        self.out.jump_recent(self.translator.layout.recent);
        Ok(())
    }
}
