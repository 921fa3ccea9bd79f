//! The table of all targets, as the agent keeps it.

use rustc_hash::FxHashSet;

use super::CacheLayout;
use crate::Addr;

/// The multiplier of the hash (a prime near 2^31 divided by the golden ratio).
pub(crate) const MULTIPLIER: i32 = 0x4f1b_bcdd;

/// The keys of the table: original addresses, 0 where there is none.
#[derive(Clone, Debug)]
pub struct Targets {
    layout: CacheLayout,
    keys: Vec<u64>,
    used: usize,
    /// Keys whose targets were removed.
    removed: FxHashSet<u64>,
}

/// A pair to write: first the landing, then the key, by which threads find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetWrite {
    /// Address of the pair: the key, then the landing.
    pub at: Addr,
    /// The original address.
    pub key: u64,
    /// The landing's address, written first.
    pub landing: u64,
}

impl Targets {
    /// An empty table.
    #[must_use]
    pub fn new(layout: CacheLayout) -> Self {
        let pairs = 1_usize << layout.targets_log2.min(24);
        Self {
            layout,
            keys: vec![0; pairs],
            used: 0,
            removed: FxHashSet::default(),
        }
    }

    /// Returns the write that adds a target, or replaces its landing; `None` if the table is half full, since
    /// searches would take long.
    pub fn insert(&mut self, original: Addr, landing: Addr) -> Option<TargetWrite> {
        let write = self.pair(original, landing)?;
        self.removed.remove(&original.0);
        Some(write)
    }

    /// Returns the write that has lookups of a target reach other code in the place of its landing. The key stays, since
    /// searches of others pass it. `None` if the table is half full without it.
    pub fn remove(&mut self, original: Addr, instead: Addr) -> Option<TargetWrite> {
        let write = self.pair(original, instead)?;
        self.removed.insert(original.0);
        Some(write)
    }

    /// Returns whether most targets that the table can have were removed.
    #[must_use]
    pub fn is_mostly_removed(&self) -> bool {
        4 * self.removed.len() > self.keys.len()
    }

    fn pair(&mut self, original: Addr, landing: Addr) -> Option<TargetWrite> {
        let mask = self.keys.len() - 1;
        let mut index = hash(original) as usize & mask;
        loop {
            let key = self.keys.get_mut(index)?;
            if *key == 0 && 2 * self.used >= mask {
                return None;
            }
            if *key == 0 || *key == original.0 {
                self.used += usize::from(*key == 0);
                *key = original.0;
                return Some(TargetWrite {
                    at: self.layout.targets.add(16 * index as u64),
                    key: original.0,
                    landing: landing.0,
                });
            }
            index = (index + 1) & mask;
        }
    }
}

/// The hash of an original address, of which as many low bits count as the table has.
const fn hash(original: Addr) -> u32 {
    let product = original.0.wrapping_mul(MULTIPLIER as u64);
    (product >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    #[test]
    fn every_target_is_found_by_probing_from_its_hash_until_the_table_is_half_full() {
        let layout = CacheLayout {
            recent: Addr(0x10_0000),
            targets: Addr(0x20_0000),
            targets_log2: 6,
            agent: Addr(0x30_0000),
            counters: Span::new(Addr(0x40_0000), 64),
        };
        assert!(layout.is_low());
        let mut targets = Targets::new(layout);
        let mut memory = vec![(0, 0); 64];
        let mut added = Vec::new();
        for number in 0..64_u64 {
            let (original, landing) =
                (Addr(0x7f00_1234_0000 + number * 0x1_0000), Addr(number + 1));
            let Some(write) = targets.insert(original, landing) else {
                break;
            };
            let index = usize::try_from((write.at.0 - layout.targets.0) / 16).unwrap();
            assert_eq!(memory[index], (0, 0));
            memory[index] = (write.key, write.landing);
            added.push((original, landing));
        }
        assert_eq!(added.len(), 32);
        assert!(!targets.is_mostly_removed());
        for (original, landing) in added {
            let mut index = hash(original) as usize % 64;
            while memory[index].0 != original.0 {
                assert_ne!(memory[index].0, 0);
                index = (index + 1) % 64;
            }
            assert_eq!(memory[index].1, landing.0);
            let again = targets.insert(original, Addr(7)).unwrap();
            assert_eq!(again.key, original.0);
            let removed = targets.remove(original, Addr(9)).unwrap();
            assert_eq!((removed.at, removed.landing), (again.at, 9));
        }
        assert!(targets.is_mostly_removed());
        assert_eq!(targets.insert(Addr(0x7f00_ffff_0000), Addr(1)), None);
        // What is mapped at the same addresses again has its pairs again.
        for number in 0..16 {
            let original = Addr(0x7f00_1234_0000 + number * 0x1_0000);
            targets.insert(original, Addr(3)).unwrap();
        }
        assert!(!targets.is_mostly_removed());
    }
}
