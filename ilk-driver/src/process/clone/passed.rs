//! Instruments that threads have passed when they left the cache.

use gilk_engine::Addr;

/// The most places that are known of a thread: handlers within handlers.
const MOST: usize = 64;
/// Instruments that a thread has passed, with the stack pointer that it continues with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedInstruments(Vec<(Addr, u64)>);

impl PassedInstruments {
    /// Adds a place that the thread has left the cache at.
    pub(super) fn add(&mut self, original: Addr, stack: u64) {
        // One that a handler has left by a longer jump stays until then.
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((original, stack));
    }

    /// Takes a place at which the thread enters the cache; returns whether it has passed the instruments there. With the
    /// same stack it continues elsewhere otherwise.
    pub(super) fn take(&mut self, original: Addr, stack: u64) -> bool {
        let found = self.0.iter().rposition(|(_, known)| *known == stack);
        let Some(found) = found else {
            return false;
        };
        let (at, _) = self.0.remove(found);
        at == original
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_are_passed_once_at_their_place_and_with_their_stack() {
        let (place, other) = (Addr(0x1000), Addr(0x2000));
        let mut passed = PassedInstruments::default();
        passed.add(place, 0x7000);
        // A handler that is interrupted in the same function.
        passed.add(place, 0x6000);
        assert!(!passed.take(place, 0x6800));
        assert!(passed.take(place, 0x6000));
        assert!(passed.take(place, 0x7000));
        assert!(!passed.take(place, 0x7000));
        // A handler that has changed where control continues.
        passed.add(place, 0x7000);
        assert!(!passed.take(other, 0x7000));
        assert!(!passed.take(place, 0x7000));
        for stack in 0..2 * MOST as u64 {
            passed.add(place, stack);
        }
        assert!(!passed.take(place, 0) && passed.take(place, MOST as u64));
    }
}
