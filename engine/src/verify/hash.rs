//! Maps by the numbers and addresses of a plan: quick, in no order that means anything.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
/// A set of numbers.
pub(crate) type Set<K> = HashSet<K, BuildHasherDefault<Quick>>;

/// Multiplies, for keys of a few words; nobody gains anything by making them meet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

/// An odd number whose bits look like chance: 2⁶⁴ divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Quick {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Quick {
    /// The upper bits of a product are the ones that depend on all of it.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
}
