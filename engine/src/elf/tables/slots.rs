//! Stack slots by place.

use super::sorted::SortedMap;
use super::value::ExpressionId;

/// The place of a slot: a distance from a stack pointer.
pub(super) type Place = (ExpressionId, i64);

/// Values that were stored on the stack, eight bytes each, by place.
pub(super) type Slots = SortedMap<Place, ExpressionId>;

impl Slots {
    /// Returns whether there is a slot at a distance from a stack pointer.
    pub(super) fn has_base(&self, base: ExpressionId) -> bool {
        let mut from = self.iter_from(|(own, _)| own < base);
        from.next().is_some_and(|((own, _), _)| own == base)
    }
}
