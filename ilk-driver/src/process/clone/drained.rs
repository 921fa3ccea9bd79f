//! Samples and counts of the instruments in a cache, taken while its threads execute.

use std::time::{Duration, Instant};

use gilk_engine::Plan;

use super::instrument_words::{CacheWords, LastCounts};
use super::live_instruments::LiveRequest;
use crate::Result;
use crate::process::Recorder;

/// Interval at which rings are emptied.
pub(super) const DRAINED: Duration = Duration::from_millis(5);
/// Interval at which totals are recorded.
const COUNTED: Duration = Duration::from_millis(100);

/// A recorder at work.
pub(super) struct Draining<'r> {
    recorder: &'r mut Recorder,
    next: Instant,
    /// The plan for the objects from the start.
    plan: &'r Plan,
    /// Requests for counts and totals.
    request: &'r LiveRequest,
}

impl<'r> Draining<'r> {
    pub(super) fn new(
        recorder: &'r mut Recorder,
        (plan, request): (&'r Plan, &'r LiveRequest),
    ) -> Self {
        Self {
            recorder,
            plan,
            request,
            next: Instant::now() + COUNTED,
        }
    }

    /// Takes what there is.
    pub(super) fn poll(&mut self, words: &CacheWords) -> Result<()> {
        words.take_samples(self.recorder)?;
        if Instant::now() >= self.next {
            self.recorder.counts(&words.counts()?);
            words.refresh_stacks()?;
            self.next = Instant::now() + COUNTED;
        }
        self.request.answer(|| {
            let mut now = words.now(self.plan)?;
            now.totals.stacks.clone_from(self.recorder.kept_stacks());
            Ok(now)
        })
    }

    /// Takes the rest, once no thread executes instruments; returns the counts, by key, and the objects that were loaded
    /// later.
    pub(super) fn end(self, words: &CacheWords) -> Result<LastCounts> {
        words.finish(self.recorder, self.plan)
    }
}
