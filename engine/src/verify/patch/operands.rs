//! Operands of instrument code: loads, stores and arithmetic.

use crate::verify::reason::Reason;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::hit::{Expected, HitRules, HitStage, Progress};
use super::location::{self, Location};
use super::machine::InstrumentMachine;
use super::state::{AbstractState, Compare, Fact, RAX, RCX, Since};
use super::timer::timer_entry;
use crate::verify::symbolic::atom::{Atom, Op, SymValue};
use crate::verify::text::effects::number;

/// Maximum number of pushed words: fifteen registers and the flags, twice.
const MOST_PUSHED: usize = 32;

impl<'a> InstrumentMachine<'a> {
    /// Returns the atom of a read; forgets an older read by the same instruction.
    pub(crate) fn read(
        &mut self,
        atom: Atom,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        if progress.mentions(&self.values, &atom) {
            return Err(Reason::RereadsSample);
        }
        state.forget(&self.values, &atom);
        Ok(self.values.atom(atom))
    }

    pub(crate) fn operand(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                match number(register) {
                    Some(number) if register.is_gpr64() => Ok(state.register(number)),
                    Some(number) if register.is_gpr32() => {
                        Ok(self.values.mask(state.register(number), 0xffff_ffff))
                    }
                    Some(number) if self.program().is_some() => {
                        let mask = low(register).ok_or_else(|| not_allowed(instruction))?;
                        Ok(self.values.mask(state.register(number), mask))
                    }
                    _ => Err(not_allowed(instruction)),
                }
            }
            OpKind::Memory => self.load(instruction, state, progress),
            _ => {
                let immediate = instruction
                    .try_immediate(operand)
                    .map_err(|_| not_allowed(instruction))?;
                let immediate = if is_wide(instruction) {
                    immediate
                } else {
                    immediate & 0xffff_ffff
                };
                Ok(self.values.constant(immediate))
            }
        }
    }

    pub(crate) fn load(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        let at = instruction.ip();
        if let Some(value) = self.surrounding(instruction, state, progress)? {
            return Ok(value);
        }
        let place = location::of(&mut self.values, &self.layout.abi, instruction, state)?;
        match place {
            Location::Stack(slot) => {
                Ok(state.stack.get(slot).copied().unwrap_or(SymValue::UNKNOWN))
            }
            Location::Word(word)
                if word == self.layout.owner.word.0 && self.layout.has_storage() =>
            {
                Ok(self.values.task(self.layout.owner))
            }
            Location::Word(word) if self.layout.sequences().is_some() => {
                Err(Reason::ForeignWord { word })
            }
            Location::Word(word) if word == self.layout.rings.limit.0 => {
                let limit = self.read(Atom::Limit(at), state, progress)?;
                state.since_head.limit = Some(limit);
                Ok(limit)
            }
            Location::Word(word) if word == self.layout.rings.head.0 => {
                let head = self.read(Atom::Head(at), state, progress)?;
                state.since_head = Since::default();
                Ok(head)
            }
            Location::Word(word) => Err(Reason::ForeignWord { word }),
            Location::Memory(address) => {
                if let Some(word) = self.shared_ring_word(address, progress) {
                    return self.load_shared(word, at, state, progress);
                }
                let Some((entry, word)) = timer_entry(&mut self.values, self.layout, address)
                else {
                    return Err(Reason::ForeignMemory);
                };
                let step = progress.steps;
                let atom = Atom::Timer {
                    at,
                    word,
                    entry,
                    step,
                };
                let read = self.read(atom, state, progress)?;
                let kept = HitStage::Owned {
                    entry,
                    written: None,
                };
                if word == 8 && progress.stage == kept {
                    state.learn(Fact::Mine(read));
                }
                Ok(read)
            }
        }
    }

    pub(crate) fn arithmetic(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        let count = instruction.op_count();
        let same = count == 2
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        let last = count.saturating_sub(1);
        let a = self.operand(
            instruction,
            if count == 3 && instruction.mnemonic() == Mnemonic::Imul {
                1
            } else {
                0
            },
            state,
            progress,
        )?;
        let by_cl = count == 2 && instruction.op1_register() == Register::CL;
        let b = if count < 2 || by_cl {
            self.values.constant(1)
        } else {
            self.operand(instruction, last, state, progress)?
        };
        let wide = is_wide(instruction);
        let shift = || {
            let count = instruction
                .try_immediate(last)
                .map_err(|_| Reason::VariableShift)?;
            u32::try_from(count & if wide { 63 } else { 31 }).map_err(|_| Reason::LongShift)
        };
        let values = &mut self.values;
        let result = match instruction.mnemonic() {
            Mnemonic::Xor | Mnemonic::Sub if same => values.constant(0),
            Mnemonic::Add | Mnemonic::Inc => values.add(a, b),
            Mnemonic::Sub | Mnemonic::Dec => values.sub(a, b),
            Mnemonic::And => values.and(a, b),
            Mnemonic::Or => values.or(a, b),
            Mnemonic::Xor => values.xor(a, b),
            Mnemonic::Imul if count >= 2 => values.mul(a, b),
            Mnemonic::Neg => values.scale(a, u64::MAX),
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar if by_cl && wide => {
                values.shift(shifts(instruction), a, state.register(RCX))
            }
            Mnemonic::Shl => values.shl(a, shift()?),
            Mnemonic::Shr => values.shr(a, shift()?),
            Mnemonic::Sar if wide => {
                let by = values.constant(shift()?.into());
                values.shift(Op::ShiftRightSigned, a, by)
            }
            Mnemonic::Rol => {
                let (by, bits) = (shift()?, if wide { 64 } else { 32 });
                let upper = values.shl(a, by);
                if by == 0 {
                    a
                } else {
                    let lower = values.shr(a, bits - by);
                    values.or(upper, lower)
                }
            }
            Mnemonic::Shrd if wide && count == 3 => {
                let by = shift()?;
                let from = self.operand(instruction, 1, state, progress)?;
                let low = self.values.shr(a, by);
                if by == 0 {
                    low
                } else {
                    let high = self.values.shl(from, 64 - by);
                    self.values.or(low, high)
                }
            }
            _ => return Err(not_allowed(instruction)),
        };
        Ok(if wide {
            result
        } else {
            self.values.mask(result, 0xffff_ffff)
        })
    }

    /// Sets the register of the first operand.
    pub(crate) fn set(
        &mut self,
        instruction: &Instruction,
        value: SymValue,
        state: &mut AbstractState,
    ) -> Result<(), Reason> {
        let register = instruction.op0_register();
        let value = if register.is_gpr32() {
            self.values.mask(value, 0xffff_ffff)
        } else {
            value
        };
        match number(register) {
            _ if register.full_register() == Register::RSP => Err(Reason::MovesStack),
            Some(number)
                if instruction.op0_kind() == OpKind::Register
                    && (register.is_gpr32() || register.is_gpr64()) =>
            {
                state.set(number, value);
                Ok(())
            }
            _ => Err(not_allowed(instruction)),
        }
    }

    /// Executes `mov` to its first operand.
    pub(crate) fn assign(
        &mut self,
        instruction: &Instruction,
        value: SymValue,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<Progress>, Reason> {
        if instruction.op0_kind() != OpKind::Memory {
            self.set(instruction, value, state)?;
            return Ok(Some(progress));
        }
        if let Some(one) = self.program()
            && progress.stage_is_open()
            && !is_own_stack(instruction)
        {
            let write = self.word_written(instruction, state, value, false)?;
            return self.hit(one).write(progress, write, state);
        }
        match (
            location::of(&mut self.values, &self.layout.abi, instruction, state)?,
            expected,
        ) {
            (Location::Word(word), _) => Err(Reason::WritesWord { word }),
            (Location::Stack(slot), _) => {
                let missing = "a pushed word";
                let word = state.stack.get_mut(slot);
                *word.ok_or(Reason::Internal { missing })? = value;
                Ok(Some(progress))
            }
            (Location::Memory(_), None) => Err(Reason::UnhookedStore),
            (Location::Memory(address), Some(expected)) => {
                self.hit(expected).store(progress, address, value, state)
            }
        }
    }

    /// Executes `inc` or `add 1` of a word in memory.
    pub(crate) fn count(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<Progress>, Reason> {
        let by_one = instruction.mnemonic() == Mnemonic::Inc
            || instruction.try_immediate(1).is_ok_and(|by| by == 1);
        let place = location::of(&mut self.values, &self.layout.abi, instruction, state)?;
        let (Location::Word(word), true) = (place, by_one) else {
            return Err(not_allowed(instruction));
        };
        let expected = expected.ok_or(Reason::UnhookedCount)?;
        state.compare = Compare::Unknown;
        self.hit(expected).count(progress, (word, 1), state)
    }

    pub(crate) fn reserve(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<Progress>, Reason> {
        let new = self.operand(instruction, 1, state, progress)?;
        let place = if instruction.op0_kind() == OpKind::Memory {
            location::of(&mut self.values, &self.layout.abi, instruction, state)?
        } else {
            return Err(not_allowed(instruction));
        };
        if let (Location::Memory(address), Some(program)) = (place, self.program())
            && self.shared_ring_word(address, progress) == Some(self.layout.rings.head)
        {
            if !instruction.has_lock_prefix() {
                return Err(Reason::UnlockedRing);
            }
            let old = state.register(RAX);
            state.set(RAX, SymValue::UNKNOWN);
            state.compare = Compare::Unknown;
            return self.hit(program).reserve(progress, old, new, state);
        }
        if let (Location::Memory(address), Some(program)) = (place, self.program())
            && let Some(word) = self.values.as_constant(address)
            && self.layout.sequences().is_some()
        {
            if !instruction.has_lock_prefix() {
                return Err(Reason::UnlockedEntry);
            }
            let old = state.register(RAX);
            state.compare = Compare::Unknown;
            return self.hit(program).raise(progress, (word, old, new), state);
        }
        if let (Location::Memory(address), Some(instrument)) = (place, expected) {
            let Some((entry, 0)) = timer_entry(&mut self.values, self.layout, address) else {
                return Err(Reason::NoEntry);
            };
            if !instruction.has_lock_prefix() {
                return Err(Reason::UnlockedEntry);
            }
            let old = state.register(RAX);
            state.compare = Compare::Unknown;
            return self
                .hit(instrument)
                .exchange(progress, entry, [old, new], state);
        }
        if let (Some(one), Location::Word(word)) = (self.program(), place)
            && word != self.layout.rings.head.0
        {
            let old = state.register(RAX);
            state.compare = Compare::Unknown;
            return self.hit(one).raise(progress, (word, old, new), state);
        }
        if place != Location::Word(self.layout.rings.head.0) {
            return Err(Reason::OtherExchange);
        }
        let expected = expected.ok_or(Reason::UnhookedReservation)?;
        let old = state.register(RAX);
        state.set(RAX, SymValue::UNKNOWN);
        state.compare = Compare::Unknown;
        HitRules {
            expected,
            layout: self.layout,
            values: &mut self.values,
            entries: &mut self.entries,
        }
        .reserve(progress, old, new, state)
    }
}

/// Returns the mask of a low part of a register.
fn low(register: Register) -> Option<u64> {
    let high = [Register::AH, Register::BH, Register::CH, Register::DH];
    if register.is_gpr8() && !high.contains(&register) {
        Some(0xff)
    } else if register.is_gpr16() {
        Some(0xffff)
    } else {
        None
    }
}

fn shifts(instruction: &Instruction) -> Op {
    match instruction.mnemonic() {
        Mnemonic::Shl => Op::ShiftLeft,
        Mnemonic::Shr => Op::ShiftRight,
        _ => Op::ShiftRightSigned,
    }
}

fn is_own_stack(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP
}

pub(crate) fn push(state: &mut AbstractState, value: SymValue) -> Result<(), Reason> {
    state.stack.push(value);
    if state.stack.len() > MOST_PUSHED {
        Err(Reason::DeepStack)
    } else {
        Ok(())
    }
}

/// Returns whether the operand size is 64 bits.
pub(crate) fn is_wide(instruction: &Instruction) -> bool {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().is_gpr64(),
        OpKind::Memory => instruction.memory_size().size() == 8,
        _ => false,
    }
}

pub(crate) fn not_allowed(instruction: &Instruction) -> Reason {
    Reason::Instruction {
        instruction: instruction.to_string(),
    }
}
