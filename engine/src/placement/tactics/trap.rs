//! `int3`: the last resort.
//!
//! - Applies where nothing else does: the search is repeated with every segment open, whether or not a
//!   splice fits there.
//! - Writes `int3` over the first byte, which the driver's handler turns into a branch to the patch.
//! - Waits for nothing: one instruction is overwritten.

use super::search::Approach;
use crate::Refusal;
use crate::placement::availability::Availability;
use crate::placement::draft::Draft;
use crate::placement::ids::{InsnId, InsnRange};
use crate::placement::splice::SpliceForm;
use crate::placement::tactic::Tactic;

/// Repeats a search with traps allowed.
pub(super) fn reach(
    available: &mut Availability,
    search: impl Fn(&Availability) -> Result<Approach, Refusal>,
) -> Option<Approach> {
    if !available.tactics.has(Tactic::Trap) {
        return None;
    }
    available.traps = true;
    let approach = search(available);
    available.traps = false;
    approach.ok()
}

/// The site of a closed segment that copies `points`, sorted instructions of it.
pub(in crate::placement) fn site(points: &[InsnId]) -> Option<Draft> {
    let range = InsnRange {
        first: *points.first()?,
        end: points.last()?.next(),
    };
    Some(Draft::new(SpliceForm::Trap, range))
}
