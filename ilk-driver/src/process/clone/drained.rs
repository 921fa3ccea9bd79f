//! Samples and counts of the instruments in a cache, taken while its threads execute.

use std::time::{Duration, Instant};

use super::instruments::MappedWords;
use crate::Result;
use crate::process::{Recorder, SampleRings};

/// Interval at which rings are emptied.
pub(super) const DRAINED: Duration = Duration::from_millis(5);
/// Interval at which totals are recorded.
const COUNTED: Duration = Duration::from_millis(100);

/// A recorder at work.
pub(super) struct Draining<'r> {
    recorder: &'r mut Recorder,
    rings: Option<SampleRings>,
    next: Instant,
}

impl<'r> Draining<'r> {
    pub(super) fn new(recorder: &'r mut Recorder) -> Self {
        Self {
            recorder,
            rings: None,
            next: Instant::now() + COUNTED,
        }
    }

    /// Takes what there is.
    pub(super) fn poll(&mut self, words: &MappedWords) -> Result<()> {
        self.rings = self.rings.take().or_else(|| words.take_rings());
        self.recorder.stacks(words.new_stacks()?);
        if let Some(rings) = &mut self.rings {
            self.recorder.take(rings)?;
        }
        if Instant::now() >= self.next {
            self.recorder.counts(&words.counts()?);
            words.refresh_stacks()?;
            self.next = Instant::now() + COUNTED;
        }
        Ok(())
    }

    /// Takes the rest, once no thread executes instruments; returns the counts, by key.
    pub(super) fn end(mut self, words: &MappedWords) -> Result<Vec<(u64, u64)>> {
        self.rings = self.rings.take().or_else(|| words.take_rings());
        if let Some(rings) = &mut self.rings {
            rings.end();
        }
        self.poll(words)?;
        let counts = words.counts()?;
        self.recorder.counts(&counts);
        self.recorder.stacks(words.new_stacks()?);
        Ok(counts)
    }
}
