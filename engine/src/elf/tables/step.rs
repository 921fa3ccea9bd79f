//! The effect of one instruction on a state, and of a branch that is or is not taken.

use std::collections::HashMap;

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::state::{Compared, FRAME, MachineState, Place, STACK, ValueFact};
use super::value::{
    Expression, ExpressionId, Expressions, MOST, Numbers, Which, mask, sign_extended,
};
use crate::code::Memory;
use crate::isa::RegisterSet;
use crate::isa::abi::CALLER_SAVED;
use crate::{Addr, Span};

/// Offset of the guard of pointers in a thread's control block (glibc's sysdeps/x86_64/nptl/tls.h).
const GUARD: u64 = 0x30;

/// An interpreter that executes instructions on abstract states.
pub(super) struct AbstractMachine<'m> {
    pub(super) all: Expressions,
    memory: &'m Memory,
    /// By address.
    read_only: &'m [Span],
    factory: InstructionInfoFactory,
    /// The lowest address of each stack frame that the function computes: objects from there on may be
    /// written by pointers.
    pub(super) taken: HashMap<ExpressionId, i64>,
}

/// The number of a general-purpose register, and its bits.
fn general(register: Register) -> Option<(usize, u32)> {
    let high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let is_general = register.is_gpr() && !high;
    let bits = u32::try_from(register.size() * 8).ok()?;
    is_general.then(|| (register.full_register().number(), bits))
}

impl<'m> AbstractMachine<'m> {
    pub(super) fn new(memory: &'m Memory, read_only: &'m [Span]) -> Self {
        Self {
            all: Expressions::default(),
            memory,
            read_only,
            factory: InstructionInfoFactory::new(),
            taken: HashMap::new(),
        }
    }

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
                self.call(state, instruction);
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

    fn call(&mut self, state: &mut MachineState, instruction: &Instruction) {
        let at = instruction.ip();
        for register in CALLER_SAVED {
            let number = register.number();
            let id = self.all.produced(at, Which::Register(number));
            state.learn(id, ValueFact::WHOLE);
            state.set(number, id);
        }
        self.written_by_pointer(state, at);
        state.compared = None;
    }

    /// Memory was written, the stack only where a pointer may point.
    fn written_by_pointer(&mut self, state: &mut MachineState, at: u64) {
        state.memory = self.all.produced(at, Which::Memory);
        let taken = &self.taken;
        let reaches = |(base, offset): Place| {
            taken
                .iter()
                .any(|(&own, &first)| own != base || offset.saturating_add(8) > first)
        };
        state.slots.retain(|&place, _| !reaches(place));
    }

    /// Changes registers and memory to values of which nothing is known.
    fn unknown(&mut self, state: &mut MachineState, instruction: &Instruction) {
        let writes = |access: OpAccess| {
            !matches!(
                access,
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        };
        let info = self.factory.info(instruction);
        let stored = info.used_memory().iter().any(|used| writes(used.access()));
        let mut registers = RegisterSet::EMPTY;
        for used in info.used_registers() {
            if writes(used.access()) {
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

    fn produce(&mut self, state: &mut MachineState, at: u64, number: usize, fact: ValueFact) {
        let id = self.all.produced(at, Which::Register(number));
        state.learn(id, fact);
        state.set(number, id);
    }

    /// A result of 32 or 64 bits.
    fn compute(
        &mut self,
        state: &mut MachineState,
        at: u64,
        (number, bits): (usize, u32),
        fact: ValueFact,
    ) {
        self.produce(state, at, number, fact);
        if let Some(id) = state.register(number) {
            let low = self.all.low(id, bits);
            state.set(number, low);
        }
    }

    /// The address of the memory operand; `None` if there is none, or it is in another segment.
    fn address(&mut self, state: &MachineState, instruction: &Instruction) -> Option<ExpressionId> {
        let memory = (0..instruction.op_count())
            .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let is_lea = instruction.mnemonic() == Mnemonic::Lea;
        let far = matches!(instruction.memory_segment(), Register::FS | Register::GS);
        if !memory || far && !is_lea {
            return None;
        }
        if instruction.memory_base() == Register::RIP {
            return Some(self.all.constant(instruction.ip_rel_memory_address()));
        }
        let mut address = self.all.constant(instruction.memory_displacement64());
        for (register, scale) in [
            (instruction.memory_base(), 1),
            (
                instruction.memory_index(),
                instruction.memory_index_scale() as u64,
            ),
        ] {
            if register == Register::None {
                continue;
            }
            // `addr32` would cut the address.
            let (number, 64) = general(register)? else {
                return None;
            };
            let scaled = self.all.times(state.register(number)?, scale);
            address = self.all.sum(address, scaled);
        }
        Some(address)
    }

    /// The slot of the stack at an address.
    fn place(&self, state: &MachineState, address: ExpressionId) -> Option<Place> {
        let (base, offset) = self.all.parts(address);
        let stack = self.all.parts(*state.registers.get(STACK)?).0;
        let known = base == stack || state.slots.keys().any(|(own, _)| *own == base);
        known.then_some((base, offset.cast_signed()))
    }

    fn load(
        &mut self,
        state: &mut MachineState,
        address: ExpressionId,
        bytes: u32,
    ) -> ExpressionId {
        if let Some(&slot) = self
            .place(state, address)
            .and_then(|place| state.slots.get(&place))
        {
            return self.all.low(slot, bytes * 8);
        }
        let memory = state.memory;
        let id = self.all.intern(Expression::Loaded {
            address,
            bytes,
            memory,
        });
        if let Some(numbers) = self.constants(state, address, bytes) {
            let whole = bytes == 8;
            state.learn(id, ValueFact { numbers, whole });
        }
        id
    }

    /// The numbers at all addresses that an address may be, if they are constants of the object.
    fn constants(
        &self,
        state: &MachineState,
        address: ExpressionId,
        bytes: u32,
    ) -> Option<Numbers> {
        let addresses = state.fact(&self.all, address).numbers.listed(MOST)?;
        let mut numbers = Vec::with_capacity(addresses.len());
        for at in addresses.into_iter().map(Addr) {
            let after = self.read_only.partition_point(|span| span.start <= at);
            let span = self.read_only.get(after.checked_sub(1)?)?;
            let wanted = Span::new(at, u64::from(bytes));
            if wanted.end > span.end || wanted.end < at {
                return None;
            }
            let mut word = [0; 8];
            word.get_mut(..bytes as usize)?
                .copy_from_slice(self.memory.bytes(wanted)?);
            numbers.push(u64::from_le_bytes(word));
        }
        Some(Numbers::set(numbers))
    }

    fn store(
        &mut self,
        state: &mut MachineState,
        instruction: &Instruction,
        to: ExpressionId,
        value: Option<ExpressionId>,
    ) {
        let at = instruction.ip();
        let Some((base, offset)) = self.place(state, to) else {
            // An index into the stack: any of its slots.
            if let Expression::Sum(..) = self.all.form(self.all.parts(to).0) {
                state.slots.clear();
            }
            self.written_by_pointer(state, at);
            return;
        };
        state.memory = self.all.produced(at, Which::Memory);
        let bytes = i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX);
        let bytes = bytes.max(8);
        state.slots.retain(|&(own, slot), _| {
            own == base
                && (slot.saturating_add(8) <= offset || offset.saturating_add(bytes) <= slot)
        });
        if let Some(value) = value {
            state.slots.insert((base, offset), value);
            self.take(state, value);
        }
    }

    /// Notes that an address of the stack becomes a value like others.
    fn take(&mut self, state: &MachineState, value: ExpressionId) {
        if let Some((base, offset)) = self.place(state, value) {
            let first = self.taken.entry(base).or_insert(offset);
            *first = (*first).min(offset);
        }
    }

    fn write(
        &mut self,
        state: &mut MachineState,
        at: u64,
        register: Register,
        value: ExpressionId,
    ) -> Option<()> {
        let (number, bits) = general(register)?;
        match bits {
            64 => {
                if number != STACK && number != FRAME {
                    self.take(state, value);
                }
                state.set(number, value);
            }
            32 => {
                let low = self.all.low(value, 32);
                state.set(number, low);
            }
            _ => self.produce(state, at, number, ValueFact::UNKNOWN),
        }
        Some(())
    }

    /// The value of an operand and its bits.
    fn read(
        &mut self,
        state: &mut MachineState,
        instruction: &Instruction,
        operand: u32,
    ) -> Option<(ExpressionId, u32)> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let (number, bits) = general(instruction.op_register(operand))?;
                let value = state.register(number)?;
                Some((self.all.low(value, bits), bits))
            }
            OpKind::Memory => {
                let bytes = u32::try_from(instruction.memory_size().size()).ok()?;
                if !matches!(bytes, 1 | 2 | 4 | 8) {
                    return None;
                }
                let value = match self.address(state, instruction) {
                    Some(address) => self.load(state, address, bytes),
                    None => {
                        let id = self.all.produced(instruction.ip(), Which::Register(16));
                        let whole = bytes == 8;
                        let numbers = match bytes {
                            8 => Numbers::Any,
                            bytes => Numbers::Range(0, mask(bytes * 8)),
                        };
                        state.learn(id, ValueFact { numbers, whole });
                        id
                    }
                };
                Some((value, bytes * 8))
            }
            kind => {
                let bits = match kind {
                    OpKind::Immediate8 => 8,
                    OpKind::Immediate8to16 | OpKind::Immediate16 => 16,
                    OpKind::Immediate8to32 | OpKind::Immediate32 => 32,
                    OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => 64,
                    _ => return None,
                };
                Some((self.all.constant(instruction.immediate(operand)), bits))
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
                let (value, _) = self.read(state, instruction, 0)?;
                let stack = state.register(STACK)?;
                let lower = self.all.plus(stack, 8_u64.wrapping_neg());
                state.set(STACK, lower);
                self.store(state, instruction, lower, Some(value));
            }
            M::Pop if in_register => {
                let stack = state.register(STACK)?;
                let value = self.load(state, stack, 8);
                let higher = self.all.plus(stack, 8);
                state.set(STACK, higher);
                self.write(state, at, to, value)?;
            }
            M::Leave => {
                let frame = state.register(FRAME)?;
                let value = self.load(state, frame, 8);
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
        if let Numbers::Set(all) = numbers {
            let numbers = all.iter().map(|&number| sign_extended(number, bits));
            let numbers = Numbers::set(numbers.collect());
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

    /// Narrows a state to where a condition holds or does not; returns whether that can be.
    pub(super) fn assume(
        &mut self,
        state: &mut MachineState,
        condition: ConditionCode,
        holds: bool,
    ) -> bool {
        use ConditionCode as C;
        let Some(compared) = state.compared else {
            return true;
        };
        let condition = if holds { condition } else { negated(condition) };
        let Compared {
            value, with, bits, ..
        } = compared;
        let value = self.all.low(value, bits);
        let (most, positive) = (mask(bits), mask(bits - 1));
        let narrowed = if compared.tests {
            match condition {
                C::e | C::be => Some((0, 0)),
                C::ne | C::a => Some((1, most)),
                C::ns | C::ge => Some((0, positive)),
                C::s | C::l => Some((positive + 1, most)),
                C::g => Some((1, positive)),
                _ => None,
            }
        } else {
            let with = self.all.low(with, bits);
            let (first, last) = state.fact(&self.all, with).numbers.bounds();
            let (first, last) = (first.min(most), last.min(most));
            let is_positive =
                state.fact(&self.all, value).numbers.bounds().1 <= positive && last <= positive;
            match condition {
                C::b if last == 0 => return false,
                C::b => Some((0, last - 1)),
                C::be => Some((0, last)),
                C::a if first == most => return false,
                C::a => Some((first + 1, most)),
                C::ae => Some((first, most)),
                C::e => Some((first, last)),
                C::l if is_positive && last == 0 => return false,
                C::l if is_positive => Some((0, last - 1)),
                C::le if is_positive => Some((0, last)),
                C::g if last <= positive => Some((first.saturating_add(1), positive)),
                C::ge if last <= positive => Some((first, positive)),
                _ => None,
            }
        };
        let Some((first, last)) = narrowed else {
            return true;
        };
        if let Expression::Low { of, .. } = self.all.form(value) {
            // Nothing is above the bits that were compared.
            let is_whole = state.fact(&self.all, of).numbers.bounds().1 <= most;
            if is_whole && !state.narrow(&self.all, of, first, last) {
                return false;
            }
        }
        state.narrow(&self.all, value, first, last)
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

fn negated(condition: ConditionCode) -> ConditionCode {
    use ConditionCode as C;
    match condition {
        C::None => C::None,
        C::o => C::no,
        C::no => C::o,
        C::b => C::ae,
        C::ae => C::b,
        C::e => C::ne,
        C::ne => C::e,
        C::be => C::a,
        C::a => C::be,
        C::s => C::ns,
        C::ns => C::s,
        C::p => C::np,
        C::np => C::p,
        C::l => C::ge,
        C::ge => C::l,
        C::le => C::g,
        C::g => C::le,
    }
}
