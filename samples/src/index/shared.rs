//! An index that one thread fills while another draws from it, and never waits long.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use super::Index;
use crate::Batch;

/// Samples that are added at once, in some tens of microseconds: so long may somebody who looks wait.
const AT_ONCE: usize = 1 << 10;

/// An index of several owners. Who looks has precedence: who adds waits until nobody does.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    index: RwLock<Index>,
    looking: Mutex<usize>,
    free: Condvar,
}

impl From<Index> for Shared {
    fn from(index: Index) -> Self {
        Self(Arc::new(Held {
            index: RwLock::new(index),
            ..Held::default()
        }))
    }
}

impl Shared {
    /// Adds samples as [`Index::append`] does, some at a time.
    pub fn append(&self, batch: &Batch) {
        for samples in batch.samples.chunks(AT_ONCE) {
            let part = Batch {
                cpu: batch.cpu,
                samples: samples.to_vec(),
            };
            self.change(|index| index.append(&part));
        }
    }

    /// Begins anew with another index.
    pub fn replace(&self, index: Index) {
        self.change(|old| *old = index);
    }

    /// Changes the index as soon as nobody looks at it.
    fn change(&self, change: impl FnOnce(&mut Index)) {
        loop {
            let looking = self
                .0
                .looking
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let looking = self.0.free.wait_while(looking, |looking| *looking > 0);
            drop(looking.unwrap_or_else(PoisonError::into_inner));
            // Never by waiting for the lock: who looks twice in one frame would then wait for itself.
            match self.0.index.try_write() {
                Ok(mut index) => return change(&mut index),
                Err(TryLockError::Poisoned(index)) => return change(&mut index.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }

    /// The index as it is now. It stays so until this is dropped, and nothing is added: hold it for a
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

/// An index that stands still.
#[derive(Debug)]
pub struct Looking<'a> {
    index: RwLockReadGuard<'a, Index>,
    held: &'a Held,
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
    fn what_is_looked_at_stands_still_and_everything_arrives() {
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
                // A second look while the first lasts waits for nobody.
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
