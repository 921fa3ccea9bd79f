//! Major numbers: the keys of a session's functions.

use crate::InstrumentId;
use crate::ids::{Id, id};

id!(
    /// Major number of a function of the session: by first appearance.
    pub(super) Major
);

impl Major {
    /// The function of an instrument that the planner numbered.
    pub(super) fn of(id: InstrumentId) -> Self {
        Self::new(id.major as usize)
    }

    /// The number in identifiers.
    pub(super) const fn number(self) -> u32 {
        self.0
    }
}
