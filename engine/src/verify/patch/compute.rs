//! Instructions that only programs have: computation, loads of the environment, additions to
//! memory.

use crate::verify::reason::Reason;
use gilk_instruments::program::Input;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::action::{WordWrite, difference};
use super::hit::{HitRules, Progress};
use super::location;
use super::machine::InstrumentMachine;
use super::operands::{is_wide, not_allowed};
use super::state::{AbstractState, Compare, RAX, RDX};
use crate::layout::InputLocation;
use crate::patch::Home;
use crate::verify::symbolic::atom::{Atom, Op, Source, SymValue};

impl InstrumentMachine<'_> {
    /// Returns whether the instruction may have a lock prefix: on words that all CPUs share, and on
    /// entries of the table of storage.
    pub(crate) fn may_lock(&self, instruction: &Instruction) -> bool {
        let word = matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Inc);
        let entry = instruction.mnemonic() == Mnemonic::Cmpxchg;
        (entry || word && self.program().is_some())
            && instruction.memory_segment() != self.layout.abi.segment.register()
    }

    /// Returns the address that `lea` computes from the stack pointer, relative to the one of the
    /// original code.
    pub(crate) fn stack_address(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
    ) -> Option<SymValue> {
        self.program()?;
        let plain = instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None;
        let pushed = state.depth().checked_add(self.entered)?;
        let offset = instruction.memory_displacement64().wrapping_sub(pushed);
        let stack = self.values.atom(Atom::Stack);
        let offset = self.values.constant(offset);
        plain.then(|| self.values.add(stack, offset))
    }

    /// Returns the truth value of a condition, or unknown.
    pub(crate) fn truth(&mut self, condition: ConditionCode, compare: Compare) -> SymValue {
        let values = &mut self.values;
        let zero = values.constant(0);
        let (truth, holds) = match (condition, compare) {
            (ConditionCode::e, Compare::Of(a, b)) => (values.equal(a, b), true),
            (ConditionCode::ne, Compare::Of(a, b)) => (values.equal(a, b), false),
            (ConditionCode::b, Compare::Of(a, b)) => (values.less(false, a, b), true),
            (ConditionCode::ae, Compare::Of(a, b)) => (values.less(false, a, b), false),
            (ConditionCode::a, Compare::Of(a, b)) => (values.less(false, b, a), true),
            (ConditionCode::be, Compare::Of(a, b)) => (values.less(false, b, a), false),
            (ConditionCode::l, Compare::Of(a, b)) => (values.less(true, a, b), true),
            (ConditionCode::ge, Compare::Of(a, b)) => (values.less(true, a, b), false),
            (ConditionCode::g, Compare::Of(a, b)) => (values.less(true, b, a), true),
            (ConditionCode::le, Compare::Of(a, b)) => (values.less(true, b, a), false),
            (ConditionCode::e, Compare::Zero(a) | Compare::OnlyZero(a)) => {
                (values.equal(a, zero), true)
            }
            (ConditionCode::ne, Compare::Zero(a) | Compare::OnlyZero(a)) => {
                (values.equal(a, zero), false)
            }
            (ConditionCode::s, Compare::Zero(a)) => (values.less(true, a, zero), true),
            (ConditionCode::ns, Compare::Zero(a)) => (values.less(true, a, zero), false),
            _ => return SymValue::UNKNOWN,
        };
        if holds { truth } else { values.not(truth) }
    }

    /// Executes an instruction that computes in registers alone.
    pub(crate) fn compute(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        let refused = || not_allowed(instruction);
        let condition = instruction.condition_code();
        let mnemonic = instruction.mnemonic();
        self.program().ok_or_else(refused)?;
        match mnemonic {
            Mnemonic::Not if is_wide(instruction) => {
                let value = self.operand(instruction, 0, state, progress)?;
                let value = self.values.invert(value);
                self.set(instruction, value, state)
            }
            Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                if instruction.op1_kind() != OpKind::Register {
                    return Err(refused());
                }
                let from = instruction.op1_register();
                let bits = u8::try_from(8 * from.size()).unwrap_or(64);
                let value = self.operand(instruction, 1, state, progress)?;
                let signed = mnemonic != Mnemonic::Movzx;
                let value = self.values.extend(value, bits, signed);
                self.set(instruction, value, state)
            }
            Mnemonic::Bsr if is_wide(instruction) => {
                let value = self.operand(instruction, 1, state, progress)?;
                let none = self.values.constant(0);
                let highest = self.values.made(Op::Highest, [value, none, none]);
                state.compare = Compare::OnlyZero(value);
                self.set(instruction, highest, state)
            }
            Mnemonic::Cqo => {
                let by = self.values.constant(63);
                let sign = self
                    .values
                    .shift(Op::ShiftRightSigned, state.register(RAX), by);
                state.set(RDX, sign);
                Ok(())
            }
            Mnemonic::Mul | Mnemonic::Div | Mnemonic::Idiv if is_wide(instruction) => {
                state.compare = Compare::Unknown;
                let by = self.operand(instruction, 0, state, progress)?;
                self.long(mnemonic, by, state)
            }
            _ if is_set(mnemonic) => self.set_low(instruction, condition, state),
            _ if is_move(mnemonic) && is_wide(instruction) => {
                self.choose(instruction, state, progress)
            }
            _ => Err(refused()),
        }
    }

    /// Executes a product or quotient in rax and rdx.
    fn long(
        &mut self,
        mnemonic: Mnemonic,
        by: SymValue,
        state: &mut AbstractState,
    ) -> Result<(), Reason> {
        let values = &mut self.values;
        let (low, high) = (state.register(RAX), state.register(RDX));
        let (low, high) = if mnemonic == Mnemonic::Mul {
            let product = values.mul(low, by);
            (product, values.made_of_two(Op::MultiplyHigh, low, by))
        } else if mnemonic == Mnemonic::Div {
            if values.as_constant(high) != Some(0) || !values.is_never(by, 0) {
                return Err(Reason::Divides);
            }
            let quotient = values.divide(low, by);
            (quotient, values.made_of_two(Op::RemainderUnsigned, low, by))
        } else {
            let fit = values.is_never(by, 0) && values.is_never(by, u64::MAX);
            let sixty_three = values.constant(63);
            let sign = values.shift(Op::ShiftRightSigned, low, sixty_three);
            if !fit || sign.is_unknown() || sign != high {
                return Err(Reason::Divides);
            }
            let quotient = values.made_of_two(Op::DivideSigned, low, by);
            (quotient, values.made_of_two(Op::RemainderSigned, low, by))
        };
        state.set(RAX, low);
        state.set(RDX, high);
        Ok(())
    }

    /// Executes `setcc`, which sets the low byte to 1 or 0.
    fn set_low(
        &mut self,
        instruction: &Instruction,
        condition: ConditionCode,
        state: &mut AbstractState,
    ) -> Result<(), Reason> {
        let register = instruction.op0_register();
        let high = [Register::AH, Register::BH, Register::CH, Register::DH];
        let number = crate::verify::text::effects::number(register);
        let (OpKind::Register, false, Some(number)) =
            (instruction.op0_kind(), high.contains(&register), number)
        else {
            return Err(not_allowed(instruction));
        };
        if register.full_register() == Register::RSP {
            return Err(not_allowed(instruction));
        }
        let truth = self.truth(condition, state.compare);
        let upper = self.values.mask(state.register(number), !0xff);
        let value = self.values.or(upper, truth);
        state.set(number, value);
        Ok(())
    }

    /// Executes a conditional move.
    fn choose(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        let condition = instruction.condition_code();
        let yes = self.operand(instruction, 1, state, progress)?;
        let no = self.operand(instruction, 0, state, progress)?;
        let zero = difference(&mut self.values, state.compare);
        let zero = zero.filter(|_| condition == ConditionCode::e);
        let kept = match self.program() {
            Some(one) => self.hit(one).kept(progress, zero, yes, no)?,
            None => None,
        };
        let value = match kept {
            Some(key) => self.once(Source::Kept(key), 64, state, progress)?,
            None => {
                let truth = self.truth(condition, state.compare);
                self.values.select(truth, yes, no)
            }
        };
        self.set(instruction, value, state)
    }

    /// Returns the value of a source that the step has not read before.
    pub(super) fn once(
        &mut self,
        source: Source,
        bits: u8,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        let atom = Atom::Read(source, progress.steps);
        if !state.reads(source, progress.steps) {
            return Err(Reason::ReadsTwice);
        }
        Ok(self.values.field(atom, 0, bits))
    }

    /// Executes a load from the program's environment; `None` if it is a load of something else.
    pub(crate) fn surrounding(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<Option<SymValue>, Reason> {
        let Some(expected) = self.program() else {
            return Ok(None);
        };
        let Some(probed) = expected.probe.as_deref() else {
            return Ok(None);
        };
        if instruction.memory_base() == Register::RSP {
            return Ok(None);
        }
        let size = instruction.memory_size().size();
        let address = location::address(&mut self.values, instruction, state)?;
        let layout = self.layout;
        let homes = || probed.homes.variables.values().iter();
        let by_word = location::is_word(&layout.abi, instruction)?;
        let word = self.values.as_constant(address);
        let task = self.values.task(layout.owner);
        let offset = self.values.sub(address, task);
        let offset = self.values.as_constant(offset);
        // A read of another size is of something else.
        let of_input = layout.inputs.iter().find_map(|(input, location)| {
            let right = match location {
                InputLocation::Segment(at) => by_word && word == Some(at.0),
                InputLocation::Owner(at) => !by_word && offset == Some(at.into()),
            };
            let bytes = match input {
                Input::Tid | Input::Pid | Input::Cpu => 4,
                Input::Comm(_) => 8,
                _ => return None,
            };
            (right && size == bytes).then_some(Source::Input(input))
        });
        let source = match (by_word, size) {
            _ if of_input.is_some() => of_input,
            (by_word, 8)
                if word.is_some()
                    && by_word == layout.sequences().is_none()
                    && self.hit(expected).largest(progress, state) == word =>
            {
                let atom = Atom::Largest(instruction.ip());
                return self.read(atom, state, progress).map(Some);
            }
            (true, 8) if layout.sequences().is_none() => {
                let own = homes().any(|home| match home {
                    Home::Cpu(slot) => layout.counter(*slot).map(|word| word.0) == word,
                    _ => false,
                });
                word.filter(|_| own).map(Source::Cpus)
            }
            (false, 8) => {
                let row = self.word_of_row(address);
                let is_keyed = row.is_some()
                    && homes().any(|home| match home {
                        Home::Cpu(slot) => layout.counter(*slot).map(|word| word.0) == row,
                        _ => false,
                    });
                let shared = homes().any(|home| match home {
                    Home::Shared(slot) => layout.shared(*slot).map(|at| at.0) == word,
                    _ => false,
                });
                let clock = layout.clock.map(|clock| clock.offset.0);
                match word {
                    _ if is_keyed => row.map(Source::Cpus),
                    Some(_) if word == clock => Some(Source::ClockOffset),
                    _ => word.filter(|_| shared).map(Source::Shared),
                }
            }
            _ => None,
        };
        let bits = if size == 4 { 32 } else { 64 };
        source
            .map(|source| self.once(source, bits, state, progress))
            .transpose()
    }

    /// Returns the write that the first operand stands for.
    ///
    /// # Errors
    /// The operand is not eight bytes, or its address is unknown.
    pub(crate) fn word_written(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        value: SymValue,
        adds: bool,
    ) -> Result<WordWrite, Reason> {
        if instruction.memory_size().size() != 8 {
            return Err(not_allowed(instruction));
        }
        let address = location::address(&mut self.values, instruction, state)?;
        Ok(WordWrite {
            by_word: location::is_word(&self.layout.abi, instruction)?,
            address,
            value,
            adds,
            locked: instruction.has_lock_prefix(),
        })
    }

    /// Executes `add` or `inc` of a word in memory.
    pub(crate) fn add_to(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<Option<Progress>, Reason> {
        let refused = || not_allowed(instruction);
        let expected = self.program().ok_or_else(refused)?;
        if instruction.memory_base() == Register::RSP {
            return Err(refused());
        }
        let amount = match instruction.mnemonic() {
            Mnemonic::Inc => self.values.constant(1),
            _ if instruction.op1_kind() == OpKind::Memory => return Err(refused()),
            _ => self.operand(instruction, 1, state, progress)?,
        };
        let write = self.word_written(instruction, state, amount, true)?;
        state.compare = Compare::Unknown;
        let lost = self.layout.rings.lost_full.0;
        let by_one = self.values.as_constant(amount) == Some(1);
        let word = self.values.as_constant(write.address);
        if write.by_word && by_one && word.is_some() && word == self.hit(expected).failures() {
            self.failed(state, progress)?;
            return Ok(Some(progress));
        }
        let mut hit: HitRules<'_> = self.hit(expected);
        if write.by_word
            && hit.values.as_constant(write.address) == Some(lost)
            && let Some(samples) = hit.values.as_constant(amount)
        {
            return hit.count(progress, (lost, samples), state);
        }
        hit.write(progress, write, state)
    }
}

fn is_set(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Sete
            | Mnemonic::Setne
            | Mnemonic::Setl
            | Mnemonic::Setle
            | Mnemonic::Setg
            | Mnemonic::Setge
            | Mnemonic::Setb
            | Mnemonic::Setbe
            | Mnemonic::Seta
            | Mnemonic::Setae
    )
}

fn is_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cmove
            | Mnemonic::Cmovne
            | Mnemonic::Cmovs
            | Mnemonic::Cmovns
            | Mnemonic::Cmovl
            | Mnemonic::Cmovge
            | Mnemonic::Cmovb
            | Mnemonic::Cmovae
    )
}
