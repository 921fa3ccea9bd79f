//! Register demand of a probe.

use super::action::elapsed_since;
use super::{
    Action, ActionKind, AggregateKind, BinaryOp, Expr, ExprKind, Home, Input, Probed, Scope,
    repeated,
};
use crate::isa::abi::input_register;
use crate::layout::{CounterSlot, RuntimeLayout};

/// Registers that a probe works in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::patch) struct Demand {
    /// rax and rdx.
    pub(in crate::patch) fixed: bool,
    /// rcx.
    pub(in crate::patch) counts: bool,
    /// Others.
    pub(in crate::patch) registers: usize,
}

impl Demand {
    fn of(registers: usize) -> Self {
        Self {
            registers,
            ..Self::default()
        }
    }

    /// rax, rdx and so many others.
    pub(in crate::patch) fn fixed(registers: usize) -> Self {
        Self {
            fixed: true,
            ..Self::of(registers)
        }
    }

    /// Returns the demand of two users that share their registers.
    pub(in crate::patch) fn with(self, other: Self) -> Self {
        Self {
            fixed: self.fixed || other.fixed,
            counts: self.counts || other.counts,
            registers: self.registers.max(other.registers),
        }
    }

    fn above(self, kept: usize) -> Self {
        Self {
            registers: self.registers + kept,
            ..self
        }
    }

    /// For all of a probe.
    pub(in crate::patch) fn of_probe(
        probed: &Probed,
        counter: Option<CounterSlot>,
        layout: &RuntimeLayout,
    ) -> Self {
        let Some(probe) = probed.probe() else {
            return Self::default();
        };
        let predicate = probe.predicate.iter().map(|expr| Self::step(probed, expr));
        let actions = probe.actions.iter();
        let actions = actions.map(|action| Self::of_action(probed, action, counter, layout));
        predicate.chain(actions).fold(Self::default(), Self::with)
    }

    /// An expression, and what is mentioned more than once in it.
    fn step(probed: &Probed, expr: &Expr) -> Self {
        Self::of_expr(probed, expr).above(repeated(expr).len())
    }

    fn of_action(
        probed: &Probed,
        action: &Action,
        counter: Option<CounterSlot>,
        layout: &RuntimeLayout,
    ) -> Self {
        let kept = action.kind.value().map_or(0, |expr| repeated(expr).len());
        let far = |slot| {
            layout
                .counter(slot)
                .is_none_or(|word| word.near().is_none())
        };
        // A word that no displacement reaches is reached through the second register.
        let word = |slot| Self::of(if far(slot) { 2 } else { 0 });
        let own = match &action.kind {
            // A value that is at hand needs no register while a slot is reserved.
            ActionKind::Sample(value) if is_sampled_as_it_is(value) => Self::fixed(2),
            ActionKind::Sample(_) => Self::fixed(3),
            ActionKind::Store(id, _) | ActionKind::Add(id, _) => match probed.home(*id) {
                Some(Home::Thread(_) | Home::Call(_)) => Self::fixed(3),
                Some(Home::Cpu(slot)) => word(slot),
                _ => Self::of(2),
            },
            ActionKind::Update(id, _) => match probed.aggregate(*id, counter) {
                Some((aggregate, first)) => match aggregate.kind {
                    AggregateKind::Min | AggregateKind::Max => Self::fixed(2),
                    AggregateKind::Linear { .. } => Self::fixed(3),
                    AggregateKind::Log2 => Self::of(3),
                    AggregateKind::Values { .. } => Self::of(4),
                    AggregateKind::Count => Self::of(usize::from(far(first))),
                    _ => word(first),
                },
                None => Self::default(),
            },
        };
        let value = match &action.kind {
            // The end of an elapsed time is read with the sample.
            ActionKind::Sample(value) => Some(elapsed_since(value).unwrap_or(value)),
            kind => kind.value(),
        };
        let value = value.map_or(Self::default(), |expr| Self::of_expr(probed, expr));
        own.with(value).above(kept)
    }

    fn of_expr(probed: &Probed, expr: &Expr) -> Self {
        let of = |expr: &Expr| Self::of_expr(probed, expr);
        match &expr.kind {
            ExprKind::Input(Input::Tsc | Input::Nsecs) => Self::fixed(2),
            ExprKind::Input(Input::Event(_)) => Self {
                counts: true,
                ..Self::fixed(1)
            },
            ExprKind::Variable(id) => {
                let keyed = { probed.checked.variable(*id) }
                    .is_some_and(|known| matches!(known.scope, Scope::Thread | Scope::Call));
                Self::of(if keyed { 3 } else { 1 })
            }
            ExprKind::Constant(_) | ExprKind::Input(_) => Self::of(1),
            ExprKind::Load { address: value, .. }
            | ExprKind::Extend { value, .. }
            | ExprKind::Unary(_, value) => of(value),
            ExprKind::Binary(op, left, right) => {
                let both = if at_hand(right) {
                    of(left)
                } else {
                    of(left).with(of(right).above(1))
                };
                match op {
                    BinaryOp::DivideSigned
                    | BinaryOp::DivideUnsigned
                    | BinaryOp::RemainderSigned
                    | BinaryOp::RemainderUnsigned => both.with(Self::fixed(3)),
                    BinaryOp::ShiftLeft
                    | BinaryOp::ShiftRightSigned
                    | BinaryOp::ShiftRightUnsigned
                        if !matches!(right.kind, ExprKind::Constant(_)) =>
                    {
                        // The count is computed even where it is at hand.
                        Self {
                            counts: true,
                            ..both.with(of(right).above(1))
                        }
                    }
                    _ => both,
                }
            }
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                of(left).with(of(right).above(1))
            }
            ExprKind::Select { condition, yes, no } => {
                of(yes).with(of(no).above(1)).with(of(condition).above(2))
            }
        }
    }
}

/// Returns whether a sample takes the value from a register of the code at the hook, from the clock, or from a
/// constant, so that nothing is computed for it.
pub(super) fn is_sampled_as_it_is(expr: &Expr) -> bool {
    match expr.kind {
        ExprKind::Constant(bits) => i32::try_from(bits).is_ok(),
        ExprKind::Input(Input::Tsc | Input::Block) => true,
        ExprKind::Input(input) => input_register(input).is_some(),
        _ => false,
    }
}

/// Returns whether the expression can be the second operand of an instruction as it is.
fn at_hand(expr: &Expr) -> bool {
    match expr.kind {
        ExprKind::Constant(bits) => i32::try_from(bits.cast_signed()).is_ok(),
        ExprKind::Input(input) => input_register(input).is_some(),
        _ => false,
    }
}

/// Returns whether the expression is always 1 or 0.
pub(super) fn is_truth(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::And(..) | ExprKind::Or(..) => true,
        ExprKind::Binary(op, ..) => op.compares(),
        ExprKind::Unary(op, _) => *op == gilk_instruments::program::UnaryOp::Not,
        ExprKind::Constant(bits) => *bits <= 1,
        _ => false,
    }
}
