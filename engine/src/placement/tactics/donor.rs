//! Donor: a short splice branches to a bounce in instructions that are displaced only to provide slots.
//!
//! - Applies where a segment of ten bytes or more in reach has instructions that no hook's site displaces.
//! - Writes the donor's splice, then the bounce, then the short splice.
//! - Waits before the bounce until no thread is among the instructions that the donor displaces.

use crate::Addr;
use crate::placement::body::Body;
use crate::placement::draft::{latest, up_to};
use crate::placement::ids::InsnRange;
use crate::placement::slots::{Host, Offers};
use crate::placement::splice::SPLICE_BYTES;
use crate::placement::tactic::Tactic;

/// Offers slots in instructions that no site displaces.
pub(in crate::placement) fn offer(out: &mut Offers<'_, '_, '_>, free: InsnRange, limit: Addr) {
    if free.is_empty() {
        return;
    }
    let body = out.hosts.body;
    let mut at = body.start(free.first).add(SPLICE_BYTES);
    let end = body.end(free.last());
    while at.add(SPLICE_BYTES) <= limit && at < end {
        if out.low <= at && at <= out.high {
            let donor = displaced(body, free, at, at.add(SPLICE_BYTES));
            // The site of a waiting instruction may have been merged into another when its function is
            // relocated whole: then the donor would be it.
            if out.hosts.waiting.binary_search(&donor.first).is_err() {
                let bytes = body.span(donor).len();
                out.add(Tactic::Donor, bytes, at, Host::Donor { free, limit });
            }
        }
        at = at.add(SPLICE_BYTES);
    }
}

/// The instructions that a donor with slots from `slots` to `end` displaces.
pub(in crate::placement) fn displaced(
    body: &Body<'_>,
    free: InsnRange,
    slots: Addr,
    end: Addr,
) -> InsnRange {
    let first = latest(body, free.first, free.last(), SPLICE_BYTES, slots);
    let first = first.unwrap_or(free.first);
    up_to(body, InsnRange { first, ..free }, end)
}
