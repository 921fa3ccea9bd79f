//! Proves the translation of one instruction: a copy, a counter before it, a system call, or an exit.

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};

use super::reader::{is_jump, spills};
use super::{FragmentRule, Next, Proof, flags};
use crate::Addr;
use crate::cache::{CachedBlock, Counting, PatchMoment, RowState};
use crate::isa::memory::uses_thread_bases;
use crate::verify::hash::Set;

/// System calls that change mappings, may filter system calls, or return elsewhere (include/uapi/asm/unistd_64.h of Linux):
/// mmap, mprotect, munmap, rt_sigreturn, mremap, shmat, prctl, arch_prctl, remap_file_pages, seccomp, pkey_mprotect.
const WATCHED: [u64; 11] = [9, 10, 11, 15, 25, 30, 157, 158, 216, 317, 329];

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

impl Proof<'_> {
    /// Proves that the translation of one original instruction is at a place.
    pub(super) fn step(
        &mut self,
        original: Addr,
        at: Addr,
        block: &CachedBlock,
        counted: &mut u32,
    ) -> Result<Next, FragmentRule> {
        // After a counter, one is the next block's: nothing stands for an instruction that is left out.
        if *counted == 0
            && let Some(after) = self.counter(original, at, block)?
        {
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
            return self.after_copy(original, next, at);
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
            return self.after_copy(original, next, at.add(bytes.len() as u64));
        }
        let cached = self.bytes.at(at)?;
        // What is executed elsewhere has no patch after it, or on its ways.
        let may_step = !self.has_ways(original);
        if may_step && spills(&cached, Register::RCX) && self.stepped(original, at).is_ok() {
            return Ok((next, None));
        }
        match instruction.flow_control() {
            FlowControl::Next => {
                self.row(at, original, self.state)?;
                may_move(&instruction)?;
                self.is_near_copy((&instruction, bytes), &cached)?;
                self.after_copy(original, next, Addr(cached.next_ip()))
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

    /// Proves what executes after a copied instruction, at a place: its instruments, and then the next one.
    fn after_copy(&mut self, original: Addr, next: Addr, at: Addr) -> Result<Next, FragmentRule> {
        let after = (original, PatchMoment::After);
        let after = self.patched(after, Some(next), at)?;
        Ok((next, Some(after)))
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
            if !flags::are_dead(&read, original, flags::INCREMENTED) {
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
}
