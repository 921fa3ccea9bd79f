//! What is known of registers and of the stack while a function of an object file is followed.

use std::collections::BTreeMap;

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// What a function has to leave as it was, besides rsp (System V ABI, 3.2.1).
const KEPT: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// What a register or a place on the stack has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    /// Nobody knows.
    #[default]
    Unknown,
    /// What that register had at the function's start.
    Original(Register),
    /// An address on the stack: so many bytes above the return address.
    Stack(i64),
}

/// What is known before an instruction.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// By number.
    registers: [Value; 16],
    /// What is known to be on the stack, each eight bytes, by bytes above the return address.
    slots: BTreeMap<i64, Value>,
}

impl State {
    /// At the function's start.
    pub(super) fn entry() -> Self {
        let mut state = Self {
            registers: [Value::Unknown; 16],
            slots: BTreeMap::new(),
        };
        for register in KEPT {
            state.set(register, Value::Original(register));
        }
        state.set(Register::RSP, Value::Stack(0));
        state
    }

    /// What a whole register has; of a part of one, nobody knows.
    fn get(&self, register: Register) -> Value {
        let known = register
            .is_gpr64()
            .then(|| self.registers.get(register.number()));
        known.flatten().copied().unwrap_or_default()
    }

    fn set(&mut self, register: Register, value: Value) {
        let whole = register.full_register();
        if whole.is_gpr64()
            && let Some(known) = self.registers.get_mut(whole.number())
        {
            *known = value;
        }
    }

    /// Where rsp is, in bytes below the return address.
    pub(super) fn depth(&self) -> Result<u64, &'static str> {
        let Value::Stack(at) = self.get(Register::RSP) else {
            return Err("changes the stack pointer so that nobody knows by how much");
        };
        u64::try_from(at.saturating_neg())
            .map_err(|_| "takes more from the stack than it has put there")
    }

    /// Whether all is as it was before, where control goes back to the caller.
    pub(super) fn comes_back(&self) -> Result<(), String> {
        let depth = self.depth()?;
        if depth != 0 {
            return Err(format!("goes back with {depth} bytes left on the stack"));
        }
        let changed = { KEPT.into_iter() }.find(|&one| self.get(one) != Value::Original(one));
        changed.map_or(Ok(()), |register| {
            Err(format!(
                "goes back where {register:?} may not have its caller's value; tell the compiler what assembly changes"
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
            if known != other {
                *known = Value::Unknown;
            }
        }
        self.slots
            .retain(|at, value| other.slots.get(at) == Some(value));
        Ok(self.registers != before.registers || self.slots.len() != before.slots.len())
    }

    /// Behind a call: what it may change is not known.
    pub(super) fn called(&mut self) {
        for (number, known) in self.registers.iter_mut().enumerate() {
            let kept = KEPT.iter().any(|one| one.number() == number);
            if !kept && number != Register::RSP.number() {
                *known = Value::Unknown;
            }
        }
    }

    /// An instruction behind which control runs on.
    pub(super) fn step(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Result<(), &'static str> {
        let first = instruction.op0_register();
        match instruction.code() {
            Code::Push_r64 => return self.push(self.get(first)),
            Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Push_rm64 | Code::Pushfq => {
                return self.push(Value::Unknown);
            }
            Code::Pop_r64 => {
                let value = self.pop()?;
                self.set(first, value);
            }
            Code::Leaveq => {
                self.set(Register::RSP, self.get(Register::RBP));
                self.depth()?;
                let value = self.pop()?;
                self.set(Register::RBP, value);
            }
            _ => {
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
            }
        }
        // What is below rsp is anybody's.
        let low = -self.depth()?.cast_signed();
        self.slots.retain(|at, _| *at >= low);
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), &'static str> {
        let at = -self.depth()?.cast_signed() - 8;
        self.set(Register::RSP, Value::Stack(at));
        self.slots.insert(at, value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, &'static str> {
        let at = -self.depth()?.cast_signed();
        self.set(Register::RSP, Value::Stack(at + 8));
        Ok(self.slots.get(&at).copied().unwrap_or_default())
    }

    /// What comes into which register, of what can be told.
    fn result(&self, instruction: &Instruction) -> Option<(Register, Value)> {
        let to = instruction.op0_register();
        let to_register = instruction.op0_kind() == OpKind::Register && to.is_gpr64();
        let value = match instruction.mnemonic() {
            _ if !to_register => return None,
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                self.get(instruction.op1_register())
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                let at = self.place(instruction)?;
                self.slots.get(&at).copied()?
            }
            Mnemonic::Lea => Value::Stack(self.place(instruction)?),
            Mnemonic::Add | Mnemonic::Sub => {
                let Value::Stack(at) = self.get(to) else {
                    return None;
                };
                let by = instruction.try_immediate(1).ok()?.cast_signed();
                let down = instruction.mnemonic() == Mnemonic::Sub;
                let at = if down {
                    at.checked_sub(by)
                } else {
                    at.checked_add(by)
                };
                Value::Stack(at?)
            }
            _ => return None,
        };
        Some((to, value))
    }

    /// Where on the stack the memory of an instruction is, if that is told by a register and a number.
    fn place(&self, instruction: &Instruction) -> Option<i64> {
        let plain = instruction.memory_index() == Register::None
            && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        let Value::Stack(base) = self.get(instruction.memory_base()) else {
            return None;
        };
        plain.then(|| base.checked_add(instruction.memory_displacement64().cast_signed()))?
    }

    /// A write to memory, if it is one.
    fn write(
        &mut self,
        memory: &UsedMemory,
        instruction: &Instruction,
    ) -> Result<(), &'static str> {
        let Some(at) = self
            .place(instruction)
            .filter(|_| is_write(memory.access()))
        else {
            return Ok(());
        };
        let size = i64::try_from(memory.memory_size().size()).unwrap_or(i64::MAX);
        let end = at.saturating_add(size);
        if end > 0 {
            return Err("writes over what its caller has on the stack");
        }
        if at < -self.depth()?.cast_signed() {
            return Err("keeps what is below the stack pointer; compile it with -mno-red-zone");
        }
        self.slots
            .retain(|&slot, _| slot >= end || slot.saturating_add(8) <= at);
        if instruction.code() == Code::Mov_rm64_r64 {
            self.slots.insert(at, self.get(instruction.op1_register()));
        }
        Ok(())
    }
}

fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}
