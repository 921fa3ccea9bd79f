//! The interpreter of checked programs, which defines their meaning. It is pure: all inputs come from a [`Machine`],
//! and all effects go there.

use crate::program::{
    ActionKind, AggregateId, Checked, Expr, ExprKind, Input, Probe, UserRead, VariableId, Width,
};

/// The machine that executes a program.
pub trait Machine {
    /// An input. [`Input::Tsc`] and [`Input::Nsecs`] may be another number each time.
    fn input(&mut self, input: Input) -> u64;

    /// Kernel memory, little-endian, extended with zeroes; `None` if it cannot be read.
    fn load(&mut self, address: u64, width: Width) -> Option<u64>;

    /// A read of the running process; `None` if its memory cannot be read there.
    fn user(&mut self, read: UserRead, address: u64) -> Option<u64>;

    /// Reads a variable: that of this CPU or thread, if there are several.
    fn read(&mut self, variable: VariableId) -> u64;

    /// Stores into it.
    fn write(&mut self, variable: VariableId, value: u64);

    /// Puts a value into an aggregate; none for a count, the words of its key first for a map. See
    /// [`Aggregate::update`](crate::program::Aggregate::update).
    fn update(&mut self, aggregate: AggregateId, values: &[u64]);

    /// Delivers a sample: its value, or the number of a line's format and the words of its arguments.
    fn sample(&mut self, words: &[u64]);

    /// A load read 0 because it faulted.
    fn fault(&mut self);
}

/// Runs one probe, and says whether its predicate held.
pub fn run(program: &Checked, probe: &Probe, machine: &mut impl Machine) -> bool {
    debug_assert!(program.probes.contains(probe), "a probe of the program");
    if let Some(predicate) = &probe.predicate
        && evaluate(predicate, machine) == 0
    {
        return false;
    }
    for action in &probe.actions {
        match &action.kind {
            ActionKind::Sample(_) => {
                let words = action.kind.sampled().iter();
                let words: Vec<u64> = words.map(|word| evaluate(word, machine)).collect();
                machine.sample(&words);
            }
            ActionKind::Store(variable, value) => {
                let value = evaluate(value, machine);
                machine.write(*variable, value);
            }
            ActionKind::Add(variable, value) => {
                let value = evaluate(value, machine);
                let sum = machine.read(*variable).wrapping_add(value);
                machine.write(*variable, sum);
            }
            ActionKind::Update(aggregate, value) => {
                let listed = value.iter().flat_map(|value| match &value.kind {
                    ExprKind::List(all) => all,
                    _ => std::slice::from_ref(value),
                });
                let values: Vec<u64> = listed.map(|value| evaluate(value, machine)).collect();
                machine.update(*aggregate, &values);
            }
        }
    }
    true
}

/// Computes an expression.
pub fn evaluate(expr: &Expr, machine: &mut impl Machine) -> u64 {
    match &expr.kind {
        ExprKind::Constant(bits) => *bits,
        ExprKind::Input(input) => machine.input(*input),
        ExprKind::Variable(variable) => machine.read(*variable),
        ExprKind::Load {
            address,
            width,
            signed,
        } => {
            let address = evaluate(address, machine);
            if let Some(value) = machine.load(address, *width) {
                width.extend(value, *signed)
            } else {
                machine.fault();
                0
            }
        }
        ExprKind::User { read, address } => {
            let address = evaluate(address, machine);
            machine.user(*read, address).unwrap_or_else(|| {
                machine.fault();
                0
            })
        }
        ExprKind::Extend {
            value,
            width,
            signed,
        } => width.extend(evaluate(value, machine), *signed),
        ExprKind::Unary(op, operand) => op.apply(evaluate(operand, machine)),
        ExprKind::Binary(op, left, right) => {
            let left = evaluate(left, machine);
            op.apply(left, evaluate(right, machine))
        }
        ExprKind::And(left, right) => {
            u64::from(evaluate(left, machine) != 0 && evaluate(right, machine) != 0)
        }
        ExprKind::Or(left, right) => {
            u64::from(evaluate(left, machine) != 0 || evaluate(right, machine) != 0)
        }
        ExprKind::Select { condition, yes, no } => {
            let chosen = if evaluate(condition, machine) != 0 {
                yes
            } else {
                no
            };
            evaluate(chosen, machine)
        }
        ExprKind::List(_) => {
            debug_assert!(false, "internal error: a list has no value");
            0
        }
    }
}
