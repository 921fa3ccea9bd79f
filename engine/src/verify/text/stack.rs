//! The one follower of the stack pointer: an abstract interpretation of a function's instructions, for the
//! effects of calls ([`callee`](super::callee)) and for native functions
//! (`patch::callee_contract`).
//!
//! Saved registers and the return address are considered overwritten only where constant offsets prove it:
//! see `patch::callee_contract`.

use std::collections::BTreeMap;

use iced_x86::{
    Code, ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::effects;
use crate::verify::reason::Reason;

/// Callee-saved registers other than the stack pointer (System V ABI, 3.2.1).
const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];
const RSP: usize = 4;
const RBP: usize = 5;

/// The abstract value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameWord {
    Any,
    /// The value of this register at the entry.
    Entry(u8),
    /// An address between these offsets from the return address.
    Stack(i64, i64),
}

/// The part of the caller's stack that a function may not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// The return address, for assembly, which may have a convention of its own above it.
    ReturnAddress,
    /// Everything, for compiled code.
    Frame,
}

/// The abstract state before an instruction: the registers and the saved words, relative to the entry of
/// the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallFrame {
    words: [FrameWord; 16],
    protected: Callers,
    /// By offset from the return address: the register whose entry value is saved there.
    saved: BTreeMap<i64, u8>,
}

impl CallFrame {
    pub(crate) fn at_entry(protected: Callers) -> Self {
        let mut words = [FrameWord::Any; 16];
        for (word, number) in words.iter_mut().zip(0..) {
            if KEPT.contains(&number) {
                *word = FrameWord::Entry(number);
            }
        }
        words[RSP] = FrameWord::Stack(0, 0);
        Self {
            words,
            protected,
            saved: BTreeMap::new(),
        }
    }

    /// Joins `other` into the state; returns whether it changed.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            if word != other {
                *word = FrameWord::Any;
            }
        }
        self.saved
            .retain(|at, number| other.saved.get(at) == Some(number));
        *self != before
    }

    /// Checks that the stack pointer and the callee-saved registers are those of the entry.
    ///
    /// # Errors
    /// One of them may differ.
    pub(crate) fn returns(&self) -> Result<(), Reason> {
        if self.words[RSP] != FrameWord::Stack(0, 0) {
            return Err(Reason::NativeStackPointer);
        }
        let changed =
            self.words.iter().zip(0..).find(|(word, number)| {
                KEPT.contains(number) && **word != FrameWord::Entry(*number)
            });
        changed.map_or(Ok(()), |(_, number)| {
            Err(Reason::NativeRegister { register: number })
        })
    }

    /// Applies the effect of a call of compiled code.
    pub(crate) fn called(&mut self) {
        for (word, number) in self.words.iter_mut().zip(0..) {
            if !KEPT.contains(&number) && usize::from(number) != RSP {
                *word = FrameWord::Any;
            }
        }
    }

    /// Applies the effect of a call of a function that may change every register except the stack pointer.
    pub(crate) fn called_assembly(&mut self) {
        for (word, number) in self.words.iter_mut().zip(0..) {
            if number != RSP {
                *word = FrameWord::Any;
            }
        }
    }

    /// Returns whether the stack pointer is that of the entry.
    pub(crate) fn is_at_return_address(&self) -> bool {
        self.words[RSP] == FrameWord::Stack(0, 0)
    }

    /// Returns whether the stack pointers are equal.
    pub(crate) fn has_stack_of(&self, other: &Self) -> bool {
        self.words[RSP] == other.words[RSP]
    }

    fn of(&self, register: Register) -> FrameWord {
        let word = whole(register).and_then(|number| self.words.get(number));
        word.copied().unwrap_or(FrameWord::Any)
    }

    fn set(&mut self, register: Register, to: FrameWord) {
        if let Some(word) = whole(register).and_then(|number| self.words.get_mut(number)) {
            *word = to;
        }
    }

    fn stack(&self) -> Result<(i64, i64), Reason> {
        match self.words[RSP] {
            FrameWord::Stack(least, most) if most <= 0 => Ok((least, most)),
            _ => Err(Reason::NativeUnknownStack),
        }
    }

    /// Executes an instruction that is not a call.
    ///
    /// # Errors
    /// It writes to the protected stack, or leaves the stack pointer unknown.
    pub(crate) fn step(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), Reason> {
        let first = instruction.op0_register();
        match instruction.code() {
            Code::Push_r64 => self.push(self.of(first))?,
            Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Pushfq => {
                self.push(FrameWord::Any)?;
            }
            Code::Pop_r64 => {
                let value = self.pop()?;
                self.set(first, value);
            }
            Code::Popfq => drop(self.pop()?),
            Code::Pop_rm64 => {
                let value = self.pop()?;
                if whole(first).is_some() {
                    self.set(first, value);
                } else {
                    // An address relative to rsp is that after the word was popped.
                    self.store(instruction, info)?;
                }
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
                // No port, hypervisor or firmware that answers the kernel moves its stack pointer.
                let keeps_stack =
                    self.protected == Callers::ReturnAddress && effects::is_answered(instruction);
                for (word, number) in self.words.iter_mut().zip(0..) {
                    let is_kept = keeps_stack && usize::from(number) == RSP;
                    if changes.has_register(number) && !is_kept {
                        *word = FrameWord::Any;
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

    fn push(&mut self, value: FrameWord) -> Result<(), Reason> {
        let (least, most) = self.stack()?;
        self.words[RSP] = FrameWord::Stack(least.saturating_sub(8), most.saturating_sub(8));
        if let FrameWord::Entry(number) = value
            && least == most
        {
            self.saved.insert(least.saturating_sub(8), number);
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<FrameWord, Reason> {
        let (least, most) = self.stack()?;
        self.words[RSP] = FrameWord::Stack(least.saturating_add(8), most.saturating_add(8));
        Ok(self.load(FrameWord::Stack(least, most)))
    }

    fn load(&self, from: FrameWord) -> FrameWord {
        match from {
            FrameWord::Stack(at, most) if at == most => {
                let saved = self.saved.get(&at);
                saved.map_or(FrameWord::Any, |number| FrameWord::Entry(*number))
            }
            _ => FrameWord::Any,
        }
    }

    /// Returns the abstract result in the first operand, a register.
    fn result(&self, instruction: &Instruction) -> FrameWord {
        let first = self.of(instruction.op0_register());
        let second = || self.of(instruction.op1_register());
        let number = instruction.try_immediate(1).ok().map(u64::cast_signed);
        let by_memory = instruction.op1_kind() == OpKind::Memory;
        match (instruction.mnemonic(), number) {
            (Mnemonic::Mov, None) if by_memory => self.load(self.memory(instruction)),
            (Mnemonic::Mov, None) => second(),
            (Mnemonic::Lea, _) => self.memory(instruction),
            (Mnemonic::Add, Some(number)) => moved(first, number),
            (Mnemonic::Sub, Some(number)) => moved(first, number.saturating_neg()),
            // The alignment lowers the pointer by up to the cleared bits.
            (Mnemonic::And, Some(mask)) if mask < 0 => match first {
                FrameWord::Stack(least, most) => {
                    FrameWord::Stack(least.saturating_add(mask.saturating_add(1)), most)
                }
                _ => FrameWord::Any,
            },
            _ => {
                let conditional = instruction.condition_code() != ConditionCode::None;
                let same = conditional && instruction.op_count() == 2 && !by_memory;
                match second() {
                    second if same && second == first => first,
                    _ => FrameWord::Any,
                }
            }
        }
    }

    /// Returns the abstract address of a memory operand.
    fn memory(&self, instruction: &Instruction) -> FrameWord {
        let plain = instruction.memory_index() == Register::None
            && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        if !plain {
            return FrameWord::Any;
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
        let FrameWord::Stack(least, most) = self.memory(instruction) else {
            return Ok(());
        };
        let reads = |access| {
            matches!(
                access,
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            )
        };
        let memory = info.info(instruction).used_memory().iter();
        let size = memory
            .filter(|memory| !reads(memory.access()) && !by_bit)
            .map(|memory| i64::try_from(memory.memory_size().size()).unwrap_or(i64::MAX))
            .max();
        let Some(size) = size else {
            return Ok(());
        };
        let end = most.saturating_add(size);
        let protected = match self.protected {
            Callers::ReturnAddress => 8,
            Callers::Frame => i64::MAX,
        };
        if end > 0 && least < protected {
            return Err(Reason::NativeOverwrites);
        }
        self.saved
            .retain(|at, _| *at >= end || at.saturating_add(8) <= least);
        if instruction.code() == Code::Mov_rm64_r64
            && least == most
            && let FrameWord::Entry(number) = self.of(instruction.op1_register())
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

fn moved(word: FrameWord, by: i64) -> FrameWord {
    match word {
        FrameWord::Stack(least, most) => match (least.checked_add(by), most.checked_add(by)) {
            (Some(least), Some(most)) => FrameWord::Stack(least, most),
            _ => FrameWord::Any,
        },
        _ => FrameWord::Any,
    }
}
