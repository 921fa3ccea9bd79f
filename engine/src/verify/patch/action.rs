//! The effect of a probe, step by step: its predicate first, then each action in order, with the
//! values that the program defines.

use crate::verify::reason::Reason;
use gilk_instruments::program::{
    Action, ActionKind, Aggregate, AggregateKind, ExprKind, Mapped, Probe, Table,
};

use super::hit::{HitResult, HitRules, HitStage, Progress};
use super::program::{Context, has_tests, known, steps};
use super::state::{AbstractState, RAX};
use crate::layout::CounterSlot;
use crate::patch::Home;
use crate::verify::symbolic::atom::{Atom, Key, SymValue};

/// A write to a word of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordWrite {
    /// True if the address is an offset of the target's segment.
    pub(crate) by_word: bool,
    pub(crate) address: SymValue,
    /// The value that is written, or added.
    pub(crate) value: SymValue,
    pub(crate) adds: bool,
    /// True if the write is atomic for all CPUs.
    pub(crate) locked: bool,
}

/// The update of an aggregate's table by a step.
struct TableEntry {
    /// The terms of a bucket's sums, in their order.
    parts: Vec<SymValue>,
    /// The hash of the key.
    hash: SymValue,
    /// Binary logarithm of the number of buckets.
    room_log2: u32,
}

impl<'a> HitRules<'a> {
    pub(crate) fn probe(&self) -> Option<&'a Probe> {
        self.expected.probe.as_deref()?.probe()
    }

    /// Returns the action of the current step.
    pub(crate) fn action(&self, progress: Progress) -> Option<&'a Action> {
        let probe = self.probe()?;
        let step = usize::from(progress.steps);
        let action = step.checked_sub(usize::from(has_tests(probe)))?;
        probe.actions.get(action)
    }

    pub(crate) fn is_sampling(&self, progress: Progress) -> bool {
        let action = self.action(progress);
        action.is_some_and(|action| matches!(action.kind, ActionKind::Sample(_)))
    }

    pub(crate) fn place(&self, progress: Progress, state: &AbstractState) -> Option<Context<'a>> {
        let step = progress.steps;
        let clock = state.clock.filter(|(read, _)| *read == step);
        Some(Context {
            probed: self.expected.probe.as_deref()?,
            id: self.expected.id,
            layout: self.layout,
            step,
            clock: clock.map(|(_, tsc)| tsc),
        })
    }

    /// Completes the step: the next one, or `None` at the end.
    pub(crate) fn next(&self, progress: Progress) -> Option<Progress> {
        let next = Progress {
            stage: HitStage::Nothing,
            steps: progress.steps.saturating_add(1),
        };
        let all = self.probe().map_or(0, steps);
        (usize::from(next.steps) < all).then_some(next)
    }

    /// Updates progress after a branch, which may decide the predicate, or whether a maximum is
    /// larger already.
    pub(crate) fn decide(&mut self, progress: Progress, state: &AbstractState) -> Option<Progress> {
        let (Some(probe), Some(place)) = (self.probe(), self.place(progress, state)) else {
            return Some(progress);
        };
        if progress.steps == 0
            && has_tests(probe)
            && let Some(predicate) = &probe.predicate
        {
            return match place.holds(self.values, predicate, state) {
                Some(true) => self.next(progress),
                Some(false) => None,
                None => Some(progress),
            };
        }
        if progress.stage == HitStage::Counted
            && let Some((aggregate, _, Some(value))) = self.aggregated(progress, state)
            && let Some(less) = self.is_larger(aggregate, value, state)
            && known(self.values, less, state) == Some(false)
        {
            return self.next(progress);
        }
        Some(progress)
    }

    /// Returns the aggregate of the step, its first word, and its argument.
    fn aggregated(
        &mut self,
        progress: Progress,
        state: &AbstractState,
    ) -> Option<(&'a Aggregate, CounterSlot, Option<SymValue>)> {
        let place = self.place(progress, state)?;
        let ActionKind::Update(id, expr) = &self.action(progress)?.kind else {
            return None;
        };
        let (aggregate, first) = place.probed.aggregate(*id, self.expected.counter)?;
        let value = expr.as_ref().map(|expr| place.value(self.values, expr));
        Some((aggregate, first, value))
    }

    /// Returns whether the value that was read of a maximum is less, for aggregates that keep one.
    fn is_larger(
        &mut self,
        aggregate: &Aggregate,
        value: SymValue,
        state: &AbstractState,
    ) -> Option<SymValue> {
        let kept = state.register(RAX);
        let keeps = matches!(aggregate.kind, AggregateKind::Min | AggregateKind::Max);
        let read = matches!(self.values.as_atom(kept), Some(Atom::Largest(_)));
        let value = self.values.compared(aggregate, value);
        (keeps && read).then(|| self.values.less(false, kept, value))
    }

    /// Returns the word of the maximum that the step updates: a CPU's, or with restartable sequences that which all
    /// CPUs share.
    pub(crate) fn largest(&mut self, progress: Progress, state: &AbstractState) -> Option<u64> {
        let (aggregate, first, _) = self.aggregated(progress, state)?;
        let keeps = matches!(aggregate.kind, AggregateKind::Min | AggregateKind::Max);
        if !keeps || progress.stage != HitStage::Counted {
            return None;
        }
        if self.layout.sequences().is_none() {
            return self.word(first, 1);
        }
        let slot = CounterSlot {
            slot: first.slot.checked_add(1)?,
            ..first
        };
        self.layout.shared(slot).map(|word| word.0)
    }

    /// Returns whether the step writes to words that all CPUs share, or to the table of storage.
    pub(crate) fn writes_shared(&mut self, progress: Progress, state: &AbstractState) -> bool {
        let (Some(place), Some(action)) = (self.place(progress, state), self.action(progress))
        else {
            return false;
        };
        match action.kind {
            ActionKind::Store(id, _) | ActionKind::Add(id, _) => match place.probed.home(id) {
                Some(Home::Shared(_)) => true,
                // A value that is not stored is counted.
                Some(Home::Thread(_) | Home::Call(_)) => progress.stage != HitStage::Full,
                _ => false,
            },
            ActionKind::Update(..) => self.largest(progress, state).is_some(),
            ActionKind::Sample(_) => false,
        }
    }

    /// Checks a `cmpxchg` of a maximum.
    pub(crate) fn raise(
        &mut self,
        progress: Progress,
        (word, old, new): (u64, SymValue, SymValue),
        state: &AbstractState,
    ) -> HitResult {
        if self.largest(progress, state) != Some(word) {
            return Err(Reason::OtherMaximum);
        }
        let aggregated = self.aggregated(progress, state);
        let Some((aggregate, _, Some(value))) = aggregated else {
            return Err(Reason::NoMaximum);
        };
        let compared = self.values.compared(aggregate, value);
        let larger = self.is_larger(aggregate, value, state);
        let larger = larger.and_then(|larger| known(self.values, larger, state));
        if old != state.register(RAX) || compared.is_unknown() || compared != new {
            return Err(Reason::OtherKept);
        }
        if larger != Some(true) {
            return Err(Reason::NotLarger);
        }
        Ok(Some(Progress {
            stage: HitStage::Raising,
            ..progress
        }))
    }

    fn word(&self, first: CounterSlot, further: u32) -> Option<u64> {
        let slot = CounterSlot {
            slot: first.slot.checked_add(further)?,
            ..first
        };
        self.layout.counter(slot).map(|word| word.0)
    }

    /// Returns whether the value in the slot of a word of a sample is the program's, with the time of the sample as its clock
    /// or an earlier reading of the step.
    pub(crate) fn is_sampled(
        &mut self,
        (progress, word): (Progress, u8),
        stored: SymValue,
        tsc: SymValue,
        state: &AbstractState,
    ) -> bool {
        let (Some(place), Some(action)) = (self.place(progress, state), self.action(progress))
        else {
            return false;
        };
        let Some(expr) = action.kind.sampled().get(usize::from(word)) else {
            return false;
        };
        [Some(tsc), place.clock].into_iter().flatten().any(|tsc| {
            let clock = Some(tsc);
            let meant = Context { clock, ..place }.value(self.values, expr);
            !meant.is_unknown() && meant == stored
        })
    }

    /// Checks a write outside of the slot of a sample.
    pub(crate) fn write(
        &mut self,
        progress: Progress,
        write: WordWrite,
        state: &AbstractState,
    ) -> HitResult {
        let (Some(place), Some(action)) = (self.place(progress, state), self.action(progress))
        else {
            return Err(Reason::EarlyWrite);
        };
        if progress.stage == HitStage::Full {
            let slot = place.probed.homes.no_room;
            let word = slot.and_then(|slot| self.word(slot, 0));
            let right = write.by_word
                && write.adds
                && word.is_some()
                && self.values.as_constant(write.address) == word
                && self.not_zero(progress, state) == Some(write.value);
            return if right {
                Ok(self.next(progress))
            } else {
                Err(Reason::OverflowCount)
            };
        }
        match &action.kind {
            ActionKind::Sample(_) => Err(Reason::OutsideSample),
            ActionKind::Store(id, expr) | ActionKind::Add(id, expr) => {
                let adds = matches!(action.kind, ActionKind::Add(..));
                let value = place.value(self.values, expr);
                let home = place.probed.home(*id);
                if value.is_unknown() {
                    return Err(Reason::Undetermined);
                }
                if home.and_then(Key::of).is_some() {
                    return if write.by_word || write.adds {
                        Err(Reason::OutsideTable)
                    } else {
                        self.keep(progress, write.address, write.value, state)
                    };
                }
                let right = match home {
                    Some(Home::Cpu(slot)) => {
                        let word = self.word(slot, 0);
                        write.by_word
                            && word.is_some()
                            && self.values.as_constant(write.address) == word
                    }
                    Some(Home::Shared(slot)) => {
                        let word = self.layout.shared(slot).map(|word| word.0);
                        let whole = write.locked || !adds;
                        !write.by_word
                            && whole
                            && word.is_some()
                            && self.values.as_constant(write.address) == word
                    }
                    _ => false,
                };
                if !right || write.adds != adds {
                    return Err(Reason::OtherVariable);
                }
                if write.value != value {
                    return Err(Reason::OtherStored);
                }
                Ok(self.next(progress))
            }
            ActionKind::Update(..) => self.update(progress, write, state),
        }
    }

    fn update(&mut self, progress: Progress, write: WordWrite, state: &AbstractState) -> HitResult {
        let Some((aggregate, first, value)) = self.aggregated(progress, state) else {
            return Err(Reason::NoAggregate);
        };
        if !write.by_word || !write.adds {
            return Err(Reason::AggregateWrite);
        }
        let one = self.values.constant(1);
        let counted = progress.stage == HitStage::Counted;
        let (word, amount, next) = match (aggregate.kind, value) {
            (AggregateKind::Count, _) => (self.word(first, 0), one, None),
            (AggregateKind::Sum | AggregateKind::Average, Some(value)) if counted => {
                (self.word(first, 1), value, None)
            }
            (
                AggregateKind::Sum
                | AggregateKind::Average
                | AggregateKind::Min
                | AggregateKind::Max,
                Some(_),
            ) if !counted => (self.word(first, 0), one, Some(HitStage::Counted)),
            (AggregateKind::Log2 | AggregateKind::Linear { .. }, Some(value)) => {
                let place = self.values.bucket(aggregate, value);
                let place = self.values.scale(place, 8);
                let base = self.word(first, 0).ok_or(Reason::HistogramBank)?;
                let base = self.values.constant(base);
                let bucket = self.values.add(base, place);
                let last = aggregate.words().saturating_sub(1);
                return if bucket.is_unknown() || bucket != write.address || write.value != one {
                    Err(Reason::OtherBucket)
                } else if self.word(first, last).is_none() {
                    Err(Reason::HistogramBank)
                } else {
                    Ok(self.next(progress))
                };
            }
            (AggregateKind::Values { .. } | AggregateKind::Map { .. }, Some(_)) => {
                let entry = self.entry(progress, aggregate, state);
                let entry = entry.ok_or(Reason::NoAggregate)?;
                return self.tally(progress, write, (aggregate, first), &entry);
            }
            _ => (None, one, None),
        };
        if word.is_none() || self.values.as_constant(write.address) != word {
            return Err(Reason::OtherAggregate);
        }
        if amount.is_unknown() || amount != write.value {
            return Err(Reason::OtherAmount);
        }
        Ok(match next {
            Some(stage) => Some(Progress { stage, ..progress }),
            None => self.next(progress),
        })
    }

    /// Returns the terms that the step adds to the sums of its buckets, and the hash of its key.
    fn entry(
        &mut self,
        progress: Progress,
        aggregate: &Aggregate,
        state: &AbstractState,
    ) -> Option<TableEntry> {
        let place = self.place(progress, state)?;
        let ActionKind::Update(_, Some(expr)) = &self.action(progress)?.kind else {
            return None;
        };
        let list = match &expr.kind {
            ExprKind::List(all) => all,
            _ => std::slice::from_ref(expr),
        };
        let list: Vec<SymValue> = list
            .iter()
            .map(|one| place.value(self.values, one))
            .collect();
        let (keys, of, room_log2) = match aggregate.kind {
            AggregateKind::Values { room_log2 } => (1, Mapped::Count, room_log2),
            AggregateKind::Map {
                keys,
                of,
                room_log2,
            } => (keys.words() as usize, of, room_log2),
            _ => return None,
        };
        let (keys, value) = list.split_at_checked(keys)?;
        let takes_value = of != Mapped::Count;
        let value = match value {
            [] if !takes_value => None,
            [value] if takes_value => Some(*value),
            _ => return None,
        };
        let bin = match of {
            Mapped::Log2 | Mapped::Linear { .. } => {
                let histogram = Aggregate {
                    name: String::new(),
                    kind: of.plain(),
                    ty: aggregate.ty,
                    names: Vec::new(),
                };
                Some(self.values.bucket(&histogram, value?))
            }
            Mapped::Count | Mapped::Sum | Mapped::Average => None,
        };
        let mut words = keys.iter().copied().chain(bin);
        let mut hash = words.next()?;
        for word in words {
            let mixed = self.mixed(hash);
            let spread = self.values.constant(Table::SPREAD);
            let spread = self.values.mul(mixed, spread);
            hash = self.values.add(spread, word);
        }
        let mut parts = vec![self.values.constant(1)];
        for &key in keys {
            parts.push(self.values.extend(key, 32, false));
            parts.push(self.values.shr(key, 32));
        }
        parts.extend(bin);
        let mixed = self.mixed(hash);
        parts.push(self.values.mul(mixed, mixed));
        parts.extend(value.filter(|_| bin.is_none()));
        Some(TableEntry {
            parts,
            hash,
            room_log2,
        })
    }

    /// Returns a value, exclusive or itself shifted.
    fn mixed(&mut self, value: SymValue) -> SymValue {
        let shifted = self.values.shr(value, Table::MIXED);
        self.values.xor(shifted, value)
    }

    /// Checks the addition of a part of an entry to one of its two buckets: each part to the first
    /// bucket, then to the second.
    fn tally(
        &mut self,
        progress: Progress,
        write: WordWrite,
        (aggregate, first): (&Aggregate, CounterSlot),
        entry: &TableEntry,
    ) -> HitResult {
        let done = match progress.stage {
            HitStage::Tallied(done) => done,
            _ => 0,
        };
        let room_log2 = entry.room_log2;
        let sums = u32::try_from(entry.parts.len()).unwrap_or(u32::MAX);
        let (table, sum) = (u32::from(done) / sums, u32::from(done) % sums);
        let half_log2 = room_log2.saturating_sub(1);
        let missing = "the factor of a table";
        let factor = Table::FACTORS.get(table as usize);
        let factor = *factor.ok_or(Reason::Internal { missing })?;
        let factor = self.values.constant(factor);
        let hashed = self.values.mul(entry.hash, factor);
        let place = match half_log2 {
            0 => self.values.constant(0),
            _ => self.values.shr(hashed, 64 - half_log2),
        };
        let further = (table << half_log2) + (sum << room_log2);
        let word = self.word(first, further);
        // The words of the aggregate are as many as the sums of all buckets.
        let last = (sums << room_log2).saturating_sub(1);
        let whole = aggregate.words() == last.saturating_add(1);
        let word = word.filter(|_| whole && self.word(first, last).is_some());
        let base = self.values.constant(word.ok_or(Reason::ValuesBank)?);
        let offset = self.values.scale(place, 8);
        let address = self.values.add(base, offset);
        let part = entry.parts.get(sum as usize).copied();
        let missing = "the part of an entry";
        let part = part.ok_or(Reason::Internal { missing })?;
        if address.is_unknown() || address != write.address {
            return Err(Reason::OtherValuesBucket);
        }
        if part.is_unknown() || part != write.value {
            return Err(Reason::OtherPart);
        }
        let done = done.saturating_add(1);
        if u32::from(done) == 2 * sums {
            return Ok(self.next(progress));
        }
        Ok(Some(Progress {
            stage: HitStage::Tallied(done),
            ..progress
        }))
    }

    /// Returns the key whose value a conditional move loads from the table of storage: the value if
    /// the owner of the entry is the key, else 0.
    ///
    /// # Errors
    /// [`Reason::StaleEntry`] if a word of the entry was read in an earlier step.
    pub(crate) fn kept(
        &mut self,
        progress: Progress,
        equal: Option<SymValue>,
        yes: SymValue,
        no: SymValue,
    ) -> Result<Option<Key>, Reason> {
        let Some(probed) = self.expected.probe.as_deref() else {
            return Ok(None);
        };
        let (Some(difference), Some(0)) = (equal, self.values.as_constant(no)) else {
            return Ok(None);
        };
        for key in probed
            .homes
            .variables
            .values()
            .iter()
            .copied()
            .filter_map(Key::of)
        {
            let Some((entry, owner)) = self.owner_by(key, difference) else {
                continue;
            };
            if !self.is_kept_in(yes, entry) {
                continue;
            }
            if ![yes, owner]
                .iter()
                .all(|&word| self.is_read_in(word, progress.steps))
            {
                return Err(Reason::StaleEntry);
            }
            self.entries.push((key, entry));
            return Ok(Some(key));
        }
        Ok(None)
    }
}

/// Returns the difference that a comparison tests for zero.
pub(crate) fn difference(
    values: &mut crate::verify::symbolic::value::SymValues,
    compare: super::state::Compare,
) -> Option<SymValue> {
    match compare {
        super::state::Compare::Unknown => None,
        super::state::Compare::Of(a, b) => Some(values.xor(a, b)),
        super::state::Compare::Zero(value) | super::state::Compare::OnlyZero(value) => Some(value),
    }
}
