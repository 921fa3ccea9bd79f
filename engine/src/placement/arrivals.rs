//! Hooks on an edge that no patch can take, known by where it leads: who comes there by the text comes
//! by that edge, when every other way there is led past the splice.

use super::Tactic;
use super::cover::{Cover, Dead, refusal};
use super::hooks::{Event, Way};
use super::segments::{BlockNumber, Number, Outline};
use crate::{Refusal, Rule};

/// A block's end, by the arrivals behind all of its edges.
///
/// # Errors
/// The rule that keeps one of them from being told.
pub(super) fn out_of(
    outline: &Outline<'_>,
    dead: &Dead,
    block: BlockNumber,
    last: Number,
) -> Result<Way, Refusal> {
    let here = outline.start(last);
    let Some(successors) = outline.successors(block) else {
        return Err(Refusal::new(
            Rule::WaysUnknown,
            here,
            "control leaves the function here",
        ));
    };
    if successors.is_empty() {
        return Err(Refusal::new(
            Rule::NothingToDisplace,
            here,
            "control does not go on from here",
        ));
    }
    by(outline, dead, last, successors)
}

/// Some ways out of a block, by the arrivals behind them.
///
/// # Errors
/// The rule that keeps one of them from being told.
pub(super) fn by(
    outline: &Outline<'_>,
    dead: &Dead,
    last: Number,
    successors: Vec<Number>,
) -> Result<Way, Refusal> {
    let mut cover = Cover::new(outline, dead);
    let mut past = Vec::new();
    for &to in &successors {
        if !dead.reachable(outline, to) || dead.arrivals.contains(&to) {
            return Err(refusal(outline, to));
        }
        for from in outline.ways(to)?.into_iter().filter(|&from| from != last) {
            let ends = outline.instruction(to);
            if from == to && ends.is_some_and(|ends| ends.is_jmp_short_or_near()) {
                // A patch that led it past the splice would be a loop that runs nothing.
                let why = "what follows jumps to itself for ever";
                return Err(Refusal::new(
                    Rule::EnteredFromElsewhere,
                    outline.start(to),
                    why,
                ));
            }
            cover.leaving(from)?;
            past.push((from, to));
        }
    }
    let mut needs = cover.needs;
    needs.copied.extend(&successors);
    let tactic = if past.is_empty() {
        Tactic::Edges
    } else {
        // All of them: a hook counts its first hit when all that it needs is there.
        needs.waiting.clone_from(&successors);
        Tactic::Arrivals
    };
    needs.past = past;
    Ok(Way {
        tactic,
        event: Event::Arrives(successors),
        needs,
    })
}
