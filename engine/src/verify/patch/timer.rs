//! The table of what threads and calls keep: where entries are, and how they may be changed. An entry that is
//! free, or one's own, is made busy by `lock cmpxchg`; then what it keeps is read, if it is added to, and written,
//! then its owner. So nobody writes over what is another's, nor does an interrupt over what its own thread is
//! writing, nor is lost what an interrupt has added.

use crate::verify::reason::Reason;
use gilk_instruments::Program;
use gilk_instruments::program::ActionKind;

use super::hit::{Hit, Progress, Stage, Step};
use super::state::{Fact, State};
use crate::layout::RuntimeLayout;
use crate::patch::TIMER_BUSY;
use crate::verify::symbolic::atom::{Atom, Key, Value};
use crate::verify::symbolic::value::Values;

/// What an instrument is to keep in its entry.
#[derive(Clone, Copy)]
enum Kept {
    /// Any reading of the clock.
    Clock,
    Stored(Value),
    /// Added to what it has.
    Added(Value),
}

impl Hit<'_> {
    pub(crate) fn key_of(&mut self, key: Key) -> Value {
        match key {
            Key::Thread(number) => {
                let task = self.values.task();
                let number = self.values.constant(number.into());
                self.values.add(task, number)
            }
            Key::Call(number) => {
                let stack = self.values.atom(Atom::Stack);
                let number = self.values.constant(u64::from(number) << 48);
                self.values.xor(stack, number)
            }
        }
    }

    /// If `difference` is that of an entry's owner and the key: the entry, and its owner.
    pub(crate) fn owner_by(&mut self, key: Key, difference: Value) -> Option<(Value, Value)> {
        let key = self.key_of(key);
        let owner = self.values.xor(difference, key);
        match self.values.as_atom(owner) {
            Some(Atom::Timer { word: 0, entry, .. }) => Some((*entry, owner)),
            _ => None,
        }
    }

    /// Whether a value is what an entry keeps, as it was read there.
    pub(crate) fn is_kept_in(&self, value: Value, entry: Value) -> bool {
        matches!(self.values.as_atom(value), Some(Atom::Timer { word: 8, entry: at, .. }) if *at == entry)
    }

    fn keeping(&mut self, progress: Progress, state: &State) -> Option<(Key, Kept)> {
        let timer = Key::Thread(self.expected.timer);
        match self.expected.program {
            Program::StartTimer => Some((timer, Kept::Clock)),
            Program::StopTimer if !progress.cleared => {
                Some((timer, Kept::Stored(self.values.constant(0))))
            }
            _ => {
                let place = self.place(progress, state)?;
                let (id, expr, kept): (_, _, fn(Value) -> Kept) = match &self.action(progress)?.kind
                {
                    ActionKind::Store(id, expr) => (id, expr, Kept::Stored),
                    ActionKind::Add(id, expr) => (id, expr, Kept::Added),
                    _ => return None,
                };
                let key = place.probed.home(*id).and_then(Key::of)?;
                let value = place.value(self.values, expr);
                (!value.is_unknown()).then(|| (key, kept(value)))
            }
        }
    }

    /// Whether what is to be stored or added is not 0, as a number.
    pub(crate) fn not_zero(&mut self, progress: Progress, state: &State) -> Option<Value> {
        let (Kept::Stored(value) | Kept::Added(value)) = self.keeping(progress, state)?.1 else {
            return None;
        };
        let zero = self.values.constant(0);
        let none = self.values.equal(value, zero);
        Some(self.values.not(none)).filter(|truth| !truth.is_unknown())
    }

    /// `lock cmpxchg [entry], new` with `old` in rax: an entry that is free, or the key's own, becomes busy.
    pub(crate) fn exchange(
        &mut self,
        progress: Progress,
        entry: Value,
        [old, new]: [Value; 2],
        state: &State,
    ) -> Step {
        let Some((owner, kept)) = self.keeping(progress, state) else {
            return Err(Reason::KeepsNothing);
        };
        let key = self.key_of(owner);
        let busy = self.values.constant(TIMER_BUSY);
        if new.is_unknown() || new != self.values.xor(key, busy) {
            return Err(Reason::OtherKey);
        }
        let free = self.values.as_constant(old) == Some(0);
        let first = match progress.stage {
            Stage::Nothing => true,
            Stage::Taken { entry: known } if known == entry && !free => false,
            _ => return Err(Reason::LockOrder),
        };
        // Only what is 0 in any case is not worth a free entry.
        let zero = matches!(kept, Kept::Stored(value) if self.values.as_constant(value) == Some(0));
        if !(free && self.expected.program != Program::StopTimer || old == key && (zero || !first))
        {
            return Err(Reason::ForeignEntry);
        }
        self.entries.push((owner, entry));
        let stage = Stage::Exchanging { entry, free, first };
        Ok(Some(Progress { stage, ..progress }))
    }

    /// After the branch on the result of an exchange.
    pub(crate) fn exchanged(&self, progress: Progress, success: bool) -> Option<Progress> {
        let Stage::Exchanging { entry, free, first } = progress.stage else {
            return Some(progress);
        };
        let to = |stage| Some(Progress { stage, ..progress });
        match (self.expected.program, success) {
            (_, true) => to(Stage::Owned {
                entry,
                written: None,
            }),
            (_, false) if free => to(Stage::Taken { entry }),
            (Program::StartTimer, false) => None,
            (Program::StopTimer, false) => to(Stage::Full),
            // Nothing of its own is there to be forgotten.
            (_, false) if first => self.next_of(progress),
            (_, false) => to(Stage::Full),
        }
    }

    /// A word of an entry that is its own and busy is written: what it keeps, then its owner, or that it is free.
    pub(crate) fn keep(
        &mut self,
        progress: Progress,
        address: Value,
        stored: Value,
        state: &State,
    ) -> Step {
        let Stage::Owned { entry, written } = progress.stage else {
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
                    Kept::Clock => matches!(self.values.as_atom(stored), Some(Atom::Tsc(_))),
                    Kept::Stored(value) => value == stored,
                    Kept::Added(value) => {
                        let old = self.values.sub(stored, value);
                        self.is_kept_in(old, entry) && state.knows(Fact::Mine(old))
                    }
                };
                if !right || stored.is_unknown() {
                    return Err(Reason::OtherKept);
                }
                let written = Some(stored);
                let stage = Stage::Owned { entry, written };
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
        Ok(match self.expected.program {
            Program::StopTimer => Some(Progress {
                stage: Stage::Nothing,
                cleared: true,
                ..progress
            }),
            _ => self.next_of(progress),
        })
    }

    /// What follows when an entry is as it should be.
    fn next_of(&self, progress: Progress) -> Option<Progress> {
        { self.expected.probe.as_ref() }.and_then(|_| self.next(progress))
    }
}

/// The entry of the table of timers that an address is in, as bytes from the table's start, and the
/// offset of the word in it: `timers + 16 × (a number below 2^timers_log2) + (0 or 8)`.
pub(crate) fn timer_entry(
    values: &mut Values,
    layout: &RuntimeLayout,
    address: Value,
) -> Option<(Value, u8)> {
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
