//! Edges: a block begins whenever control takes an edge into it, and ends whenever it takes one out of it.
//!
//! - Applies where the hook's own instruction cannot be displaced, all edges are known, and every
//!   instruction at their sources can be copied.
//! - Writes the splices of the sources' sites, whose patches have points on the edges.
//! - Waits as these sites do.

use super::search::{Approach, EventTactic, HookEvent, Moment, Search};
use crate::placement::cover::Cover;
use crate::placement::ids::InsnId;
use crate::placement::tactic::Tactic;
use crate::{Addr, Refusal};

pub(super) const TACTIC: EventTactic = EventTactic {
    tactic: Tactic::Edges,
    reach,
    also: "nor can its edges be hooked",
};

fn reach(search: Search<'_, '_>, moment: Moment) -> Option<Result<Approach, Refusal>> {
    match moment {
        Moment::Before(at) => Some(into(search, at)),
        Moment::Branch { begin, last, .. } => {
            let begin = begin?;
            match last.previous().filter(|&previous| begin <= previous) {
                Some(previous) => Some(out_of(search, previous, search.body.start(last))),
                None => Some(into(search, last)),
            }
        }
        Moment::Leaves { last, to, .. } => Some(out_of(search, last, to)),
    }
}

/// Every edge into an instruction.
fn into(search: Search<'_, '_>, at: InsnId) -> Result<Approach, Refusal> {
    let Search { body, available } = search;
    let mut cover = Cover::new(body, available);
    let to = body.start(at);
    let mut on = Vec::new();
    for from in body.predecessors(at)? {
        cover.leaving(from)?;
        on.push((from, to));
    }
    Ok(Approach {
        tactic: Tactic::Edges,
        event: HookEvent::On(on),
        requirements: cover.requirements,
    })
}

/// One edge out of an instruction that is copied after the edges into it.
fn out_of(search: Search<'_, '_>, from: InsnId, to: Addr) -> Result<Approach, Refusal> {
    let mut cover = Cover::new(search.body, search.available);
    cover.leaving(from)?;
    Ok(Approach {
        tactic: Tactic::Edges,
        event: HookEvent::On(vec![(from, to)]),
        requirements: cover.requirements,
    })
}
