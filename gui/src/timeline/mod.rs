//! The timeline: one lane per instrument, live or from a recording.

mod count_bars;
mod find;
mod flow;
mod heat;
pub(crate) mod histogram;
mod hover;
mod input;
mod lane_facts;
mod lanes;
pub(crate) mod list;
mod losses;
mod notes;
pub(crate) mod order;
pub(crate) mod paths;
mod query;
mod range_stats;
mod rows;
pub(crate) mod scale;
pub(crate) mod search;
mod stack;
mod state;
mod totals;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

use gilk_samples::cache_numbers::CacheNumbers;
use gilk_samples::index::{Index, Owner, Shared};
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::{InstrumentInfo, Metadata};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::LossCause;
use gilk_samples::totals::{SessionCost, Totals};
use gilk_samples::{Batch, Meaning};
use ilk_driver::client::AggregateSummary;

use crate::live::LiveRecording;

pub use list::LaneView;
pub use losses::Losses;
pub use order::{Axis, LaneSort, Stack};
pub use search::SampleSearch;
pub use state::Timeline;

/// A recording that was read.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub path: PathBuf,
    /// Session, instruments, clock, and CPUs.
    pub metadata: Metadata,
    /// Its samples.
    pub index: Index,
    /// Duration of its session in seconds; 0 if the recording does not have the session.
    pub duration: f64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of lost hits.
    pub lost: u64,
    /// The losses with their times.
    pub losses: Losses,
    /// Totals of the aggregates at the end of the run.
    pub totals: Vec<AggregateSummary>,
    /// Names of the stacks and addresses among their values and keys, and in samples.
    pub named: Totals,
    /// The predicted cost of the session next to that of its hits.
    pub cost: Option<SessionCost>,
    /// Numbers of the code cache, if the process has executed in one.
    pub cache: Option<CacheNumbers>,
    /// Missing or damaged parts, in whole sentences.
    pub notes: Vec<String>,
}

/// The recording shown on the timeline.
#[derive(Debug, Default)]
pub struct Record {
    /// The file, if any.
    pub path: Option<PathBuf>,
    /// Session, instruments, clock.
    pub metadata: Arc<Metadata>,
    /// The samples; during a run another thread appends to them.
    pub index: Shared,
    /// Duration of the session in seconds.
    pub duration: f64,
    /// Seconds since the start, during a run.
    pub now: Option<f64>,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of lost hits.
    pub lost: u64,
    /// The losses with their times.
    pub losses: Losses,
    /// Totals of the aggregates, during a run those up to now.
    pub totals: Vec<AggregateSummary>,
    /// Number of changes of the totals, and of the stacks that name them.
    totals_changes: u64,
    /// Names of the stacks and addresses among their values and keys, and in samples.
    pub named: Totals,
    /// The predicted cost of the session next to that of its hits.
    pub cost: Option<SessionCost>,
    /// Numbers of the code cache, if the process has executed in one.
    pub cache: Option<CacheNumbers>,
}

impl Record {
    /// Creates a record from a recording that was read.
    #[must_use]
    pub fn of(opened: Opened) -> Self {
        let clock = opened.metadata.clock;
        let last = opened
            .index
            .span()
            .map_or(0.0, |(_, last)| clock.seconds(last));
        let planned = opened
            .metadata
            .instruments
            .iter()
            .map(|info| info.splash)
            .fold(0.0, f64::max);
        let duration = opened.duration.max(planned).max(last).max(1e-6);
        let Opened {
            path,
            metadata,
            index,
            bytes,
            lost,
            losses,
            totals,
            named,
            cost,
            cache,
            ..
        } = opened;
        Self {
            path: Some(path),
            metadata: Arc::new(metadata),
            index: index.into(),
            duration,
            now: None,
            bytes,
            lost,
            losses,
            totals,
            totals_changes: 0,
            named,
            cost,
            cache,
        }
    }

    /// Creates a record for a session that is about to run.
    #[must_use]
    pub fn live(path: PathBuf, metadata: Metadata, duration: f64) -> Self {
        Self {
            path: Some(path),
            metadata: Arc::new(metadata),
            duration,
            now: Some(0.0),
            ..Self::default()
        }
    }

    /// Stores the totals up to the current time of a run, or those of its end.
    pub(crate) fn add_up(&mut self, totals: Vec<AggregateSummary>) {
        self.totals = totals;
        self.totals_changes += 1;
    }

    /// Keeps stacks, by which values of the totals are named.
    pub(crate) fn keep_stacks(&mut self, stacks: KeptStacks) {
        self.named.stacks.add(stacks);
        self.totals_changes += 1;
    }

    /// Returns what values computed of the totals depend on.
    pub(crate) const fn totals_changes(&self) -> u64 {
        self.totals_changes
    }

    /// Stores the losses up to the current time of a run.
    pub(crate) fn lost_so_far(&mut self, lost: u64) {
        let before = std::mem::replace(&mut self.lost, lost);
        let at = self.now.unwrap_or(self.duration);
        let count = lost.saturating_sub(before);
        self.losses.add(ALL_CPUS, LossCause::RingFull, at, count);
    }

    /// Returns the start of the run in nanoseconds of Unix time, by which notes name it.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.metadata.clock.start_unix_ns
    }

    /// Appends samples.
    pub fn append(&self, batch: &Batch) {
        self.index.append(batch);
    }

    /// Returns the instruments, one per lane.
    #[must_use]
    pub fn lanes(&self) -> &[InstrumentInfo] {
        &self.metadata.instruments
    }

    /// Returns the hits of a counter, or the number of samples of any other instrument.
    #[must_use]
    pub fn hits(&self, info: &InstrumentInfo) -> u64 {
        self.hits_of(info, Owner::All)
    }

    /// Returns the hits of an instrument on one CPU or thread.
    #[must_use]
    pub(crate) fn hits_of(&self, info: &InstrumentInfo, owner: Owner) -> u64 {
        hits_in(&self.index.look(), info, owner)
    }
}

/// Returns the hits of an instrument on one CPU or thread.
pub(crate) fn hits_in(index: &Index, info: &InstrumentInfo, owner: Owner) -> u64 {
    let Some(lane) = owner.part(index).lane(info.id) else {
        return 0;
    };
    if info.meaning == Meaning::Count {
        lane.total.max
    } else {
        lane.total.count
    }
}

impl Record {
    /// Returns what values computed of it depend on.
    pub(crate) fn live_recording(&self) -> LiveRecording {
        LiveRecording {
            lanes: self.lanes().len(),
            samples: self.index.look().samples(),
            is_live: self.now.is_some(),
        }
    }

    /// Returns the times of the first and last sample in seconds.
    #[must_use]
    pub fn recorded(&self) -> Option<(f64, f64)> {
        let (first, last) = self.index.look().span()?;
        let clock = self.metadata.clock;
        Some((clock.seconds(first), clock.seconds(last)))
    }
}

/// A time range in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Time at the left edge.
    pub start: f64,
    /// Time at the right edge.
    pub end: f64,
}

impl Range {
    /// Minimum width: fifty nanoseconds.
    const NARROWEST: f64 = 50e-9;

    /// Returns the range of a whole session, with a margin.
    #[must_use]
    pub fn whole(duration: f64) -> Self {
        Self::around(0.0, duration)
    }

    /// Returns the range from `start` to `end`, with a margin.
    #[must_use]
    pub fn around(start: f64, end: f64) -> Self {
        let width = (end - start).max(Self::NARROWEST);
        Self {
            start: start - 0.015 * width,
            end: start + 1.015 * width,
        }
    }

    /// Returns the width in seconds.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.end - self.start
    }

    /// Divides the width by `factor`; the time `at` keeps its position.
    pub fn zoom(&mut self, at: f64, factor: f64, duration: f64) {
        let width =
            (self.width() / factor).clamp(Self::NARROWEST, duration.max(Self::NARROWEST) * 4.0);
        let factor = self.width() / width;
        self.start = at - (at - self.start) / factor;
        self.end = self.start + width;
    }

    /// Moves the range by `seconds`, but never past the recording.
    pub fn pan(&mut self, seconds: f64, duration: f64) {
        let width = self.width();
        self.start =
            (self.start + seconds).clamp(-0.9 * width, duration - 0.1 * width.min(duration));
        self.end = self.start + width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn zooming_keeps_the_time_under_the_pointer(at in 0.0f64..10.0, factor in 0.01f64..100.0) {
            let mut range = Range::whole(10.0);
            let share = (at - range.start) / range.width();
            range.zoom(at, factor, 10.0);
            prop_assert!((range.start + share * range.width() - at).abs() < 1e-6);
            prop_assert!(range.width() >= Range::NARROWEST * 0.999 && range.width() <= 40.001);
        }

        #[test]
        fn panning_never_leaves_the_recording(by in -1e6f64..1e6, width in 1e-6f64..40.0) {
            let mut range = Range { start: 0.0, end: width };
            range.pan(by, 10.0);
            prop_assert!(range.start < 10.0 && range.end > 0.0, "{:?}", range);
            prop_assert!((range.width() - width).abs() < 1e-9);
        }
    }
}
