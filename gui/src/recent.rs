//! A value computed from a recording, computed again only after a change.

use std::time::{Duration, Instant};

/// Age up to which a value is kept while samples arrive.
const AGE: Duration = Duration::from_millis(250);
/// The same as a multiple of the time of its computation, so that few frames compute: a list of 10,000 lanes
/// takes longer than a frame.
const RARELY: u32 = 100;

/// A computed value with its key and the number of samples that it was computed from.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    held: Option<Held<K, V>>,
}

#[derive(Debug)]
struct Held<K, V> {
    key: K,
    samples: u64,
    at: Instant,
    took: Duration,
    value: V,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { held: None }
    }
}

impl<K: PartialEq, V> Recent<K, V> {
    /// Returns the value for a key and a number of samples. While samples arrive (`live`), a value
    /// from fewer samples is kept for up to [`AGE`], or [`RARELY`] times as long as it took.
    pub(crate) fn of(
        &mut self,
        key: K,
        samples: u64,
        live: bool,
        compute: impl FnOnce() -> V,
    ) -> &V {
        let is_fresh = |held: &Held<K, V>| {
            held.key == key
                && (held.samples == samples
                    || (live && held.at.elapsed() < AGE.max(held.took * RARELY)))
        };
        let held = self.held.take().filter(is_fresh).unwrap_or_else(|| {
            let began = Instant::now();
            let value = compute();
            let (at, took) = (Instant::now(), began.elapsed());
            Held {
                key,
                samples,
                at,
                took,
                value,
            }
        });
        &self.held.insert(held).value
    }

    /// Returns the last value, whatever its key.
    pub(crate) fn last(&self) -> Option<&V> {
        self.held.as_ref().map(|held| &held.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_computed_after_changes_only() {
        let mut computed = 0;
        let mut recent = Recent::default();
        let mut of = |key: u32, samples, live| {
            *recent.of(key, samples, live, || {
                computed += 1;
                computed
            })
        };
        assert_eq!(of(1, 10, false), 1);
        assert_eq!(of(1, 10, false), 1);
        assert_eq!(of(1, 11, true), 1, "samples arrived less than {AGE:?} ago");
        assert_eq!(of(1, 11, false), 2, "the run has ended");
        assert_eq!(of(2, 11, true), 3, "another key");
    }
}
