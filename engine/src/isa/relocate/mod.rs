//! The relocated sequence: displaced instructions made to work at another address.
//!
//! An instruction that does not refer to its own address is copied byte for byte. A RIP-relative
//! operand gets a new displacement, nothing else of it changes. Branches become near ones to the
//! same target; `loop` and `jrcxz`, which have no near form, step over a jump. A call, which may
//! only stand last, becomes a push of the *original* return address and a jump, so that no
//! return address in a patch is ever on a stack. A return stays in the half of a cache line that it is
//! in, if that is the upper one.

mod emulate;
mod faulting;
mod movable;

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use crate::ids::{part, to_u32};
use crate::isa::encode::{INT3, NOPS, rel32};
use crate::layout::{Abi, ReturnPush, WordSegment};
use crate::unwind::Row;
use crate::{Addr, Refusal, Rule};

pub use emulate::emulate;
pub use faulting::faults_alike;
pub use movable::movable;

/// Half of a cache line, bytes.
const HALF_LINE: usize = 32;

/// Returns whether a byte is in the second half of its cache line.
const fn is_upper_half(at: Addr) -> bool {
    at.0 & HALF_LINE as u64 != 0
}

/// Instructions at their new place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// The bytes for the new address.
    pub bytes: Vec<u8>,
    /// True if control can fall through the end of `bytes`.
    pub falls_through: bool,
    /// Instructions run from the start to the end where no conditional branch is taken.
    pub executed: u32,
    /// Unwind rows from the first byte on.
    pub rows: Vec<Row>,
}

impl Relocated {
    /// Starts a row: the following code replaces the instruction at `original`.
    fn row(&mut self, original: Addr, pushed: u32) {
        self.rows.push(Row {
            at: to_u32(self.bytes.len()),
            pushed,
            original,
        });
    }
}

/// Makes the instructions `code`, which stand at `from`, work at `to`, by the conventions of `abi`.
///
/// # Errors
/// [`Rule::Undecodable`] if `code` is not whole instructions, [`Rule::OutOfReach`] if an operand
/// or a target cannot be reached from `to`, and what [`movable()`] refuses. A call or an unconditional
/// branch before the last instruction is [`Rule::Unrelocatable`], a call under a shadow stack
/// [`Rule::ShadowStack`], and a change of the base of the target's words [`Rule::System`].
pub fn relocate(code: &[u8], from: Addr, to: Addr, abi: &Abi) -> Result<Relocated, Refusal> {
    let mut decoder = Decoder::with_ip(64, code, from.0, DecoderOptions::NONE);
    let mut done = Relocated {
        bytes: Vec::with_capacity(code.len() + 16),
        falls_through: true,
        executed: 0,
        rows: Vec::new(),
    };
    while decoder.can_decode() {
        let position = decoder.position();
        let instruction = decoder.decode();
        let at = Addr(instruction.ip());
        if instruction.is_invalid() {
            return Err(Refusal::new(
                Rule::Undecodable,
                at,
                "the bytes there are not an instruction",
            ));
        }
        if !done.falls_through {
            return Err(Refusal::new(
                Rule::Unrelocatable,
                at,
                "an instruction follows one that does not fall through",
            ));
        }
        movable(&instruction, abi)?;
        keeps_segment(&instruction, abi)?;
        let original = part(code, position..decoder.position());
        let offsets = decoder.get_constant_offsets(&instruction);
        done.row(at, 0);
        let mut writer = Writer {
            to,
            out: &mut done,
            abi,
        };
        writer.instruction(&instruction, original, &offsets)?;
    }
    Ok(done)
}

/// The remainder at `to` of the call at `from`, once a call in its place has pushed its return address: a jump to the
/// callee.
///
/// # Errors
/// [`Rule::Unrelocatable`] if `code` is no direct call, [`Rule::OutOfReach`] as [`relocate`].
pub fn called(code: &[u8], from: Addr, to: Addr, abi: &Abi) -> Result<Relocated, Refusal> {
    let instruction = Decoder::with_ip(64, code, from.0, DecoderOptions::NONE).decode();
    if instruction.code() != Code::Call_rel32_64 || instruction.len() != code.len() {
        let why = "its splice is a call, and it is not one";
        return Err(Refusal::new(Rule::Unrelocatable, from, why));
    }
    let mut done = Relocated {
        executed: 1,
        ..Relocated::default()
    };
    done.row(from, 8);
    let mut writer = Writer {
        to,
        out: &mut done,
        abi,
    };
    let target = Addr(instruction.near_branch_target());
    writer.near(&[0xe9], from, target)?;
    writer.ends();
    Ok(done)
}

/// Pushes the return address of a call. `push imm32` sign-extends: right for addresses in the top (or bottom) 2 GiB,
/// where the kernel's text is; of others it pushes the lower half, and the upper half is written after it.
fn push_return_address(
    out: &mut Relocated,
    address: Addr,
    at: Addr,
    abi: &Abi,
) -> Result<(), Refusal> {
    if abi.shadow_stack {
        return Err(Refusal::new(
            Rule::ShadowStack,
            at,
            "a return to a pushed address faults under the target's shadow stack",
        ));
    }
    let whole = i32::try_from(address.0.cast_signed()).is_ok();
    if !whole && abi.return_push == ReturnPush::Whole {
        return Err(Refusal::new(
            Rule::OutOfReach,
            at,
            format!("its return address {address} cannot be pushed in one instruction"),
        ));
    }
    let [b0, b1, b2, b3, upper @ ..] = address.0.to_le_bytes();
    out.bytes.extend_from_slice(&[0x68, b0, b1, b2, b3]);
    out.executed += 1;
    out.row(at, 8);
    if abi.return_push == ReturnPush::Halves {
        // mov dword ptr [rsp+4], imm32
        out.bytes.extend_from_slice(&[0xc7, 0x44, 0x24, 4]);
        out.bytes.extend_from_slice(&upper);
        out.executed += 1;
    }
    Ok(())
}

/// Refuses an instruction that may move the words of `fs` under the patch. Of `gs`, [`movable()`] refuses it for
/// every target.
fn keeps_segment(instruction: &Instruction, abi: &Abi) -> Result<(), Refusal> {
    let to = (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register)
        .then(|| instruction.op0_register());
    let moves = match instruction.mnemonic() {
        Mnemonic::Wrfsbase => true,
        Mnemonic::Mov | Mnemonic::Pop => to == Some(Register::FS),
        _ => false,
    };
    if abi.segment == WordSegment::Fs && moves {
        return Err(Refusal::new(
            Rule::System,
            Addr(instruction.ip()),
            "it loads the segment that the target's words are reached by",
        ));
    }
    Ok(())
}

struct Writer<'a> {
    to: Addr,
    abi: &'a Abi,
    out: &'a mut Relocated,
}

impl Writer<'_> {
    fn here(&self) -> Addr {
        self.to.add(self.out.bytes.len() as u64)
    }

    fn instruction(
        &mut self,
        instruction: &Instruction,
        original: &[u8],
        offsets: &ConstantOffsets,
    ) -> Result<(), Refusal> {
        let at = Addr(instruction.ip());
        let target = Addr(instruction.near_branch_target());
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => {
                self.near(&[0xe9], at, target)?;
                self.out.executed += 1;
                self.ends();
            }
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                // iced numbers conditions from 1 in the order of the opcodes' low four bits.
                let Some(condition) = (instruction.condition_code() as u8).checked_sub(1) else {
                    return Err(Refusal::new(
                        Rule::Unrelocatable,
                        at,
                        "its condition is not known",
                    ));
                };
                self.near(&[0x0f, 0x80 | condition], at, target)?;
                self.out.executed += 1;
            }
            FlowControl::ConditionalBranch => self.short_only(original, at, target)?,
            FlowControl::Call => {
                push_return_address(self.out, Addr(instruction.next_ip()), at, self.abi)?;
                self.near(&[0xe9], at, target)?;
                self.out.executed += 1;
                self.ends();
            }
            FlowControl::Return => {
                let padding = self.keep_half(at, original.len());
                self.out.bytes.extend_from_slice(original);
                self.out.executed += 1;
                self.ends();
                self.out.bytes.extend(std::iter::repeat_n(INT3, padding));
            }
            FlowControl::IndirectBranch => {
                self.copy(instruction, original, offsets)?;
                self.out.executed += 1;
                self.ends();
            }
            _ => {
                self.copy(instruction, original, offsets)?;
                self.out.executed += 1;
            }
        }
        Ok(())
    }

    /// Pads a return so that it ends in the upper half of a cache line if the original does. On processors that
    /// mispredict returns in lower halves (ITS) the kernel has bare returns in upper halves only
    /// (`cpu_wants_rethunk_at` of arch/x86/kernel/alternative.c). Returns the bytes of padding to append, so that
    /// the length is the same at every address.
    fn keep_half(&mut self, at: Addr, len: usize) -> usize {
        let last = (len as u64).saturating_sub(1);
        if !is_upper_half(at.add(last)) {
            return 0;
        }
        let mut short = 0;
        while !is_upper_half(self.here().add(last + short as u64)) {
            short += 1;
        }
        let padding = HALF_LINE - short;
        // The longest that fits, down to that of one byte.
        while let Some(nop) = NOPS.iter().rfind(|nop| nop.len() <= short) {
            self.out.bytes.extend_from_slice(nop);
            self.out.executed += 1;
            short -= nop.len();
        }
        padding
    }

    /// Ends the code: control does not fall through, and an int3 stops speculation.
    fn ends(&mut self) {
        self.out.bytes.push(INT3);
        self.out.falls_through = false;
    }

    fn near(&mut self, opcode: &[u8], at: Addr, target: Addr) -> Result<(), Refusal> {
        let end = self.here().add(opcode.len() as u64 + 4);
        let Some(displacement) = rel32(end, target) else {
            return Err(Refusal::new(
                Rule::OutOfReach,
                at,
                format!("its target {target} is more than 2 GiB from the patch"),
            ));
        };
        self.out.bytes.extend_from_slice(opcode);
        self.out.bytes.extend_from_slice(&displacement);
        Ok(())
    }

    /// `loop`, `loope`, `loopne`, `jrcxz`, `jecxz`: `op +2; jmp +5; jmp near target`.
    fn short_only(&mut self, original: &[u8], at: Addr, target: Addr) -> Result<(), Refusal> {
        let Some((_, opcode)) = original.split_last() else {
            return Err(Refusal::new(
                Rule::Undecodable,
                at,
                "the instruction has no bytes",
            ));
        };
        self.out.bytes.extend_from_slice(opcode);
        self.out.bytes.extend_from_slice(&[2, 0xeb, 5]);
        self.out.executed += 2;
        self.near(&[0xe9], at, target)
    }

    fn copy(
        &mut self,
        instruction: &Instruction,
        original: &[u8],
        offsets: &ConstantOffsets,
    ) -> Result<(), Refusal> {
        let at = Addr(instruction.ip());
        let start = self.out.bytes.len();
        let end = self.here().add(original.len() as u64);
        self.out.bytes.extend_from_slice(original);
        if !instruction.is_ip_rel_memory_operand() {
            return Ok(());
        }
        let target = Addr(instruction.ip_rel_memory_address());
        let Some(displacement) = rel32(end, target) else {
            return Err(Refusal::new(
                Rule::OutOfReach,
                at,
                format!("its operand at {target} is more than 2 GiB from the patch"),
            ));
        };
        let field = start + offsets.displacement_offset();
        match self.out.bytes.get_mut(field..field + 4) {
            Some(bytes) if offsets.displacement_size() == 4 => {
                bytes.copy_from_slice(&displacement);
                Ok(())
            }
            _ => Err(Refusal::new(
                Rule::Unrelocatable,
                at,
                "its RIP-relative operand has no 32-bit displacement",
            )),
        }
    }
}
