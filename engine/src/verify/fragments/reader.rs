//! Reads instructions of translated code, and recognises those that sequences are made of.

use std::cell::RefCell;

use iced_x86::{Code, Decoder, Instruction, OpKind, Register};

use super::violation::FragmentRule;
use crate::{Addr, Span};

/// Bytes at an address.
#[derive(Clone, Copy)]
pub(super) struct CachedBytes<'b> {
    start: Addr,
    bytes: &'b [u8],
    /// Making a decoder takes longer than decoding an instruction.
    decoder: &'b RefCell<Decoder<'b>>,
}

impl<'b> CachedBytes<'b> {
    /// Takes a decoder of the same bytes.
    pub(super) fn new(start: Addr, bytes: &'b [u8], decoder: &'b RefCell<Decoder<'b>>) -> Self {
        Self {
            start,
            bytes,
            decoder,
        }
    }

    fn rest(&self, at: Addr) -> Option<&'b [u8]> {
        let offset = usize::try_from(at.0.checked_sub(self.start.0)?).ok()?;
        self.bytes.get(offset..).filter(|rest| !rest.is_empty())
    }

    /// Decodes the instruction at an address.
    pub(super) fn at(&self, at: Addr) -> Result<Instruction, FragmentRule> {
        let rest = self.rest(at).ok_or(FragmentRule::Undecodable)?;
        let mut decoder = self.decoder.borrow_mut();
        let offset = self.bytes.len() - rest.len();
        let positioned = decoder.set_position(offset);
        positioned.map_err(|_| FragmentRule::Undecodable)?;
        decoder.set_ip(at.0);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(FragmentRule::Undecodable);
        }
        Ok(instruction)
    }

    /// The bytes of an instruction.
    pub(super) fn of(&self, instruction: &Instruction) -> Option<&'b [u8]> {
        self.rest(Addr(instruction.ip()))?.get(..instruction.len())
    }

    /// Returns whether the bytes at an address begin with some.
    pub(super) fn begin_with(&self, at: Addr, bytes: &[u8]) -> bool {
        self.rest(at).is_some_and(|rest| rest.starts_with(bytes))
    }

    /// Returns whether the bytes at an address may be those of a counter: `inc qword ptr [word]` after a prefix, or a
    /// store below the stack pointer.
    pub(super) fn may_count(&self, at: Addr) -> bool {
        let bytes = self.rest(at).unwrap_or_default();
        matches!(
            bytes,
            [_, 0x48, 0xff, 0x04, 0x25, ..] | [0x48, 0x89, 0x84, 0x24, ..]
        )
    }

    /// The bytes of a span.
    pub(super) fn span(&self, span: Span) -> Option<&'b [u8]> {
        let length = usize::try_from(span.len()).ok()?;
        self.rest(span.start)?.get(..length)
    }

    /// The word of 64 bits at an address.
    pub(super) fn word(&self, at: Addr) -> Option<u64> {
        Some(u64::from_le_bytes(*self.rest(at)?.first_chunk()?))
    }
}

/// A sequence that is being read.
#[derive(Clone, Copy)]
pub(super) struct SequenceReader<'b> {
    pub(super) bytes: CachedBytes<'b>,
    pub(super) at: Addr,
    /// The rule that the sequence breaks if an instruction is another.
    pub(super) rule: FragmentRule,
}

impl SequenceReader<'_> {
    /// Reads the next instruction.
    pub(super) fn next(&mut self) -> Result<Instruction, FragmentRule> {
        let instruction = self.bytes.at(self.at).map_err(|_| self.rule)?;
        self.at = Addr(instruction.next_ip());
        Ok(instruction)
    }

    /// Reads the next instruction, which must be as expected.
    pub(super) fn expect(
        &mut self,
        expected: impl FnOnce(&Instruction) -> bool,
    ) -> Result<Instruction, FragmentRule> {
        let instruction = self.next()?;
        let plain = !instruction.has_lock_prefix()
            && !instruction.has_rep_prefix()
            && !instruction.has_repne_prefix();
        if plain && expected(&instruction) {
            Ok(instruction)
        } else {
            Err(self.rule)
        }
    }

    /// Reads `mov [rsp+place], register`.
    pub(super) fn store(&mut self, register: Register, place: i64) -> Result<(), FragmentRule> {
        self.expect(|one| {
            one.code() == Code::Mov_rm64_r64
                && is_place(one, place)
                && one.op1_register() == register
        })
        .map(drop)
    }

    /// Reads `mov register, [rsp+place]`.
    pub(super) fn load(&mut self, register: Register, place: i64) -> Result<(), FragmentRule> {
        self.expect(|one| {
            one.code() == Code::Mov_r64_rm64
                && is_place(one, place)
                && one.op0_register() == register
        })
        .map(drop)
    }

    /// Reads an instruction without operands in memory, by its bytes.
    pub(super) fn bytes(&mut self, expected: &[u8]) -> Result<(), FragmentRule> {
        let instruction = self.next()?;
        if self.bytes.of(&instruction) == Some(expected) {
            Ok(())
        } else {
            Err(self.rule)
        }
    }

    /// Reads `lea register, [address]`, relative to the instruction.
    pub(super) fn address(
        &mut self,
        register: Register,
        address: Addr,
    ) -> Result<(), FragmentRule> {
        self.expect(|one| {
            one.code() == Code::Lea_r64_m
                && one.op0_register() == register
                && one.memory_base() == Register::RIP
                && one.ip_rel_memory_address() == address.0
        })
        .map(drop)
    }

    /// Reads a `jmp` with a displacement; returns its target.
    pub(super) fn jump(&mut self) -> Result<Addr, FragmentRule> {
        let jump = self.expect(is_jump)?;
        Ok(Addr(jump.near_branch_target()))
    }
}

/// Returns whether it is a direct `jmp`.
pub(super) fn is_jump(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Jmp_rel32_64 | Code::Jmp_rel8_64)
}

/// Returns whether an instruction may begin a sequence that spills `rcx` or, for a counter, `rax`.
pub(super) fn spills(instruction: &Instruction, register: Register) -> bool {
    instruction.code() == Code::Mov_rm64_r64
        && instruction.op1_register() == register
        && instruction.memory_base() == Register::RSP
}

/// Returns whether its operand in memory is at a distance from the stack pointer, and in no other segment.
fn is_place(instruction: &Instruction, place: i64) -> bool {
    instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64().cast_signed() == place
        && !instruction.has_segment_prefix()
        && (instruction.op0_kind() == OpKind::Memory || instruction.op1_kind() == OpKind::Memory)
}

/// Returns whether its operand in memory is a word at a fixed address, with an index of eight bytes or none.
pub(super) fn is_word(instruction: &Instruction, at: Addr, index: Register) -> bool {
    instruction.memory_base() == Register::None
        && instruction.memory_index() == index
        && (index == Register::None || instruction.memory_index_scale() == 8)
        && instruction.memory_displacement64() == at.0
        && matches!(instruction.memory_segment(), Register::DS | Register::SS)
}
