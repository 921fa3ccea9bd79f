//! Stack slots by place: a sorted list, since a state has some tens of them and is copied at every branch.

use super::value::ExpressionId;

/// The place of a slot: a distance from a stack pointer.
pub(super) type Place = (ExpressionId, i64);

/// Values that were stored on the stack, eight bytes each, by place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slots(Vec<(Place, ExpressionId)>);

impl Slots {
    /// Returns the value of a slot.
    pub(super) fn get(&self, place: Place) -> Option<ExpressionId> {
        let at = self.0.binary_search_by_key(&place, |(place, _)| *place);
        at.ok()
            .and_then(|at| self.0.get(at))
            .map(|(_, value)| *value)
    }

    /// Returns whether there is a slot at a distance from a stack pointer.
    pub(super) fn has_base(&self, base: ExpressionId) -> bool {
        let first = self.0.partition_point(|((own, _), _)| *own < base);
        self.0.get(first).is_some_and(|((own, _), _)| *own == base)
    }

    /// Sets the value of a slot.
    pub(super) fn insert(&mut self, place: Place, value: ExpressionId) {
        match self.0.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => {
                if let Some((_, known)) = self.0.get_mut(at) {
                    *known = value;
                }
            }
            Err(at) => self.0.insert(at, (place, value)),
        }
    }

    /// Keeps the slots whose places satisfy a predicate.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Place) -> bool) {
        self.0.retain(|(place, _)| keep(*place));
    }

    /// Removes all slots.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Iterates over the slots in order of place.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, ExpressionId)> {
        self.0.iter().copied()
    }
}
