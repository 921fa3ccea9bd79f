//! Timers of threads: where their entries are, and what may be written there.

use gilk_instruments::Program;

use super::hit::{Hit, Progress, Stage, Step};
use super::program::Key;
use super::state::{Fact, State};
use super::value::{Atom, Value, Values};
use crate::layout::RuntimeLayout;

impl Hit<'_> {
    /// `current | timer number`.
    pub(super) fn key(&mut self) -> Value {
        self.key_of(Key::Thread(self.expected.timer))
    }

    pub(super) fn key_of(&mut self, key: Key) -> Value {
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

    /// If `difference` is `check ^ time ^ key` of one entry: the entry, and the time in it.
    pub(super) fn timer_of(&mut self, difference: Value) -> Option<(Value, Value)> {
        self.kept_under(Key::Thread(self.expected.timer), difference)
    }

    pub(super) fn kept_under(&mut self, key: Key, difference: Value) -> Option<(Value, Value)> {
        // Without the key any thread's timer would do, or none.
        let key = self.key_of(key);
        let words = self.values.xor(difference, key);
        let parts = self.values.xor_parts(words);
        let [a, b] = parts.as_slice() else {
            return None;
        };
        match (self.values.as_atom(*a), self.values.as_atom(*b)) {
            (
                Some(Atom::Timer { word: 0, entry, .. }),
                Some(Atom::Timer {
                    word: 8,
                    entry: same,
                    ..
                }),
            ) if entry == same => Some((*entry, *b)),
            (
                Some(Atom::Timer { word: 8, entry, .. }),
                Some(Atom::Timer {
                    word: 0,
                    entry: same,
                    ..
                }),
            ) if entry == same => Some((*entry, *a)),
            _ => None,
        }
    }

    pub(super) fn start(&mut self, progress: Progress, address: Value, stored: Value) -> Step {
        let Some((entry, word)) = timer_entry(self.values, self.layout, address) else {
            return Err("it writes outside of the table of timers".into());
        };
        let key = self.key();
        let time = if word == 0 {
            self.values.xor(stored, key)
        } else {
            stored
        };
        if !matches!(self.values.as_atom(time), Some(Atom::Tsc(_))) {
            return Err(
                "what it writes to its timer is not the time, or not the time under its key".into(),
            );
        }
        let (check, tsc_written) = match progress.stage {
            Stage::Starting { entry: known, .. } if known != entry => {
                return Err("it writes to two timers".into());
            }
            Stage::Starting { tsc, .. } if tsc != time => {
                return Err("the two words of its timer have different times".into());
            }
            Stage::Starting { check, time, .. } => (check || word == 0, time || word == 8),
            _ => (word == 0, word == 8),
        };
        self.entries.push((Key::Thread(self.expected.timer), entry));
        let stage = Stage::Starting {
            entry,
            tsc: time,
            check,
            time: tsc_written,
        };
        Ok(if check && tsc_written {
            None
        } else {
            Some(Progress { stage, ..progress })
        })
    }

    /// Zero is written to the entry of a timer that was found running; anything else is `wrong`.
    pub(super) fn stop(
        &mut self,
        progress: Progress,
        address: Value,
        stored: Value,
        state: &State,
        wrong: &str,
    ) -> Step {
        let entry = timer_entry(self.values, self.layout, address)
            .filter(|_| self.expected.program == Program::StopTimer);
        let Some((entry, _)) = entry else {
            return Err(wrong.into());
        };
        if progress.cleared {
            return Err("it stops its timer twice".into());
        }
        if self.values.as_constant(stored) != Some(0) {
            return Err("a timer is stopped by writing zero, and it writes something else".into());
        }
        let mut found = state.facts().filter_map(|fact| match fact {
            Fact::Zero(difference) => self.timer_of(difference),
            _ => None,
        });
        if !found.any(|(known, _)| known == entry) {
            return Err("it stops a timer that was not found running".into());
        }
        self.entries.push((Key::Thread(self.expected.timer), entry));
        let delivered = progress.stage == Stage::Delivered;
        Ok(if delivered {
            None
        } else {
            Some(Progress {
                cleared: true,
                ..progress
            })
        })
    }
}

/// The entry of the table of timers that an address is in, as bytes from the table's start, and the
/// offset of the word in it: `timers + 16 × (a number below 2^timers_log2) + (0 or 8)`.
pub(super) fn timer_entry(
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
