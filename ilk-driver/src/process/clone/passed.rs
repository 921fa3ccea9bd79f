//! Instruments that threads have passed when they left the cache, and those that were next.

use gilk_engine::Addr;
use gilk_engine::cache::PatchMoment;

/// The most places that are known of a thread: handlers within handlers.
const MOST: usize = 64;

/// The instruments at which a thread has left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftInstruments {
    /// They are before its next instruction, and have run.
    Passed,
    /// They are after this instruction, or on a way of it, which has been executed, and have not run.
    Next(Addr, PatchMoment),
}

/// Instruments at which a thread has left the cache, with the original address and the stack pointer that it continues
/// with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedInstruments(Vec<(Addr, u64, LeftInstruments)>);

impl PassedInstruments {
    /// Adds a place that the thread has left the cache at.
    pub(super) fn add(&mut self, original: Addr, stack: u64, left: LeftInstruments) {
        // One that a handler has left by a longer jump stays until then.
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((original, stack, left));
    }

    /// Takes a place at which the thread enters the cache; returns how it has left there. With the same stack it
    /// continues elsewhere otherwise.
    pub(super) fn take(&mut self, original: Addr, stack: u64) -> Option<LeftInstruments> {
        let found = self.0.iter().rposition(|(_, known, _)| *known == stack)?;
        let (at, _, left) = self.0.remove(found);
        (at == original).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::LeftInstruments::{Next, Passed};
    use super::*;

    #[test]
    fn instruments_are_passed_once_at_their_place_and_with_their_stack() {
        let (place, other) = (Addr(0x1000), Addr(0x2000));
        let mut passed = PassedInstruments::default();
        let next = Next(Addr(0xff0), PatchMoment::After);
        passed.add(place, 0x7000, Passed);
        // A handler that is interrupted in the same function.
        passed.add(place, 0x6000, next);
        assert_eq!(passed.take(place, 0x6800), None);
        assert_eq!(passed.take(place, 0x6000), Some(next));
        assert_eq!(passed.take(place, 0x7000), Some(Passed));
        assert_eq!(passed.take(place, 0x7000), None);
        // A handler that has changed where control continues.
        passed.add(place, 0x7000, Passed);
        assert_eq!(passed.take(other, 0x7000), None);
        assert_eq!(passed.take(place, 0x7000), None);
        for stack in 0..2 * MOST as u64 {
            passed.add(place, stack, Passed);
        }
        assert_eq!(passed.take(place, 0), None);
        assert_eq!(passed.take(place, MOST as u64), Some(Passed));
    }
}
