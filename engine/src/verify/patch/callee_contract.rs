//! The callee contract of native functions: each returns to its caller with the stack pointer and
//! the callee-saved registers of its entry, by an abstract interpretation of its bytes.
//!
//! Saved registers and the return address are considered overwritten only where constant offsets
//! prove it. A store through an index or an unrelated pointer is assumed to stay inside its object:
//! this is the compiler's word, and is not proven.

use crate::verify::reason::Reason;
use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};

use crate::Addr;
use crate::native::NativeCode;
use crate::verify::text::effects;

/// Callee-saved registers other than the stack pointer (System V ABI, 3.2.1).
const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];
const RSP: usize = 4;
const RBP: usize = 5;

/// The abstract value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Any,
    /// The value of this register at the entry.
    Entry(u8),
    /// An address between these offsets from the return address.
    Stack(i64, i64),
}

/// The abstract state before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    words: [Word; 16],
    /// By offset from the return address: the register whose entry value is saved there.
    saved: BTreeMap<i64, u8>,
}

/// Interprets the function at `entry`. Returns the functions that it calls, and those that it
/// tail-calls.
///
/// # Errors
/// The place and the reason if it breaks the contract.
pub(crate) fn follow(code: &NativeCode, entry: Addr) -> Result<BTreeSet<Addr>, Reason> {
    let span = code.span();
    let mut info = InstructionInfoFactory::new();
    let mut calls = BTreeSet::new();
    let mut before = BTreeMap::from([(entry, Held::at_entry())]);
    let mut left = vec![entry];
    while let Some(at) = left.pop() {
        let Some(mut held) = before.get(&at).cloned() else {
            continue;
        };
        let offset = usize::try_from(span.start.to(at)).unwrap_or(usize::MAX);
        let bytes = code.bytes.get(offset..).unwrap_or_default();
        let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        let wrong = |why: Reason| Reason::NativeInstruction {
            at,
            why: why.into(),
        };
        let lost = || wrong(Reason::NativeUnfollowed);
        if instruction.is_invalid() || instruction.is_privileged() {
            return Err(lost());
        }
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        let branch = Addr(instruction.near_branch_target());
        let next = Addr(instruction.next_ip());
        let to = match instruction.flow_control() {
            FlowControl::Return if instruction.code() == Code::Retnq => {
                held.comes_back().map_err(wrong)?;
                continue;
            }
            FlowControl::Call if direct => {
                calls.insert(branch);
                held.called();
                vec![next]
            }
            FlowControl::UnconditionalBranch if direct => vec![branch],
            FlowControl::Next => {
                held.step(&instruction, &mut info).map_err(wrong)?;
                vec![next]
            }
            FlowControl::ConditionalBranch if direct => {
                held.step(&instruction, &mut info).map_err(wrong)?;
                vec![next, branch]
            }
            _ => return Err(lost()),
        };
        for to in to {
            if !span.contains(to) {
                // The target of a tail call returns in its place.
                held.comes_back().map_err(wrong)?;
                calls.insert(to);
            } else if let Some(known) = before.get_mut(&to) {
                if known.words[RSP] != held.words[RSP] {
                    return Err(wrong(Reason::NativeStackDepth { to }));
                }
                left.extend(known.forget(&held).then_some(to));
            } else {
                before.insert(to, held.clone());
                left.push(to);
            }
        }
    }
    Ok(calls)
}

impl Held {
    fn at_entry() -> Self {
        let mut words = [Word::Any; 16];
        for (word, number) in words.iter_mut().zip(0..) {
            if KEPT.contains(&number) {
                *word = Word::Entry(number);
            }
        }
        words[RSP] = Word::Stack(0, 0);
        Self {
            words,
            saved: BTreeMap::new(),
        }
    }

    /// Joins `other` into the state; returns whether it changed.
    fn forget(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            if word != other {
                *word = Word::Any;
            }
        }
        self.saved
            .retain(|at, number| other.saved.get(at) == Some(number));
        *self != before
    }

    fn comes_back(&self) -> Result<(), Reason> {
        if self.words[RSP] != Word::Stack(0, 0) {
            return Err(Reason::NativeStackPointer);
        }
        let changed = { self.words.iter().zip(0..) }
            .find(|(word, number)| KEPT.contains(number) && **word != Word::Entry(*number));
        changed.map_or(Ok(()), |(_, number)| {
            Err(Reason::NativeRegister { register: number })
        })
    }

    /// Applies the effect of a call.
    fn called(&mut self) {
        for (word, number) in self.words.iter_mut().zip(0..) {
            if !KEPT.contains(&number) && usize::from(number) != RSP {
                *word = Word::Any;
            }
        }
    }

    fn of(&self, register: Register) -> Word {
        let word = whole(register).and_then(|number| self.words.get(number));
        word.copied().unwrap_or(Word::Any)
    }

    fn set(&mut self, register: Register, to: Word) {
        if let Some(word) = whole(register).and_then(|number| self.words.get_mut(number)) {
            *word = to;
        }
    }

    fn stack(&self) -> Result<(i64, i64), Reason> {
        match self.words[RSP] {
            Word::Stack(least, most) if most <= 0 => Ok((least, most)),
            _ => Err(Reason::NativeUnknownStack),
        }
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), Reason> {
        let first = instruction.op0_register();
        match instruction.code() {
            Code::Push_r64 => self.push(self.of(first))?,
            Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Pushfq => {
                self.push(Word::Any)?;
            }
            Code::Pop_r64 => {
                let value = self.pop()?;
                self.set(first, value);
            }
            Code::Leaveq => {
                self.words[RSP] = self.words[RBP];
                self.words[RBP] = self.pop()?;
            }
            Code::Xchg_rm64_r64 | Code::Xchg_r64_RAX if whole(first).is_some() => {
                let second = instruction.op1_register();
                let (one, other) = (self.of(first), self.of(second));
                self.set(first, other);
                self.set(second, one);
            }
            _ => {
                let result = self.result(instruction);
                self.store(instruction, info)?;
                let (_, _, changes) = effects::of(info, instruction);
                for (word, number) in self.words.iter_mut().zip(0..) {
                    if changes.has_register(number) {
                        *word = Word::Any;
                    }
                }
                if whole(first).is_some() && changes.has_register(number_of(first)) {
                    self.set(first, result);
                }
            }
        }
        let (_, above) = self.stack()?;
        self.saved.retain(|at, _| *at >= above);
        Ok(())
    }

    fn push(&mut self, value: Word) -> Result<(), Reason> {
        let (least, most) = self.stack()?;
        self.words[RSP] = Word::Stack(least.saturating_sub(8), most.saturating_sub(8));
        if let Word::Entry(number) = value
            && least == most
        {
            self.saved.insert(least.saturating_sub(8), number);
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Word, Reason> {
        let (least, most) = self.stack()?;
        self.words[RSP] = Word::Stack(least.saturating_add(8), most.saturating_add(8));
        Ok(self.load(Word::Stack(least, most)))
    }

    fn load(&self, from: Word) -> Word {
        match from {
            Word::Stack(at, most) if at == most => {
                let saved = self.saved.get(&at);
                saved.map_or(Word::Any, |number| Word::Entry(*number))
            }
            _ => Word::Any,
        }
    }

    /// Returns the abstract result in the first operand, a register.
    fn result(&self, instruction: &Instruction) -> Word {
        let first = self.of(instruction.op0_register());
        let second = || self.of(instruction.op1_register());
        let number = { instruction.try_immediate(1).ok() }.map(u64::cast_signed);
        let by_memory = instruction.op1_kind() == OpKind::Memory;
        match (instruction.mnemonic(), number) {
            (Mnemonic::Mov, None) if by_memory => self.load(self.memory(instruction)),
            (Mnemonic::Mov, None) => second(),
            (Mnemonic::Lea, _) => self.memory(instruction),
            (Mnemonic::Add, Some(number)) => moved(first, number),
            (Mnemonic::Sub, Some(number)) => moved(first, number.saturating_neg()),
            // The alignment lowers the pointer by up to the cleared bits.
            (Mnemonic::And, Some(mask)) if mask < 0 => match first {
                Word::Stack(least, most) => {
                    Word::Stack(least.saturating_add(mask.saturating_add(1)), most)
                }
                _ => Word::Any,
            },
            _ => {
                let conditional = instruction.condition_code() != ConditionCode::None;
                let same = conditional && instruction.op_count() == 2 && !by_memory;
                match second() {
                    second if same && second == first => first,
                    _ => Word::Any,
                }
            }
        }
    }

    /// Returns the abstract address of a memory operand.
    fn memory(&self, instruction: &Instruction) -> Word {
        let plain = instruction.memory_index() == Register::None
            && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        if !plain {
            return Word::Any;
        }
        let shift = instruction.memory_displacement64().cast_signed();
        moved(self.of(instruction.memory_base()), shift)
    }

    fn store(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), Reason> {
        // The operand of a bit instruction is an index.
        let by_bit = matches!(
            instruction.mnemonic(),
            Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
        ) && instruction.op1_kind() == OpKind::Register;
        let Word::Stack(least, most) = self.memory(instruction) else {
            return Ok(());
        };
        let reads = |access| {
            matches!(
                access,
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            )
        };
        let size = { info.info(instruction).used_memory().iter() }
            .filter(|memory| !reads(memory.access()) && !by_bit)
            .map(|memory| i64::try_from(memory.memory_size().size()).unwrap_or(i64::MAX))
            .max();
        let Some(size) = size else {
            return Ok(());
        };
        let end = most.saturating_add(size);
        if end > 0 {
            return Err(Reason::NativeOverwrites);
        }
        self.saved
            .retain(|at, _| *at >= end || at.saturating_add(8) <= least);
        if instruction.code() == Code::Mov_rm64_r64
            && least == most
            && let Word::Entry(number) = self.of(instruction.op1_register())
        {
            self.saved.insert(least, number);
        }
        Ok(())
    }
}

/// Returns the number of a 64-bit register.
fn whole(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

fn number_of(register: Register) -> u8 {
    u8::try_from(register.number()).unwrap_or(u8::MAX)
}

fn moved(word: Word, by: i64) -> Word {
    match word {
        Word::Stack(least, most) => match (least.checked_add(by), most.checked_add(by)) {
            (Some(least), Some(most)) => Word::Stack(least, most),
            _ => Word::Any,
        },
        _ => Word::Any,
    }
}
