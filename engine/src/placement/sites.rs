//! Sites of a segment: the points that each splice serves, and the instruction that it begins at.

use super::body::{Body, Segment};
use super::draft::{Draft, form_of, latest, up_to};
use super::ids::{InsnId, InsnRange};
use super::splice::{SPLICE_BYTES, SpliceForm};
use super::tactic::{Tactic, Tactics};
use super::tactics::call_splice;
use crate::ids::part;

/// Returns the sites of a segment for `points`, sorted instructions of it: each begins at a point where it can, and
/// one serves several points where sites would overlap. The call that ends a segment has a site of its own, unless
/// the site before it extends to the call, so that the patch branches there.
pub(super) fn of_segment(
    body: &Body<'_>,
    segment: Segment,
    points: &[InsnId],
    tactics: Tactics,
) -> Vec<Draft> {
    let call = points.last().filter(|&&last| last == segment.range.last());
    let call = call.filter(|_| tactics.has(Tactic::CallSplice));
    let call = call.and_then(|&last| call_splice::site(body, last));
    if let (Some(call), [_]) = (call, points) {
        return vec![call];
    }
    let Some((before, last)) = before_call(body, segment) else {
        return sites_in(body, segment, points);
    };
    let Some(call) = call else {
        let mut points: Vec<InsnId> = points.iter().map(|&at| at.min(last)).collect();
        points.dedup();
        return sites_in(body, before, &points);
    };
    let inside = points.partition_point(|&at| at < before.range.end);
    let mut sites = sites_in(body, before, part(points, 0..inside));
    if sites
        .last()
        .is_none_or(|site| site.range.end < before.range.end)
    {
        sites.push(call);
    }
    sites
}

/// The instructions of a segment before the call that ends it, and the last of them, if a splice fits there: then
/// the call stays in the original code, whose execution keeps the processor's stack of return addresses balanced.
fn before_call(body: &Body<'_>, segment: Segment) -> Option<(Segment, InsnId)> {
    let call = segment.range.last();
    let range = InsnRange {
        end: call,
        ..segment.range
    };
    let before = Segment {
        range,
        limit: body.start(call),
    };
    let fits = !range.is_empty() && body.capacity(before) >= SPLICE_BYTES;
    (fits && body.is_call(call)).then(|| (before, range.last()))
}

fn sites_in(body: &Body<'_>, segment: Segment, points: &[InsnId]) -> Vec<Draft> {
    let (Some(&first), Some(&last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if form_of(body, segment) != Some(SpliceForm::Jump) {
        return vec![short(body, segment, first, last)];
    }
    let mut sites: Vec<Draft> = Vec::new();
    for &at in points {
        if sites.last().is_some_and(|site| site.copies(at)) {
            continue;
        }
        let end = body.start(at).add(SPLICE_BYTES);
        let rest = InsnRange {
            first: at,
            ..segment.range
        };
        sites.push(Draft::new(SpliceForm::Jump, up_to(body, rest, end)));
    }
    // The segment may end before the last splice does: then its site begins earlier, or joins the one before.
    if let Some(mut site) = sites.pop() {
        let from = sites.last().map(|before| before.range.end);
        let from = from.unwrap_or(segment.range.first);
        let fits = latest(body, from, site.range.first, SPLICE_BYTES, segment.limit);
        match (fits, sites.last_mut()) {
            (Some(first), _) => {
                site.range.first = first;
                sites.push(site);
            }
            (None, Some(before)) => before.range.end = site.range.end,
            (None, None) => debug_assert!(false, "a segment with room for a jump has none"),
        }
    }
    sites
}

fn short(body: &Body<'_>, segment: Segment, first: InsnId, last: InsnId) -> Draft {
    let form = SpliceForm::Short;
    let from = segment.range.first;
    let first = latest(body, from, first, form.bytes(), segment.limit).unwrap_or(from);
    let end = body.start(first).add(form.bytes());
    let rest = InsnRange {
        first,
        ..segment.range
    };
    let mut range = up_to(body, rest, end);
    range.end = range.end.max(last.next());
    Draft::new(form, range)
}
