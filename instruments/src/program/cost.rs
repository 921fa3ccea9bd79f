//! An upper bound of a probe's cost, before any code is generated.

use std::fmt;
use std::ops::Add;

use super::{
    ActionKind, Aggregate, AggregateKind, BinaryOp, Checked, Expr, ExprKind, Input, Probe, Scope,
    UnaryOp, UserRead,
};

/// Instructions of the target's code for a step from a frame of the kernel's stack to the next one, as measured
/// (`docs/cost.md`). A step in a process takes fewer.
const FRAME: u32 = 240;
/// Instructions of a patch and of the target's code for a stack of one frame.
const STACK: u32 = 80;
/// The same for a read of a process, or for its stack of one frame.
const USER: u32 = 100;
/// The same for half of a text of a process, which is read letter by letter at the end of a mapping: counted in the code
/// of `ilk-driver/kmod/user.c`, not measured. The second half takes some more, and the first some less.
const USER_TEXT: u32 = 260;

/// Instructions that a straightforward translation runs at worst: every value in a register of its
/// own, the predicate true, the longer of two ways taken. Saving and restoring registers is not in
/// it; it depends on the place. There is no loop, so this is a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Instructions executed, at most.
    pub instructions: u32,
    /// Reads of kernel memory and of counters among them that are looked after because they may fault.
    pub loads: u32,
    /// Frames of stacks that are read beyond the first of each, at most; their instructions are not among those above.
    pub frames: u32,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_add(other.instructions),
            loads: self.loads.saturating_add(other.loads),
            frames: self.frames.saturating_add(other.frames),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |number: u32| if number == 1 { "" } else { "s" };
        write!(
            f,
            "at most {} instruction{}",
            self.instructions,
            plural(self.instructions)
        )?;
        if self.loads > 0 {
            write!(f, ", {} guarded load{}", self.loads, plural(self.loads))?;
        }
        if self.frames > 0 {
            write!(
                f,
                ", and {} further frame{} of stacks with about {FRAME} each at most",
                self.frames,
                plural(self.frames)
            )?;
        }
        Ok(())
    }
}

/// Returns the instructions of an update of a table: the hash, and the sums of two buckets.
fn table(aggregate: &Aggregate) -> u32 {
    let Some(table) = aggregate.table() else {
        return 0;
    };
    let words = table.keys + u32::from(table.binned);
    let bin = if table.binned { 20 } else { 0 };
    let bucket = 10 + 5 * table.keys + 2 * table.sums();
    bin + 7 * words + 2 * bucket
}

const fn instructions(instructions: u32) -> Cost {
    Cost {
        instructions,
        loads: 0,
        frames: 0,
    }
}

fn variable(scope: Scope) -> Cost {
    instructions(match scope {
        Scope::Cpu => 1,
        Scope::Global => 2,
        Scope::Thread | Scope::Call => 12,
    })
}

fn stored(scope: Scope) -> Cost {
    match scope {
        Scope::Cpu | Scope::Global => variable(scope),
        Scope::Thread | Scope::Call => instructions(24),
    }
}

impl Checked {
    /// Returns the cost of one hit of a probe.
    #[must_use]
    pub fn cost(&self, probe: &Probe) -> Cost {
        let predicate = probe.predicate.as_ref().map_or(Cost::default(), |expr| {
            self.expression(expr) + instructions(2)
        });
        probe
            .actions
            .iter()
            .map(|action| self.action(&action.kind))
            .fold(predicate, Add::add)
    }

    fn action(&self, kind: &ActionKind) -> Cost {
        let value = kind
            .value()
            .map_or(Cost::default(), |expr| self.expression(expr));
        let scope = |id| self.variables[id].scope;
        value
            + match *kind {
                // A slot is reserved by three, located by three, and filled by eight.
                ActionKind::Sample(_) => {
                    let further = kind.sampled().len().saturating_sub(1);
                    instructions(18 + 14 * u32::try_from(further).unwrap_or(u32::MAX))
                }
                ActionKind::Store(id, _) => stored(scope(id)),
                ActionKind::Add(id, _) => match scope(id) {
                    Scope::Cpu | Scope::Global => stored(scope(id)) + instructions(2),
                    keyed => stored(keyed),
                },
                ActionKind::Update(id, _) => instructions(match self.aggregates[id].kind {
                    AggregateKind::Count => 1,
                    AggregateKind::Sum | AggregateKind::Average => 2,
                    AggregateKind::Min | AggregateKind::Max => 9,
                    AggregateKind::Log2 => 10,
                    AggregateKind::Linear { .. } => 16,
                    AggregateKind::Values { .. } => 44,
                    AggregateKind::Map { .. } => table(&self.aggregates[id]),
                }),
            }
    }

    /// Returns the cost of an expression.
    #[must_use]
    pub fn expression(&self, expr: &Expr) -> Cost {
        self.with_reads(expr, &mut Vec::new())
    }

    /// The same, where some reads of a process's memory are at hand: code reads each once, however often it is mentioned.
    fn with_reads<'e>(&self, expr: &'e Expr, reads: &mut Vec<&'e Expr>) -> Cost {
        if matches!(expr.kind, ExprKind::User { .. }) {
            if reads.contains(&expr) {
                return instructions(1);
            }
            reads.push(expr);
        }
        let mut operands = expr
            .operands()
            .into_iter()
            .map(|operand| self.with_reads(operand, reads));
        match &expr.kind {
            ExprKind::Constant(_) => instructions(1),
            ExprKind::Variable(id) => variable(self.variables[*id].scope),
            ExprKind::Input(Input::Argument(6..)) => Cost {
                loads: 1,
                ..instructions(5)
            },
            ExprKind::Input(Input::Event(_)) => Cost {
                loads: 1,
                ..instructions(7)
            },
            ExprKind::Input(Input::KernelStack(depth)) => Cost {
                frames: u32::from(*depth).saturating_sub(1),
                ..instructions(STACK)
            },
            ExprKind::Input(Input::UserStack(depth)) => Cost {
                frames: u32::from(*depth).saturating_sub(1),
                ..instructions(USER)
            },
            ExprKind::Input(input) => instructions(match input {
                Input::Nsecs => 11,
                Input::Tsc => 4,
                Input::Pid | Input::Tid | Input::Comm(_) => 2,
                _ => 1,
            }),
            ExprKind::Load { .. } => operands.fold(
                Cost {
                    loads: 1,
                    ..instructions(6)
                },
                Add::add,
            ),
            ExprKind::User { read, .. } => operands.fold(
                Cost {
                    loads: 1,
                    ..instructions(match read {
                        UserRead::Text(_) => USER_TEXT,
                        UserRead::Bytes(_)
                        | UserRead::Name
                        | UserRead::Process
                        | UserRead::Comm(_) => USER,
                    })
                },
                Add::add,
            ),
            ExprKind::List(_) => operands.fold(Cost::default(), Add::add),
            ExprKind::Extend { .. } => operands.fold(instructions(1), Add::add),
            ExprKind::Unary(op, _) => operands.fold(
                instructions(if *op == UnaryOp::Not { 3 } else { 1 }),
                Add::add,
            ),
            ExprKind::Binary(op, ..) => operands.fold(
                instructions(match op {
                    BinaryOp::DivideSigned | BinaryOp::RemainderSigned => 15,
                    BinaryOp::DivideUnsigned | BinaryOp::RemainderUnsigned => 9,
                    op if op.compares() => 3,
                    _ => 2,
                }),
                Add::add,
            ),
            ExprKind::And(..) | ExprKind::Or(..) => operands.fold(instructions(6), Add::add),
            ExprKind::Select { .. } => {
                // The condition, and the two values.
                let condition = operands.next().unwrap_or_default();
                let longest = operands.max().unwrap_or_default();
                condition + longest + instructions(4)
            }
        }
    }
}

#[cfg(test)]
mod tests;
