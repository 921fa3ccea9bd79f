//! The effect of one instruction on a state.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::facts::ValueFact;
use super::machine::{AbstractMachine, general};
use super::state::{Compared, FRAME, MachineState, STACK};
use super::value::{Expression, ExpressionId, Numbers, Which, mask, sign_extended};
use crate::isa::RegisterSet;
use crate::isa::abi::{CALLER_SAVED, CHANGED_BY_SYSTEM_CALL};
use crate::isa::effect::is_write;
use crate::isa::stack::stack_shift;

/// Offset of the guard of pointers in a thread's control block (glibc's sysdeps/x86_64/nptl/tls.h).
const GUARD: u64 = 0x30;

impl AbstractMachine<'_> {
    /// Returns what is known of the operand of an indirect branch; `None` of one in memory, which is read whole.
    pub(super) fn branch(
        &self,
        state: &MachineState,
        instruction: &Instruction,
    ) -> Option<ValueFact> {
        let (number, _) = general(instruction.op0_register())?;
        Some(state.fact(&self.all, state.register(number)?))
    }

    /// Executes an instruction that is no branch.
    pub(super) fn execute(&mut self, state: &mut MachineState, instruction: &Instruction) {
        let done = match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                self.call(state, instruction, RegisterSet::of(&CALLER_SAVED));
                return;
            }
            FlowControl::Interrupt => {
                self.forget(state, instruction.ip());
                return;
            }
            FlowControl::Next => self.known(state, instruction),
            _ => None,
        };
        if done.is_none() {
            self.unknown(state, instruction);
        }
        if instruction.rflags_modified() != 0 {
            state.compared = self.comparison(state, instruction, done.flatten());
        }
    }

    /// The operands that flags are of. `before` is the first operand before the instruction.
    fn comparison(
        &mut self,
        state: &MachineState,
        instruction: &Instruction,
        before: Option<Compared>,
    ) -> Option<Compared> {
        let result = |machine: &mut Self| {
            let (number, bits) = general(instruction.op0_register())?;
            let value = machine.all.low(state.register(number)?, bits);
            Some(Compared {
                value,
                with: value,
                bits,
                tests: true,
            })
        };
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Test => before,
            Mnemonic::And if instruction.op0_kind() == OpKind::Register => result(self),
            _ => None,
        }
    }

    /// Executes a call of a function that may change some registers.
    pub(super) fn call(
        &mut self,
        state: &mut MachineState,
        instruction: &Instruction,
        changed: RegisterSet,
    ) {
        let at = instruction.ip();
        for register in changed.iter() {
            let number = register.number();
            let id = self.all.produced(at, Which::Register(number));
            state.learn(id, ValueFact::WHOLE);
            state.set(number, id);
        }
        self.written_by_pointer(state, at);
        state.compared = None;
    }

    /// Executes a system call: the kernel may write to what pointers reach.
    pub(super) fn system_call(&mut self, state: &mut MachineState, instruction: &Instruction) {
        let at = instruction.ip();
        for register in CHANGED_BY_SYSTEM_CALL {
            self.produce(state, at, register.number(), ValueFact::UNKNOWN);
        }
        self.written_by_pointer(state, at);
        state.compared = None;
    }

    /// Changes all registers and memory to values of which nothing is known: the handler of a signal may write any.
    fn forget(&mut self, state: &mut MachineState, at: u64) {
        self.written_by_pointer(state, at);
        state.slots.clear();
        for number in 0..state.registers.len() {
            self.produce(state, at, number, ValueFact::UNKNOWN);
        }
        state.compared = None;
    }

    /// Changes registers and memory to values of which nothing is known.
    fn unknown(&mut self, state: &mut MachineState, instruction: &Instruction) {
        let info = self.factory.info(instruction);
        let stored = info
            .used_memory()
            .iter()
            .any(|used| is_write(used.access()));
        let mut registers = RegisterSet::EMPTY;
        for used in info.used_registers() {
            if is_write(used.access()) {
                registers.insert(used.register());
            }
        }
        if stored {
            match self.address(state, instruction) {
                Some(address) => self.store(state, instruction, address, None),
                None => self.written_by_pointer(state, instruction.ip()),
            }
        }
        for number in 0..state.registers.len() {
            let register = RegisterSet::numbered(number);
            if register.is_some_and(|register| registers.contains(register)) {
                self.produce(state, instruction.ip(), number, ValueFact::UNKNOWN);
            }
        }
    }

    /// Executes an instruction of which the result is known; `None` if it is not, with nothing done. The
    /// operands of a comparison are as they were before it.
    fn known(
        &mut self,
        state: &mut MachineState,
        instruction: &Instruction,
    ) -> Option<Option<Compared>> {
        use Mnemonic as M;
        let at = instruction.ip();
        let to = instruction.op0_register();
        let in_register = instruction.op0_kind() == OpKind::Register;
        match instruction.mnemonic() {
            M::Nop | M::Endbr64 => {}
            M::Cmp | M::Test => {
                let (value, bits) = self.read(state, instruction, 0)?;
                let (with, _) = self.read(state, instruction, 1)?;
                let tests = instruction.mnemonic() == M::Test;
                let same = value == with;
                return Some((!tests || same).then_some(Compared {
                    value,
                    with,
                    bits,
                    tests,
                }));
            }
            M::Mov => {
                let (value, bits) = self.read(state, instruction, 1)?;
                if in_register {
                    self.write(state, at, to, value)?;
                } else {
                    let address = self.address(state, instruction)?;
                    let whole = instruction.memory_size().size() == 8;
                    let value = (whole && bits == 64).then_some(value);
                    self.store(state, instruction, address, value);
                }
            }
            M::Movzx => {
                let (value, bits) = self.read(state, instruction, 1)?;
                let value = self.all.low(value, bits);
                self.write(state, at, to, value)?;
            }
            M::Movsx | M::Movsxd | M::Cdqe => {
                let cdqe = instruction.mnemonic() == M::Cdqe;
                let (value, from) = if cdqe {
                    (state.register(0)?, 32)
                } else {
                    self.read(state, instruction, 1)?
                };
                let to = if cdqe { Register::RAX } else { to };
                let value = self.signed(state, value, from);
                self.write(state, at, to, value)?;
            }
            M::Lea => {
                let address = self.address(state, instruction)?;
                self.write(state, at, to, address)?;
            }
            M::Xor
                if in_register
                    && instruction.op1_kind() == OpKind::Register
                    && to == instruction.op1_register() =>
            {
                let zero = self.all.constant(0);
                self.write(state, at, to, zero)?;
            }
            // glibc keeps pointers turned and combined with a guard (PTR_DEMANGLE of
            // sysdeps/unix/sysv/linux/x86_64/pointer_guard.h): this gives one back whole.
            M::Xor
                if instruction.memory_segment() == Register::FS
                    && instruction.memory_base() == Register::None
                    && instruction.memory_displacement64() == GUARD =>
            {
                let (number, _) = general(to).filter(|(_, bits)| *bits == 64)?;
                self.produce(state, at, number, ValueFact::WHOLE);
            }
            M::Add | M::Sub | M::Inc | M::Dec if in_register => {
                return self.sum(state, instruction);
            }
            M::And | M::Shr | M::Shl if in_register => {
                let (value, bits) = self.read(state, instruction, 0)?;
                let (with, _) = self.read(state, instruction, 1)?;
                let with = self.all.as_constant(with)?;
                let numbers = state.fact(&self.all, value).numbers;
                let to_bits = general(to).filter(|_| bits >= 32)?;
                let numbers = match instruction.mnemonic() {
                    M::And => masked(&numbers, with & mask(bits)),
                    M::Shr if with < u64::from(bits) => {
                        let (first, last) = numbers.bounds();
                        Numbers::Range(first >> with, last >> with)
                    }
                    M::Shl if with < u64::from(bits) => {
                        let wide = self.all.times(value, 1 << with);
                        return self.write(state, at, to, wide).map(|()| None);
                    }
                    _ => return None,
                };
                let whole = false;
                self.compute(state, at, to_bits, ValueFact { numbers, whole });
            }
            M::Push => {
                let shift = self.word_shift(instruction)?;
                let (value, _) = self.read(state, instruction, 0)?;
                let stack = state.register(STACK)?;
                let lower = self.all.plus(stack, shift);
                state.set(STACK, lower);
                self.store(state, instruction, lower, Some(value));
            }
            M::Pop if in_register => {
                let shift = self.word_shift(instruction)?;
                let stack = state.register(STACK)?;
                let value = self.load(state, at, (stack, 8));
                let higher = self.all.plus(stack, shift);
                state.set(STACK, higher);
                self.write(state, at, to, value)?;
            }
            M::Leave => {
                let frame = state.register(FRAME)?;
                let value = self.load(state, at, (frame, 8));
                let higher = self.all.plus(frame, 8);
                state.set(STACK, higher);
                state.set(FRAME, value);
            }
            _ if instruction.condition_code() != ConditionCode::None
                && in_register
                && instruction.op_count() == 2 =>
            {
                self.moved(state, instruction)?;
            }
            _ => return None,
        }
        Some(None)
    }

    /// Returns the number that a push or a pop of eight bytes adds to the stack pointer.
    fn word_shift(&mut self, instruction: &Instruction) -> Option<u64> {
        let shift = stack_shift(&mut self.factory, instruction)?;
        (shift.unsigned_abs() == 8).then_some(shift.cast_unsigned())
    }

    fn sum(
        &mut self,
        state: &mut MachineState,
        instruction: &Instruction,
    ) -> Option<Option<Compared>> {
        let at = instruction.ip();
        let (value, bits) = self.read(state, instruction, 0)?;
        let with = match instruction.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => self.all.constant(1),
            _ => self.read(state, instruction, 1)?.0,
        };
        let adds = matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Inc);
        let result = match (adds, self.all.as_constant(with)) {
            (true, _) => self.all.sum(value, with),
            (false, Some(number)) => self.all.plus(value, number.wrapping_neg()),
            (false, None) => {
                let numbers = state.fact(&self.all, value).numbers;
                let less = state.fact(&self.all, with).numbers;
                let difference = match (numbers.single(), less.single()) {
                    (_, Some(number)) => numbers.mapped(|own| own.wrapping_sub(number)),
                    (Some(number), _) => match less {
                        Numbers::Set(all) => Numbers::set(
                            all.iter().map(|less| number.wrapping_sub(*less)).collect(),
                        ),
                        _ => Numbers::Any,
                    },
                    _ => {
                        let ((a, b), (c, d)) = (numbers.bounds(), less.bounds());
                        match (a.checked_sub(d), b.checked_sub(c)) {
                            (Some(first), Some(last)) => Numbers::Range(first, last),
                            _ => Numbers::Any,
                        }
                    }
                };
                let (number, _) = general(instruction.op0_register())?;
                let id = self.all.produced(at, Which::Register(number));
                let fact = ValueFact {
                    numbers: difference,
                    whole: false,
                };
                state.learn(id, fact);
                id
            }
        };
        self.write(state, at, instruction.op0_register(), result)?;
        let tests = false;
        Some(Some(Compared {
            value,
            with,
            bits,
            tests,
        }))
    }

    /// The low bits of a value with their sign above.
    fn signed(&mut self, state: &mut MachineState, value: ExpressionId, bits: u32) -> ExpressionId {
        let low = self.all.low(value, bits);
        let numbers = state.fact(&self.all, low).numbers;
        let most = mask(bits - 1);
        if numbers.bounds().1 <= most {
            return low;
        }
        let id = match self.all.as_constant(low) {
            Some(number) => return self.all.constant(sign_extended(number, bits)),
            None => self.all.intern(Expression::Signed { of: low, bits }),
        };
        let numbers = numbers.mapped(|number| sign_extended(number, bits));
        if numbers != Numbers::Any {
            let whole = false;
            state.learn(id, ValueFact { numbers, whole });
        }
        id
    }

    /// A conditional move: what is known of either operand under its condition.
    fn moved(&mut self, state: &mut MachineState, instruction: &Instruction) -> Option<()> {
        let (number, bits) = general(instruction.op0_register()).filter(|(_, bits)| *bits >= 32)?;
        let (own, _) = self.read(state, instruction, 0)?;
        let (other, _) = self.read(state, instruction, 1)?;
        let condition = instruction.condition_code();
        let mut facts: Vec<ValueFact> = Vec::new();
        for (value, holds) in [(own, false), (other, true)] {
            let mut state = state.clone();
            if self.assume(&mut state, condition, holds) {
                facts.push(state.fact(&self.all, value));
            }
        }
        let fact = match facts.as_slice() {
            [only] => only.clone(),
            [one, other] => {
                let fact = one.union(other);
                let whole = fact.whole && bits == 64;
                ValueFact { whole, ..fact }
            }
            _ => return None,
        };
        let compared = state.compared;
        self.compute(state, instruction.ip(), (number, bits), fact);
        state.compared = compared;
        Some(())
    }
}

/// The numbers of a bitwise and.
fn masked(numbers: &Numbers, with: u64) -> Numbers {
    match numbers {
        Numbers::Set(all) => Numbers::set(all.iter().map(|number| number & with).collect()),
        // The result of an aligned mask of few bits is one of few numbers.
        _ => Numbers::Range(0, with.min(numbers.bounds().1)),
    }
}
