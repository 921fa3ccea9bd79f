//! The checked form of an instrument, an intermediate representation: expression trees of 64-bit integers, one
//! list of actions a probe. There is no loop and no call, and control only branches forward: past a probe whose
//! predicate does not hold, past the operands that `&&`, `||` and `?:` leave out.
//!
//! The meaning of every node is fixed by [`interpret`](crate::interpret); generated code has to do
//! the same.

mod aggregate;
mod cost;
mod event;
mod expr;
mod ops;
mod table;

use std::fmt;
use std::sync::Arc;

use gilk_samples::Meaning;
use gilk_samples::ids::{Ids, id};
use gilk_samples::texts::Texts;
pub use gilk_samples::texts::ValueNames;

pub use aggregate::{Aggregate, AggregateKind, Bucket, Key, Keys, Mapped, Summary};
pub use cost::Cost;
pub use event::Event;
pub use expr::{Expr, ExprKind, Gpr, Half, Input, Type, UserRead, Width};
pub use ops::{BinaryOp, Operator, UnaryOp};
pub use table::Table;

/// A stretch of the source, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of the one to the end of the other.
    #[must_use]
    pub fn to(self, end: Self) -> Self {
        Self {
            start: self.start,
            end: end.end,
        }
    }
}

/// A checked instrument, for the function it was checked for.
///
/// What it keeps between hits, its variables and aggregates, belongs to the **placement**: what a
/// person has put at a block or a function at once, whatever number of hooks that is. All of it is
/// zero when the session starts. Only [shared](Variable::shared) variables are the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Name in sessions: lower case, digits and dashes.
    pub name: Arc<str>,
    /// One sentence for a person who chooses.
    pub summary: String,
    /// Unit of its samples and of the values in its aggregates; empty for none.
    pub unit: String,
    /// Meaning of its samples, for readers and charts.
    pub meaning: Meaning,
    /// Texts of its samples; `None` if they are plain numbers.
    pub texts: Option<Texts>,
    /// True if a placement is removed at its first hit.
    pub once: bool,
    /// State between hits.
    pub variables: Ids<VariableId, Variable>,
    /// Aggregates in the order of the source.
    pub aggregates: Ids<AggregateId, Aggregate>,
    /// Probes in the order of the source, which is the order in which they run at one hook.
    pub probes: Vec<Probe>,
}

/// The instances of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One.
    Global,
    /// One a CPU.
    Cpu,
    /// One a thread. It is 0 in a thread that has not stored into it, and in one whose entry of the table is
    /// taken by another thread.
    Thread,
    /// One an activation of the function, identified by the stack pointer at its entry: right under recursion,
    /// preemption and interrupts. Used in entry and return probes only; it is 0 where the activation has not
    /// stored into it, as for [`Thread`](Self::Thread).
    Call,
}

/// A variable: 64 bits, zero at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, without the `@`.
    pub name: String,
    /// Its instances.
    pub scope: Scope,
    /// True if all instruments of the session that declare a shared variable of this name and scope have it in
    /// common; otherwise it belongs to the placement.
    pub shared: bool,
    /// Type of its value.
    pub ty: Type,
}

/// The kind of hook that a probe runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// At the hook that the placement names, before or after its block.
    Hit,
    /// Before the placement's block.
    Pre,
    /// After the placement's block, before the branch that ends it.
    Post,
    /// Before the function's first instruction.
    Entry,
    /// The ends of a call: before the function's returns, and before those of functions that it tail-calls. A
    /// tail call that cannot be followed is an end too; the returned value is not known there, so a probe that
    /// reads it runs at returns only.
    Return,
    /// Before every instruction that leaves the function: returns, and jumps to other functions.
    Leave,
    /// On the edge that the conditional branch at the end of the placement's block takes.
    Taken,
    /// On the edge on which that branch is not taken.
    Untaken,
    /// Before a tail call. No source has it:
    /// [`Checked::followed`] does.
    Onward,
    /// The return of a tail call. No source has it either.
    Back,
}

impl Hook {
    /// All that a source can have.
    pub const ALL: [Self; 8] = [
        Self::Hit,
        Self::Pre,
        Self::Post,
        Self::Entry,
        Self::Return,
        Self::Leave,
        Self::Taken,
        Self::Untaken,
    ];

    /// The word for it, in the source for those that it can have.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Entry => "entry",
            Self::Return => "return",
            Self::Leave => "leave",
            Self::Taken => "taken",
            Self::Untaken => "untaken",
            Self::Onward => "onward",
            Self::Back => "back",
        }
    }

    /// Returns whether the probe belongs to a function, not to one block of it.
    #[must_use]
    pub fn of_function(self) -> bool {
        self == Self::Entry || self.is_exit()
    }

    /// Returns whether the probe runs at the ends of a function's calls.
    #[must_use]
    pub fn is_exit(self) -> bool {
        matches!(self, Self::Return | Self::Leave | Self::Onward | Self::Back)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One clause of an instrument: a hook, a predicate and actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Kind of hook.
    pub hook: Hook,
    /// Another function than the placement's (`entry:__schedule`), for entry and return probes.
    pub function: Option<String>,
    /// The actions run if this is not 0.
    pub predicate: Option<Expr>,
    /// Actions in order.
    pub actions: Vec<Action>,
    /// All of the probe in the source.
    pub span: Span,
}

id!(
    /// Key of a variable in [`Checked::variables`].
    pub VariableId(pub)
);

id!(
    /// Key of an aggregate in [`Checked::aggregates`].
    pub AggregateId(pub)
);

/// One thing a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The operation.
    pub kind: ActionKind,
    /// Its statement in the source.
    pub span: Span,
}

/// The operation of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Delivers a sample with this value, or with the words of an [`ExprKind::List`]: the number of a line's format,
    /// which is a constant, and its arguments.
    Sample(Expr),
    /// Stores into a variable.
    Store(VariableId, Expr),
    /// Adds to a variable, wrapping, so that nothing is lost between processors (global: locked) or
    /// to an interrupt (per CPU: one instruction).
    Add(VariableId, Expr),
    /// Puts a value into an aggregate; `None` for [`AggregateKind::Count`], which takes none, and an
    /// [`ExprKind::List`] for [`AggregateKind::Map`].
    Update(AggregateId, Option<Expr>),
}

impl ActionKind {
    /// Returns the words of the sample that it delivers; none if it delivers none.
    #[must_use]
    pub fn sampled(&self) -> &[Expr] {
        match self {
            Self::Sample(value) => match &value.kind {
                ExprKind::List(words) => words,
                _ => std::slice::from_ref(value),
            },
            _ => &[],
        }
    }

    /// Returns the value that it computes.
    #[must_use]
    pub fn value(&self) -> Option<&Expr> {
        match self {
            Self::Sample(value) | Self::Store(_, value) | Self::Add(_, value) => Some(value),
            Self::Update(_, value) => value.as_ref(),
        }
    }
}

impl Checked {
    /// Returns whether it is placed on a function as a whole: it has probes at the entry or the exits of
    /// the placement's function, and none at a block.
    #[must_use]
    pub fn of_function(&self) -> bool {
        self.probes
            .iter()
            .all(|probe| probe.hook.of_function() || probe.function.is_some())
    }
}

impl Probe {
    /// All expressions in it, in the order in which they run.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.predicate
            .iter()
            .chain(self.actions.iter().filter_map(|action| action.kind.value()))
    }

    /// Returns whether the target's code that reads processes is called for it.
    #[must_use]
    pub fn reads_process(&self) -> bool {
        let mut expressions = self.expressions();
        expressions.any(|expr| expr.any(&mut Expr::is_of_process))
    }

    /// Returns whether it numbers stacks of the target, or addresses of processes.
    #[must_use]
    pub fn numbers_stacks(&self) -> bool {
        let mut expressions = self.expressions();
        expressions.any(|expr| expr.any(&mut Expr::is_stack))
    }

    /// Returns whether it reads the returned value, which is not known at a tail call.
    #[must_use]
    pub fn reads_returned(&self) -> bool {
        self.expressions()
            .any(|expr| expr.any(&mut |node| node.kind == ExprKind::Input(Input::Returned)))
    }
}
