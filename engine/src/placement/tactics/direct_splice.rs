//! Direct splice: a patch executes a copy of the hook's own instruction.
//!
//! - Applies where a splice fits in the instruction's segment.
//! - Writes `jmp rel32`, or `jmp rel8` and a bounce where the segment has only 2 to 4 bytes.
//! - Waits until no thread is between the overwritten instructions, if they are several.

use super::block_relocation;
use super::search::{Approach, EventTactic, HookEvent, Moment, Search, nothing};
use crate::placement::availability::refusal;
use crate::placement::cover::Requirements;
use crate::placement::ids::InsnId;
use crate::placement::tactic::Tactic;
use crate::{Addr, Refusal};

pub(super) const TACTIC: EventTactic = EventTactic {
    tactic: Tactic::DirectSplice,
    reach,
    also: "nor can it be displaced",
};

fn reach(search: Search<'_, '_>, moment: Moment) -> Option<Result<Approach, Refusal>> {
    let body = search.body;
    match moment {
        Moment::Before(at) => Some(before(search, at).ok_or_else(|| refusal(body, at))),
        Moment::Branch {
            begin: None, block, ..
        } => Some(Err(nothing(body, block))),
        Moment::Branch {
            begin: Some(begin),
            last,
            ..
        } => {
            let previous = last.previous().filter(|&previous| begin <= previous);
            let edge = || on(search, previous?, body.start(last));
            let approach = before(search, last).or_else(edge);
            Some(approach.ok_or_else(|| refusal(body, last)))
        }
        Moment::Leaves { last, to, .. } => on(search, last, to).map(Ok),
    }
}

/// The instruction is about to execute.
fn before(search: Search<'_, '_>, at: InsnId) -> Option<Approach> {
    is_displaced(search, at).then(|| Approach {
        tactic: Tactic::DirectSplice,
        event: HookEvent::Before(at),
        requirements: Requirements::copy_of(at),
    })
}

/// Control leaves the instruction for an address.
fn on(search: Search<'_, '_>, from: InsnId, to: Addr) -> Option<Approach> {
    let is_copied = !search.body.is_call(from) && is_displaced(search, from);
    is_copied.then(|| Approach {
        tactic: Tactic::DirectSplice,
        event: HookEvent::On(vec![(from, to)]),
        requirements: Requirements::copy_of(from),
    })
}

fn is_displaced(search: Search<'_, '_>, at: InsnId) -> bool {
    let Search { body, available } = search;
    let is_allowed =
        available.tactics.has(Tactic::BlockRelocation) || !block_relocation::is_required(body, at);
    available.reaches(body, at) && is_allowed
}
