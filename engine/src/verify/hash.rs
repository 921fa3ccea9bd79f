//! Hash maps for addresses and indices, with an unspecified order of iteration.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map keyed by integers.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
/// A hash set of integers.
pub(crate) type Set<K> = HashSet<K, BuildHasherDefault<Quick>>;

/// A multiplicative hasher for keys of a few words. Its input is not hostile, so that it need not
/// resist collisions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

/// 2⁶⁴ divided by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Quick {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Quick {
    /// Rotates the upper bits of the product, which depend on all of the key, to where the map
    /// reads them.
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
