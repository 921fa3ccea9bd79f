//! Availability of segments: the instructions that a site can still copy while slots run out.

use super::body::Body;
use super::draft::form_of;
use super::ids::{InsnId, SegmentId};
use super::spread::Spread;
use super::tactic::Tactics;
use crate::ids::Ids;
use crate::{Refusal, Rule};

/// The segments of a function that can host a splice, and the ways that are closed.
#[derive(Clone, Debug, Default)]
pub(super) struct Availability {
    pub(super) tactics: Tactics,
    /// True for segments in which no splice fits, or whose splice has no slot in its reach.
    pub(super) closed: Ids<SegmentId, bool>,
    /// Segments, sorted, whose hooks have no alternative to an `int3`: their splices get slots first.
    pub(super) preferred: Vec<SegmentId>,
    /// Segments, sorted, with at most one site, whose splice leaves bytes for slots.
    pub(super) merged: Vec<SegmentId>,
    /// Instructions where sites of arrivals would depend on each other in a cycle.
    pub(super) cyclic: Vec<InsnId>,
    /// True while an `int3` may be used.
    pub(super) traps: bool,
    /// The instructions that execute in patches alone, if the function is relocated whole.
    pub(super) whole: Option<Box<Spread>>,
    /// True if control is diverted around arrivals by sites of its own, because the patches of the
    /// entrances would depend on each other in a cycle.
    pub(super) anchored: bool,
}

impl Availability {
    /// Segments of one byte are closed from the beginning.
    pub(super) fn new(body: &Body<'_>, tactics: Tactics) -> Self {
        let segments = body.segments.values().iter();
        let closed = segments.map(|&segment| form_of(body, segment).is_none());
        Self {
            tactics,
            closed: closed.collect(),
            ..Self::default()
        }
    }

    /// Returns whether a site can copy the instruction; if the function is relocated whole, whether all
    /// its executions are those of copies.
    pub(super) fn reaches(&self, body: &Body<'_>, at: InsnId) -> bool {
        match &self.whole {
            Some(spread) => spread.covers(at),
            None => self.hosts(body, at) || self.traps && body.segment_of(at).is_some(),
        }
    }

    /// Returns whether a splice fits in the instruction's segment and may still get a slot.
    pub(super) fn hosts(&self, body: &Body<'_>, at: InsnId) -> bool {
        let segment = body.segment_of(at);
        segment.is_some_and(|segment| !self.closed[segment])
    }
}

/// The reason why no site copies an instruction.
pub(super) fn refusal(body: &Body<'_>, at: InsnId) -> Refusal {
    let segment = body.segment_of(at).map(|segment| body.segments[segment]);
    match segment {
        Some(segment) if form_of(body, segment).is_none() => Refusal::new(
            Rule::BlockTooShort,
            body.start(at),
            "only one byte can be written here, and a splice needs two",
        ),
        Some(segment) => {
            let capacity = body.capacity(segment);
            Refusal::new(
                Rule::NoSlot,
                body.start(at),
                format!(
                    "only {capacity} bytes can be written here, and a two-byte splice has no slot for a bounce in its reach"
                ),
            )
        }
        None => body.refusal_of(at).unwrap_or_else(|| {
            Refusal::new(
                Rule::NothingToDisplace,
                body.start(at),
                "there is no instruction that could be displaced",
            )
        }),
    }
}
