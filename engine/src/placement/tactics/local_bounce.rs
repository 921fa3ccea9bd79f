//! Local bounce: a short splice branches to a bounce in bytes that another splice of the session exposes.
//!
//! - Applies where a site with a `jmp rel32` displaces five bytes or more after it, or can displace more.
//! - Writes the host's splice, then the bounce, then the short splice.
//! - Waits before the bounce until no thread is among the instructions that the host displaces.

use crate::Addr;
use crate::placement::draft::Draft;
use crate::placement::slots::{Host, Offers};
use crate::placement::splice::SPLICE_BYTES;
use crate::placement::tactic::Tactic;

/// Offers slots after a site's splice that end before `limit`, in the instructions of a segment up to `segment_end`.
pub(in crate::placement) fn offer(
    out: &mut Offers<'_, '_, '_>,
    draft: &Draft,
    limit: Addr,
    segment_end: Addr,
) {
    let body = out.hosts.body;
    let displaced = body.end(draft.range.last());
    let mut at = draft.splice(body).end;
    while at.add(SPLICE_BYTES) <= limit && at < segment_end {
        let end = at.add(SPLICE_BYTES);
        let more = end.0.saturating_sub(displaced.0);
        out.add(Tactic::LocalBounce, more, at, Host::Site(draft.range.first));
        at = end;
    }
}
