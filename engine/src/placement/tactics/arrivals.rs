//! Arrivals: an edge that no patch can take is known by its target. When every other way to the target is
//! diverted around the splice there, control that reaches the splice from the original code has taken
//! that edge.
//!
//! - Applies to the end of a block, after a call for example, whose successors can host a splice and have
//!   no unknown predecessors.
//! - Writes a splice at each successor, and the sites that divert the other predecessors around it.
//! - Waits until no thread is among the instructions that those sites displace, and only then writes the
//!   splices at the successors.

use super::search::{Approach, EventTactic, HookEvent, Moment, Search};
use crate::placement::availability::refusal;
use crate::placement::cover::Cover;
use crate::placement::ids::{BlockId, InsnId};
use crate::placement::tactic::Tactic;
use crate::{Refusal, Rule};

pub(super) const TACTIC: EventTactic = EventTactic {
    tactic: Tactic::Arrivals,
    reach,
    also: "nor is it known by arrivals at its successors",
};

fn reach(search: Search<'_, '_>, moment: Moment) -> Option<Result<Approach, Refusal>> {
    match moment {
        Moment::Before(_) => None,
        Moment::Branch { block, last, .. }
        | Moment::Leaves {
            block,
            last,
            only: false,
            ..
        } => Some(out_of(search, block, last)),
        Moment::Leaves { last, to, .. } => Some(match search.body.starting_at(to) {
            Some(to) => by(search, last, vec![to]),
            None => Err(Refusal::new(
                Rule::WaysUnknown,
                to,
                "control leaves the function here",
            )),
        }),
    }
}

/// A block's end, by the arrivals at all of its successors.
fn out_of(search: Search<'_, '_>, block: BlockId, last: InsnId) -> Result<Approach, Refusal> {
    let at = search.body.start(last);
    let Some(successors) = search.body.successors(block) else {
        let why = "control leaves the function here";
        return Err(Refusal::new(Rule::WaysUnknown, at, why));
    };
    if successors.is_empty() {
        let why = "control does not continue from here";
        return Err(Refusal::new(Rule::NothingToDisplace, at, why));
    }
    by(search, last, successors)
}

/// Some ways out of a block, by the arrivals at their targets.
fn by(search: Search<'_, '_>, last: InsnId, successors: Vec<InsnId>) -> Result<Approach, Refusal> {
    let Search { body, available } = search;
    let mut cover = Cover::new(body, available);
    let mut diverted = Vec::new();
    for &to in &successors {
        if !available.reaches(body, to) || available.cyclic.contains(&to) {
            return Err(refusal(body, to));
        }
        for from in body
            .predecessors(to)?
            .into_iter()
            .filter(|&from| from != last)
        {
            let target = body.instruction(to);
            if from == to && target.is_some_and(|target| target.is_jmp_short_or_near()) {
                // A patch that diverts control around it would be an empty loop.
                let why = "its successor is a jump to itself";
                return Err(Refusal::new(
                    Rule::EnteredFromElsewhere,
                    body.start(to),
                    why,
                ));
            }
            cover.leaving(from)?;
            diverted.push((from, to));
        }
    }
    let mut requirements = cover.requirements;
    requirements.copied.extend(&successors);
    let tactic = if diverted.is_empty() {
        Tactic::Edges
    } else {
        // All of them: a hook counts its first hit once all its requirements are in place.
        requirements.waiting.clone_from(&successors);
        Tactic::Arrivals
    };
    requirements.diverted = diverted;
    Ok(Approach {
        tactic,
        event: HookEvent::Arrives(successors),
        requirements,
    })
}
