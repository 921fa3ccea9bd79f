//! Slots of rings, while they are filled.

/// The written words of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SlotWords {
    pub(super) value: bool,
    pub(super) time: bool,
    pub(super) identifier: bool,
}

impl SlotWords {
    /// All except the mark.
    pub(super) const ALL: Self = Self {
        value: true,
        time: true,
        identifier: true,
    };
}
