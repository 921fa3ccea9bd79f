//! The abstract machine's operands: registers, the stack's slots and memory.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

use super::facts::ValueFact;
use super::slots::Place;
use super::state::{FRAME, MachineState, STACK};
use super::value::{Expression, ExpressionId, Expressions, MOST, Numbers, Which, mask};
use crate::code::Memory;
use crate::{Addr, Span};

/// An interpreter that executes instructions on abstract states.
pub(super) struct AbstractMachine<'m> {
    pub(super) all: Expressions,
    memory: &'m Memory,
    /// By address.
    read_only: &'m [Span],
    pub(super) factory: InstructionInfoFactory,
    /// The lowest address of each stack frame that the function computes: objects from there on may be
    /// written by pointers.
    taken: FxHashMap<ExpressionId, i64>,
    /// The highest end of a slot of each stack frame that was kept where a pointer wrote.
    kept: FxHashMap<ExpressionId, i64>,
    /// False if not all of the function is interpreted, so that pointers to any slot may be computed elsewhere.
    follows_stack: bool,
    /// True if the frame pointer may hold an address of the stack.
    pub(super) has_frame: bool,
}

/// In the place of the number of a register: a value that was read from memory.
const READ: usize = 16;

/// Returns whether a pointer may reach a slot of a stack frame, given its end.
fn reaches(taken: &FxHashMap<ExpressionId, i64>, base: ExpressionId, end: i64) -> bool {
    let mut taken = taken.iter();
    taken.any(|(&own, &first)| own != base || end > first)
}

/// The number of a general-purpose register, and its bits.
pub(super) fn general(register: Register) -> Option<(usize, u32)> {
    let high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let is_general = register.is_gpr() && !high;
    let bits = u32::try_from(register.size() * 8).ok()?;
    is_general.then(|| (register.full_register().number(), bits))
}

impl<'m> AbstractMachine<'m> {
    pub(super) fn new(memory: &'m Memory, read_only: &'m [Span], follows_stack: bool) -> Self {
        Self {
            all: Expressions::default(),
            memory,
            read_only,
            factory: InstructionInfoFactory::new(),
            taken: FxHashMap::default(),
            kept: FxHashMap::default(),
            follows_stack,
            has_frame: true,
        }
    }

    /// Begins to interpret the function again, with the addresses that it is known to compute.
    pub(super) fn begin(&mut self) {
        self.kept.clear();
    }

    /// Returns whether a slot was kept that a pointer may reach by what is known now.
    pub(super) fn has_kept_too_much(&self) -> bool {
        let mut kept = self.kept.iter();
        kept.any(|(&base, &end)| reaches(&self.taken, base, end))
    }

    pub(super) fn produce(
        &mut self,
        state: &mut MachineState,
        at: u64,
        number: usize,
        fact: ValueFact,
    ) {
        let id = self.all.produced(at, Which::Register(number));
        state.learn(id, fact);
        state.set(number, id);
    }

    /// A result of 32 or 64 bits.
    pub(super) fn compute(
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
    pub(super) fn address(
        &mut self,
        state: &MachineState,
        instruction: &Instruction,
    ) -> Option<ExpressionId> {
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
        let known = base == stack || state.slots.has_base(base);
        known.then_some((base, offset.cast_signed()))
    }

    /// Returns whether an address is computed from the stack or the frame pointer.
    fn is_on_stack(&self, state: &MachineState, address: ExpressionId) -> bool {
        let base = self.all.parts(address).0;
        let pointers = [STACK, FRAME].into_iter();
        pointers
            .filter(|number| *number != FRAME || self.has_frame)
            .any(|number| {
                let pointer = state.register(number);
                pointer.is_some_and(|pointer| self.all.parts(pointer).0 == base)
            })
    }

    pub(super) fn load(
        &mut self,
        state: &mut MachineState,
        at: u64,
        (address, bytes): (ExpressionId, u32),
    ) -> ExpressionId {
        if let Some(slot) = self
            .place(state, address)
            .and_then(|place| state.slots.get(place).copied())
        {
            return self.all.low(slot, bytes * 8);
        }
        if !self.follows_stack && self.is_on_stack(state, address) {
            return self.all.produced(at, Which::Register(READ));
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
            let span = Span::holding(self.read_only, at)?;
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

    pub(super) fn store(
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
        state.slots.retain(|(own, slot)| {
            own == base
                && (slot.saturating_add(8) <= offset || offset.saturating_add(bytes) <= slot)
        });
        if let Some(value) = value
            && self.follows_stack
        {
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

    /// Memory was written, the stack only where a pointer may point.
    pub(super) fn written_by_pointer(&mut self, state: &mut MachineState, at: u64) {
        state.memory = self.all.produced(at, Which::Memory);
        let (taken, kept) = (&self.taken, &mut self.kept);
        state.slots.retain(|(base, offset)| {
            let end = offset.saturating_add(8);
            let is_kept = !reaches(taken, base, end);
            if is_kept {
                let highest = kept.entry(base).or_insert(end);
                *highest = (*highest).max(end);
            }
            is_kept
        });
    }

    pub(super) fn write(
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
    pub(super) fn read(
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
                    Some(address) => self.load(state, instruction.ip(), (address, bytes)),
                    None => {
                        let id = self.all.produced(instruction.ip(), Which::Register(READ));
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
}
