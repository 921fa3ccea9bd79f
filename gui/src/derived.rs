//! Values derived from large inputs on a thread of their own, so that no frame waits for them.

use std::sync::{Arc, Mutex, PoisonError};

use egui::Context;

use crate::threads::spawn;

/// Number of placements from which values of a session are computed on a thread.
pub(crate) const LARGE: usize = 5000;

/// A value with what it was computed from. Until a new value is computed on a thread, the last is the value.
#[derive(Debug)]
pub(crate) struct Derived<K, V> {
    held: Option<(K, V)>,
    /// The key of the value that a thread computes; one at a time.
    requested: Option<K>,
    answer: Arc<Mutex<Option<V>>>,
}

impl<K, V> Default for Derived<K, V> {
    fn default() -> Self {
        Self {
            held: None,
            requested: None,
            answer: Arc::default(),
        }
    }
}

impl<K: PartialEq, V: Send + 'static> Derived<K, V> {
    /// Requests the value for a key, unless it is there: a large one is computed on a thread, which requests a frame
    /// at its end, and a small one now. Returns whether its computation began.
    pub(crate) fn request(
        &mut self,
        key: K,
        is_large: bool,
        ctx: &Context,
        compute: impl FnOnce() -> V + Send + 'static,
    ) -> bool {
        self.receive();
        if self.is_current(&key) || (is_large && self.requested.is_some()) {
            return false;
        }
        if !is_large {
            // What a thread still computes is for another key.
            (self.requested, self.answer) = (None, Arc::default());
            self.held = Some((key, compute()));
        } else {
            self.requested = Some(key);
            let (answer, ctx) = (Arc::clone(&self.answer), ctx.clone());
            spawn("derive", move || {
                let value = compute();
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                ctx.request_repaint();
            });
        }
        true
    }

    /// Takes the value that a thread has computed.
    pub(crate) fn receive(&mut self) {
        let answer = self.answer.lock();
        let computed = answer.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(value) = computed
            && let Some(key) = self.requested.take()
        {
            self.held = Some((key, value));
        }
    }

    /// Returns whether the value is that for a key.
    pub(crate) fn is_current(&self, key: &K) -> bool {
        self.held.as_ref().is_some_and(|(held, _)| held == key)
    }

    /// Returns the last value with its key.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        self.held.as_ref().map(|(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn the_last_value_stays_until_the_next_is_computed() {
        let ctx = Context::default();
        let mut derived = Derived::default();
        derived.request(1, false, &ctx, || "one");
        assert_eq!(derived.last(), Some((&1, &"one")));
        let (begin, begun) = bounded::<()>(0);
        derived.request(2, true, &ctx, move || {
            begun.recv().unwrap();
            "two"
        });
        derived.request(3, true, &ctx, || unreachable!("one thread at a time"));
        assert_eq!(derived.last(), Some((&1, &"one")));
        begin.send(()).unwrap();
        while !derived.is_current(&2) {
            std::thread::yield_now();
            derived.request(2, true, &ctx, || unreachable!("it is being computed"));
        }
        assert_eq!(derived.last(), Some((&2, &"two")));
        // A small value replaces what a thread computes.
        let (begin, begun) = bounded::<()>(0);
        derived.request(4, true, &ctx, move || {
            begun.recv().unwrap_or_default();
            "four"
        });
        derived.request(5, false, &ctx, || "five");
        drop(begin);
        assert_eq!(derived.last(), Some((&5, &"five")));
        derived.request(5, true, &ctx, || unreachable!("it is there"));
    }
}
