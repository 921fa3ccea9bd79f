//! Collects the slots of a function that are in reach of short splices.

use super::body::Segment;
use super::draft::Draft;
use super::ids::{InsnId, InsnRange};
use super::slots::{Hosts, Offers, SlotOffer};
use super::splice::{SPLICE_BYTES, SpliceForm};
use super::tactics::{donor, local_bounce, padding};
use crate::ids::part;
use crate::{Addr, Span};

/// Appends the slots of a function from `low` to `high`, in no order.
pub(super) fn offer(hosts: &Hosts<'_, '_>, low: Addr, high: Addr, offers: &mut Vec<SlotOffer>) {
    let body = hosts.body;
    let mut out = Offers {
        hosts,
        low,
        high,
        offers,
    };
    let first = body.padding.partition_point(|gap| gap.end <= low);
    let gaps = body.padding.iter().skip(first);
    for gap in gaps.take_while(|gap| gap.start <= high) {
        padding::offer(&mut out, *gap);
    }
    let segments = body.segments.values();
    let first = segments.partition_point(|segment| segment.limit <= low);
    let segments = segments.iter().skip(first);
    for segment in segments.take_while(|segment| body.start(segment.range.first) <= high) {
        out.segment(*segment);
    }
}

impl Offers<'_, '_, '_> {
    /// Offers the slots of a segment and of the padding after it.
    fn segment(&mut self, segment: Segment) {
        let body = self.hosts.body;
        let capacity = body.capacity(segment);
        if capacity < SPLICE_BYTES {
            return;
        }
        let is_before = |draft: &Draft, end: InsnId| draft.range.first < end;
        let drafts = self.hosts.drafts;
        let first = drafts.partition_point(|draft| is_before(draft, segment.range.first));
        let end = drafts.partition_point(|draft| is_before(draft, segment.range.end));
        let drafts = part(drafts, first..end);
        let end = body.end(segment.range.last());
        let splices = drafts.last().map_or(end, |last| last.splice(body).end);
        let gap = Span {
            start: end.max(splices).min(segment.limit),
            end: segment.limit,
        };
        let limit = padding::offer(self, gap);
        if capacity < 2 * SPLICE_BYTES {
            return;
        }
        // The start of instructions that no site displaces, nor any site before them may grow over.
        let mut free = Some(segment.range.first);
        for (index, draft) in drafts.iter().enumerate() {
            if let Some(first) = free.take() {
                let end = draft.range.first;
                donor::offer(self, InsnRange { first, end }, body.start(end));
            }
            let next = drafts.get(index + 1);
            let next = next.map_or(limit, |next| body.start(next.range.first));
            let waits = self.hosts.waiting.binary_search(&draft.range.first).is_ok();
            if draft.form != SpliceForm::Jump || waits {
                free = Some(draft.range.end);
            } else {
                local_bounce::offer(self, draft, next, end);
            }
        }
        if let Some(first) = free {
            let end = segment.range.end;
            donor::offer(self, InsnRange { first, end }, limit);
        }
    }
}
