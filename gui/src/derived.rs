//! Values derived from large inputs on a thread of their own, so that no frame waits for them.

use std::sync::{Arc, Mutex, PoisonError};

use egui::Context;

use crate::threads::{guarded, spawn};

/// Number of placements from which values of a session are computed on a thread.
pub(crate) const LARGE: usize = 5000;

/// A value with what it was computed from. Until a new value is computed on a thread, the last is the value. If the
/// computation panics there is none, and the window reports the fault.
#[derive(Debug)]
pub(crate) struct Derived<K, V> {
    held: Option<(K, V)>,
    /// The key of the value that a thread computes; one at a time.
    requested: Option<K>,
    /// The key of the last value that could not be computed: it is not computed again.
    failed: Option<K>,
    answer: Arc<Mutex<Option<Answer<V>>>>,
}

/// The end of a thread that computes a value.
#[derive(Debug)]
enum Answer<V> {
    Value(V),
    /// It panicked, or could not be started.
    Failed,
}

/// The answer of a thread, which is a failure if the thread has not replaced it.
struct Reply<V> {
    to: Arc<Mutex<Option<Answer<V>>>>,
    answer: Answer<V>,
    ctx: Context,
}

impl<V> Drop for Reply<V> {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::Failed);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.ctx.request_repaint();
    }
}

impl<K, V> Default for Derived<K, V> {
    fn default() -> Self {
        Self {
            held: None,
            requested: None,
            failed: None,
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
        let waits = is_large && self.requested.is_some();
        if self.is_current(&key) || waits || self.failed.as_ref() == Some(&key) {
            return false;
        }
        if !is_large {
            // What a thread still computes is for another key.
            (self.requested, self.answer) = (None, Arc::default());
            self.held = Some((key, compute()));
        } else {
            self.requested = Some(key);
            let reply = Reply {
                to: Arc::clone(&self.answer),
                answer: Answer::Failed,
                ctx: ctx.clone(),
            };
            spawn("derive", move || {
                let mut reply = reply;
                if let Some(value) = guarded(&reply.ctx, "derive", compute) {
                    reply.answer = Answer::Value(value);
                }
            });
        }
        true
    }

    /// Takes the value that a thread has computed. If it could not, the last value is dropped too: nothing would show
    /// that it is old.
    pub(crate) fn receive(&mut self) {
        let answer = self.answer.lock();
        let answer = answer.unwrap_or_else(PoisonError::into_inner).take();
        let Some((answer, key)) = answer.and_then(|answer| Some((answer, self.requested.take()?)))
        else {
            return;
        };
        (self.held, self.failed) = match answer {
            Answer::Value(value) => (Some((key, value)), None),
            Answer::Failed => (None, Some(key)),
        };
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

    #[test]
    fn a_value_that_cannot_be_computed_is_reported_and_not_replaced_by_an_old_one() {
        let ctx = Context::default();
        let mut derived = Derived::default();
        derived.request(1, false, &ctx, || "one");
        derived.request(2, true, &ctx, || panic!("two is missing"));
        while derived.last().is_some() {
            std::thread::yield_now();
            derived.request(2, true, &ctx, || unreachable!("it failed once"));
        }
        let reports = crate::threads::reported(&ctx);
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(reports[0].contains("two is missing"), "{reports:?}");
        assert!(!derived.request(2, true, &ctx, || unreachable!("it failed")));
        derived.request(3, false, &ctx, || "three");
        assert_eq!(derived.last(), Some((&3, &"three")));
        assert!(crate::threads::reported(&ctx).is_empty());
    }
}
