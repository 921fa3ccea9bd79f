//! The abstract state of registers and of the stack of a native function.
//!
//! A stack address is known if it is the initial stack pointer plus constants of the code. A store to it is proven
//! to leave the return address, the caller's frame above that and the saved registers alone, or these count as
//! lost. An address that depends on an index, on another register or on the path (`Within`) is not known:
//! `table[it % 10]` is ordinary C, and the code has no bound of its index. It is assumed to stay in its object, as
//! C and Rust promise; it is refused only if every possible target is outside the frame. Nothing is known of a stack
//! address that is loaded from memory or returned by a call.

use std::collections::BTreeMap;

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory};

use super::value::{Range, Value};
use crate::isa::effect::is_write;
use crate::isa::stack::stack_shift;

/// Callee-saved registers, besides rsp (System V ABI, 3.2.1).
const KEPT: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The abstract state before an instruction.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// By number.
    registers: [Value; 16],
    /// Registers whose initial values are on the stack, each eight bytes, by bytes above the return address.
    saved: BTreeMap<i64, Register>,
}

impl State {
    /// At the function's start.
    pub(super) fn entry() -> Self {
        let mut state = Self {
            registers: [Value::Unknown; 16],
            saved: BTreeMap::new(),
        };
        for register in KEPT {
            state.set(register, Value::Original(register));
        }
        state.set(Register::RSP, Value::Stack(Range::exactly(0)));
        state
    }

    /// Returns the value of a register; for the lower half of one, its number; for less, nothing is known.
    fn get(&self, register: Register) -> Value {
        let known = self.registers.get(register.full_register().number());
        let known = known.copied().unwrap_or_default();
        match register {
            _ if register.is_gpr64() => known,
            _ if register.is_gpr32() => known.word(),
            _ => Value::Unknown,
        }
    }

    fn set(&mut self, register: Register, value: Value) {
        let whole = register.full_register();
        if whole.is_gpr64()
            && let Some(known) = self.registers.get_mut(whole.number())
        {
            *known = value;
        }
    }

    /// Returns the stack pointer in bytes above the return address.
    fn stack(&self) -> Result<Range, &'static str> {
        match self.get(Register::RSP) {
            Value::Stack(at) if at.to <= 0 => Ok(at),
            Value::Stack(_) => Err("takes more from the stack than it has put there"),
            _ => Err("changes the stack pointer by an unknown amount"),
        }
    }

    /// The most bytes that are on the stack below the return address.
    pub(super) fn depth(&self) -> Result<u64, &'static str> {
        Ok(self.stack()?.from.unsigned_abs())
    }

    /// Checks at a return that callee-saved registers and the stack pointer have their initial values.
    pub(super) fn comes_back(&self) -> Result<(), String> {
        match self.stack()?.exact() {
            Some(0) => {}
            Some(at) => {
                return Err(format!(
                    "goes back with {} bytes left on the stack",
                    at.unsigned_abs()
                ));
            }
            None => {
                return Err("goes back with the stack pointer where it was aligned to".into());
            }
        }
        let changed = KEPT
            .into_iter()
            .find(|&one| self.get(one) != Value::Original(one));
        changed.map_or(Ok(()), |register| {
            Err(format!(
                "returns where {register:?} may not have its caller's value; list what assembly changes in its clobbers"
            ))
        })
    }

    /// Leaves what is known of both; whether that is less than was known.
    pub(super) fn meet(&mut self, other: &Self) -> Result<bool, &'static str> {
        if self.get(Register::RSP) != other.get(Register::RSP) {
            return Err("is come to with more or less on the stack, by different ways");
        }
        let before = self.clone();
        for (known, other) in self.registers.iter_mut().zip(&other.registers) {
            *known = known.meet(*other);
        }
        self.saved
            .retain(|at, register| other.saved.get(at) == Some(register));
        Ok(self.registers != before.registers || self.saved.len() != before.saved.len())
    }

    /// Sets the state after a call: caller-saved registers are not known.
    pub(super) fn called(&mut self) {
        for (number, known) in self.registers.iter_mut().enumerate() {
            let kept = KEPT.iter().any(|one| one.number() == number);
            if !kept && number != Register::RSP.number() {
                *known = Value::Unknown;
            }
        }
    }

    /// Executes an instruction that falls through.
    pub(super) fn step(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), &'static str> {
        match stack_shift(info, instruction) {
            Some(0) => self.compute(instruction, info)?,
            Some(bytes) => self.shift(instruction, bytes, info)?,
            None if instruction.code() == Code::Leaveq => {
                let frame = self.get(Register::RBP);
                self.set(Register::RBP, self.loaded(frame));
                self.set(Register::RSP, frame.shifted(8));
            }
            None => self.compute(instruction, info)?,
        }
        // What is below rsp is anybody's.
        let low = self.stack()?.to;
        self.saved.retain(|at, _| *at >= low);
        Ok(())
    }

    /// Executes an instruction that moves the stack pointer by a constant: `add`, `sub`, `lea`, a push or a pop.
    fn shift(
        &mut self,
        instruction: &Instruction,
        bytes: i64,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), &'static str> {
        let operand = instruction.op0_register();
        let from = self.get(Register::RSP);
        for register in info.info(instruction).used_registers() {
            if is_write(register.access()) {
                self.set(register.register(), Value::Unknown);
            }
        }
        self.set(Register::RSP, from.shifted(bytes));
        match instruction.code() {
            Code::Push_r64 => {
                let pushed = self.get(operand);
                if let (Some(at), Value::Original(register)) = (self.stack()?.exact(), pushed) {
                    self.saved.insert(at, register);
                }
            }
            Code::Pop_r64 => self.set(operand, self.loaded(from)),
            Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Push_rm64 | Code::Pushfq => {}
            _ if matches!(
                instruction.mnemonic(),
                Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea
            ) => {}
            // Of two bytes, or to memory at an address that depends on the pop.
            _ => return Err("changes the stack pointer by a push or a pop that is not followed"),
        }
        Ok(())
    }

    /// Executes an instruction that computes registers and memory from registers, constants and memory.
    fn compute(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), &'static str> {
        let first = instruction.op0_register();
        let exchanges = matches!(instruction.code(), Code::Xchg_rm64_r64 | Code::Xchg_r64_RAX);
        if exchanges && first.is_gpr64() {
            let second = instruction.op1_register();
            let (one, other) = (self.get(first), self.get(second));
            self.set(first, other);
            self.set(second, one);
            return Ok(());
        }
        let result = self.result(instruction);
        let info = info.info(instruction);
        for memory in info.used_memory() {
            self.write(memory, instruction)?;
        }
        for register in info.used_registers() {
            if is_write(register.access()) {
                self.set(register.register(), Value::Unknown);
            }
        }
        if let Some((register, value)) = result {
            self.set(register, value);
        }
        Ok(())
    }

    /// Returns the eight bytes at an address.
    fn loaded(&self, address: Value) -> Value {
        let Value::Stack(at) = address else {
            return Value::Unknown;
        };
        let saved = at.exact().and_then(|at| self.saved.get(&at));
        saved.map_or(Value::Unknown, |register| Value::Original(*register))
    }

    /// Returns the register that an instruction writes and its value, if that is known.
    fn result(&self, instruction: &Instruction) -> Option<(Register, Value)> {
        let to = instruction.op0_register();
        let whole = to.is_gpr64();
        if instruction.op0_kind() != OpKind::Register || !(whole || to.is_gpr32()) {
            return None;
        }
        let number = instruction.try_immediate(1).ok().map(u64::cast_signed);
        let by_register = instruction.op1_kind() == OpKind::Register;
        let by_memory = instruction.op1_kind() == OpKind::Memory;
        let by = match (number, by_register) {
            (Some(number), _) => Value::number(number),
            (None, true) => self.get(instruction.op1_register()),
            (None, false) => Value::Unknown,
        };
        let had = self.get(to);
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if by_memory && instruction.segment_prefix() != Register::GS => {
                self.loaded(self.address(instruction))
            }
            Mnemonic::Mov => by,
            Mnemonic::Movzx => {
                let bytes = if by_register {
                    instruction.op1_register().size()
                } else {
                    instruction.memory_size().size()
                };
                Value::Number(Range::up_to(if bytes == 1 { 0xff } else { 0xffff }))
            }
            Mnemonic::Lea => self.address(instruction),
            Mnemonic::Xor | Mnemonic::Sub if by_register && instruction.op1_register() == to => {
                Value::number(0)
            }
            Mnemonic::Add => number.map_or_else(|| had.plus(by), |number| had.shifted(number)),
            Mnemonic::Sub => match number.and_then(i64::checked_neg) {
                Some(number) => had.shifted(number),
                None => had.minus(by),
            },
            Mnemonic::Inc => had.plus(Value::number(1)),
            Mnemonic::Dec => had.plus(Value::number(-1)),
            Mnemonic::And => match number {
                Some(mask) if whole => had.masked(mask),
                // It is of 32 bits, whatever is above them.
                Some(mask) => Value::Number(Range::up_to(mask & i64::from(u32::MAX))),
                None => Value::Unknown,
            },
            Mnemonic::Shr if whole && let Some(by @ 1..64) = number => {
                Value::Number(Range::up_to((u64::MAX >> by).cast_signed()))
            }
            // A conditional move, for branches have one operand.
            _ if instruction.condition_code() != iced_x86::ConditionCode::None
                && instruction.op_count() == 2 =>
            {
                had.meet(by)
            }
            Mnemonic::Imul | Mnemonic::Neg | Mnemonic::Not | Mnemonic::Or | Mnemonic::Xor => {
                Value::Unknown
            }
            _ => return None,
        };
        Some((to, if whole { value } else { value.word() }))
    }

    /// Returns the address of an instruction's memory operand.
    fn address(&self, instruction: &Instruction) -> Value {
        let part = |register: Register| match register {
            Register::None => Some(Value::number(0)),
            _ => register.is_gpr64().then(|| self.get(register)),
        };
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let parts = part(base).zip(part(index));
        let Some((base, mut offset)) = parts else {
            // Addresses of 32 bits, and those beside the code.
            return Value::Unknown;
        };
        offset = offset.times(instruction.memory_index_scale());
        let sum = if index == Register::None {
            base
        } else {
            base.plus(offset)
        };
        sum.shifted(instruction.memory_displacement64().cast_signed())
    }

    /// A write to memory, if it is one.
    fn write(
        &mut self,
        memory: &UsedMemory,
        instruction: &Instruction,
    ) -> Result<(), &'static str> {
        let of_processor = instruction.segment_prefix() == Register::GS;
        if of_processor || !is_write(memory.access()) {
            return Ok(());
        }
        let size = i64::try_from(memory.memory_size().size()).unwrap_or(i64::MAX);
        let mut address = self.address(instruction);
        let of_bit = matches!(
            instruction.mnemonic(),
            Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
        );
        if of_bit && instruction.op1_kind() == OpKind::Register {
            // The number of the bit says how far from there.
            address = address.plus(Value::Unknown);
        }
        match address {
            Value::Stack(at) => self.write_at(at, size, instruction),
            Value::Within(at) => self.write_within(at, size),
            _ => Ok(()),
        }
    }

    /// A write to a place that is known.
    fn write_at(
        &mut self,
        at: Range,
        size: i64,
        instruction: &Instruction,
    ) -> Result<(), &'static str> {
        let end = at.to.saturating_add(size);
        if end > 0 {
            return Err(OTHERS);
        }
        if self.is_below(at)? {
            return Err(BELOW);
        }
        self.saved
            .retain(|&saved, _| saved >= end || saved.saturating_add(8) <= at.from);
        if instruction.code() == Code::Mov_rm64_r64
            && let Some(at) = at.exact()
            && let Value::Original(register) = self.get(instruction.op1_register())
        {
            self.saved.insert(at, register);
        }
        Ok(())
    }

    /// Returns whether an address may be below the stack pointer.
    fn is_below(&self, at: Range) -> Result<bool, &'static str> {
        let stack = self.stack()?;
        // Both from where the stack was aligned, or not.
        let alike = at.to.wrapping_sub(at.from) == stack.to.wrapping_sub(stack.from);
        Ok(at.from < if alike { stack.from } else { stack.to })
    }

    /// Checks a write to one of many addresses: one of them must be in the function's own frame.
    fn write_within(&self, at: Range, size: i64) -> Result<(), &'static str> {
        if at.to < self.stack()?.from {
            return Err(BELOW);
        }
        let mut free = at.from;
        let overlaps = |free: i64| {
            let mut saved = self.saved.keys();
            saved
                .find(|&&saved| saved < free.saturating_add(size) && free < saved.saturating_add(8))
        };
        while let Some(saved) = overlaps(free) {
            free = saved.saturating_add(8);
        }
        if free > at.to || free.saturating_add(size) > 0 {
            return Err(OTHERS);
        }
        Ok(())
    }
}

const OTHERS: &str =
    "writes over what its caller has on the stack, or what it has saved there itself";
const BELOW: &str = "keeps what is below the stack pointer; compile it with -mno-red-zone";
