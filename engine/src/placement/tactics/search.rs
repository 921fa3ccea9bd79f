//! The search for a hook's approach: its moment, and a tactic's answer.

use crate::placement::availability::Availability;
use crate::placement::body::Body;
use crate::placement::cover::Requirements;
use crate::placement::ids::{BlockId, InsnId};
use crate::placement::tactic::Tactic;
use crate::{Addr, Refusal, Rule};

/// The event of a hook, as points of patches count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::placement) enum HookEvent {
    /// This instruction is about to execute: counted wherever it is copied.
    Before(InsnId),
    /// Control takes one of these edges: counted wherever the instruction that it leaves is copied.
    On(Vec<(InsnId, Addr)>),
    /// Control reaches one of these instructions from the original code.
    Arrives(Vec<InsnId>),
    /// Control reaches the function tracer's site.
    Traced,
}

/// A tactic's answer for one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::placement) struct Approach {
    /// The tactic, without those that its sites turn out to require.
    pub(in crate::placement) tactic: Tactic,
    pub(in crate::placement) event: HookEvent,
    pub(in crate::placement) requirements: Requirements,
}

/// The moment that a hook names.
#[derive(Clone, Copy, Debug)]
pub(in crate::placement) enum Moment {
    /// The instruction is about to execute.
    Before(InsnId),
    /// The branch that ends a block is about to execute. `begin` is the block's first instruction that
    /// may have points; `None` if that is none.
    Branch {
        block: BlockId,
        begin: Option<InsnId>,
        last: InsnId,
    },
    /// Control leaves a block for `to`; `only` of several successors.
    Leaves {
        block: BlockId,
        last: InsnId,
        to: Addr,
        only: bool,
    },
}

/// A search for a hook's approach in one state of a function.
#[derive(Clone, Copy)]
pub(in crate::placement) struct Search<'s, 'a> {
    pub(in crate::placement) body: &'s Body<'a>,
    pub(in crate::placement) available: &'s Availability,
}

/// A tactic that makes events observable.
pub(super) struct EventTactic {
    pub(super) tactic: Tactic,
    /// Returns the approach to a moment, or the rule that forbids it; `None` if the tactic has nothing to do
    /// with such moments.
    pub(super) reach: fn(Search<'_, '_>, Moment) -> Option<Result<Approach, Refusal>>,
    /// Introduces the tactic's refusal after those of cheaper ones.
    pub(super) also: &'static str,
}

impl Moment {
    pub(super) const fn at(self) -> InsnId {
        match self {
            Self::Before(at) => at,
            Self::Branch { last, .. } | Self::Leaves { last, .. } => last,
        }
    }
}

/// Refuses a block without an instruction that may have points.
pub(super) fn nothing(body: &Body<'_>, block: BlockId) -> Refusal {
    let at = (body.block(block)).map_or(Addr(0), |(_, block)| block.span.start);
    let why = "the block has nothing but an endbr64, which must stay";
    Refusal::new(Rule::NothingToDisplace, at, why)
}
