//! Values of a recording that may be live and have thousands of lanes: computed again a few times a second while
//! samples arrive, and on a thread if there are many lanes.

use std::time::{Duration, Instant};

use egui::Context;

use crate::derived::Derived;

/// Number of lanes from which values of a recording are computed on a thread.
const MANY: usize = 1000;
/// Age up to which a value is kept while samples arrive.
const AGE: Duration = Duration::from_millis(250);

/// A computed value, with its key and the number of samples that it was computed from.
#[derive(Debug)]
pub(crate) struct Live<K, V> {
    derived: Derived<(K, u64), V>,
    /// Time of the last computation's start.
    at: Option<Instant>,
}

impl<K, V> Default for Live<K, V> {
    fn default() -> Self {
        Self {
            derived: Derived::default(),
            at: None,
        }
    }
}

/// The recording that a value is computed of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRecording {
    /// Number of its lanes.
    pub(crate) lanes: usize,
    /// Number of its samples.
    pub(crate) samples: u64,
    /// True while samples arrive.
    pub(crate) is_live: bool,
}

impl<K: PartialEq, V: Send + 'static> Live<K, V> {
    /// Requests the value for a key, if the value is of another key or of fewer samples: while samples arrive, after
    /// [`AGE`].
    pub(crate) fn request(
        &mut self,
        key: K,
        of: LiveRecording,
        ctx: &Context,
        compute: impl FnOnce() -> V + Send + 'static,
    ) {
        let is_young = of.is_live && self.at.is_some_and(|at| at.elapsed() < AGE);
        self.derived.receive();
        let last = self.derived.last();
        if is_young && last.is_some_and(|((held, _), _)| *held == key) {
            return;
        }
        if self
            .derived
            .request((key, of.samples), of.lanes >= MANY, ctx, compute)
        {
            self.at = Some(Instant::now());
        }
    }

    /// Returns the last value with its key.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let last = self.derived.last();
        last.map(|((key, _), value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_computed_after_changes_only() {
        let ctx = Context::default();
        let mut live = Live::default();
        let mut computed = 0;
        let mut of = |key: u32, samples, is_live| {
            computed += 1;
            let of = LiveRecording {
                lanes: 10,
                samples,
                is_live,
            };
            let value = computed;
            live.request(key, of, &ctx, move || value);
            live.last().map(|(key, value)| (*key, *value))
        };
        assert_eq!(of(1, 10, false), Some((1, 1)));
        assert_eq!(of(1, 10, false), Some((1, 1)));
        assert_eq!(
            of(1, 11, true),
            Some((1, 1)),
            "samples arrived less than {AGE:?} ago"
        );
        assert_eq!(of(1, 11, false), Some((1, 4)), "the run has ended");
        assert_eq!(of(2, 11, true), Some((2, 5)), "another key");
    }
}
