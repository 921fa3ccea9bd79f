//! The time index: what a lane looks like between two times, at any zoom, with no spike lost.
//!
//! A *lane* is an instrument. Samples of different CPUs arrive out of order, batch by batch, but in
//! order within a CPU: so a lane is a few sorted *runs*, one a CPU, each with a pyramid of count,
//! least, greatest and sum over 32, 256, 2048 … samples. A query walks the runs and merges what
//! they say; the edges of a column are exact, because below 32 samples it looks at each of them.
//!
//! Many CPUs make many runs, and a column of each is looked for: [`Index::query`] is exact, and takes
//! milliseconds at worst. A screen is drawn by [`Index::view`]: from afar it reads a tree of spans of
//! time over all runs of a lane, and puts no sample further than half a column from its place. [`Tiles`]
//! keep what was seen, and [`Shared`] lets one thread add while another draws.
//!
//! The samples themselves stay in memory (16 bytes each; one and a half for the pyramids, and about three
//! for the tree). An index of a recording has a limit: when it is reached, the lane that has most is kept as sums
//! over short spans of time alone, and so on. It is then drawn as before from afar, and not closer.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::metadata::Metadata;
use crate::recording::Recording;
use crate::{Batch, Error};

mod coarse;
mod edges;
pub mod levels;
mod part;
mod run;
mod shared;
pub mod threads;
mod tiles;
mod tree;
mod whose;

use coarse::Coarse;
use edges::Edges;
use levels::Levels;
pub use part::Part;
use run::Run;
pub use shared::{Looking, Shared};
use threads::Threads;
pub use tiles::Tiles;
use tree::Tree;
pub use whose::{By, Whose};

/// A sample of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When, in TSC ticks.
    pub tsc: u64,
    /// What was measured.
    pub value: u64,
    /// Where.
    pub cpu: u16,
}

/// What the samples of a span of time have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// How many there are.
    pub count: u64,
    /// Their least value; `u64::MAX` if there are none.
    pub min: u64,
    /// Their greatest value; 0 if there are none.
    pub max: u64,
    /// The sum of their values.
    pub sum: u128,
}

impl Default for Column {
    fn default() -> Self {
        Self {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }
}

impl Column {
    /// The mean of the values, if there are any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum = self.sum.wrapping_add(u128::from(value));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A lane as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The packed identifier of its instrument.
    pub id: u64,
    /// All of its samples.
    pub total: Column,
    /// Time of its first sample, in TSC ticks.
    pub first: u64,
    /// Time of its last sample, in TSC ticks.
    pub last: u64,
}

/// Every lane of a recording, growing as batches come.
#[derive(Debug, Default)]
pub struct Index {
    lanes: Vec<Runs>,
    by_id: HashMap<u64, usize>,
    limit: Option<Limit>,
    /// The same samples by the thread that ran, where that is known.
    threads: Option<Box<Threads>>,
    /// Those of levels, by level.
    levels: Option<Box<Levels>>,
}

/// How many samples are kept, and what of the time there is.
#[derive(Clone, Copy, Debug)]
struct Limit {
    samples: u64,
    span: (u64, u64),
}

/// The runs of a lane.
#[derive(Debug)]
struct Runs {
    lane: Lane,
    runs: Vec<Run>,
    tree: Tree,
    /// In place of runs and tree, where there was too much.
    coarse: Option<Coarse>,
}

/// Runs of one CPU at most; beyond, they are sorted into one. Only samples that are out of order
/// within a CPU ever make a second one.
const MAX_RUNS_OF_A_CPU: usize = 8;
/// Samples of a view up to which each is looked at: that takes some two tenths of a millisecond.
const NEAR: usize = 1 << 16;
/// Samples that the index of a recording, or of a run, keeps: they take 1.4 GB.
pub const KEPT: u64 = 1 << 26;
/// A lane of fewer samples takes no less as sums.
const FEW: u64 = 1 << 16;

impl Index {
    /// Without samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Without samples, of which so many are to come between these times at the latest, in TSC ticks. It
    /// keeps no more than `limit`, and of the lanes that had most, sums over 16,384ths of that time.
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

    /// The same, and the samples that are to come also by the thread that ran, if an instrument of the
    /// recording [tells threads](threads::tells): that takes as much again. And those of levels by level.
    #[must_use]
    pub fn telling(self, metadata: &Metadata) -> Self {
        let empty = || Self {
            limit: self.limit,
            ..Self::default()
        };
        Self {
            threads: Threads::of(metadata, empty()).map(Box::new),
            levels: Levels::of(metadata, empty()).map(Box::new),
            ..self
        }
    }

    /// The samples of levels, if there are any.
    #[must_use]
    pub fn levels(&self) -> Option<&Levels> {
        self.levels.as_deref()
    }

    /// The samples by the thread that ran, if that is known.
    #[must_use]
    pub fn threads(&self) -> Option<&Threads> {
        self.threads.as_deref()
    }

    /// The index of a whole recording, and the errors of the batches that could not be read.
    /// `progress` is told the number of samples after every batch, and ends it there if it says so. It
    /// keeps 64 million samples ([`limited`](Self::limited)), whatever the recording has.
    pub fn of(
        recording: &Recording,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> (Self, Vec<Error>) {
        let span = recording.span().unwrap_or_default();
        let index = Self::limited(KEPT, span).telling(recording.metadata());
        index.filled(recording.batches(), progress)
    }

    /// This with all of the batches, and the errors of those that could not be read.
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

    /// Adds samples of one CPU. Those in order of time, as they come from a ring, are cheap; any
    /// others are sorted in.
    pub fn append(&mut self, batch: &Batch) {
        if let Some(threads) = &mut self.threads {
            threads.append(batch);
        }
        if let Some(levels) = &mut self.levels {
            levels.append(batch);
        }
        // Bursts are of few instruments: most look-ups end here.
        let mut recent: [Option<(u64, usize, usize)>; 64] = [None; 64];
        for sample in &batch.samples {
            let slot = (sample.id ^ (sample.id >> 8) ^ (sample.id >> 28)) as usize % recent.len();
            let known = recent
                .get(slot)
                .copied()
                .flatten()
                .filter(|(id, _, _)| *id == sample.id);
            let (lane, run) = match known {
                Some((_, lane, run)) => (lane, Some(run)),
                None => (self.lane_of(sample.id), None),
            };
            let Some(runs) = self.lanes.get_mut(lane) else {
                continue;
            };
            let run = runs.push(run, batch.cpu, sample.tsc, sample.value);
            recent
                .get_mut(slot)
                .into_iter()
                .for_each(|slot| *slot = Some((sample.id, lane, run)));
        }
        if let Some(limit) = self.limit {
            self.keep_within(limit);
        }
    }

    /// Keeps only sums of the lanes that have most, until few enough samples are left.
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

    /// Whether a lane has only sums over spans of time, because it has too many samples: then
    /// [`samples_in`](Self::samples_in) and [`visit`](Self::visit) find none, and columns are exact only as
    /// far as those spans are narrower than they.
    #[must_use]
    pub fn is_coarse(&self, id: u64) -> bool {
        self.runs(id).is_some_and(|runs| runs.coarse.is_some())
    }

    /// The index of the lane of this identifier, which is made if there is none.
    fn lane_of(&mut self, id: u64) -> usize {
        *self.by_id.entry(id).or_insert_with(|| {
            self.lanes.push(Runs::new(id));
            self.lanes.len() - 1
        })
    }

    /// Every lane, in the order in which their first samples came.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = &Lane> {
        self.lanes.iter().map(|runs| &runs.lane)
    }

    /// One lane, if it has samples.
    #[must_use]
    pub fn lane(&self, id: u64) -> Option<&Lane> {
        Some(&self.runs(id)?.lane)
    }

    /// Earliest and latest time of any sample, in TSC ticks.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.lanes().map(|lane| lane.first).min()?;
        Some((first, self.lanes().map(|lane| lane.last).max()?))
    }

    /// Number of samples in all lanes.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.lanes().map(|lane| lane.total.count).sum()
    }

    /// What lane `id` looks like from `t0` up to but without `t1`, in that many columns of equal
    /// width. Column `c` holds the samples with `(t - t0) * columns / (t1 - t0) == c`.
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

    /// As [`query`](Self::query), and fast at any zoom: every sample is in exactly one column, and none
    /// that is more than half a column away from it. Below some hundred thousand samples
    /// it says exactly what `query` says.
    #[must_use]
    pub fn view(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        self.seen(id, t0, t1, columns, false)
    }

    /// As [`view`](Self::view), or exact: that is quick where columns are a power of two of ticks wide, and
    /// begin at a multiple of that.
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
        // One range over everything, or those that the tree is too coarse for.
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

    /// Everything of lane `id` from `t0` up to but without `t1`, in one column.
    #[must_use]
    pub fn total(&self, id: u64, t0: u64, t1: u64) -> Column {
        self.query(id, t0, t1, 1).pop().unwrap_or_default()
    }

    /// The samples of lane `id` from `t0` up to but without `t1` in order of time: the first
    /// `limit` of them, for drawing each when they are few. [`total`](Self::total) says whether
    /// there are more.
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

    /// Calls `visit` with every sample of lane `id` from `t0` up to but without `t1`, in order of
    /// time within a CPU only.
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

    /// Samples that are kept each.
    fn kept(&self) -> u64 {
        match self.coarse {
            Some(_) => 0,
            None => self.lane.total.count,
        }
    }

    /// Keeps sums over spans of time in place of all samples.
    fn coarsen(&mut self, (first, last): (u64, u64)) {
        let mut coarse = Coarse::new(first, last);
        for run in std::mem::take(&mut self.runs) {
            run.all()
                .for_each(|point| coarse.add(point.tsc, point.value));
        }
        self.tree = Tree::new();
        self.coarse = Some(coarse);
    }

    /// Adds a sample to the run with the index `hint`, if it fits there, or else to another, and
    /// returns the index of that.
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
            self.runs
                .get_mut(index)
                .into_iter()
                .for_each(|run| run.push(tsc, value));
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

    /// Sorts the short runs of a CPU into one, so that the lengths of those left grow by powers of
    /// two: samples in no order at all then still cost only their number times its logarithm.
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
