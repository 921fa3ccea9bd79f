//! An index that one thread fills while another draws from it, with bounded waits.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use super::Index;
use crate::Batch;

/// Samples per critical section, some tens of microseconds: the longest wait of a reader.
const AT_ONCE: usize = 1 << 10;

/// An index shared between threads. Readers have precedence: a writer waits until there is none.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<SharedIndex>);

#[derive(Debug, Default)]
struct SharedIndex {
    index: RwLock<Index>,
    looking: Mutex<usize>,
    free: Condvar,
}

impl From<Index> for Shared {
    fn from(index: Index) -> Self {
        Self(Arc::new(SharedIndex {
            index: RwLock::new(index),
            ..SharedIndex::default()
        }))
    }
}

impl Shared {
    /// Appends samples like [`Index::append`], in small portions.
    pub fn append(&self, batch: &Batch) {
        for samples in batch.samples.chunks(AT_ONCE) {
            let part = Batch {
                cpu: batch.cpu,
                samples: samples.to_vec(),
            };
            self.change(|index| index.append(&part));
        }
    }

    /// Replaces the index by another.
    pub fn replace(&self, index: Index) {
        self.change(|old| *old = index);
    }

    /// Changes the index as soon as no reader holds it.
    fn change(&self, change: impl FnOnce(&mut Index)) {
        loop {
            let looking = self
                .0
                .looking
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let looking = self.0.free.wait_while(looking, |looking| *looking > 0);
            drop(looking.unwrap_or_else(PoisonError::into_inner));
            // A blocked writer would block the second of two nested reads on one thread: a
            // deadlock.
            match self.0.index.try_write() {
                Ok(mut index) => return change(&mut index),
                Err(TryLockError::Poisoned(index)) => return change(&mut index.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }

    /// Returns a read guard. The index does not change until the guard is dropped: hold it for a
    /// frame, not longer.
    #[must_use]
    pub fn look(&self) -> Looking<'_> {
        *self
            .0
            .looking
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        let index = self.0.index.read().unwrap_or_else(PoisonError::into_inner);
        Looking {
            index,
            held: &self.0,
        }
    }
}

/// Read guard of an index.
#[derive(Debug)]
pub struct Looking<'a> {
    index: RwLockReadGuard<'a, Index>,
    held: &'a SharedIndex,
}

impl Deref for Looking<'_> {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut looking = self
            .held
            .looking
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *looking -= 1;
        if *looking == 0 {
            self.held.free.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Sample;

    #[test]
    fn a_guarded_index_does_not_change_and_all_samples_arrive() {
        const BATCHES: u64 = 60;
        const EACH: u64 = 5000;
        let (shared, over) = (Shared::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for batch in 0..BATCHES {
                    let samples = (0..EACH).map(|n| Sample {
                        id: 1,
                        value: n,
                        tsc: batch * EACH + n,
                    });
                    shared.append(&Batch {
                        cpu: 0,
                        samples: samples.collect(),
                    });
                }
                over.store(true, Ordering::Release);
            });
            let mut before = 0;
            while !over.load(Ordering::Acquire) {
                let outer = shared.look();
                let samples = outer.samples();
                // A nested read does not wait.
                assert_eq!(shared.look().samples(), samples);
                assert_eq!(outer.total(1, 0, u64::MAX).count, samples);
                assert!(samples >= before);
                before = samples;
            }
        });
        assert_eq!(shared.look().samples(), BATCHES * EACH);
        shared.replace(Index::new());
        assert_eq!(shared.look().samples(), 0);
    }
}
