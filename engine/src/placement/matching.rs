//! Slots for bounces, as one problem: a matching of short splices with slots that are in reach of
//! them.
//!
//! The costs are the slots' alone, so that taking slots in order of cost, and moving what has one
//! already wherever that makes room, ends with as many as can be and the cheapest of those (the sets
//! of slots that can be matched are the independent sets of a transversal matroid: Edmonds and
//! Fulkerson, Transversals and Matroid Partition, 1965).

use crate::Addr;

/// How far `jmp rel8` at `splice` reaches: the first and last address it can lead to.
pub(super) fn reach(splice: Addr) -> (Addr, Addr) {
    let behind = splice.0.wrapping_add(2);
    (
        Addr(behind.wrapping_sub(128)),
        Addr(behind.wrapping_add(127)),
    )
}

/// The matching so far.
pub(super) struct Matching {
    /// Where short splices are, sorted.
    splices: Vec<Addr>,
    /// The slot of each.
    pub(super) taken: Vec<Option<u32>>,
    /// Where the slots offered so far are.
    slots: Vec<Addr>,
    /// Splices from which no way leads to one without a slot; none ever will.
    closed: Vec<bool>,
    seen: Vec<u32>,
    /// Whether only those that have nothing else are given slots now, and which those are.
    needy: Option<Vec<bool>>,
}

impl Matching {
    /// Of splices, sorted, that have no slot yet.
    pub(super) fn new(splices: Vec<Addr>) -> Self {
        let count = splices.len();
        Self {
            splices,
            taken: vec![None; count],
            slots: Vec::new(),
            closed: vec![false; count],
            seen: Vec::new(),
            needy: None,
        }
    }

    /// From now on only these splices are given slots; or all again.
    pub(super) fn only(&mut self, needy: Option<Vec<bool>>) {
        self.needy = needy;
        self.closed.fill(false);
    }

    /// The splices, as a range of their indexes, that reach `slot`.
    pub(super) fn in_reach(&self, slot: Addr) -> std::ops::Range<usize> {
        let first = self
            .splices
            .partition_point(|&splice| reach(splice).1 < slot);
        let behind = self
            .splices
            .partition_point(|&splice| reach(splice).0 <= slot);
        first..behind.max(first)
    }

    /// Offers the next slot, which costs no less than those before: whether it is taken.
    pub(super) fn offer(&mut self, at: Addr) -> bool {
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(at);
        self.offer_again(slot)
    }

    /// Offers a slot by its number that was offered before and not taken.
    pub(super) fn offer_again(&mut self, slot: u32) -> bool {
        self.seen.clear();
        let taken = self.find(slot);
        // What was seen on a way that leads nowhere need not be seen again.
        for &splice in &self.seen {
            if let Some(closed) = self.closed.get_mut(splice as usize) {
                *closed = !taken;
            }
        }
        taken
    }

    /// Gives the slot to a splice, moving others on.
    fn find(&mut self, slot: u32) -> bool {
        let Some(&at) = self.slots.get(slot as usize) else {
            return false;
        };
        let range = self.in_reach(at);
        // One that has none is the shortest way.
        let free = range
            .clone()
            .find(|&splice| self.taken.get(splice) == Some(&None));
        for splice in free.into_iter().chain(range) {
            let waits = self
                .needy
                .as_ref()
                .is_some_and(|needy| needy.get(splice) != Some(&true));
            if waits || self.closed.get(splice).copied().unwrap_or(true) {
                continue;
            }
            if let Some(closed) = self.closed.get_mut(splice) {
                *closed = true;
            }
            self.seen.push(u32::try_from(splice).unwrap_or(u32::MAX));
            let holds = self.taken.get(splice).copied().flatten();
            if holds.is_none_or(|holds| self.find(holds)) {
                if let Some(taken) = self.taken.get_mut(splice) {
                    *taken = Some(slot);
                }
                return true;
            }
        }
        false
    }

    /// The splices without a slot.
    pub(super) fn without(&self) -> impl Iterator<Item = usize> {
        let numbered = self.taken.iter().enumerate();
        numbered
            .filter(|(_, slot)| slot.is_none())
            .map(|(splice, _)| splice)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The most splices that can have one of `slots`, and the least cost (the sum of their numbers), by
    /// trying everything.
    fn best(splices: &[Addr], slots: &[Addr], used: u32) -> (usize, usize) {
        let Some((&splice, rest)) = splices.split_first() else {
            return (0, 0);
        };
        let (low, high) = reach(splice);
        let mut found = best(rest, slots, used);
        for (number, &slot) in slots.iter().enumerate() {
            if used & (1 << number) == 0 && low <= slot && slot <= high {
                let (count, cost) = best(rest, slots, used | 1 << number);
                let this = (count + 1, cost + number);
                if (this.0, std::cmp::Reverse(this.1)) > (found.0, std::cmp::Reverse(found.1)) {
                    found = this;
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn as_many_as_can_be_have_a_slot_and_the_cheapest(
            mut splices in proptest::collection::vec((0_u64..900).prop_map(|at| Addr(0x1000 + at)), 0..6),
            slots in proptest::collection::vec((0_u64..900).prop_map(|at| Addr(0x1000 + at)), 0..7),
        ) {
            splices.sort_unstable();
            let mut matching = Matching::new(splices.clone());
            let mut cost = 0;
            for (number, &slot) in slots.iter().enumerate() {
                if matching.offer(slot) {
                    cost += number;
                }
            }
            let taken: Vec<u32> = matching.taken.iter().flatten().copied().collect();
            let mut distinct = taken.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), taken.len());
            for (splice, slot) in splices.iter().zip(&matching.taken) {
                if let Some(slot) = slot {
                    let (low, high) = reach(*splice);
                    prop_assert!((low..=high).contains(&slots[*slot as usize]));
                }
            }
            let (count, least) = best(&splices, &slots, 0);
            prop_assert_eq!((taken.len(), cost), (count, least));
        }
    }
}
