//! Block relocation: the splice is before the hook's own instructions in the same segment, and the
//! instructions between are relocated too.
//!
//! - Applies where the segment ends too soon after the instruction for a splice there, where a splice there
//!   would overwrite the call that ends the segment, and where one patch serves several hooks that are closer
//!   than a splice is long.
//! - Writes and waits as a [direct splice](super::direct_splice) of more instructions.

use crate::placement::body::Body;
use crate::placement::draft::{Draft, form_of};
use crate::placement::ids::InsnId;
use crate::placement::splice::SpliceForm;

/// Returns whether a hook at the instruction is reached by this tactic, given its site.
pub(in crate::placement) fn is_used(body: &Body<'_>, site: &Draft, at: InsnId) -> bool {
    site.form == SpliceForm::Jump && body.start(at) >= site.splice(body).end
}

/// Returns whether a splice at the instruction would not fit before the end of its segment.
pub(super) fn is_required(body: &Body<'_>, at: InsnId) -> bool {
    let segment = body.segment_of(at).map(|segment| body.segments[segment]);
    segment.is_some_and(|segment| {
        let form = form_of(body, segment);
        form.is_some_and(|form| body.start(at).add(form.bytes()) > segment.limit)
    })
}
