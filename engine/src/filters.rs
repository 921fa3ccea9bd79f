//! System calls by which a thread may begin to filter those of its process (`seccomp(2)`).
//!
//! A filter may end the process at the system calls by which instruments read its memory ([`crate::reads`]), so these end
//! before it is installed. Each `syscall` is found that may execute `seccomp`, or `prctl` with `PR_SET_SECCOMP`: the number
//! and the option are symbolic values from the start of its block on, where a guard tests the registers that have them, or
//! the memory from which the block loads the number. A `syscall` whose number is another constant of its block needs no
//! guard; one whose number is not known there counts as one of these.
//!
//! An image lacks code that the process makes itself (JIT) and objects that it loads later: their system calls are not
//! found.

use std::collections::BTreeSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpKind,
    Register,
};

use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg};
use crate::code::FunctionId;
use crate::ids::part;
use crate::isa::BY_NUMBER;
use crate::isa::RegisterSet;
use crate::isa::abi::{CALLER_SAVED, CHANGED_BY_SYSTEM_CALL, low_byte};
use crate::isa::decode::branch_target;
use crate::isa::effect::{is_call, is_write, plain};
use crate::{Addr, Error, Image, Refusal, Result, Rule, Span};

/// `seccomp` and `prctl` of arch/x86/entry/syscalls/syscall_64.tbl.
pub(crate) const SECCOMP: u32 = 317;
pub(crate) const PRCTL: u32 = 157;
/// `PR_SET_SECCOMP` of include/uapi/linux/prctl.h.
const SET_SECCOMP: u32 = 22;
/// The interrupt of system calls of 32 bits.
const INTERRUPT: u8 = 0x80;
/// A block with a system call that may begin to filter those of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterCall {
    /// Function of the block.
    pub function: FunctionId,
    /// Its index in the function's graph.
    pub block: BlockIndex,
    /// From the start of the block up to the first byte of its last `syscall`, inclusive: a thread there has passed the guard.
    pub passed: Span,
    /// The test, at the start of the block, of whether a filter may be installed.
    pub test: FilterTest,
    /// True if a test of whether the thread is cancelled precedes the block, in a function whose second argument is the
    /// number (`__syscall_cp_asm` of musl, `__syscall_cancel_arch` of glibc from 2.41): by a thread's place after that test
    /// the handler of `pthread_cancel` decides whether the call is still to begin, and a thread in a guard is elsewhere.
    pub is_cancellable: bool,
}

/// The test of a guard at the start of a block. Expressions are those of the language of instruments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterTest {
    /// A condition: true if a filter may be installed.
    Condition(String),
    /// The address of four bytes with the number of the system call: the block reads them whenever it executes, and nothing
    /// that it executes before changes them.
    NumberAt(String),
}

/// Finds all system calls of an image that may begin to filter those of the process.
///
/// # Errors
/// [`Error::Unplanned`] by [`Rule::Unguarded`] if a system call is in a function that is not divided into blocks, and its
/// number is not set before it in a row; if it is one of 32 bits; or if code was not read.
pub fn filter_calls(image: &Image) -> Result<Vec<FilterCall>> {
    let mut calls = Vec::new();
    for function in image.functions() {
        if !may_filter(bytes(image, function.span)?) {
            continue;
        }
        let graph = Cfg::of(image, function.id);
        if graph.blocks.is_empty() {
            constants_only(image, function.span, function.span.start)?;
        }
        let tested: BTreeSet<Addr> = (graph.blocks.iter())
            .filter(|block| tests_cancellation(block))
            .map(|block| block.span.end)
            .collect();
        for block in &graph.blocks {
            let mut values = BlockValues::new();
            let mut tests = Vec::new();
            let mut last = block.span.start;
            let mut is_cancellable = false;
            for instruction in &block.instructions {
                if let Some(test) = values.test(image, &instruction)? {
                    if !tests.contains(&test) {
                        tests.push(test);
                    }
                    last = Addr(instruction.ip());
                    let is_argument =
                        values.get(Register::EAX) == SymbolicHalf::Initial(Register::RSI);
                    is_cancellable |= is_argument && tested.contains(&block.span.start);
                }
                values.execute(&instruction);
            }
            calls.extend(tests.into_iter().map(|test| FilterCall {
                function: function.id,
                block: block.index,
                passed: Span {
                    start: block.span.start,
                    end: last.add(1),
                },
                test,
                is_cancellable,
            }));
        }
    }
    between_functions(image)?;
    Ok(calls)
}

/// Returns whether a block is a test of the word that the first argument of a function points to, and a branch. Symbols of
/// its function may lack.
fn tests_cancellation(block: &Block) -> bool {
    let mut instructions = block.instructions.iter();
    let loads = instructions.find(|instruction| instruction.code() != Code::Endbr64);
    block.end == BlockEnd::Conditional
        && loads.is_some_and(|load| {
            load.code() == Code::Mov_r32_rm32
                && load.op0_register() == Register::EAX
                && load.memory_base() == Register::RDI
                && load.memory_index() == Register::None
                && load.memory_displacement64() == 0
        })
}

/// Returns whether code may have a system call that is not at once known to be another one. Bytes of data and parts of
/// instructions may look like one, too.
#[must_use]
pub fn may_filter(code: &[u8]) -> bool {
    let pairs = code.array_windows::<2>().enumerate();
    let mut calls =
        pairs.filter(|(_, pair)| matches!(pair, [0x0f, 0x05 | 0x34] | [0xcd, INTERRUPT]));
    calls.any(|(at, pair)| *pair != [0x0f, 0x05] || !is_other(part(code, 0..at)))
}

/// Returns whether code ends with an instruction that sets the number of a system call that installs no filter.
fn is_other(code: &[u8]) -> bool {
    let number = match code {
        [.., 0xb8, a, b, c, d] | [.., 0x48, 0xc7, 0xc0, a, b, c, d] => {
            u32::from_le_bytes([*a, *b, *c, *d])
        }
        _ => return false,
    };
    !matches!(number, SECCOMP | PRCTL)
}

/// Refuses system calls in code without blocks, unless instructions before each set its number: in a row, without a branch
/// among them, or from elsewhere in the code to one of them. Those before `from` were looked at.
fn constants_only(image: &Image, span: Span, from: Addr) -> Result<()> {
    let bytes = bytes(image, span)?;
    let decoded = || Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE).into_iter();
    let targets: BTreeSet<Addr> = decoded()
        .filter_map(|instruction| branch_target(&instruction))
        .collect();
    let mut values = BlockValues::new();
    for instruction in decoded() {
        let at = Addr(instruction.ip());
        if targets.contains(&at) {
            values = BlockValues::new();
        }
        if at >= from && values.test(image, &instruction)?.is_some() {
            let why = "it is in a function that is not divided into blocks";
            return Err(refused(image, at, why));
        }
        values.execute(&instruction);
        let is_branch = !matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::Call
        );
        if is_branch || instruction.is_invalid() {
            values = BlockValues::new();
        }
    }
    Ok(())
}

/// Refuses system calls in text that no function covers, unless their number is set before them. The unwind entry of `clone`
/// of glibc, and so the function, ends before its system call.
fn between_functions(image: &Image) -> Result<()> {
    for text in image.texts.all() {
        let functions = image.functions().iter().map(|function| function.span);
        let functions = functions.filter(|span| text.span.contains(span.start));
        let mut before = Span::new(text.span.start, 0);
        for next in functions.chain([Span::new(text.span.end, 0)]) {
            let gap = Span {
                start: before.end,
                end: next.start,
            };
            if gap.start < gap.end && may_filter(bytes(image, gap)?) {
                let span = Span {
                    start: before.start,
                    end: gap.end,
                };
                constants_only(image, span, gap.start)?;
            }
            if next.end > before.end {
                before = next;
            }
        }
    }
    Ok(())
}

/// Returns the bytes of a span of code; what was not read may have a system call.
fn bytes(image: &Image, span: Span) -> Result<&[u8]> {
    let bytes = image.bytes(span);
    bytes.ok_or_else(|| refused(image, span.start, "the code there was not read"))
}

fn refused(image: &Image, at: Addr, why: &str) -> Error {
    let place = image.named(at).unwrap_or_else(|| at.to_string());
    let why = format!(
        "memory, `pid` and `comm` are not read, since the system call at {place} may begin to filter those of the process unseen: {why}"
    );
    Error::Unplanned {
        target: image.title(),
        refusal: Refusal::new(Rule::Unguarded, at, &why),
    }
}

/// The lower 32 bits of a register, as a function of the registers and the memory at the start of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolicHalf {
    Constant(u32),
    /// This register had it.
    Initial(Register),
    /// The memory so many bytes from the address in a register had it.
    Loaded(Register, i32),
    Unknown,
}

impl SymbolicHalf {
    /// The condition that it is a number; `None` if it is not.
    fn is(self, number: u32) -> Option<String> {
        match self {
            Self::Constant(constant) => (constant == number).then(|| "1 == 1".to_owned()),
            Self::Initial(register) => {
                let register = format!("{:?}", register.full_register32()).to_lowercase();
                Some(format!("reg(\"{register}\") == {number}"))
            }
            // Reads end too early then, rather than too late.
            Self::Loaded(..) | Self::Unknown => Some("1 == 1".to_owned()),
        }
    }
}

/// The registers while a block executes.
struct BlockValues {
    registers: [SymbolicHalf; 16],
    /// Registers that were written since the start of the block.
    written: RegisterSet,
    /// True if memory may have been.
    stored: bool,
    factory: InstructionInfoFactory,
}

impl BlockValues {
    fn new() -> Self {
        Self {
            registers: BY_NUMBER.map(SymbolicHalf::Initial),
            written: RegisterSet::EMPTY,
            stored: false,
            factory: InstructionInfoFactory::new(),
        }
    }

    fn get(&self, register: Register) -> SymbolicHalf {
        let value = self.registers.get(register.number());
        value.copied().unwrap_or(SymbolicHalf::Unknown)
    }

    fn set(&mut self, register: Register, value: SymbolicHalf) {
        if let Some(known) = self.registers.get_mut(register.full_register().number()) {
            *known = value;
        }
    }

    /// The test of whether an instruction begins to filter system calls; `None` if it does not.
    fn test(&self, image: &Image, instruction: &Instruction) -> Result<Option<FilterTest>> {
        let at = Addr(instruction.ip());
        match instruction.code() {
            Code::Syscall => {}
            Code::Sysenter => return Err(refused(image, at, "it is one of 32 bits")),
            Code::Int_imm8 if instruction.immediate8() == INTERRUPT => {
                return Err(refused(image, at, "it is one of 32 bits"));
            }
            _ => return Ok(None),
        }
        let (number, option) = (self.get(Register::EAX), self.get(Register::EDI));
        if let SymbolicHalf::Loaded(base, displacement) = number {
            let base = format!("{base:?}").to_lowercase();
            let sign = if displacement < 0 { '-' } else { '+' };
            let address = format!("reg(\"{base}\") {sign} {}", displacement.unsigned_abs());
            return Ok(Some(FilterTest::NumberAt(address)));
        }
        let prctl = number.is(PRCTL).zip(option.is(SET_SECCOMP));
        let prctl = prctl.map(|(number, option)| format!("({number} && {option})"));
        let condition = match (number.is(SECCOMP), prctl) {
            (Some(seccomp), Some(prctl)) => Some(format!("{seccomp} || {prctl}")),
            (one, other) => one.or(other),
        };
        Ok(condition.map(FilterTest::Condition))
    }

    /// The value that an instruction loads, as memory at the start of the block; `None` if it has no such operand, or if an
    /// instruction before it may have changed the address or the memory.
    fn loaded(&self, instruction: &Instruction) -> Option<SymbolicHalf> {
        let base = instruction.memory_base();
        let is_plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None
            && base.is_gpr64();
        let displacement = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
        (is_plain && !self.stored && !self.written.contains(base))
            .then_some(SymbolicHalf::Loaded(base, displacement))
    }

    /// Executes an instruction.
    fn execute(&mut self, instruction: &Instruction) {
        let to = instruction.op0_register();
        let is_whole = instruction.op_count() == 2 && (to.is_gpr32() || to.is_gpr64());
        let value = match instruction.code() {
            Code::Mov_r32_imm32
            | Code::Mov_rm32_imm32
            | Code::Mov_r64_imm64
            | Code::Mov_rm64_imm32
                if is_whole =>
            {
                // The lower half of what it sets.
                #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
                let constant = instruction.immediate(1) as u32;
                Some(SymbolicHalf::Constant(constant))
            }
            Code::Mov_r32_rm32
            | Code::Mov_rm32_r32
            | Code::Mov_r64_rm64
            | Code::Mov_rm64_r64
            | Code::Movsxd_r64_rm32
                if is_whole && instruction.op1_kind() == OpKind::Register =>
            {
                Some(self.get(instruction.op1_register()))
            }
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
                if is_whole && instruction.op1_register() == to =>
            {
                Some(SymbolicHalf::Constant(0))
            }
            Code::Mov_r32_rm32 | Code::Mov_r64_rm64 if instruction.op1_kind() == OpKind::Memory => {
                self.loaded(instruction)
            }
            // musl's `clone` sets the number so, after it has cleared the register.
            Code::Mov_r8_imm8 if to == low_byte(to.full_register()) => {
                match self.get(to.full_register()) {
                    SymbolicHalf::Constant(before) => {
                        let byte = u32::from(instruction.immediate8());
                        Some(SymbolicHalf::Constant(before & !0xff | byte))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        let effect = plain(&mut self.factory, instruction);
        let memory = self.factory.info(instruction).used_memory();
        self.stored |= is_call(instruction)
            || instruction.code() == Code::Syscall
            || memory.iter().any(|used| is_write(used.access()));
        self.written = self.written.union(effect.writes);
        if let Some(value) = value {
            self.set(to, value);
        } else if instruction.code() == Code::Syscall {
            for register in CHANGED_BY_SYSTEM_CALL {
                self.set(register, SymbolicHalf::Unknown);
            }
        } else if is_call(instruction) {
            for register in CALLER_SAVED {
                self.set(register, SymbolicHalf::Unknown);
            }
        } else {
            for register in effect.writes.iter() {
                self.set(register, SymbolicHalf::Unknown);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_with_a_number_just_before_each_call_needs_no_look_at_its_blocks() {
        // mov eax, number; syscall
        let call = |number: u32| {
            let [a, b, c, d] = number.to_le_bytes();
            [0xb8, a, b, c, d, 0x0f, 0x05]
        };
        for number in [0, 1, 202, 310] {
            assert!(!may_filter(&call(number)), "{number}");
        }
        for number in [SECCOMP, PRCTL] {
            assert!(may_filter(&call(number)), "{number}");
        }
        // mov rax, 15; syscall
        assert!(!may_filter(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]));
        for code in [
            &[0x0f, 0x05][..],
            &[0x0f, 0x34],
            &[0xcd, 0x80],
            &[0x89, 0xf8, 0x0f, 0x05],
        ] {
            assert!(may_filter(code), "{code:x?}");
        }
        assert!(!may_filter(&[0x0f, 0x0b, 0xc3]));
    }
}
