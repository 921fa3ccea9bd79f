//! The meaning of a program in symbolic values: this verifier's own reading of the checked trees,
//! independent of the compiler.

use gilk_instruments::program::{
    Aggregate, AggregateKind, BinaryOp, Expr, ExprKind, Gpr, Input, Probe, UnaryOp, UserRead,
};

use super::state::{AbstractState, Fact};
use crate::InstrumentId;
use crate::layout::{InputLocation, RuntimeLayout};
use crate::patch::{Home, Probed};
use crate::verify::symbolic::atom::{Atom, Key, Op, Source, SymValue};
use crate::verify::symbolic::value::SymValues;
use crate::verify::text::effects::argument_number;

/// The context of an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) probed: &'a Probed,
    pub(crate) id: InstrumentId,
    pub(crate) layout: &'a RuntimeLayout,
    /// Index of the step.
    pub(crate) step: u16,
    /// The clock that the step has read.
    pub(crate) clock: Option<SymValue>,
}

/// Returns whether the probe has a predicate to test.
pub(crate) fn has_tests(probe: &Probe) -> bool {
    probe
        .predicate
        .as_ref()
        .is_some_and(|expr| !matches!(expr.kind, ExprKind::Constant(bits) if bits != 0))
}

/// Returns the number of bits of a read of the running process.
pub(crate) fn user_bits(read: UserRead) -> u8 {
    match read {
        UserRead::Bytes(width) => u8::try_from(8 * width.bytes()).unwrap_or(64),
        UserRead::Process => 32,
        UserRead::Text(_) | UserRead::Name | UserRead::Comm(_) => 64,
    }
}

/// Returns the number of steps of a probe.
pub(crate) fn steps(probe: &Probe) -> usize {
    usize::from(has_tests(probe)) + probe.actions.len()
}

impl Context<'_> {
    fn read(&self, values: &mut SymValues, source: Source, bits: u8) -> SymValue {
        values.field(Atom::Read(source, self.step), 0, bits)
    }

    /// Returns the value of an expression, or unknown.
    pub(crate) fn value(&self, values: &mut SymValues, expr: &Expr) -> SymValue {
        match &expr.kind {
            ExprKind::Constant(bits) => values.constant(*bits),
            ExprKind::Input(input) => match self.memory(values, expr) {
                Some(source) => self.read(values, source, 64),
                None => self.input(values, *input),
            },
            ExprKind::Variable(id) => {
                let source = match self.probed.home(*id) {
                    Some(Home::Cpu(slot)) => self.layout.counter(slot).map(|gs| Source::Cpus(gs.0)),
                    Some(Home::Shared(slot)) => {
                        self.layout.shared(slot).map(|at| Source::Shared(at.0))
                    }
                    home => home.and_then(Key::of).map(Source::Kept),
                };
                source.map_or(SymValue::UNKNOWN, |source| self.read(values, source, 64))
            }
            ExprKind::Load { width, signed, .. } => {
                let bits = u8::try_from(8 * width.bytes()).unwrap_or(64);
                let read = self
                    .memory(values, expr)
                    .map_or(SymValue::UNKNOWN, |source| self.read(values, source, bits));
                values.extend(read, bits, *signed)
            }
            ExprKind::User { read, .. } => {
                let source = self.user(values, expr);
                let bits = user_bits(*read);
                source.map_or(SymValue::UNKNOWN, |source| self.read(values, source, bits))
            }
            ExprKind::Extend {
                value,
                width,
                signed,
            } => {
                let value = self.value(values, value);
                let bits = u8::try_from(8 * width.bytes()).unwrap_or(64);
                values.extend(value, bits, *signed)
            }
            ExprKind::Unary(op, operand) => {
                let value = self.value(values, operand);
                match op {
                    UnaryOp::Negate => values.scale(value, u64::MAX),
                    UnaryOp::Invert => values.invert(value),
                    UnaryOp::Not => {
                        let truth = values.truth(value);
                        values.not(truth)
                    }
                }
            }
            ExprKind::Binary(op, left, right) => {
                let left = self.value(values, left);
                let right = self.value(values, right);
                binary(values, *op, left, right)
            }
            ExprKind::And(left, right) => {
                let [left, right] = self.truths(values, left, right);
                values.and(left, right)
            }
            ExprKind::Or(left, right) => {
                let [left, right] = self.truths(values, left, right);
                values.or(left, right)
            }
            // It is no value; the update of a map reads its parts.
            ExprKind::List(_) => SymValue::UNKNOWN,
            ExprKind::Select { condition, yes, no } => {
                let yes = self.value(values, yes);
                let no = self.value(values, no);
                let condition = self.value(values, condition);
                let truth = values.truth(condition);
                values.select(truth, yes, no)
            }
        }
    }

    /// Returns the memory that a load or an argument on the stack reads.
    pub(crate) fn memory(&self, values: &mut SymValues, expr: &Expr) -> Option<Source> {
        let (address, bytes) = match &expr.kind {
            ExprKind::Load { address, width, .. } => {
                let bytes = u8::try_from(width.bytes()).unwrap_or(8);
                (self.value(values, address), bytes)
            }
            ExprKind::Input(Input::Argument(number)) if argument_number(*number).is_none() => {
                // At the entry the return address is on top of the stack, followed by the arguments
                // from the sixth on.
                let stack = values.atom(Atom::Stack);
                let above = values.constant(8 * u64::from(number.saturating_sub(5)));
                (values.add(stack, above), 8)
            }
            _ => return None,
        };
        (!address.is_unknown()).then_some(Source::Memory { address, bytes })
    }

    /// Returns the read of the running process that an expression is.
    pub(crate) fn user(&self, values: &mut SymValues, expr: &Expr) -> Option<Source> {
        let ExprKind::User { read, address } = &expr.kind else {
            return None;
        };
        let (address, read) = (self.value(values, address), *read);
        (!address.is_unknown()).then_some(Source::User { address, read })
    }

    fn truths(&self, values: &mut SymValues, left: &Expr, right: &Expr) -> [SymValue; 2] {
        [left, right].map(|expr| {
            let value = self.value(values, expr);
            values.truth(value)
        })
    }

    fn input(&self, values: &mut SymValues, input: Input) -> SymValue {
        match input {
            Input::Argument(number) => {
                argument_number(number).map_or(SymValue::UNKNOWN, SymValue::original)
            }
            Input::Returned => SymValue::original(0),
            Input::Register(Gpr::Rsp) => values.atom(Atom::Stack),
            Input::Register(gpr) => {
                let number = Gpr::ALL.iter().position(|known| *known == gpr);
                let number = number.and_then(|number| u8::try_from(number).ok());
                number.map_or(SymValue::UNKNOWN, SymValue::original)
            }
            Input::Task => {
                let word = InputLocation::Segment(self.layout.owner.word);
                if self.layout.inputs.get(input) == Some(word) {
                    values.task(self.layout.owner)
                } else {
                    SymValue::UNKNOWN
                }
            }
            Input::Tid | Input::Pid | Input::Cpu => self.read(values, Source::Input(input), 32),
            Input::Comm(_) | Input::KernelStack(_) | Input::UserStack(_) => {
                self.read(values, Source::Input(input), 64)
            }
            Input::Tsc => self.clock.unwrap_or(SymValue::UNKNOWN),
            Input::Nsecs => {
                let (Some(tsc), Some(clock)) = (self.clock, self.layout.clock) else {
                    return SymValue::UNKNOWN;
                };
                let factor = values.constant(clock.factor);
                let low = values.mul(tsc, factor);
                let low = values.shr(low, 32);
                let high = values.made_of_two(Op::MultiplyHigh, tsc, factor);
                let high = values.shl(high, 32);
                let scaled = values.or(low, high);
                let offset = self.read(values, Source::ClockOffset, 64);
                values.add(scaled, offset)
            }
            Input::Block => values.constant(self.id.block.into()),
            Input::Identifier => values.constant(self.id.pack()),
            Input::Event(event) => {
                let read = self.read(values, Source::Event(event), 64);
                let counter = self.layout.events.counter(event);
                let width = counter.map_or(0, |counter| counter.width);
                values.extend(read, width, false)
            }
        }
    }

    /// Returns whether a predicate holds, if the facts decide it.
    pub(crate) fn holds(
        &self,
        values: &mut SymValues,
        expr: &Expr,
        state: &AbstractState,
    ) -> Option<bool> {
        let value = self.value(values, expr);
        let truth = values.truth(value);
        let known = known(values, truth, state);
        known.or_else(|| match &expr.kind {
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                // The operand that decides alone: false of an and, true of an or.
                let decides = matches!(expr.kind, ExprKind::Or(..));
                let left = self.holds(values, left, state);
                let right = self.holds(values, right, state);
                match (left, right) {
                    (Some(one), _) | (_, Some(one)) if one == decides => Some(decides),
                    (Some(_), Some(_)) => Some(!decides),
                    _ => None,
                }
            }
            ExprKind::Unary(UnaryOp::Not, inner) => {
                self.holds(values, inner, state).map(|inner| !inner)
            }
            _ => None,
        })
    }
}

/// Returns whether a truth value is 1, if constants or the facts of branches decide it.
pub(crate) fn known(
    values: &mut SymValues,
    truth: SymValue,
    state: &AbstractState,
) -> Option<bool> {
    if let Some(constant) = values.as_constant(truth) {
        return Some(constant != 0);
    }
    let other = values.not(truth);
    if truth.is_unknown() || other.is_unknown() {
        None
    } else if state.knows(Fact::Holds(truth)) {
        Some(true)
    } else {
        state.knows(Fact::Holds(other)).then_some(false)
    }
}

fn binary(values: &mut SymValues, op: BinaryOp, a: SymValue, b: SymValue) -> SymValue {
    let zero = values.constant(0);
    let one = values.constant(1);
    match op {
        BinaryOp::Add => values.add(a, b),
        BinaryOp::Subtract => values.sub(a, b),
        BinaryOp::Multiply => values.mul(a, b),
        BinaryOp::And => values.and(a, b),
        BinaryOp::Or => values.or(a, b),
        BinaryOp::Xor => values.xor(a, b),
        BinaryOp::ShiftLeft => values.shift(Op::ShiftLeft, a, b),
        BinaryOp::ShiftRightUnsigned => values.shift(Op::ShiftRight, a, b),
        BinaryOp::ShiftRightSigned => values.shift(Op::ShiftRightSigned, a, b),
        BinaryOp::Equal => values.equal(a, b),
        BinaryOp::Unequal => {
            let equal = values.equal(a, b);
            values.not(equal)
        }
        BinaryOp::LessSigned => values.less(true, a, b),
        BinaryOp::LessUnsigned => values.less(false, a, b),
        BinaryOp::GreaterSigned => values.less(true, b, a),
        BinaryOp::GreaterUnsigned => values.less(false, b, a),
        BinaryOp::GreaterOrEqualSigned => unless(values, true, a, b),
        BinaryOp::GreaterOrEqualUnsigned => unless(values, false, a, b),
        BinaryOp::LessOrEqualSigned => unless(values, true, b, a),
        BinaryOp::LessOrEqualUnsigned => unless(values, false, b, a),
        BinaryOp::DivideUnsigned
        | BinaryOp::RemainderUnsigned
        | BinaryOp::DivideSigned
        | BinaryOp::RemainderSigned => {
            // Division by zero yields zero, as 0 by 1 does.
            let is_zero = values.equal(b, zero);
            let a = values.select(is_zero, zero, a);
            let b = values.select(is_zero, one, b);
            match op {
                BinaryOp::DivideUnsigned => return values.divide(a, b),
                BinaryOp::RemainderUnsigned => {
                    return values.made_of_two(Op::RemainderUnsigned, a, b);
                }
                _ => {}
            }
            // Division by -1 negates, which maps the least number to itself, as the negation by 1
            // does.
            let minus_one = values.constant(u64::MAX);
            let turns = values.equal(b, minus_one);
            let opposite = values.scale(a, u64::MAX);
            let a = values.select(turns, opposite, a);
            let b = values.select(turns, one, b);
            let op = if op == BinaryOp::DivideSigned {
                Op::DivideSigned
            } else {
                Op::RemainderSigned
            };
            values.made_of_two(op, a, b)
        }
    }
}

/// True if the first is not less.
fn unless(values: &mut SymValues, signed: bool, a: SymValue, b: SymValue) -> SymValue {
    let less = values.less(signed, a, b);
    values.not(less)
}

impl SymValues {
    pub(crate) fn invert(&mut self, value: SymValue) -> SymValue {
        let all = self.constant(u64::MAX);
        self.sub(all, value)
    }

    pub(crate) fn divide(&mut self, a: SymValue, by: SymValue) -> SymValue {
        match self.as_constant(by) {
            Some(constant) if constant.is_power_of_two() => self.shr(a, constant.trailing_zeros()),
            _ => self.made_of_two(Op::DivideUnsigned, a, by),
        }
    }

    /// Shifts by the low six bits of the second operand.
    pub(crate) fn shift(&mut self, op: Op, a: SymValue, by: SymValue) -> SymValue {
        let constant = self.as_constant(by);
        let constant = constant.and_then(|by| u32::try_from(by & 63).ok());
        match (op, constant) {
            (Op::ShiftLeft, Some(by)) => self.shl(a, by),
            (Op::ShiftRight, Some(by)) => self.shr(a, by),
            (_, Some(by)) => {
                let by = self.constant(by.into());
                self.made_of_two(op, a, by)
            }
            (_, None) => self.made_of_two(op, a, by),
        }
    }

    /// Maps a value to the unsigned order in which an aggregate keeps its maximum.
    pub(crate) fn compared(&mut self, aggregate: &Aggregate, value: SymValue) -> SymValue {
        let top = self.constant(1 << 63);
        let value = if aggregate.ty.signed() {
            self.xor(value, top)
        } else {
            value
        };
        if aggregate.kind == AggregateKind::Min {
            self.invert(value)
        } else {
            value
        }
    }

    /// Returns the index of the word of a histogram in which a value is counted: below the number
    /// of its words, for every value.
    pub(crate) fn bucket(&mut self, aggregate: &Aggregate, value: SymValue) -> SymValue {
        let signed = aggregate.ty.signed();
        let zero = self.constant(0);
        match aggregate.kind {
            AggregateKind::Log2 => {
                // 2 plus the index of the highest bit; zero is in word 1, negative values are in
                // word 0.
                let (one, two) = (self.constant(1), self.constant(2));
                let highest = self.made(Op::Highest, [value, zero, zero]);
                let none = self.equal(value, zero);
                let minus_one = self.sub(zero, one);
                let place = self.select(none, minus_one, highest);
                let place = if signed {
                    let minus_two = self.sub(zero, two);
                    let negative = self.less(true, value, zero);
                    self.select(negative, minus_two, place)
                } else {
                    place
                };
                self.add(place, two)
            }
            AggregateKind::Linear { from, to, step } => {
                let last = aggregate.words().saturating_sub(1);
                let step = self.constant(step.max(1));
                let low = self.constant(from.cast_unsigned());
                let place = self.sub(value, low);
                let place = self.divide(place, step);
                let one = self.constant(1);
                let minus_one = self.sub(zero, one);
                // An unsigned value is never less than a bound that is not above zero.
                let place = if signed || from > 0 {
                    let below = self.less(signed, value, low);
                    self.select(below, minus_one, place)
                } else {
                    place
                };
                let bound = if signed { to } else { to.max(0) };
                let bound = self.constant(bound.cast_unsigned());
                let above = self.less(signed, value, bound);
                let above = self.not(above);
                let most = self.constant(u64::from(last.saturating_sub(1)));
                let place = self.select(above, most, place);
                self.add(place, one)
            }
            _ => SymValue::UNKNOWN,
        }
    }
}
