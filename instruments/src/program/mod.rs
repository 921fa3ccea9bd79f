//! What an instrument's source becomes when it has been checked: small trees of integers, one a
//! probe, straight on from top to bottom. There is no loop and no call, and a program only skips
//! forward: over a probe whose predicate does not hold, over what `&&`, `||` and `?:` leave out.
//!
//! The meaning of every node is fixed by [`interpret`](crate::interpret); generated code has to do
//! the same.

mod aggregate;
mod cost;
mod event;
mod expr;
mod ops;

use std::fmt;
use std::sync::Arc;

use gilk_samples::Meaning;

pub use aggregate::{Aggregate, AggregateKind, Bucket, Summary};
pub use cost::Cost;
pub use event::Event;
pub use expr::{Expr, ExprKind, Gpr, Half, Input, Type, Width};
pub use ops::{BinaryOp, UnaryOp};

/// A stretch of the source, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
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
    /// How sessions name it: lower case, digits and dashes.
    pub name: Arc<str>,
    /// One sentence for a person who chooses.
    pub summary: String,
    /// Unit of its samples and of the values in its aggregates; empty for none.
    pub unit: String,
    /// How its samples are read and drawn.
    pub meaning: Meaning,
    /// Whether a placement is to be taken out once it has been hit.
    pub once: bool,
    /// What it keeps between hits.
    pub variables: Vec<Variable>,
    /// What it adds up.
    pub aggregates: Vec<Aggregate>,
    /// What runs, in the order of the source: of two probes at one hook the first runs first.
    pub probes: Vec<Probe>,
}

/// How many of a variable there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One.
    Global,
    /// One a CPU.
    Cpu,
    /// One a thread. A thread that has not stored into it reads 0, and so does one that had to make
    /// room for another: there may be more threads than room.
    Thread,
    /// One an activation of the function, told by the stack pointer at its entry: right under
    /// recursion, preemption and interrupts. Used in entry and return probes only; reads 0 where the
    /// activation has not stored into it, as [`Thread`](Self::Thread) does.
    Call,
}

/// A variable: 64 bits, zero at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, without the `@`.
    pub name: String,
    /// How many there are of it.
    pub scope: Scope,
    /// Whether all instruments of the session that declare a shared variable of this name and scope
    /// mean the same one; otherwise it is the placement's own.
    pub shared: bool,
    /// Whether it reads as `i64` or `u64`.
    pub ty: Type,
}

/// Where a probe runs.
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
    /// Where a call of the function comes back: before its returns, and before those of functions that it
    /// ends by jumping to. Such a jump itself is one where it cannot be followed; what is returned is not
    /// known there, so a probe that reads it runs at returns only.
    Return,
    /// Before every instruction that leaves the function: returns, and jumps to other functions.
    Leave,
    /// On the edge that the conditional branch at the end of the placement's block takes.
    Taken,
    /// On the edge on which that branch is not taken.
    Untaken,
    /// Before a jump to another function by which a call is passed on. No source has it:
    /// [`Checked::followed`] does.
    Onward,
    /// Where a call that was passed on comes back. No source has it either.
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

    /// Whether the probe belongs to a function, not to one block of it.
    #[must_use]
    pub fn of_function(self) -> bool {
        self == Self::Entry || self.is_exit()
    }

    /// Whether the probe stands where calls of a function end.
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

/// What runs at one kind of hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where.
    pub hook: Hook,
    /// Another function than the placement's (`entry:__schedule`), for entry and return probes.
    pub function: Option<String>,
    /// Nothing else happens unless this is not 0.
    pub predicate: Option<Expr>,
    /// What happens then, in order.
    pub actions: Vec<Action>,
    /// All of the probe in the source.
    pub span: Span,
}

/// Index of a variable in [`Checked::variables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariableId(pub u32);

/// Index of an aggregate in [`Checked::aggregates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AggregateId(pub u32);

/// One thing a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub kind: ActionKind,
    /// Its statement in the source.
    pub span: Span,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Delivers a sample with this value.
    Sample(Expr),
    /// Stores into a variable.
    Store(VariableId, Expr),
    /// Adds to a variable, wrapping, so that nothing is lost between processors (global: locked) or
    /// to an interrupt (per CPU: one instruction).
    Add(VariableId, Expr),
    /// Puts a value into an aggregate; `None` for [`AggregateKind::Count`], which takes none.
    Update(AggregateId, Option<Expr>),
}

impl ActionKind {
    /// What it computes.
    #[must_use]
    pub fn value(&self) -> Option<&Expr> {
        match self {
            Self::Sample(value) | Self::Store(_, value) | Self::Add(_, value) => Some(value),
            Self::Update(_, value) => value.as_ref(),
        }
    }
}

impl Checked {
    /// A variable of the program.
    #[must_use]
    pub fn variable(&self, id: VariableId) -> Option<&Variable> {
        self.variables.get(id.0 as usize)
    }

    /// An aggregate of the program.
    #[must_use]
    pub fn aggregate(&self, id: AggregateId) -> Option<&Aggregate> {
        self.aggregates.get(id.0 as usize)
    }

    /// Whether it is placed on a function as a whole: it has probes at the entry or the exits of
    /// the placement's own function, and none at a block.
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

    /// Whether it reads the returned value, so that it cannot run where a tail call leaves.
    #[must_use]
    pub fn reads_returned(&self) -> bool {
        self.expressions()
            .any(|expr| expr.any(&mut |node| node.kind == ExprKind::Input(Input::Returned)))
    }
}
