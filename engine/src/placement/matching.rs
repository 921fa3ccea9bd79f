//! A matching of short splices with slots in their reach.
//!
//! The costs are the slots' alone. So offering slots in order of cost, and moving matched splices to other
//! slots along augmenting paths, ends with as many matched splices as possible and the cheapest slots of
//! those (the sets of slots that can be matched are the independent sets of a transversal matroid: Edmonds
//! and Fulkerson, Transversals and Matroid Partition, 1965).

use crate::Addr;
use crate::ids::{Id, Ids, id};

use super::splice::short_reach;

id!(
    /// A short splice of a [`Matching`], in order of address.
    pub(super) ShortId
);
id!(
    /// A slot of a [`Matching`], in the order offered.
    pub(super) SlotId
);

/// A matching that grows with every slot offered.
pub(super) struct Matching {
    /// Addresses of short splices, sorted.
    splices: Ids<ShortId, Addr>,
    /// The slot of each splice.
    pub(super) assigned: Ids<ShortId, Option<SlotId>>,
    /// Addresses of the slots offered.
    slots: Ids<SlotId, Addr>,
    /// Splices from which no alternating path ends at a splice without a slot; none ever will.
    closed: Ids<ShortId, bool>,
    /// Splices visited by the last search.
    visited: Vec<ShortId>,
    /// The splices that may get slots now, if not all.
    only: Option<Ids<ShortId, bool>>,
}

/// A slot on an alternating path, and the splices that it has still to try.
struct PathStep {
    slot: SlotId,
    /// A splice in reach without a slot: the shortest path.
    unmatched: Option<ShortId>,
    rest: std::ops::Range<usize>,
    /// The splice that gets the slot if the path is augmenting.
    splice: ShortId,
}

impl Matching {
    /// An empty matching of splices, sorted by address.
    pub(super) fn new(splices: Vec<Addr>) -> Self {
        let splices = Ids::from(splices);
        Self {
            assigned: Ids::like(&splices, None),
            closed: Ids::like(&splices, false),
            splices,
            slots: Ids::new(),
            visited: Vec::new(),
            only: None,
        }
    }

    /// Restricts slots offered from now on to these splices, or to none.
    pub(super) fn restrict(&mut self, only: Option<Ids<ShortId, bool>>) {
        self.only = only;
        self.closed = Ids::like(&self.splices, false);
    }

    /// The splices that reach `slot`, as positions.
    fn in_reach(&self, slot: Addr) -> std::ops::Range<usize> {
        let splices = self.splices.values();
        let first = splices.partition_point(|&splice| short_reach(splice).1 < slot);
        let end = splices.partition_point(|&splice| short_reach(splice).0 <= slot);
        first..end.max(first)
    }

    /// Offers the next slot, which costs no less than those before; returns whether it is taken.
    pub(super) fn offer(&mut self, at: Addr) -> bool {
        let slot = self.slots.push(at);
        self.offer_again(slot)
    }

    /// Offers a slot that was offered before and not taken.
    pub(super) fn offer_again(&mut self, slot: SlotId) -> bool {
        self.visited.clear();
        let is_taken = self.augment(slot);
        // Splices on no augmenting path need not be visited again.
        for &splice in &self.visited {
            self.closed[splice] = !is_taken;
        }
        is_taken
    }

    /// Assigns the slot to a splice, and moves others along an augmenting path, found depth first.
    fn augment(&mut self, slot: SlotId) -> bool {
        let mut path = vec![self.step(slot)];
        while let Some(step) = path.last_mut() {
            let next = step.unmatched.take();
            let Some(splice) = next.or_else(|| step.rest.next().map(ShortId::new)) else {
                path.pop();
                continue;
            };
            let may_get = self.only.as_ref().is_none_or(|only| only[splice]);
            if !may_get || self.closed[splice] {
                continue;
            }
            self.closed[splice] = true;
            self.visited.push(splice);
            step.splice = splice;
            if let Some(held) = self.assigned[splice] {
                path.push(self.step(held));
                continue;
            }
            for step in &path {
                self.assigned[step.splice] = Some(step.slot);
            }
            return true;
        }
        false
    }

    fn step(&self, slot: SlotId) -> PathStep {
        let rest = self.in_reach(self.slots[slot]);
        let mut splices = rest.clone().map(ShortId::new);
        PathStep {
            slot,
            unmatched: splices.find(|&splice| self.assigned[splice].is_none()),
            splice: ShortId::new(rest.start),
            rest,
        }
    }

    /// The splices without a slot.
    pub(super) fn unmatched(&self) -> impl Iterator<Item = ShortId> {
        let assigned = self.assigned.iter();
        assigned
            .filter(|(_, slot)| slot.is_none())
            .map(|(splice, _)| splice)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The maximum number of splices that can have one of `slots`, and the least cost (the sum of their
    /// numbers), by exhaustive search.
    fn best(splices: &[Addr], slots: &[Addr], used: u32) -> (usize, usize) {
        let Some((&splice, rest)) = splices.split_first() else {
            return (0, 0);
        };
        let (low, high) = short_reach(splice);
        let mut best_of_all = best(rest, slots, used);
        for (number, &slot) in slots.iter().enumerate() {
            if used & (1 << number) == 0 && low <= slot && slot <= high {
                let (count, cost) = best(rest, slots, used | 1 << number);
                let this = (count + 1, cost + number);
                if (this.0, std::cmp::Reverse(this.1))
                    > (best_of_all.0, std::cmp::Reverse(best_of_all.1))
                {
                    best_of_all = this;
                }
            }
        }
        best_of_all
    }

    #[test]
    fn an_augmenting_path_of_100_000_splices_needs_no_stack() {
        const SPLICES: u64 = 100_000;
        // Each slot is in reach of the splices before and after it alone.
        let splice = |number: u64| Addr(0x10_0000 + 200 * number);
        let mut matching = Matching::new((0..SPLICES).map(splice).collect());
        for number in 0..SPLICES - 1 {
            assert!(matching.offer(splice(number).add(100)));
        }
        assert_eq!(matching.unmatched().count(), 1);
        assert!(matching.offer(Addr(splice(0).0 - 100)));
        assert_eq!(matching.unmatched().count(), 0);
        let first = matching.assigned[ShortId::new(0)].unwrap();
        assert_eq!(first.index() as u64, SPLICES - 1, "all others have moved");
    }

    proptest! {
        #[test]
        fn a_matching_is_maximal_and_the_cheapest_of_its_size(
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
            let assigned = matching.assigned.values();
            let taken: Vec<usize> = assigned.iter().flatten().map(|slot| slot.index()).collect();
            let mut distinct = taken.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), taken.len());
            for (splice, slot) in splices.iter().zip(assigned) {
                if let Some(slot) = slot {
                    let (low, high) = short_reach(*splice);
                    prop_assert!((low..=high).contains(&slots[slot.index()]));
                }
            }
            let (count, least) = best(&splices, &slots, 0);
            prop_assert_eq!((taken.len(), cost), (count, least));
        }
    }
}
