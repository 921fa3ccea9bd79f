//! Sites before their bounces are assigned.

use super::body::{Body, Segment};
use super::ids::{InsnId, InsnRange};
use super::splice::SpliceForm;
use crate::{Addr, Span};

/// Instructions that one splice displaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) form: SpliceForm,
    pub(super) range: InsnRange,
    /// True if the instructions are displaced only to provide slots.
    pub(super) donor: bool,
}

impl Draft {
    pub(super) const fn new(form: SpliceForm, range: InsnRange) -> Self {
        Self {
            form,
            range,
            donor: false,
        }
    }

    pub(super) fn copies(&self, at: InsnId) -> bool {
        self.range.contains(at)
    }

    /// The bytes that the splice overwrites; they may extend into padding after the displaced instructions.
    pub(super) fn splice(&self, body: &Body<'_>) -> Span {
        Span::new(body.start(self.range.first), self.form.bytes())
    }
}

/// The shortest beginning of `range` that extends to `end`, or all of it.
pub(super) fn up_to(body: &Body<'_>, range: InsnRange, end: Addr) -> InsnRange {
    let last = range.iter().find(|&at| body.end(at) >= end);
    InsnRange {
        end: last.map_or(range.end, InsnId::next),
        ..range
    }
}

/// The last instruction from `from` to `to`, both included, that begins `bytes` or more before `limit`.
pub(super) fn latest(
    body: &Body<'_>,
    from: InsnId,
    to: InsnId,
    bytes: u64,
    limit: Addr,
) -> Option<InsnId> {
    let range = InsnRange {
        first: from,
        end: to.next(),
    };
    range
        .iter()
        .rev()
        .find(|&start| body.start(start).add(bytes) <= limit)
}

/// The form of splice that a segment can host: `None` if it is a single byte.
pub(super) fn form_of(body: &Body<'_>, segment: Segment) -> Option<SpliceForm> {
    let capacity = body.capacity(segment);
    [SpliceForm::Jump, SpliceForm::Short]
        .into_iter()
        .find(|form| form.bytes() <= capacity)
}
