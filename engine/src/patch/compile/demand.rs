//! Register demand of a probe.

use super::action::elapsed_since;
use super::{
    Action, ActionKind, AggregateKind, BinaryOp, Expr, ExprKind, Home, Input, Mapped, Probed,
    Registers, Scope, VariableId, ops, repeated,
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
        let entries = found_once(probed, counter, layout);
        Needs {
            probed,
            counter,
            layout,
            entries: &entries,
        }
        .probe()
    }
}

/// Returns the homes in the table of storage whose entries the probe finds once, because it uses them more often:
/// those that there are registers for, in the order of their use.
pub(super) fn found_once(
    probed: &Probed,
    counter: Option<CounterSlot>,
    layout: &RuntimeLayout,
) -> Vec<Home> {
    let mut entries = Vec::new();
    for (home, uses) in uses(probed) {
        entries.push(home);
        let needs = Needs {
            probed,
            counter,
            layout,
            entries: &entries,
        };
        if uses < 2 || needs.probe().registers > Registers::MOST_WORK {
            entries.pop();
        }
    }
    entries
}

/// Returns the homes in the table of storage that a probe uses, with the number of times that it does: a predicate or
/// an action reads a variable once.
fn uses(probed: &Probed) -> Vec<(Home, usize)> {
    let mut uses: Vec<(Home, usize)> = Vec::new();
    let mut add = |id: VariableId| {
        let Some(home @ (Home::Thread(_) | Home::Call(_))) = probed.home(id) else {
            return;
        };
        match uses.iter_mut().find(|(known, _)| *known == home) {
            Some((_, uses)) => *uses += 1,
            None => uses.push((home, 1)),
        }
    };
    let Some(probe) = probed.probe() else {
        return uses;
    };
    if let Some(predicate) = &probe.predicate {
        variables(predicate).into_iter().for_each(&mut add);
    }
    for action in &probe.actions {
        let value = action.kind.value();
        value.into_iter().flat_map(variables).for_each(&mut add);
        if let ActionKind::Store(id, _) | ActionKind::Add(id, _) = action.kind {
            add(id);
        }
    }
    uses
}

/// Returns the variables that an expression reads, each once.
fn variables(expr: &Expr) -> Vec<VariableId> {
    let mut read = Vec::new();
    expr.any(&mut |node| {
        if let ExprKind::Variable(id) = node.kind
            && !read.contains(&id)
        {
            read.push(id);
        }
        false
    });
    read
}

/// A probe, with the homes whose entries it finds once.
#[derive(Clone, Copy)]
struct Needs<'p> {
    probed: &'p Probed,
    counter: Option<CounterSlot>,
    layout: &'p RuntimeLayout,
    entries: &'p [Home],
}

impl Needs<'_> {
    fn probe(self) -> Demand {
        let Some(probe) = self.probed.probe() else {
            return Demand::default();
        };
        let predicate = probe.predicate.iter().map(|expr| self.step(expr));
        let actions = probe.actions.iter().map(|action| self.action(action));
        let steps = predicate.chain(actions);
        // A key and an address for each.
        steps
            .fold(Demand::default(), Demand::with)
            .above(2 * self.entries.len())
    }

    /// An expression, and what is mentioned more than once in it.
    fn step(self, expr: &Expr) -> Demand {
        self.expr(expr).above(repeated(expr).len())
    }

    /// Returns whether a variable's entry is found once in the probe.
    fn is_found(self, id: VariableId) -> bool {
        let home = self.probed.home(id);
        home.is_some_and(|home| self.entries.contains(&home))
    }

    fn action(self, action: &Action) -> Demand {
        let kept = action.kind.value().map_or(0, |expr| repeated(expr).len());
        let far = |slot| {
            self.layout
                .counter(slot)
                .is_none_or(|word| word.near().is_none())
        };
        // A word that no displacement reaches, or of another address on each CPU, is reached through the second
        // register.
        let of_process = self.layout.sequences();
        let sequences = of_process.is_some_and(|sequences| sequences.area.is_some());
        // All threads share a ring.
        let shares = of_process.is_some() && !sequences;
        let word = |slot| Demand::of(if far(slot) || sequences { 2 } else { 0 });
        let needed = match &action.kind {
            // The words that are not constants, and a slot's place. Where each CPU has a ring, the first ring and a spare, too,
            // and in a process the row of the CPU's words.
            ActionKind::Sample(Expr {
                kind: ExprKind::List(words),
                ..
            }) => {
                let kept = kept_words(words).count();
                match shares {
                    true => Demand {
                        counts: true,
                        ..Demand::fixed(kept + 1)
                    },
                    false => Demand::fixed(kept + 3 + usize::from(sequences)),
                }
            }
            ActionKind::Sample(value) => {
                // A value that is at hand needs no register while a slot is reserved.
                let value = usize::from(!is_sampled_as_it_is(value));
                match shares {
                    // The clock is read with the CPU in rcx.
                    true => Demand {
                        counts: true,
                        ..Demand::fixed(value + 1)
                    },
                    false => Demand::fixed(value + 2),
                }
            }
            ActionKind::Store(id, _) | ActionKind::Add(id, _) => match self.probed.home(*id) {
                Some(Home::Thread(_) | Home::Call(_)) if self.is_found(*id) => Demand::fixed(1),
                Some(Home::Thread(_) | Home::Call(_)) => Demand::fixed(3),
                Some(Home::Cpu(slot)) => word(slot),
                _ => Demand::of(2),
            },
            ActionKind::Update(id, _) => match self.probed.aggregate(*id, self.counter) {
                Some((aggregate, first)) => match aggregate.kind {
                    AggregateKind::Min | AggregateKind::Max => Demand::fixed(2),
                    AggregateKind::Linear { .. } => Demand::fixed(3),
                    AggregateKind::Log2 => Demand::of(3),
                    AggregateKind::Values { .. } => Demand::of(4),
                    AggregateKind::Count => {
                        let through = far(first) || sequences;
                        Demand::of(usize::from(through))
                    }
                    // The list; then the hash, a bucket, a part of the key, and the address of a word.
                    AggregateKind::Map { of, .. } => {
                        let list = action.kind.value().map_or(0, |list| list.operands().len());
                        let fixed = matches!(of, Mapped::Linear { .. });
                        Demand {
                            fixed,
                            ..Demand::of(list + 4)
                        }
                    }
                    _ => word(first),
                },
                None => Demand::default(),
            },
        };
        let value = match &action.kind {
            // The end of an elapsed time is read with the sample.
            ActionKind::Sample(value) => Some(elapsed_since(value).unwrap_or(value)),
            kind => kind.value(),
        };
        let value = match value {
            Some(Expr {
                kind: ExprKind::List(words),
                ..
            }) if matches!(action.kind, ActionKind::Sample(_)) => self.list(kept_words(words)),
            value => value.map_or(Demand::default(), |expr| self.expr(expr)),
        };
        let of_table = |id| {
            let aggregate = self.probed.aggregate(id, self.counter);
            aggregate.is_some_and(|(aggregate, _)| aggregate.table().is_some())
        };
        match action.kind {
            // The words of an entry are computed before its hash, which no expression is part of.
            ActionKind::Update(id, _) if of_table(id) => needed.with(value.above(kept)),
            // So are those of a line before its slots are reserved.
            ActionKind::Sample(Expr {
                kind: ExprKind::List(_),
                ..
            }) => needed.with(value.above(kept)),
            _ => needed.with(value).above(kept),
        }
    }

    /// Values in registers, one after the other.
    fn list<'e>(self, all: impl Iterator<Item = &'e Expr>) -> Demand {
        (0..)
            .zip(all)
            .map(|(before, one)| self.expr(one).above(before))
            .fold(Demand::default(), Demand::with)
    }

    fn expr(self, expr: &Expr) -> Demand {
        let of = |expr: &Expr| self.expr(expr);
        match &expr.kind {
            ExprKind::Input(Input::Tsc | Input::Nsecs) => Demand::fixed(2),
            ExprKind::Input(Input::Event(_)) => Demand {
                counts: true,
                ..Demand::fixed(1)
            },
            ExprKind::Variable(id) => {
                let scope = self.probed.checked.variables[*id].scope;
                let keyed = matches!(scope, Scope::Thread | Scope::Call);
                Demand::of(match (keyed, self.is_found(*id)) {
                    (false, _) => 1,
                    (true, true) => 2,
                    (true, false) => 3,
                })
            }
            ExprKind::Constant(_) | ExprKind::Input(_) => Demand::of(1),
            ExprKind::Load { address: value, .. }
            | ExprKind::User { address: value, .. }
            | ExprKind::Extend { value, .. }
            | ExprKind::Unary(_, value) => of(value),
            ExprKind::List(all) => self.list(all.iter()),
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
                    | BinaryOp::RemainderUnsigned => both.with(Demand::fixed(3)),
                    op if ops::shift(*op).is_some()
                        && !matches!(right.kind, ExprKind::Constant(_)) =>
                    {
                        // The count is computed even where it is at hand.
                        Demand {
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

/// Returns the words of a list that are in registers: a line's number of its format is none.
pub(super) fn kept_words(list: &[Expr]) -> impl Iterator<Item = &Expr> {
    list.iter().filter(|word| !is_small(word))
}

/// Returns whether a word is a constant that a store has in itself.
pub(super) fn is_small(word: &Expr) -> bool {
    matches!(word.kind, ExprKind::Constant(bits) if i32::try_from(bits).is_ok())
}

/// Returns whether a sample takes the value from a register of the code at the hook, from the clock, or from a
/// constant, so that nothing is computed for it.
pub(in crate::patch) fn is_sampled_as_it_is(expr: &Expr) -> bool {
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
