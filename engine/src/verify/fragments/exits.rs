//! Proves exits of a block: branches and their stubs, lookups of returns and indirect branches, landings, and stops for
//! an instruction that the agent executes.

use iced_x86::{Code, Instruction, OpKind, Register};

use super::reader::{SequenceReader, is_jump, is_word};
use super::{FragmentRule, Proof};
use crate::Addr;
use crate::cache::{Landing, PatchMoment, RowState};

impl Proof<'_> {
    /// Proves the target of a branch, and keeps the place of its displacement.
    pub(super) fn branch(
        &mut self,
        branch: &Instruction,
        target: Addr,
    ) -> Result<(), FragmentRule> {
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
    pub(super) fn stepped(&self, original: Addr, at: Addr) -> Result<Addr, FragmentRule> {
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
    pub(super) fn pushed(&self, at: Addr, next: Addr) -> Result<Addr, FragmentRule> {
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

    pub(super) fn conditional(
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
            if self.is_instrumented(original, PatchMoment::Taken) {
                let way = Addr(cached.near_branch_target());
                let after = self.patched((original, PatchMoment::Taken), None, way)?;
                let jump = self.bytes.at(after)?;
                self.row(after, target, RowState::Exact)?;
                if !is_jump(&jump) {
                    return Err(FragmentRule::WrongTarget);
                }
                self.branch(&jump, target)?;
            } else {
                self.branch(cached, target)?;
            }
            let way = (original, PatchMoment::Untaken);
            return self.patched(way, None, Addr(cached.next_ip()));
        }
        // op to the taken way; jmp over it; jmp target. The branch may have changed rcx on both ways.
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
        let untaken = (original, PatchMoment::Untaken);
        let untaken = self.patched(untaken, Some(next), Addr(cached.next_ip()))?;
        let skip = self.bytes.at(untaken)?;
        let taken = (original, PatchMoment::Taken);
        let way = Addr(skip.next_ip());
        let taken = self.patched(taken, Some(target), way)?;
        let jump = self.bytes.at(taken)?;
        let after = Addr(jump.next_ip());
        let formed = cached.near_branch_target() == way.0
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

    pub(super) fn returns(&self, original: Addr, at: Addr) -> Result<(), FragmentRule> {
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
    pub(super) fn indirect(
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

    pub(super) fn landing(&mut self, landing: &Landing) -> Result<(), FragmentRule> {
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
