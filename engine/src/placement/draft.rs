//! Sites while they are worked out.

use super::segments::{Number, Outline, Segment};
use super::{SHORT_SPLICE_BYTES, SPLICE_BYTES};
use crate::{Addr, Span};

/// What will be written at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `jmp rel32`.
    Jump,
    /// `jmp rel8`; it has a bounce when the slots are given out.
    Short,
    /// Nothing: the function tracer's.
    Tracer,
    /// `int3`.
    Trap,
}

/// Instructions that one splice displaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) first: Number,
    /// One past the last.
    pub(super) behind: Number,
    /// Displaced for the room alone.
    pub(super) donor: bool,
}

impl Draft {
    pub(super) fn new(kind: Kind, first: Number, behind: Number) -> Self {
        Self {
            kind,
            first,
            behind,
            donor: false,
        }
    }

    pub(super) const fn copies(&self, at: Number) -> bool {
        self.first <= at && at < self.behind
    }

    /// The bytes written over by the splice; they may go on into the room behind what is displaced.
    pub(super) fn splice(&self, outline: &Outline<'_>) -> Span {
        let bytes = match self.kind {
            Kind::Jump => SPLICE_BYTES,
            Kind::Short => SHORT_SPLICE_BYTES,
            Kind::Tracer => 0,
            Kind::Trap => 1,
        };
        Span::new(outline.start(self.first), bytes)
    }
}

/// One past the last of the instructions from `first` up to `behind` that it takes to come to `end`.
pub(super) fn up_to(outline: &Outline<'_>, first: Number, behind: Number, end: Addr) -> Number {
    let enough = (first..behind).find(|&at| outline.end(at) >= end);
    enough.map_or(behind, |last| last + 1)
}

/// The last instruction from `from` to `at` that has `bytes` before `limit`.
pub(super) fn latest(
    outline: &Outline<'_>,
    from: Number,
    at: Number,
    bytes: u64,
    limit: Addr,
) -> Option<Number> {
    (from..=at)
        .rev()
        .find(|&start| outline.start(start).add(bytes) <= limit)
}

/// The sites of a segment that copy `points`, sorted instructions of it: each begins at one where it
/// can, and one serves several where they would meet.
pub(super) fn sites(
    outline: &Outline<'_>,
    segment: Segment,
    points: &[Number],
    trap: bool,
) -> Vec<Draft> {
    let (Some(&first), Some(&last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if trap {
        return vec![Draft::new(Kind::Trap, first, last + 1)];
    }
    if outline.room(segment) < SPLICE_BYTES {
        return vec![short(outline, segment, first, last)];
    }
    let mut sites: Vec<Draft> = Vec::new();
    for &at in points {
        if sites.last().is_some_and(|site| site.copies(at)) {
            continue;
        }
        let end = outline.start(at).add(SPLICE_BYTES);
        let behind = up_to(outline, at, segment.behind, end);
        sites.push(Draft::new(Kind::Jump, at, behind));
    }
    // The room may end before the last splice does: it begins earlier then, or is one with the one before.
    if let Some(site) = sites.pop() {
        let from = sites.last().map_or(segment.first, |before| before.behind);
        let fits = latest(outline, from, site.first, SPLICE_BYTES, segment.room);
        match (fits, sites.last_mut()) {
            (Some(first), _) => sites.push(Draft { first, ..site }),
            (None, Some(before)) => before.behind = site.behind,
            (None, None) => {}
        }
    }
    sites
}

/// One site instead of those of a segment, for the room behind its splice.
pub(super) fn merge(segment: Segment, sites: &mut Vec<Draft>) {
    if let (Some(first), Some(last)) = (sites.first(), sites.last())
        && first.kind == Kind::Jump
    {
        let one = Draft::new(Kind::Jump, segment.first, last.behind);
        sites.clear();
        sites.push(one);
    }
}

fn short(outline: &Outline<'_>, segment: Segment, first: Number, last: Number) -> Draft {
    let fits = latest(
        outline,
        segment.first,
        first,
        SHORT_SPLICE_BYTES,
        segment.room,
    );
    let first = fits.unwrap_or(segment.first);
    let end = outline.start(first).add(SHORT_SPLICE_BYTES);
    let behind = up_to(outline, first, segment.behind, end).max(last + 1);
    Draft::new(Kind::Short, first, behind)
}
