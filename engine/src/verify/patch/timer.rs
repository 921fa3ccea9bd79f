//! The table of storage of threads and calls: the addresses of entries, and the protocol of
//! changes. `lock cmpxchg` locks an entry that is free or the key's own; then its value is read, if
//! it is added to, and written, then its owner. So no entry of another key is overwritten, no
//! interrupt overwrites a value that its own thread is writing, and no addition of an interrupt is
//! lost.

use crate::verify::reason::Reason;
use gilk_instruments::program::ActionKind;

use super::hit::{HitResult, HitRules, HitStage, Progress};
use super::state::{AbstractState, Fact};
use crate::layout::RuntimeLayout;
use crate::verify::symbolic::atom::{Atom, Key, SymValue};
use crate::verify::symbolic::value::SymValues;

/// The value that an instrument stores in its entry.
#[derive(Clone, Copy)]
enum EntryUpdate {
    Stored(SymValue),
    /// Added to the present value.
    Added(SymValue),
}

impl HitRules<'_> {
    pub(crate) fn key_of(&mut self, key: Key) -> SymValue {
        match key {
            Key::Thread(number) => {
                // A number that does not fit into the free bits is the key of another thread.
                if number >= self.layout.owner.thread_variables() {
                    return SymValue::UNKNOWN;
                }
                let task = self.values.task(self.layout.owner);
                let number = self.values.constant(number.into());
                self.values.add(task, number)
            }
            Key::Call(number) => {
                // A higher number would reach the bit of busy entries.
                if number >= self.layout.owner.call_numbers() {
                    return SymValue::UNKNOWN;
                }
                let stack = self.values.atom(Atom::Stack);
                let number = self.values.constant(u64::from(number) << 48);
                self.values.xor(stack, number)
            }
        }
    }

    /// Returns the entry and its owner, if `difference` is that of the owner and the key.
    pub(crate) fn owner_by(
        &mut self,
        key: Key,
        difference: SymValue,
    ) -> Option<(SymValue, SymValue)> {
        let key = self.key_of(key);
        let owner = self.values.xor(difference, key);
        match self.values.as_atom(owner) {
            Some(Atom::Timer { word: 0, entry, .. }) => Some((*entry, owner)),
            _ => None,
        }
    }

    /// Returns whether a value was read from an entry.
    pub(crate) fn is_kept_in(&self, value: SymValue, entry: SymValue) -> bool {
        matches!(self.values.as_atom(value), Some(Atom::Timer { word: 8, entry: at, .. }) if *at == entry)
    }

    /// Returns whether a word of an entry was read in this step, and so after the stores of all earlier ones.
    pub(crate) fn is_read_in(&self, value: SymValue, now: u16) -> bool {
        matches!(self.values.as_atom(value), Some(Atom::Timer { step, .. }) if *step == now)
    }

    fn keeping(&mut self, progress: Progress, state: &AbstractState) -> Option<(Key, EntryUpdate)> {
        let place = self.place(progress, state)?;
        let (id, expr, kept): (_, _, fn(SymValue) -> EntryUpdate) =
            match &self.action(progress)?.kind {
                ActionKind::Store(id, expr) => (id, expr, EntryUpdate::Stored),
                ActionKind::Add(id, expr) => (id, expr, EntryUpdate::Added),
                _ => return None,
            };
        let key = place.probed.home(*id).and_then(Key::of)?;
        let value = place.value(self.values, expr);
        (!value.is_unknown()).then(|| (key, kept(value)))
    }

    /// Returns the truth value of whether the value to store or add is not 0.
    pub(crate) fn not_zero(
        &mut self,
        progress: Progress,
        state: &AbstractState,
    ) -> Option<SymValue> {
        let (EntryUpdate::Stored(value) | EntryUpdate::Added(value)) =
            self.keeping(progress, state)?.1;
        let zero = self.values.constant(0);
        let none = self.values.equal(value, zero);
        Some(self.values.not(none)).filter(|truth| !truth.is_unknown())
    }

    /// Checks `lock cmpxchg [entry], new` with `old` in rax, which locks an entry that is free or
    /// the key's own.
    pub(crate) fn exchange(
        &mut self,
        progress: Progress,
        entry: SymValue,
        [old, new]: [SymValue; 2],
        state: &AbstractState,
    ) -> HitResult {
        let Some((owner, kept)) = self.keeping(progress, state) else {
            return Err(Reason::KeepsNothing);
        };
        let key = self.key_of(owner);
        let busy = self.values.constant(self.layout.owner.busy());
        if new.is_unknown() || new != self.values.xor(key, busy) {
            return Err(Reason::OtherKey);
        }
        let free = self.values.as_constant(old) == Some(0);
        let first = match progress.stage {
            HitStage::Nothing => true,
            HitStage::Taken { entry: known } if known == entry && !free => false,
            _ => return Err(Reason::LockOrder),
        };
        // A value that is always 0 is not worth a free entry.
        let zero =
            matches!(kept, EntryUpdate::Stored(value) if self.values.as_constant(value) == Some(0));
        if !(free || old == key && (zero || !first)) {
            return Err(Reason::ForeignEntry);
        }
        self.entries.push((owner, entry));
        let stage = HitStage::Exchanging { entry, free, first };
        Ok(Some(Progress { stage, ..progress }))
    }

    /// Returns the progress after the branch on the result of a lock.
    pub(crate) fn exchanged(&self, progress: Progress, success: bool) -> Option<Progress> {
        let HitStage::Exchanging { entry, free, first } = progress.stage else {
            return Some(progress);
        };
        let to = |stage| Some(Progress { stage, ..progress });
        if success {
            to(HitStage::Owned {
                entry,
                written: None,
            })
        } else if free {
            to(HitStage::Taken { entry })
        } else if first {
            // The key has no entry to clear.
            self.next(progress)
        } else {
            to(HitStage::Full)
        }
    }

    /// Checks a store to a locked entry: its value, then its owner, or 0 to free it.
    pub(crate) fn keep(
        &mut self,
        progress: Progress,
        address: SymValue,
        stored: SymValue,
        state: &AbstractState,
    ) -> HitResult {
        let HitStage::Owned { entry, written } = progress.stage else {
            return Err(Reason::NoLockedEntry);
        };
        let found = timer_entry(self.values, self.layout, address);
        let Some((_, word)) = found.filter(|(known, _)| *known == entry) else {
            return Err(Reason::OutsideEntry);
        };
        let Some((owner, kept)) = self.keeping(progress, state) else {
            return Err(Reason::StoresNothing);
        };
        let value = match (word, written) {
            (0, Some(value)) => value,
            (8, None) => {
                let right = match kept {
                    EntryUpdate::Stored(value) => value == stored,
                    EntryUpdate::Added(value) => {
                        let old = self.values.sub(stored, value);
                        self.is_kept_in(old, entry) && state.knows(Fact::Mine(old))
                    }
                };
                if !right || stored.is_unknown() {
                    return Err(Reason::OtherKept);
                }
                let written = Some(stored);
                let stage = HitStage::Owned { entry, written };
                return Ok(Some(Progress { stage, ..progress }));
            }
            _ => return Err(Reason::EntryOrder),
        };
        let key = self.key_of(owner);
        let zero = self.values.constant(0);
        let none = self.values.equal(value, zero);
        let owner = self.values.select(none, value, key);
        if owner.is_unknown() || owner != stored {
            return Err(Reason::OtherOwner);
        }
        Ok(self.next(progress))
    }
}

/// Returns the entry of the table of storage that an address is in, in bytes from the start of the
/// table, and the offset of the word in it: `timers + 16 × (a number below 2^timers_log2) + (0 or
/// 8)`.
pub(crate) fn timer_entry(
    values: &mut SymValues,
    layout: &RuntimeLayout,
    address: SymValue,
) -> Option<(SymValue, u8)> {
    if !layout.has_storage() {
        return None;
    }
    let table = values.constant(layout.timers.0);
    let offset = values.sub(address, table);
    let (constant, terms) = values.parts(offset)?;
    let [term] = terms else { return None };
    let inside = term.factor == 16 && u32::from(term.len) <= layout.timers_log2;
    let word = u8::try_from(constant)
        .ok()
        .filter(|word| inside && matches!(word, 0 | 8))?;
    let offset_in_entry = values.constant(word.into());
    Some((values.sub(offset, offset_in_entry), word))
}
