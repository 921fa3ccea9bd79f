//! Padding: a short splice branches to a bounce in bytes that are never executed.
//!
//! - Applies where five bytes of padding and one more before them are in reach.
//! - Writes the bounce, then the short splice.
//! - Waits for nothing more than the short splice does.

use crate::placement::slots::{Host, Offers};
use crate::placement::splice::SPLICE_BYTES;
use crate::placement::tactic::Tactic;
use crate::{Addr, Span};

/// Offers slots at the end of padding; returns the start of the first of them. The first byte is kept: an
/// `int3` there stops straight-line speculation past the return or jump before it.
pub(in crate::placement) fn offer(out: &mut Offers<'_, '_, '_>, mut gap: Span) -> Addr {
    gap.start = gap.start.add(1).min(gap.end);
    let slots = gap.len() / SPLICE_BYTES;
    for slot in 1..=slots {
        let at = Addr(gap.end.0 - slot * SPLICE_BYTES);
        out.add(Tactic::Padding, 0, at, Host::Padding);
    }
    Addr(gap.end.0 - slots * SPLICE_BYTES)
}
