//! The placements of a session in pieces that copies share. A copy costs a list of pieces, a change copies one piece,
//! and two copies are compared in the pieces that they do not share: so an edit of a session with 100,000 placements,
//! and the state that undo restores, cost what the edit changes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::ops::{ControlFlow, Index};
use std::sync::{Arc, OnceLock};

use gilk_engine::HookType;
use gilk_engine::session::Placement;

/// Length from which a piece is divided; a new piece has half of it.
const LONGEST: usize = 512;

/// An instrument at a hook: function, block, hook, and the instrument's name.
pub(crate) type HookKey = (Arc<str>, u32, HookType, Arc<str>);

/// Returns what a placement is besides its times.
pub(crate) fn hook_key(one: &Placement) -> HookKey {
    let (function, instrument) = (Arc::clone(&one.function), Arc::clone(&one.instrument));
    (function, one.block, one.hook, instrument)
}

fn same_hook(one: &Placement, other: &Placement) -> bool {
    (one.block, one.hook) == (other.block, other.hook)
        && one.function == other.function
        && one.instrument == other.instrument
}

/// Placements in their order.
#[derive(Clone, Debug, Default)]
pub struct Placements(Arc<Vec<Piece>>);

#[derive(Clone, Debug)]
struct Piece {
    /// Number of placements before it.
    start: usize,
    part: Arc<PlacementPart>,
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.part.all.len()
    }
}

/// Placements that follow each other, never none, with facts that are computed when first used.
#[derive(Debug, Default)]
struct PlacementPart {
    all: Vec<Placement>,
    hooks: OnceLock<Arc<PartHooks>>,
    times: OnceLock<PartTimes>,
}

impl Clone for PlacementPart {
    /// Copies the placements to change them, so without the facts.
    fn clone(&self) -> Self {
        Self::of(self.all.clone())
    }
}

/// Facts by which a part without a hook is passed over.
#[derive(Debug, Default)]
struct PartHooks {
    /// Hashes of the functions and blocks of its placements.
    blocks: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    /// Hashes of their hooks with their instruments.
    hooks: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
}

/// Facts about when a part is in place.
#[derive(Debug, Default)]
struct PartTimes {
    /// Its launches and splashes, each once.
    times: BTreeSet<u64>,
    /// First launch and last splash by function.
    extents: HashMap<Arc<str>, (f64, f64)>,
}

fn hash(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

fn hook_hash(one: &Placement) -> u64 {
    hash((&*one.function, one.block, one.hook, &*one.instrument))
}

impl PlacementPart {
    fn of(all: Vec<Placement>) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// Returns the placements to change them.
    fn change(&mut self) -> &mut Vec<Placement> {
        self.hooks.take();
        self.times.take();
        &mut self.all
    }

    /// Returns a copy with other times, and the facts about its hooks; `None` if all times stay.
    fn with_times(&self, times: &impl Fn(f64, f64) -> (f64, f64)) -> Option<Self> {
        let changed = |one: &Placement| {
            let before = (one.launch, one.splash);
            Some(times(one.launch, one.splash)).filter(|after| *after != before)
        };
        let first = self.all.iter().position(|one| changed(one).is_some())?;
        let mut all = self.all.clone();
        for one in all.iter_mut().skip(first) {
            if let Some(after) = changed(one) {
                (one.launch, one.splash) = after;
            }
        }
        Some(Self {
            hooks: self.hooks.clone(),
            ..Self::of(all)
        })
    }

    fn hooks(&self) -> &PartHooks {
        self.hooks.get_or_init(|| {
            let mut facts = PartHooks::default();
            for one in &self.all {
                facts.blocks.insert(hash((&*one.function, one.block)));
                facts.hooks.insert(hook_hash(one));
            }
            Arc::new(facts)
        })
    }

    fn times(&self) -> &PartTimes {
        self.times.get_or_init(|| {
            let mut facts = PartTimes::default();
            // Neighbours mostly have the same function and times.
            let mut last: Option<&Placement> = None;
            for one in &self.all {
                let times = |one: &Placement| (one.launch, one.splash);
                let is_same = last
                    .is_some_and(|last| times(last) == times(one) && last.function == one.function);
                last = Some(one);
                if is_same {
                    continue;
                }
                facts
                    .times
                    .extend([one.launch, one.splash].map(f64::to_bits));
                let function = Arc::clone(&one.function);
                let (launch, splash) = facts
                    .extents
                    .entry(function)
                    .or_insert((f64::INFINITY, 0.0));
                (*launch, *splash) = (launch.min(one.launch), splash.max(one.splash));
            }
            facts
        })
    }
}

/// Difference between two lists of placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// In launch or splash only.
    Times,
    /// In hooks, instruments or their number.
    Hooks,
}

impl Placements {
    /// Returns the number of placements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, Piece::end)
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a placement by its index.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&Placement> {
        let piece = self.0.get(self.piece_of(place)?)?;
        piece.part.all.get(place - piece.start)
    }

    /// Returns the placements in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Placement> {
        self.0.iter().flat_map(|piece| &piece.part.all)
    }

    /// Returns the index of the piece that has a placement.
    fn piece_of(&self, place: usize) -> Option<usize> {
        let after = self.0.partition_point(|piece| piece.start <= place);
        after.checked_sub(1)
    }

    /// Appends a placement.
    pub fn push(&mut self, placement: Placement) {
        self.insert(self.len(), placement);
    }

    /// Inserts a placement before the one with this index, or after the last.
    pub fn insert(&mut self, place: usize, placement: Placement) {
        let place = place.min(self.len());
        // Appended to the last piece, if its index is that of no placement.
        let index = self.piece_of(place);
        let pieces = Arc::make_mut(&mut self.0);
        let Some((index, piece)) = index.and_then(|index| Some((index, pieces.get_mut(index)?)))
        else {
            let part = Arc::new(PlacementPart::of(vec![placement]));
            pieces.push(Piece { start: 0, part });
            return;
        };
        let all = Arc::make_mut(&mut piece.part).change();
        all.insert(place - piece.start, placement);
        if all.len() > LONGEST {
            // A list that grows at its end has full pieces.
            let at = if place + 1 == piece.start + all.len() {
                LONGEST
            } else {
                LONGEST / 2
            };
            let part = Arc::new(PlacementPart::of(all.split_off(at)));
            pieces.insert(index + 1, Piece { start: 0, part });
        }
        number(pieces, index);
    }

    /// Removes and returns a placement, if there is one with this index.
    pub fn remove(&mut self, place: usize) -> Option<Placement> {
        let index = self.piece_of(place).filter(|_| place < self.len())?;
        let pieces = Arc::make_mut(&mut self.0);
        let piece = pieces.get_mut(index)?;
        let all = Arc::make_mut(&mut piece.part).change();
        let removed = all.remove(place - piece.start);
        if all.is_empty() {
            pieces.remove(index);
        }
        number(pieces, index);
        Some(removed)
    }

    /// Changes a placement, if there is one with this index.
    pub fn change(&mut self, place: usize, change: impl FnOnce(&mut Placement)) {
        let index = self.piece_of(place).filter(|_| place < self.len());
        let pieces = Arc::make_mut(&mut self.0);
        if let Some(piece) = index.and_then(|index| pieces.get_mut(index)) {
            let all = Arc::make_mut(&mut piece.part).change();
            if let Some(one) = all.get_mut(place - piece.start) {
                change(one);
            }
        }
    }

    /// Keeps the placements for which `keeps` holds. Pieces that keep all are not copied.
    pub fn retain(&mut self, keeps: impl FnMut(&Placement) -> bool) {
        self.retain_in(|_| true, keeps);
    }

    /// Keeps the placements that are not at a block or for which `keeps` holds.
    pub(crate) fn retain_at(
        &mut self,
        (function, block): (&str, u32),
        mut keeps: impl FnMut(&Placement) -> bool,
    ) {
        let key = hash((function, block));
        self.retain_in(
            |part| part.hooks().blocks.contains(&key),
            |one| (&*one.function, one.block) != (function, block) || keeps(one),
        );
    }

    /// Keeps the placements that are not in a function or for which `keeps` holds.
    pub(crate) fn retain_of(&mut self, function: &str, mut keeps: impl FnMut(&Placement) -> bool) {
        self.retain_in(
            |part| part.times().extents.contains_key(function),
            |one| *one.function != *function || keeps(one),
        );
    }

    fn retain_in(
        &mut self,
        mut is_changed: impl FnMut(&PlacementPart) -> bool,
        mut keeps: impl FnMut(&Placement) -> bool,
    ) {
        let pieces = Arc::make_mut(&mut self.0);
        pieces.retain_mut(|piece| {
            if !is_changed(&piece.part) {
                return true;
            }
            let kept: Vec<bool> = piece.part.all.iter().map(&mut keeps).collect();
            if kept.contains(&false) {
                let mut kept = kept.into_iter();
                let all = Arc::make_mut(&mut piece.part).change();
                all.retain(|_| kept.next().unwrap_or(true));
            }
            !piece.part.all.is_empty()
        });
        number(pieces, 0);
    }

    /// Changes launches and splashes. Pieces whose times stay are not copied.
    pub(crate) fn change_times(&mut self, times: impl Fn(f64, f64) -> (f64, f64)) {
        for piece in Arc::make_mut(&mut self.0) {
            if let Some(part) = piece.part.with_times(&times) {
                piece.part = Arc::new(part);
            }
        }
    }

    /// Returns the placements at a block with their indices.
    pub(crate) fn at<'a>(
        &'a self,
        function: &'a str,
        block: u32,
    ) -> impl Iterator<Item = (usize, &'a Placement)> {
        let key = hash((function, block));
        let pieces = self.0.iter();
        let pieces = pieces.filter(move |piece| piece.part.hooks().blocks.contains(&key));
        let all = pieces.flat_map(|piece| (piece.start..).zip(&piece.part.all));
        all.filter(move |(_, one)| one.block == block && *one.function == *function)
    }

    /// Returns whether a placement of this instrument at this hook is in the list.
    pub(crate) fn has_hook(&self, wanted: &Placement) -> bool {
        let key = hook_hash(wanted);
        let mut pieces = self.0.iter();
        pieces.any(|piece| {
            let has_hash = piece.part.hooks().hooks.contains(&key);
            has_hash && piece.part.all.iter().any(|one| same_hook(one, wanted))
        })
    }

    /// Returns the first launch and the last splash of a function's placements, in seconds.
    pub(crate) fn extent_of(&self, function: &str) -> Option<(f64, f64)> {
        let pieces = self.0.iter();
        let extents = pieces.filter_map(|piece| piece.part.times().extents.get(function));
        extents.copied().reduce(widest)
    }

    /// Returns the first launch and the last splash of placements by their indices, in seconds.
    pub(crate) fn extent(&self, places: &[usize]) -> Option<(f64, f64)> {
        let all = places.iter().filter_map(|&place| self.get(place));
        all.map(|one| (one.launch, one.splash)).reduce(widest)
    }

    /// Returns launches and splashes of all placements but some, whose indices are in order. Most times are there once
    /// for each piece.
    pub(crate) fn times_without(&self, some: &[usize]) -> Vec<f64> {
        let mut times = Vec::new();
        for piece in &*self.0 {
            let from = some.partition_point(|place| *place < piece.start);
            let to = some.partition_point(|place| *place < piece.end());
            let some = some.get(from..to).unwrap_or_default();
            if some.is_empty() {
                times.extend(piece.part.times().times.iter().copied().map(f64::from_bits));
                continue;
            }
            for (place, one) in (piece.start..).zip(&piece.part.all) {
                if some.binary_search(&place).is_err() {
                    times.extend([one.launch, one.splash]);
                }
            }
        }
        times
    }

    /// Computes the facts of every piece: a worker does so, that no frame has to.
    pub(crate) fn learn(&self) {
        for piece in &*self.0 {
            piece.part.hooks();
            piece.part.times();
        }
    }

    /// Returns how two lists differ, if they do. Shared pieces are passed over.
    pub(crate) fn difference(&self, other: &Self) -> Option<Difference> {
        if self.len() != other.len() {
            return Some(Difference::Hooks);
        }
        let mut difference = None;
        self.compare(other, |one, other| {
            if !same_hook(one, other) {
                difference = Some(Difference::Hooks);
                return ControlFlow::Break(());
            }
            if (one.launch, one.splash) != (other.launch, other.splash) {
                difference = Some(Difference::Times);
            }
            ControlFlow::Continue(())
        });
        difference
    }

    /// Visits the pairs of placements with the same index, but for those in a piece that both lists have there.
    fn compare<'a>(
        &'a self,
        other: &'a Self,
        mut visit: impl FnMut(&Placement, &Placement) -> ControlFlow<()>,
    ) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (mut pieces, mut others) = (self.0.iter(), other.0.iter());
        let (mut one, mut two): (&[Placement], &[Placement]) = (&[], &[]);
        loop {
            match (one.is_empty(), two.is_empty()) {
                (true, true) => {
                    let (Some(a), Some(b)) = (pieces.next(), others.next()) else {
                        return;
                    };
                    if !Arc::ptr_eq(&a.part, &b.part) {
                        (one, two) = (&a.part.all, &b.part.all);
                    }
                    continue;
                }
                (true, false) => match pieces.next() {
                    Some(piece) => one = &piece.part.all,
                    None => return,
                },
                (false, true) => match others.next() {
                    Some(piece) => two = &piece.part.all,
                    None => return,
                },
                (false, false) => {}
            }
            let both = one.len().min(two.len());
            if one
                .iter()
                .zip(two)
                .any(|(one, two)| visit(one, two).is_break())
            {
                return;
            }
            (one, two) = (
                one.get(both..).unwrap_or_default(),
                two.get(both..).unwrap_or_default(),
            );
        }
    }

    /// Returns the number of placements in pieces that another list does not have.
    pub(crate) fn unshared(&self, other: &Self) -> usize {
        if Arc::ptr_eq(&self.0, &other.0) {
            return 0;
        }
        let others: HashSet<*const PlacementPart> = other
            .0
            .iter()
            .map(|piece| Arc::as_ptr(&piece.part))
            .collect();
        let own = self.0.iter();
        let own = own.filter(|piece| !others.contains(&Arc::as_ptr(&piece.part)));
        own.map(|piece| piece.part.all.len()).sum()
    }
}

/// Returns the first launch and the last splash of both.
fn widest(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    (one.0.min(other.0), one.1.max(other.1))
}

/// Sets the number of placements before each piece, from the piece with an index on.
fn number(pieces: &mut [Piece], from: usize) {
    let before = from.checked_sub(1).and_then(|before| pieces.get(before));
    let mut start = before.map_or(0, Piece::end);
    for piece in pieces.iter_mut().skip(from) {
        piece.start = start;
        start = piece.end();
    }
}

impl PartialEq for Placements {
    fn eq(&self, other: &Self) -> bool {
        self.difference(other).is_none()
    }
}

impl Index<usize> for Placements {
    type Output = Placement;

    /// Returns a placement; a missing one panics, as that of a slice.
    #[expect(clippy::expect_used, reason = "an index of a list panics")]
    fn index(&self, place: usize) -> &Placement {
        self.get(place)
            .expect("there is a placement with the index")
    }
}

impl FromIterator<Placement> for Placements {
    fn from_iter<I: IntoIterator<Item = Placement>>(all: I) -> Self {
        let mut pieces = Vec::new();
        let mut all = all.into_iter().peekable();
        let mut start = 0;
        while all.peek().is_some() {
            let part = Arc::new(PlacementPart::of(all.by_ref().take(LONGEST).collect()));
            let piece = Piece { start, part };
            start = piece.end();
            pieces.push(piece);
        }
        Self(Arc::new(pieces))
    }
}

impl From<Vec<Placement>> for Placements {
    fn from(all: Vec<Placement>) -> Self {
        all.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Placements {
    type Item = &'a Placement;
    type IntoIter = Box<dyn Iterator<Item = &'a Placement> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placement(block: u32) -> Placement {
        Placement {
            function: ["f", "g"][block as usize % 2].into(),
            block,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: 10.0,
        }
    }

    #[derive(Clone, Debug)]
    enum Change {
        Insert(usize, u32),
        Remove(usize),
        Times(usize, u8),
        AllTimes(u8, u8),
        Retain(u32),
        RetainAt(u32),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (any::<usize>(), 0..40u32).prop_map(|(place, block)| Change::Insert(place, block)),
            2 => any::<usize>().prop_map(Change::Remove),
            2 => (any::<usize>(), any::<u8>()).prop_map(|(place, time)| Change::Times(place, time)),
            1 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Change::AllTimes(from, to)),
            1 => (2..9u32).prop_map(Change::Retain),
            1 => (0..40u32).prop_map(Change::RetainAt),
        ]
    }

    /// Checks a list against the slice that it stands for.
    fn check(list: &Placements, all: &[Placement]) {
        assert_eq!(list.len(), all.len());
        assert_eq!(list.is_empty(), all.is_empty());
        assert!(list.iter().eq(all));
        assert!(list.iter().rev().eq(all.iter().rev()));
        assert!((0..=all.len()).all(|place| list.get(place) == all.get(place)));
        assert!(
            list.0
                .iter()
                .all(|piece| (1..=LONGEST).contains(&piece.part.all.len()))
        );
        for block in 0..40 {
            let wanted = placement(block);
            let here = |(_, one): &(usize, &Placement)| {
                (one.block, &one.function) == (block, &wanted.function)
            };
            let expected: Vec<_> = all.iter().enumerate().filter(here).collect();
            assert_eq!(
                list.at(&wanted.function, block).collect::<Vec<_>>(),
                expected
            );
            assert_eq!(list.has_hook(&wanted), !expected.is_empty());
        }
        let of_f = all.iter().filter(|one| &*one.function == "f");
        let extent = of_f.map(|one| (one.launch, one.splash));
        let extent = extent.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        assert_eq!(list.extent_of("f"), extent);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_list_in_pieces_is_the_list(begin in 0..1200u32, changes in prop::collection::vec(change(), 1..40)) {
            let mut all: Vec<Placement> = (0..begin).map(|n| placement(n % 40)).collect();
            let mut list: Placements = all.clone().into();
            check(&list, &all);
            for change in changes {
                let (before, old) = (list.clone(), all.clone());
                match change {
                    Change::Insert(place, block) => {
                        let place = place % (all.len() + 1);
                        all.insert(place, placement(block));
                        list.insert(place, placement(block));
                    }
                    Change::Remove(place) => {
                        let place = place % (all.len() + 1);
                        let removed = (place < all.len()).then(|| all.remove(place));
                        prop_assert_eq!(list.remove(place), removed);
                    }
                    Change::Times(place, time) if !all.is_empty() => {
                        let (place, time) = (place % all.len(), f64::from(time));
                        (all[place].launch, all[place].splash) = (time, time + 1.0);
                        list.change(place, |one| (one.launch, one.splash) = (time, time + 1.0));
                    }
                    Change::Times(..) => {}
                    Change::AllTimes(from, to) => {
                        let from = if from % 2 == 0 { 10.0 } else { f64::from(from) };
                        let moved = |splash: f64| {
                            if splash == from { f64::from(to) } else { splash }
                        };
                        all.iter_mut().for_each(|one| one.splash = moved(one.splash));
                        list.change_times(|launch, splash| (launch, moved(splash)));
                    }
                    Change::Retain(every) => {
                        all.retain(|one| one.block % every > 0);
                        list.retain(|one| one.block % every > 0);
                    }
                    Change::RetainAt(block) => {
                        let function = placement(block).function;
                        all.retain(|one| one.block != block);
                        list.retain_at((&function, block), |_| false);
                    }
                }
                check(&list, &all);
                prop_assert!(before.iter().eq(&old), "a copy stays as it was");
                prop_assert_eq!(before == list, old == all);
                let same_hooks = old.iter().map(hook_key).eq(all.iter().map(hook_key));
                let expected = match (same_hooks, old == all) {
                    (_, true) => None,
                    (true, false) => Some(Difference::Times),
                    (false, false) => Some(Difference::Hooks),
                };
                prop_assert_eq!(before.difference(&list), expected);
            }
        }
    }

    #[test]
    fn a_change_of_times_keeps_what_is_known_of_hooks_and_pieces_without_it() {
        let mut list: Placements = (0..2000).map(placement).collect();
        list.change(0, |one| one.splash = 4.0);
        list.learn();
        let before = list.clone();
        list.change_times(|launch, splash| (launch, if splash == 4.0 { 5.0 } else { splash }));
        assert!(before.unshared(&list) <= LONGEST);
        list.change_times(|launch, splash| (launch, splash + 1.0));
        assert_eq!(before.unshared(&list), 2000);
        for (old, new) in before.0.iter().zip(&*list.0) {
            let (old, new) = (old.part.hooks.get(), new.part.hooks.get());
            assert!(Arc::ptr_eq(old.unwrap(), new.unwrap()));
        }
    }

    #[test]
    fn an_edit_copies_one_piece() {
        let all: Placements = (0..100_000).map(placement).collect();
        let mut edited = all.clone();
        edited.push(placement(7));
        assert!(all.unshared(&edited) <= LONGEST);
        edited.change(50_000, |one| one.splash = 2.0);
        edited.remove(7);
        assert!(all.unshared(&edited) <= 3 * LONGEST);
        let unshared = edited.unshared(&all);
        let mut visited = 0;
        all.compare(&edited, |_, _| {
            visited += 1;
            ControlFlow::Continue(())
        });
        assert!(unshared <= 3 * LONGEST && visited > 0);
    }
}
