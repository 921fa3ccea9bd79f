//! Keys of the tables that placement is worked out in.

use serde::{Deserialize, Serialize};

use crate::ids::{Id, id};

id!(
    /// Number of a site in its solution and plan.
    #[derive(Serialize, Deserialize)]
    pub SiteIndex(pub)
);
id!(
    /// Number of a bounce in its solution and plan.
    #[derive(Serialize, Deserialize)]
    pub BounceIndex(pub)
);

id!(
    /// An instruction of a [`Body`](super::body::Body), in order of address. As the end of a range it may be
    /// the number of instructions.
    pub(super) InsnId
);
id!(
    /// A block of a [`Body`](super::body::Body), in order of address.
    pub(super) BlockId
);
id!(
    /// A segment of a [`Body`](super::body::Body), in order of address.
    pub(super) SegmentId
);
id!(
    /// A function of a [`Problem`](super::solve::Problem).
    pub(super) PartId
);
id!(
    /// A draft of a function's site, in order of address.
    pub(super) DraftId
);
id!(
    /// A request to a [`Problem`](super::solve::Problem), in the order given.
    pub(super) RequestId
);

impl InsnId {
    /// The instruction that follows, or the end.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The instruction before this one.
    pub(super) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

impl SegmentId {
    /// No segment: a million instructions have no memory for an `Option`.
    pub(super) const NONE: Self = Self(u32::MAX);
}

impl PartId {
    /// No function.
    pub(super) const NONE: Self = Self(u32::MAX);
}

impl BlockId {
    /// The block `count` blocks after this one.
    pub(super) const fn after(self, count: u32) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// Number of blocks from `first` to this one.
    pub(super) const fn since(self, first: Self) -> u32 {
        self.0.saturating_sub(first.0)
    }
}

/// Instructions in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InsnRange {
    pub(super) first: InsnId,
    /// Exclusive.
    pub(super) end: InsnId,
}

impl InsnRange {
    /// One instruction.
    pub(super) const fn one(at: InsnId) -> Self {
        Self {
            first: at,
            end: at.next(),
        }
    }

    pub(super) fn contains(self, at: InsnId) -> bool {
        self.first <= at && at < self.end
    }

    pub(super) fn is_empty(self) -> bool {
        self.end <= self.first
    }

    /// Number of instructions.
    pub(super) const fn len(self) -> u32 {
        self.end.0.saturating_sub(self.first.0)
    }

    /// The last instruction; of an empty range its first.
    pub(super) fn last(self) -> InsnId {
        let last = self.end.previous().unwrap_or(self.first);
        last.max(self.first)
    }

    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = InsnId> + Clone {
        (self.first.index()..self.end.index()).map(InsnId::new)
    }
}
