//! Tracer: a callback of the kernel's own function tracer at the function's entry.
//!
//! - Applies to a hook right after the tracer's five bytes whose instruction cannot be displaced, and to
//!   the instructions before and at these bytes.
//! - Writes nothing: the driver registers with the tracer.
//! - Waits for nothing.

use super::search::{Approach, EventTactic, HookEvent, Moment, Search};
use crate::Refusal;
use crate::placement::cover::Requirements;
use crate::placement::ids::InsnId;
use crate::placement::tactic::Tactic;

pub(super) const TACTIC: EventTactic = EventTactic {
    tactic: Tactic::Tracer,
    reach,
    also: "nor does the function tracer reach it",
};

fn reach(search: Search<'_, '_>, moment: Moment) -> Option<Result<Approach, Refusal>> {
    let at = match moment {
        Moment::Before(at) => at,
        Moment::Branch { begin, last, .. } if begin.is_none_or(|begin| begin >= last) => last,
        Moment::Branch { .. } | Moment::Leaves { .. } => return None,
    };
    is_at_entry(search, at).then(|| {
        Ok(Approach {
            tactic: Tactic::Tracer,
            event: HookEvent::Traced,
            requirements: Requirements {
                tracer: true,
                ..Requirements::default()
            },
        })
    })
}

/// Returns whether control executes the instruction if and only if it reaches the tracer's site.
fn is_at_entry(search: Search<'_, '_>, at: InsnId) -> bool {
    let body = search.body;
    // The function's part elsewhere (`.cold`) may have lower addresses.
    body.tracer
        .is_some_and(|tracer| at <= tracer.next() && body.block_of(tracer) == body.block_of(at))
}
