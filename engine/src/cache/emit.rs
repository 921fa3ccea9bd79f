//! The bytes of translated code: encodings of the fixed sequences, and branches that are resolved at the end.

use iced_x86::{Encoder, Instruction, Register};

use super::rows::{CacheRow, RowState};
use crate::isa::encode::rel32;
use crate::isa::number_of;
use crate::{Addr, Refusal, Rule};

/// Places of registers that sequences keep, in bytes from the stack pointer at the target: below the red zone.
pub(super) const RCX: i32 = -152;
pub(super) const RDX: i32 = -144;
/// Place of the register that a sequence without a lookup keeps.
pub(super) const KEPT: i32 = -160;

/// A displacement of 32 bits that is resolved once its target is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Offset of its first byte.
    pub(super) at: usize,
}

/// Translated code in the making.
pub(super) struct CodeBuffer {
    pub(super) start: Addr,
    pub(super) bytes: Vec<u8>,
    pub(super) rows: Vec<CacheRow>,
    /// Made when it is first needed.
    encoder: Option<Encoder>,
}

impl CodeBuffer {
    /// An empty buffer with space for the translation of some instructions.
    pub(super) fn new(start: Addr, instructions: usize) -> Self {
        Self {
            start,
            bytes: Vec::with_capacity(16 * instructions),
            rows: Vec::with_capacity(2 * instructions),
            encoder: None,
        }
    }

    pub(super) fn here(&self) -> Addr {
        self.start.add(self.bytes.len() as u64)
    }

    /// Begins a row at the next byte, unless the row before says the same.
    pub(super) fn row(&mut self, original: Addr, state: RowState) {
        self.row_at(0, original, state);
    }

    /// Begins a row some bytes after the next one, as [`row`](Self::row).
    pub(super) fn row_at(&mut self, after: usize, original: Addr, state: RowState) {
        let at = self.here().add(after as u64);
        let last = self.rows.last();
        if last.is_some_and(|row| row.at == at) {
            self.rows.pop();
        }
        let same = |row: &CacheRow| row.original == original && row.state == state;
        if !self.rows.last().is_some_and(same) {
            self.rows.push(CacheRow {
                at,
                original,
                state,
            });
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes, then a number of 32 bits.
    pub(super) fn with(&mut self, bytes: &[u8], number: i32) {
        self.push(bytes);
        self.push(&number.to_le_bytes());
    }

    /// Bytes, then the low 32 bits of a low address.
    pub(super) fn low(&mut self, bytes: &[u8], address: Addr) {
        let [a, b, c, d, ..] = address.0.to_le_bytes();
        self.push(bytes);
        self.push(&[a, b, c, d]);
    }

    /// Bytes, then the displacement to an address.
    pub(super) fn reach(&mut self, bytes: &[u8], target: Addr) -> Result<(), Refusal> {
        let field = self.later(bytes);
        self.resolve(field, target)
    }

    /// Bytes, then a displacement to be resolved.
    pub(super) fn later(&mut self, bytes: &[u8]) -> Field {
        self.push(bytes);
        let at = self.bytes.len();
        self.push(&[0; 4]);
        Field { at }
    }

    pub(super) fn resolve(&mut self, field: Field, target: Addr) -> Result<(), Refusal> {
        self.resolve_from(field, self.start.add(field.at as u64 + 4), target)
    }

    /// Bytes of an instruction whose operand is at an address, by a displacement at an offset in it.
    pub(super) fn copy_near(
        &mut self,
        original: &[u8],
        displacement: usize,
        operand: Addr,
    ) -> Result<(), Refusal> {
        let at = self.bytes.len() + displacement;
        self.push(original);
        self.resolve_from(Field { at }, self.here(), operand)
    }

    /// Resolves a displacement that is added to an address.
    fn resolve_from(&mut self, field: Field, end: Addr, target: Addr) -> Result<(), Refusal> {
        let place = self.bytes.get_mut(field.at..field.at + 4);
        match (rel32(end, target), place) {
            (Some(displacement), Some(place)) => {
                place.copy_from_slice(&displacement);
                Ok(())
            }
            _ => Err(Refusal::new(
                Rule::OutOfReach,
                end,
                format!("{target} is more than 2 GiB from the code cache"),
            )),
        }
    }

    pub(super) fn encoded(
        &mut self,
        instruction: Result<Instruction, iced_x86::IcedError>,
        original: Addr,
    ) -> Result<(), Refusal> {
        let here = self.here();
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(64));
        encoder.set_buffer(std::mem::take(&mut self.bytes));
        let written = instruction.and_then(|one| encoder.encode(&one, here.0));
        self.bytes = encoder.take_buffer();
        let refused = |error| {
            let why = format!("its operand cannot be encoded: {error}");
            Refusal::new(Rule::Unrelocatable, original, why)
        };
        written.map(drop).map_err(refused)
    }

    /// Fills up to a multiple of a power of two.
    pub(super) fn align(&mut self, to: u64) {
        while !self.here().0.is_multiple_of(to) {
            self.push(&[0xcc]);
        }
    }

    /// `mov [rsp+place], register`, of one of the four registers that sequences use.
    pub(super) fn spill(&mut self, register: Register, place: i32) {
        self.with(&[0x48, 0x89, modrm(register), 0x24], place);
    }

    /// `mov register, [rsp+place]`.
    pub(super) fn reload(&mut self, register: Register, place: i32) {
        self.with(&[0x48, 0x8b, modrm(register), 0x24], place);
    }

    /// `movzx edx, cx; jmp [recent + rdx*8]`.
    pub(super) fn jump_recent(&mut self, recent: Addr) {
        self.push(&[0x0f, 0xb7, 0xd1]);
        self.low(&[0xff, 0x24, 0xd5], recent);
    }
}

/// The byte of an operand at the stack pointer with a displacement of 32 bits, for `rax` (0), `rcx` (1), `rdx` (2) or
/// `rsi` (6).
fn modrm(register: Register) -> u8 {
    debug_assert!(matches!(
        register,
        Register::RAX | Register::RCX | Register::RDX | Register::RSI
    ));
    let number = number_of(register);
    0x84 | number << 3
}
