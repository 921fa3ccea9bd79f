//! Hooks whose event is known by edges.

use super::Tactic;
use super::cover::{Cover, Dead};
use super::hooks::{Event, Way};
use super::segments::{Number, Outline};
use crate::Refusal;

/// An instruction about to run, by every edge into it.
///
/// # Errors
/// The rule that keeps one of the edges from being hooked.
pub(super) fn into(outline: &Outline<'_>, dead: &Dead, at: Number) -> Result<Way, Refusal> {
    let mut cover = Cover::new(outline, dead);
    let here = outline.start(at);
    let mut on = Vec::new();
    for from in outline.ways(at)? {
        cover.leaving(from)?;
        on.push((from, here));
    }
    Ok(Way {
        tactic: Tactic::Edges,
        event: Event::On(on),
        needs: cover.needs,
    })
}

/// The tactic of a hook on an edge that leaves an instruction of its own block.
pub(super) fn tactic(outline: &Outline<'_>, dead: &Dead, from: Number) -> Tactic {
    if dead.reachable(outline, from) {
        Tactic::DirectSplice
    } else {
        Tactic::Edges
    }
}
