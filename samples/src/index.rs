//! The time index: the contents of a lane between two times, at any zoom, without losing a spike.
//!
//! A *lane* is an instrument. Samples of different CPUs arrive out of order, batch by batch, but in
//! order within a CPU. A lane is therefore a few sorted *runs*, one per CPU, each with a pyramid of
//! count, minimum, maximum and sum over 32, 128, 512 … samples. A query walks the runs and merges
//! their results; the edges of a column are exact, because the query visits single samples there.
//!
//! Many CPUs make many runs, and each column is searched in each run: [`Index::query`] is exact,
//! and takes milliseconds in the worst case. Screens are drawn by [`Index::view`]: at low zoom it
//! reads a tree of time spans over all runs of a lane, and moves no sample by more than half a
//! column. [`Tiles`] cache results, and [`Shared`] lets one thread append while another draws.
//!
//! The samples stay in memory (16 bytes each, plus one and a half for the pyramids and about three
//! for the tree). The index of a recording is bounded: when it reaches its limit, the largest lane
//! is reduced to sums over short time spans, and so on. Such a lane looks the same at low zoom, and
//! has no detail at high zoom.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::metadata::Metadata;
use crate::recording::Recording;
use crate::{Batch, Error, Sample};

mod coarse;
mod column;
mod edges;
pub mod levels;
mod owner;
mod part;
mod run;
mod shared;
pub mod threads;
mod tiles;
mod tree;

use coarse::Coarse;
pub use column::{Column, Lane, Point};
use edges::Edges;
use levels::Levels;
pub use owner::{By, Owner};
pub use part::Part;
use run::Run;
pub use shared::{Looking, Shared};
use threads::Threads;
pub use tiles::Tiles;
use tree::Tree;

/// All lanes of a recording; grows batch by batch.
#[derive(Debug, Default)]
pub struct Index {
    lanes: Vec<Runs>,
    by_id: HashMap<u64, usize>,
    limit: Option<Limit>,
    /// The same samples by running thread, if it is known.
    by_thread: Option<Box<Derived<Threads>>>,
    /// The samples of levels, by level.
    by_level: Option<Box<Derived<Levels>>>,
    /// The [further words](Sample::is_word) of samples.
    words: Option<Box<Self>>,
}

/// An index of the same samples under other CPU numbers or identifiers, and their assignment.
#[derive(Debug)]
struct Derived<T> {
    by: T,
    index: Index,
}

/// Bound of the number of samples, and the time span to cover.
#[derive(Clone, Copy, Debug)]
struct Limit {
    samples: u64,
    span: (u64, u64),
}

/// Runs and tree of a lane.
#[derive(Debug)]
struct Runs {
    lane: Lane,
    runs: Vec<Run>,
    tree: Tree,
    /// Replaces runs and tree where there were too many samples.
    coarse: Option<Coarse>,
}

/// Maximum number of runs of a CPU; beyond it they are merged into one. Only samples that are out
/// of order within a CPU create a second run.
const MAX_RUNS_OF_A_CPU: usize = 8;
/// Number of samples in a view up to which each is visited: that takes about 0.2 ms.
const NEAR: usize = 1 << 16;
/// Default bound of samples for a recording's index: they take 1.4 GB.
pub const KEPT: u64 = 1 << 26;
/// A lane with fewer samples takes no less memory as sums.
const FEW: u64 = 1 << 16;

impl Index {
    /// Returns an empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty index for samples within `span`, in TSC ticks. It keeps at most `limit`
    /// samples; larger lanes are reduced to sums over 16,384ths of the span, the largest first.
    #[must_use]
    pub fn limited(limit: u64, span: (u64, u64)) -> Self {
        Self {
            limit: Some(Limit {
                samples: limit,
                span,
            }),
            ..Self::default()
        }
    }

    /// Extends the index by running thread, if an instrument of the recording [reports
    /// threads](threads::reports_threads), which doubles its memory; and by level.
    #[must_use]
    pub fn by_thread_and_level(self, metadata: &Metadata) -> Self {
        let index = || Self {
            limit: self.limit,
            ..Self::default()
        };
        let threads = Threads::of(metadata);
        let levels = Levels::of(metadata);
        Self {
            by_thread: threads.map(|by| Box::new(Derived { by, index: index() })),
            by_level: levels.map(|by| Box::new(Derived { by, index: index() })),
            ..self
        }
    }

    /// Returns the levels of the recording, if there are any.
    #[must_use]
    pub fn levels(&self) -> Option<&Levels> {
        Some(&self.by_level.as_ref()?.by)
    }

    /// Returns the samples of levels, with one lane for all hooks of a level, if there are any.
    #[must_use]
    pub fn by_level(&self) -> Option<&Self> {
        Some(&self.by_level.as_ref()?.index)
    }

    /// Returns the threads that ran, if they are known.
    #[must_use]
    pub fn threads(&self) -> Option<&Threads> {
        Some(&self.by_thread.as_ref()?.by)
    }

    /// Returns the samples by running thread, with [places](Threads) of threads instead of CPUs, if
    /// threads are known.
    #[must_use]
    pub fn by_thread(&self) -> Option<&Self> {
        Some(&self.by_thread.as_ref()?.index)
    }

    /// Builds the index of a whole recording, and returns the errors of the batches that could not
    /// be read. `progress` receives the number of samples after every batch, and stops the build by
    /// breaking. The index keeps at most 64 million samples ([`limited`](Self::limited)).
    pub fn of(
        recording: &Recording,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> (Self, Vec<Error>) {
        let span = recording.span().unwrap_or_default();
        let index = Self::limited(KEPT, span).by_thread_and_level(recording.metadata());
        let (index, errors) = index.filled(recording.batches(), progress);
        if recording.metadata().texts.is_empty() {
            return (index, errors);
        }
        // The batches that cannot be read are those of before.
        let (index, _) = index.filled(recording.word_batches(), |_| ControlFlow::Continue(()));
        (index, errors)
    }

    /// Appends all batches, and returns the errors of those that could not be read.
    pub(crate) fn filled(
        mut self,
        batches: impl Iterator<Item = crate::Result<Batch>>,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> (Self, Vec<Error>) {
        let (mut errors, mut samples) = (Vec::new(), 0);
        for batch in batches {
            match batch {
                Ok(batch) => {
                    self.append(&batch);
                    samples += batch.samples.len() as u64;
                    if progress(samples).is_break() {
                        break;
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        (self, errors)
    }

    /// Appends samples of one CPU. Samples in order of time, as they arrive from a ring, are cheap;
    /// others are sorted in.
    pub fn append(&mut self, batch: &Batch) {
        if !batch.samples.iter().any(Sample::is_word) {
            return self.append_samples(batch);
        }
        let words = batch.samples.iter().filter(|sample| sample.is_word());
        let words = Batch {
            cpu: batch.cpu,
            samples: words.copied().collect(),
        };
        if let Some(derived) = self.by_thread.as_deref_mut() {
            derived.by.learn(&words);
        }
        let limit = self.limit;
        let index = || {
            Box::new(Self {
                limit,
                ..Self::default()
            })
        };
        let others = self.words.get_or_insert_with(index);
        others.append_samples(&words);
        self.append_samples(&batch.without_words());
    }

    /// Returns the further words of a sample, of which it has so many; `None` if they are not all there, or if another
    /// sample of the instrument has words at the same time.
    #[must_use]
    pub fn words(&self, sample: &Sample, count: usize) -> Option<Vec<u64>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let (id, tsc) = (sample.as_word().id, sample.tsc);
        let words = self.words.as_deref()?;
        let words = words.samples_in(id, tsc, tsc.checked_add(1)?, count + 1);
        (words.len() == count).then(|| words.iter().map(|word| word.value).collect())
    }

    fn append_samples(&mut self, batch: &Batch) {
        if let Some(derived) = self.by_thread.as_deref_mut() {
            for part in derived.by.assign(batch) {
                derived.index.append(&part);
            }
        }
        if let Some(derived) = self.by_level.as_deref_mut() {
            let part = derived.by.select(batch);
            if !part.samples.is_empty() {
                derived.index.append(&part);
            }
        }
        // A cache of lanes: bursts come from few instruments, so most look-ups hit it.
        let mut recent: [Option<(u64, usize, usize)>; 64] = [None; 64];
        for sample in &batch.samples {
            let slot = (sample.id ^ (sample.id >> 8) ^ (sample.id >> 28)) as usize % recent.len();
            let cached = recent
                .get(slot)
                .copied()
                .flatten()
                .filter(|(id, _, _)| *id == sample.id);
            let (lane, run) = match cached {
                Some((_, lane, run)) => (lane, Some(run)),
                None => (self.lane_of(sample.id), None),
            };
            let Some(runs) = self.lanes.get_mut(lane) else {
                debug_assert!(false, "lane {lane} of {} is in by_id only", sample.id);
                continue;
            };
            let run = runs.push(run, batch.cpu, sample.tsc, sample.value);
            if let Some(entry) = recent.get_mut(slot) {
                *entry = Some((sample.id, lane, run));
            }
        }
        if let Some(limit) = self.limit {
            self.keep_within(limit);
        }
    }

    /// Reduces the largest lanes to sums until the samples fit the limit.
    fn keep_within(&mut self, limit: Limit) {
        let mut kept: u64 = self.lanes.iter().map(Runs::kept).sum();
        while kept > limit.samples {
            let most = self.lanes.iter_mut().max_by_key(|runs| runs.kept());
            let Some(most) = most.filter(|runs| runs.kept() > FEW.min(limit.samples / 2)) else {
                return;
            };
            kept -= most.kept();
            most.coarsen(limit.span);
        }
    }

    /// Returns whether a lane has only sums over time spans, because it has too many samples: then
    /// [`samples_in`](Self::samples_in) and [`visit`](Self::visit) find none, and columns are exact
    /// only to the width of those spans.
    #[must_use]
    pub fn is_coarse(&self, id: u64) -> bool {
        self.runs(id).is_some_and(|runs| runs.coarse.is_some())
    }

    /// Returns the index of an identifier's lane, which is inserted if it is new.
    fn lane_of(&mut self, id: u64) -> usize {
        *self.by_id.entry(id).or_insert_with(|| {
            self.lanes.push(Runs::new(id));
            self.lanes.len() - 1
        })
    }

    /// Returns every lane, in the order of the arrival of their first samples.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = &Lane> {
        self.lanes.iter().map(|runs| &runs.lane)
    }

    /// Returns a lane, if it has samples.
    #[must_use]
    pub fn lane(&self, id: u64) -> Option<&Lane> {
        Some(&self.runs(id)?.lane)
    }

    /// Returns the minimum and maximum time of all samples, in TSC ticks.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.lanes().map(|lane| lane.first).min()?;
        Some((first, self.lanes().map(|lane| lane.last).max()?))
    }

    /// Returns the number of samples in all lanes.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.lanes().map(|lane| lane.total.count).sum()
    }

    /// Returns lane `id` from `t0` to `t1` (exclusive) in `columns` columns of equal width. Column
    /// `c` holds the samples with `(t - t0) * columns / (t1 - t0) == c`.
    #[must_use]
    pub fn query(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        let mut out = vec![Column::default(); columns];
        if let Some(coarse) = self.runs(id).and_then(|runs| runs.coarse.as_ref()) {
            coarse.columns(t0, t1, &mut out);
        }
        for run in self.runs(id).into_iter().flat_map(|runs| &runs.runs) {
            run.columns(t0, t1, &mut out);
        }
        out
    }

    /// Returns the same columns as [`query`](Self::query) approximately, and fast at any zoom:
    /// every sample is in exactly one column, at most half a column away from its own. Below some
    /// hundred thousand samples the result equals that of `query`.
    #[must_use]
    pub fn view(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        self.seen(id, t0, t1, columns, false)
    }

    /// Implements [`view`](Self::view), optionally exact: that is fast if columns are a power of
    /// two of ticks wide and aligned to it.
    fn seen(&self, id: u64, t0: u64, t1: u64, columns: usize, exact: bool) -> Vec<Column> {
        let mut out = vec![Column::default(); columns];
        let Some(lane) = self.runs(id) else {
            return out;
        };
        if let Some(coarse) = &lane.coarse {
            coarse.columns(t0, t1, &mut out);
            return out;
        }
        let count: usize = lane.runs.iter().map(|run| run.count(t0, t1)).sum();
        // The whole range, or the spans for which the tree is too coarse.
        let mut closer = Vec::new();
        if count <= NEAR {
            closer.push(t0..t1);
        } else {
            closer = lane.tree.view(t0..t1, exact, &mut out);
        }
        if !closer.is_empty() {
            let edges = Edges::of(&(t0..t1), columns);
            for run in &lane.runs {
                run.scan(&closer, &edges, &mut out);
            }
        }
        out
    }

    /// Returns the aggregate of lane `id` from `t0` to `t1` (exclusive).
    #[must_use]
    pub fn total(&self, id: u64, t0: u64, t1: u64) -> Column {
        self.query(id, t0, t1, 1).pop().unwrap_or_default()
    }

    /// Returns the first `limit` samples of lane `id` from `t0` to `t1` (exclusive) in order of
    /// time, for drawing each when they are few. [`total`](Self::total) returns whether there are
    /// more.
    #[must_use]
    pub fn samples_in(&self, id: u64, t0: u64, t1: u64, limit: usize) -> Vec<Point> {
        let mut points = Vec::new();
        for run in self.runs(id).into_iter().flat_map(|runs| &runs.runs) {
            points.extend(run.points(t0, t1).take(limit));
        }
        points.sort_by_key(|point| (point.tsc, point.cpu));
        points.truncate(limit);
        points
    }

    /// Calls `visit` with every sample of lane `id` from `t0` to `t1` (exclusive), in order of time
    /// within a CPU only.
    pub fn visit(&self, id: u64, t0: u64, t1: u64, mut visit: impl FnMut(Point)) {
        for run in self.runs(id).into_iter().flat_map(|runs| &runs.runs) {
            run.points(t0, t1).for_each(&mut visit);
        }
    }

    fn runs(&self, id: u64) -> Option<&Runs> {
        self.lanes.get(*self.by_id.get(&id)?)
    }
}

impl Runs {
    fn new(id: u64) -> Self {
        let lane = Lane {
            id,
            total: Column::default(),
            first: u64::MAX,
            last: 0,
        };
        Self {
            lane,
            runs: Vec::new(),
            tree: Tree::new(),
            coarse: None,
        }
    }

    /// Returns the number of samples in memory.
    fn kept(&self) -> u64 {
        match self.coarse {
            Some(_) => 0,
            None => self.lane.total.count,
        }
    }

    /// Replaces all samples by sums over time spans.
    fn coarsen(&mut self, (first, last): (u64, u64)) {
        let mut coarse = Coarse::new(first, last);
        for run in std::mem::take(&mut self.runs) {
            run.all()
                .for_each(|point| coarse.add(point.tsc, point.value));
        }
        self.tree = Tree::new();
        self.coarse = Some(coarse);
    }

    /// Appends a sample to the run with the index `hint` if it fits there, else to another, and
    /// returns the index of that run.
    fn push(&mut self, hint: Option<usize>, cpu: u16, tsc: u64, value: u64) -> usize {
        self.lane.total.add(value);
        self.lane.first = self.lane.first.min(tsc);
        self.lane.last = self.lane.last.max(tsc);
        if let Some(coarse) = &mut self.coarse {
            coarse.add(tsc, value);
            return 0;
        }
        let index = self.push_run(hint, cpu, tsc, value);
        self.tree.add(tsc, value, &self.runs);
        index
    }

    fn push_run(&mut self, hint: Option<usize>, cpu: u16, tsc: u64, value: u64) -> usize {
        let fits = |run: &Run| run.cpu() == cpu && run.last() <= tsc;
        let hint = hint.filter(|&index| self.runs.get(index).is_some_and(fits));
        if let Some(index) = hint.or_else(|| self.runs.iter().position(fits)) {
            if let Some(run) = self.runs.get_mut(index) {
                run.push(tsc, value);
            }
            return index;
        }
        let mut run = Run::new(cpu);
        run.push(tsc, value);
        self.runs.push(run);
        if self.runs.iter().filter(|run| run.cpu() == cpu).count() > MAX_RUNS_OF_A_CPU {
            self.sort_cpu(cpu);
        }
        self.runs.len() - 1
    }

    /// Merges the short runs of a CPU, so that the lengths of the remaining ones grow by powers of
    /// two: samples in arbitrary order then cost only O(n log n).
    fn sort_cpu(&mut self, cpu: u16) {
        let (mut of_cpu, others): (Vec<Run>, Vec<Run>) = std::mem::take(&mut self.runs)
            .into_iter()
            .partition(|run| run.cpu() == cpu);
        self.runs = others;
        of_cpu.sort_by_key(Run::len);
        let (mut points, mut merged): (Vec<Point>, usize) = (Vec::new(), 0);
        for run in of_cpu {
            if merged < 2 || run.len() <= points.len() * 2 {
                points.extend(run.all());
                merged += 1;
            } else {
                self.runs.push(run);
            }
        }
        points.sort_by_key(|point| point.tsc);
        let mut run = Run::new(cpu);
        points
            .iter()
            .for_each(|point| run.push(point.tsc, point.value));
        self.runs.push(run);
    }
}

#[cfg(test)]
mod tests;
