//! Blocks that record their accesses: the recorder's instructions write nothing but the thread's area, change dead flags
//! alone, and hold their value in a register that no instruction of the block names; and each access is the one that the
//! translator states.
//!
//! That the list of an instruction's accesses is complete is the decoder's: it is read here as it is there.

use iced_x86::{Code, Instruction, OpKind, Register};

use super::reader::{SequenceReader, is_jump};
use super::recorded::{ProvedSlot, RecordProof};
use super::violation::FragmentRule;
use super::{Next, Proof, flags};
use crate::Addr;
use crate::cache::{AccessArea, AccessPlace, CachedBlock, RowState};
use crate::isa::RegisterSet;
use crate::isa::memory::{self, MemoryAccess, MemoryPlace};

/// Returns whether an operand is a word of the thread's area.
fn is_word(instruction: &Instruction, pointer: Register, offset: u64) -> bool {
    instruction.memory_base() == pointer
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == offset
        && instruction.memory_segment() == Register::GS
}

fn store(
    read: &mut SequenceReader<'_>,
    (pointer, offset): (Register, u64),
    register: Register,
) -> Result<(), FragmentRule> {
    let stored = read.expect(|one| {
        one.code() == Code::Mov_rm64_r64
            && one.op0_kind() == OpKind::Memory
            && is_word(one, pointer, offset)
            && one.op1_register() == register
    });
    stored.map(drop)
}

fn fetch(
    read: &mut SequenceReader<'_>,
    register: Register,
    offset: u64,
) -> Result<(), FragmentRule> {
    let fetched = read.expect(|one| {
        one.code() == Code::Mov_r64_rm64
            && one.op1_kind() == OpKind::Memory
            && one.op0_register() == register
            && is_word(one, Register::None, offset)
    });
    fetched.map(drop)
}

/// Reads a test of that byte that changes `rcx` and no flag; returns the place for a full area.
fn tested(read: &mut SequenceReader<'_>) -> Result<Addr, FragmentRule> {
    read.expect(|one| {
        one.code() == Code::Movzx_r32_rm8
            && one.op0_register() == Register::ECX
            && one.op1_kind() == OpKind::Memory
            && is_word(one, Register::None, AccessArea::POSITION + 3)
    })?;
    let space = read.expect(|one| one.code() == Code::Jrcxz_rel8_64)?;
    let full = read.jump()?;
    match space.near_branch_target() == read.at.0 {
        true => Ok(full),
        false => Err(read.rule),
    }
}

fn copy(read: &mut SequenceReader<'_>, to: Register, from: Register) -> Result<(), FragmentRule> {
    let copied = read.expect(|one| {
        one.code() == Code::Mov_r64_rm64
            && one.op1_kind() == OpKind::Register
            && one.op0_register() == to
            && one.op1_register() == from
    });
    copied.map(drop)
}

/// The constant that an instruction adds to the stack pointer; `None` if it sets it in another way.
fn added(instruction: &Instruction) -> Option<i64> {
    let to_rsp =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.code() {
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if to_rsp => {
            Some(instruction.immediate(1).cast_signed())
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if to_rsp => {
            Some(instruction.immediate(1).cast_signed().wrapping_neg())
        }
        Code::Lea_r64_m
            if to_rsp
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            Some(instruction.memory_displacement64().cast_signed())
        }
        Code::Push_r64
        | Code::Push_rm64
        | Code::Pushq_imm8
        | Code::Pushq_imm32
        | Code::Pushfq
        | Code::Push_r16
        | Code::Push_rm16
        | Code::Pushfw
        | Code::Enterq_imm16_imm8
        | Code::Pop_r64
        | Code::Pop_rm64
        | Code::Popfq
        | Code::Pop_r16
        | Code::Pop_rm16
        | Code::Popfw
            if !to_rsp || is_push(instruction) =>
        {
            Some(instruction.stack_pointer_increment().into())
        }
        _ => None,
    }
}

fn is_push(instruction: &Instruction) -> bool {
    instruction.stack_pointer_increment() < 0
}

impl<'p> Proof<'p> {
    /// Proves that a block that accesses memory reserves a group; returns the place after that.
    pub(super) fn begin_record(
        &mut self,
        block: &CachedBlock,
        at: Addr,
    ) -> Result<Option<(RecordProof<'p>, Addr)>, FragmentRule> {
        let original = block.original.start;
        let Some(recorded) = self.recorded.get(&original).copied() else {
            return Ok(None);
        };
        let rule = FragmentRule::WrongRecording;
        let pointer = RegisterSet::numbered(usize::from(recorded.pointer));
        let pointer = pointer.unwrap_or(Register::RSP);
        let formed = pointer != Register::RSP
            && recorded.group() + 8 <= AccessArea::SLACK
            && i32::try_from(recorded.number).is_ok_and(|number| number > 0);
        let is_new = self.counters.insert(recorded.number)
            && !self.before.counters.contains(&recorded.number);
        if !formed || !self.records() {
            return Err(rule);
        }
        if !is_new {
            return Err(FragmentRule::ForeignCounter);
        }
        let mut read = self.sequence(at, rule);
        store(&mut read, (Register::None, AccessArea::KEPT), pointer)?;
        let compares = self.bytes.at(read.at)?.code() == Code::Cmp_rm8_imm8;
        let moves = !compares && pointer != Register::RCX;
        if moves {
            copy(&mut read, pointer, Register::RCX)?;
        }
        let busy = read.at;
        let full = match compares {
            true => self.compared(&mut read, original)?,
            false => tested(&mut read)?,
        };
        if moves {
            copy(&mut read, Register::RCX, pointer)?;
        }
        fetch(&mut read, pointer, AccessArea::POSITION)?;
        read.expect(|one| {
            one.code() == Code::Mov_rm64_imm32
                && one.op0_kind() == OpKind::Memory
                && is_word(one, pointer, 0)
                && one.immediate(1) == u64::from(recorded.number)
        })?;
        read.expect(|one| {
            one.code() == Code::Lea_r64_m
                && one.op0_register() == pointer
                && one.memory_base() == pointer
                && one.memory_index() == Register::None
                && one.memory_displacement64() == recorded.group()
        })?;
        store(&mut read, (Register::None, AccessArea::POSITION), pointer)?;
        if recorded.from != read.at {
            return Err(rule);
        }
        self.rows((block.at, busy), original, RowState::Exact)?;
        self.rows((busy, read.at), original, RowState::Busy)?;
        self.full(original, full, (pointer, moves))?;
        self.state = RowState::Recording(recorded.pointer);
        let proof = RecordProof {
            block: recorded,
            pointer,
            accesses: 0,
            instructions: 0,
            exits: 0,
            slots: 0,
            known: Vec::new(),
            later: Vec::new(),
            is_over: false,
        };
        Ok(Some((proof, read.at)))
    }

    /// Proves a comparison of the byte of the area that is 0 while it is not full, where all flags are dead; returns the
    /// place for a full one.
    fn compared(
        &self,
        read: &mut SequenceReader<'_>,
        original: Addr,
    ) -> Result<Addr, FragmentRule> {
        read.expect(|one| {
            one.code() == Code::Cmp_rm8_imm8
                && one.op0_kind() == OpKind::Memory
                && is_word(one, Register::None, AccessArea::POSITION + 3)
                && one.immediate(1) == 0
        })?;
        let full = read.expect(|one| one.code() == Code::Jne_rel32_64)?;
        let decoded = |at| self.original(at).ok().map(|(instruction, _)| instruction);
        match flags::are_dead(&decoded, original, flags::COMPARED) {
            true => Ok(Addr(full.near_branch_target())),
            false => Err(FragmentRule::FlagsLive),
        }
    }

    /// Proves the stop of a thread whose area is full, with the registers of the original code.
    fn full(
        &self,
        original: Addr,
        at: Addr,
        (pointer, moved): (Register, bool),
    ) -> Result<(), FragmentRule> {
        let mut read = self.sequence(at, FragmentRule::WrongRecording);
        if moved {
            copy(&mut read, Register::RCX, pointer)?;
        }
        fetch(&mut read, pointer, AccessArea::KEPT)?;
        let restored = read.at;
        read.store(Register::RCX, -152)?;
        read.store(Register::RDX, -144)?;
        read.address(Register::RCX, original)?;
        let loaded = read.at;
        if read.jump()? != self.before.dropped {
            return Err(FragmentRule::WrongRecording);
        }
        self.rows((at, restored), original, RowState::Busy)?;
        self.rows((restored, loaded), original, RowState::Exact)?;
        self.rows((loaded, read.at), original, RowState::Busy)
    }

    /// Proves that an instruction that does not record has nothing to record.
    pub(super) fn records_nothing(&mut self, original: Addr) -> Result<(), FragmentRule> {
        let Ok((instruction, _)) = self.original(original) else {
            return Ok(());
        };
        match self.records() && !memory::accesses(&mut self.factory, &instruction).is_empty() {
            true => Err(FragmentRule::AccessMissing),
            false => Ok(()),
        }
    }

    /// Proves the slots of an instruction, and the restored pointer if its block ends; returns the instruction's place.
    pub(super) fn record_before(
        &mut self,
        record: &mut RecordProof<'p>,
        original: Addr,
        at: Addr,
    ) -> Result<Addr, FragmentRule> {
        let rule = FragmentRule::WrongRecording;
        let (instruction, _) = self.original(original)?;
        if record.block.instructions.get(record.instructions) != Some(&original) {
            return Err(rule);
        }
        let mut read = self.sequence(at, rule);
        let accesses = memory::accesses(&mut self.factory, &instruction);
        if record.is_over && !accesses.is_empty() {
            return Err(rule);
        }
        let mut repeated = Vec::new();
        for access in accesses {
            let copied = slot(record, access, &mut read)?;
            repeated.extend(copied);
        }
        let names = memory::named(&mut self.factory, &instruction);
        let is_free = !names.contains(record.pointer);
        let mut restored = read;
        if !record.is_over && restore(record, &mut restored).is_ok() {
            read = restored;
            record.is_over = true;
            self.state = RowState::Exact;
        } else if !record.is_over && !is_free {
            return Err(FragmentRule::RecorderNamed);
        }
        if read.at > at {
            self.rows((at, read.at), original, record.state())?;
        }
        match repeated.iter().all(|copied| *copied == read.at) {
            true => Ok(read.at),
            false => Err(rule),
        }
    }

    /// Proves a conditional branch while the pointer is held: where it is taken, the group notes the instructions that
    /// were executed, and the pointer is restored. `None` if the instruction is none.
    pub(super) fn exit(
        &mut self,
        record: &mut RecordProof<'p>,
        original: Addr,
        at: Addr,
    ) -> Result<Option<Next>, FragmentRule> {
        let rule = FragmentRule::WrongRecording;
        let (instruction, _) = self.original(original)?;
        if record.is_over || !instruction.is_jcc_short_or_near() {
            return Ok(None);
        }
        let cached = self.bytes.at(at)?;
        let same = cached.is_jcc_short_or_near()
            && cached.condition_code() == instruction.condition_code();
        if !same {
            return Err(FragmentRule::NotACopy);
        }
        self.row(at, original, record.state())?;
        let (start, target) = (
            Addr(cached.near_branch_target()),
            Addr(instruction.near_branch_target()),
        );
        let stated = record.block.exits.get(record.exits).ok_or(rule)?;
        let executed = u64::from(stated.executed);
        if stated.at != start || usize::try_from(stated.executed) != Ok(record.instructions + 1) {
            return Err(rule);
        }
        record.exits += 1;
        let mut read = self.sequence(start, rule);
        let upper = record.block.group().wrapping_sub(4).wrapping_neg();
        read.expect(|one| {
            one.code() == Code::Mov_rm32_imm32
                && one.op0_kind() == OpKind::Memory
                && is_word(one, record.pointer, upper)
                && one.immediate(1) == executed + 1
        })?;
        restore(record, &mut read)?;
        self.rows((start, read.at), target, record.state())?;
        self.row(read.at, target, RowState::Exact)?;
        let jump = self.bytes.at(read.at)?;
        if !is_jump(&jump) {
            return Err(rule);
        }
        self.branch(&jump, target)?;
        let next = (Addr(instruction.next_ip()), Some(Addr(cached.next_ip())));
        Ok(Some(next))
    }

    /// Proves the slots after an instruction; returns what follows in the cache.
    pub(super) fn record_after(
        &mut self,
        record: &mut RecordProof<'p>,
        original: Addr,
        (next, after): Next,
    ) -> Result<Next, FragmentRule> {
        record.instructions += 1;
        let later = std::mem::take(&mut record.later);
        let Some(at) = after else {
            return match later.is_empty() {
                true => Ok((next, None)),
                false => Err(FragmentRule::WrongRecording),
            };
        };
        if record.is_over {
            return match later.is_empty() {
                true => Ok((next, Some(at))),
                false => Err(FragmentRule::WrongRecording),
            };
        }
        let mut read = self.sequence(at, FragmentRule::WrongRecording);
        for (slot, register) in later {
            store(&mut read, (record.pointer, record.offset(slot)), register)?;
        }
        if read.at > at {
            self.rows((at, read.at), next, record.state())?;
        }
        let (instruction, _) = self.original(original)?;
        let mut written = memory::written(&mut self.factory, &instruction);
        if written.contains(Register::RSP)
            && let Some(bytes) = added(&instruction)
        {
            written.remove(Register::RSP);
            let stack = record.known.iter_mut();
            for one in stack.filter(|one| one.register == Register::RSP) {
                one.moved = one.moved.wrapping_add(bytes);
            }
        }
        record.known.retain(|one| !written.contains(one.register));
        Ok((next, Some(read.at)))
    }

    /// Proves the end of a block; returns the place after it, if it falls through at an address.
    pub(super) fn end_record(
        &mut self,
        mut record: RecordProof<'p>,
        falls_through: Option<(Addr, Addr)>,
    ) -> Result<Option<Addr>, FragmentRule> {
        let rule = FragmentRule::WrongRecording;
        let mut end = None;
        if let Some((original, at)) = falls_through {
            let mut read = self.sequence(at, rule);
            if !record.is_over {
                restore(&record, &mut read)?;
                self.rows((at, read.at), original, record.state())?;
                record.is_over = true;
            }
            end = Some(read.at);
        }
        self.state = RowState::Exact;
        let is_whole = record.is_over
            && record.accesses == record.block.accesses.len()
            && record.instructions == record.block.instructions.len()
            && record.exits == record.block.exits.len()
            && record.slots == record.block.slots
            && end.is_none_or(|end| end == record.block.end);
        match is_whole {
            true => Ok(end),
            false => Err(rule),
        }
    }
}

/// Reads the instruction that restores the pointer.
fn restore(record: &RecordProof<'_>, read: &mut SequenceReader<'_>) -> Result<(), FragmentRule> {
    fetch(read, record.pointer, AccessArea::KEPT)
}

/// Proves an access; returns the place that is stated of an instruction that repeats.
fn slot(
    record: &mut RecordProof<'_>,
    access: MemoryAccess,
    read: &mut SequenceReader<'_>,
) -> Result<Option<Addr>, FragmentRule> {
    let rule = FragmentRule::WrongRecording;
    let stated = record.block.accesses.get(record.accesses).ok_or(rule)?;
    record.accesses += 1;
    let alike = usize::try_from(stated.instruction) == Ok(record.instructions)
        && (stated.reads, stated.writes) == (access.reads, access.writes)
        && stated.size == access.size;
    if !alike {
        return Err(rule);
    }
    let is_right = match (access.place, stated.place) {
        (
            MemoryPlace::Constant { at, thread },
            AccessPlace::Constant {
                at: stated_at,
                thread: stated_thread,
            },
        ) => (at, thread) == (stated_at, stated_thread),
        (MemoryPlace::Unknown, AccessPlace::Unknown) => true,
        (
            MemoryPlace::Repeated(register),
            AccessPlace::Repeated {
                first,
                after,
                register: number,
                copied,
            },
        ) => {
            if record.holds(register) {
                return Err(FragmentRule::RecorderNamed);
            }
            store(
                read,
                (record.pointer, record.offset(record.slots)),
                register,
            )?;
            let is_right = first == record.slots
                && after == record.slots + 1
                && register.number() == usize::from(number);
            record.later.push((after, register));
            record.slots += 2;
            return if is_right {
                Ok(Some(copied))
            } else {
                Err(rule)
            };
        }
        (
            MemoryPlace::Operand(operand, displacement),
            AccessPlace::Sum {
                base,
                index,
                displacement: stated_displacement,
                thread,
            },
        ) => {
            let (index, scale) = index.unzip();
            let moved = register(record, operand.base, base, read)?;
            let index_moved = register(record, operand.index, index, read)?;
            scale.is_none_or(|scale| scale == operand.scale)
                && index_moved == 0
                && thread == operand.thread
                && stated_displacement == displacement.wrapping_add(moved)
        }
        _ => false,
    };
    if is_right { Ok(None) } else { Err(rule) }
}

/// Proves that a slot, which an instruction may store before the next access, has a register of an operand, or that the
/// operand has none; returns the bytes that were added to the register since.
fn register(
    record: &mut RecordProof<'_>,
    register: Register,
    slot: Option<u32>,
    read: &mut SequenceReader<'_>,
) -> Result<i64, FragmentRule> {
    let rule = FragmentRule::WrongRecording;
    let Some(slot) = slot else {
        return match register {
            Register::None => Ok(0),
            _ => Err(rule),
        };
    };
    if slot == record.slots {
        if record.holds(register) {
            return Err(FragmentRule::RecorderNamed);
        }
        store(read, (record.pointer, record.offset(slot)), register)?;
        record.slots += 1;
        record.known.push(ProvedSlot {
            slot,
            register,
            moved: 0,
        });
    }
    let same = |one: &&ProvedSlot| one.slot == slot && one.register == register;
    let known = record.known.iter().find(same).ok_or(rule)?;
    Ok(known.moved)
}
