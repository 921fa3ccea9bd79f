//! A subset of an index from which lanes are drawn: one CPU, or all.

use std::collections::BTreeSet;

use super::column::{Column, Lane, Point};
use super::edges::Edges;
use super::run::Run;
use super::{Index, NEAR};
use crate::Meaning;
use crate::statistics::counted;

/// The samples of one CPU in an index, or all of them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    index: &'a Index,
    cpu: Option<u16>,
}

impl Index {
    /// Returns the samples of `cpu`, or all of them.
    #[must_use]
    pub const fn part(&self, cpu: Option<u16>) -> Part<'_> {
        Part { index: self, cpu }
    }

    /// Returns the CPUs with samples in lane `id`: none for a [coarse](Self::is_coarse) lane.
    #[must_use]
    pub fn cpus(&self, id: u64) -> BTreeSet<u16> {
        let runs = self.runs(id).into_iter().flat_map(|runs| &runs.runs);
        runs.map(Run::cpu).collect()
    }
}

impl<'a> Part<'a> {
    /// Returns the runs of a lane on one CPU.
    fn runs(&self, id: u64, cpu: u16) -> impl Iterator<Item = &'a Run> + use<'a> {
        let runs = self.index.runs(id).into_iter();
        runs.flat_map(|runs| &runs.runs)
            .filter(move |run| run.cpu() == cpu)
    }

    /// Returns the CPU, unless all are included.
    #[must_use]
    pub const fn cpu(&self) -> Option<u16> {
        self.cpu
    }

    /// Returns the [hits](crate::statistics) of an instrument in a span: those of its samples in this part.
    #[must_use]
    pub fn hits(self, id: u64, meaning: Meaning, (from, to): (u64, u64)) -> u64 {
        let inside = self.total(id, from, to);
        match meaning {
            Meaning::Count => counted(self.total(id, 0, from).max, inside.max),
            Meaning::Event
            | Meaning::Value
            | Meaning::Duration
            | Meaning::Block
            | Meaning::Level => inside.count,
        }
    }

    /// Returns the number of samples of a lane between two times; 0 for a coarse lane.
    pub(super) fn count(&self, id: u64, t0: u64, t1: u64) -> u64 {
        let runs = self.index.runs(id).into_iter().flat_map(|runs| &runs.runs);
        let runs = runs.filter(|run| self.cpu.is_none_or(|cpu| cpu == run.cpu()));
        runs.map(|run| run.count(t0, t1) as u64).sum()
    }

    /// Returns the number of samples of a lane.
    pub(super) fn samples(&self, id: u64) -> u64 {
        match self.cpu {
            None => self.index.lane(id).map_or(0, |lane| lane.total.count),
            Some(cpu) => self.runs(id, cpu).map(|run| run.len() as u64).sum(),
        }
    }

    /// Returns a lane, if it has samples here.
    #[must_use]
    pub fn lane(&self, id: u64) -> Option<Lane> {
        let Some(cpu) = self.cpu else {
            return self.index.lane(id).copied();
        };
        let first = self.runs(id, cpu).filter_map(Run::first).min()?;
        Some(Lane {
            id,
            total: self.total(id, 0, u64::MAX),
            first,
            last: self.runs(id, cpu).map(Run::last).max()?,
        })
    }

    /// Equivalent of [`Index::view`].
    #[must_use]
    pub fn view(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        self.seen(id, t0, t1, columns, false)
    }

    /// Returns exact columns that are a power of two of ticks wide and aligned to it.
    pub(super) fn aligned(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        self.seen(id, t0, t1, columns, true)
    }

    fn seen(&self, id: u64, t0: u64, t1: u64, columns: usize, exact: bool) -> Vec<Column> {
        let Some(cpu) = self.cpu else {
            return self.index.seen(id, t0, t1, columns, exact);
        };
        let mut out = vec![Column::default(); columns];
        let edges = Edges::of(&(t0..t1), columns);
        for run in self.runs(id, cpu) {
            // The pyramid has the sums of many samples.
            if run.count(t0, t1) <= NEAR {
                run.scan(std::slice::from_ref(&(t0..t1)), &edges, &mut out);
            } else {
                run.far(&(t0..t1), &edges, exact, &mut out);
            }
        }
        out
    }

    /// Equivalent of [`Index::query`].
    #[must_use]
    pub fn query(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        let Some(cpu) = self.cpu else {
            return self.index.query(id, t0, t1, columns);
        };
        let mut out = vec![Column::default(); columns];
        for run in self.runs(id, cpu) {
            run.columns(t0, t1, &mut out);
        }
        out
    }

    /// Equivalent of [`Index::total`].
    #[must_use]
    pub fn total(&self, id: u64, t0: u64, t1: u64) -> Column {
        self.query(id, t0, t1, 1).pop().unwrap_or_default()
    }

    /// Equivalent of [`Index::is_coarse`].
    #[must_use]
    pub fn is_coarse(&self, id: u64) -> bool {
        self.index.is_coarse(id)
    }

    /// Equivalent of [`Index::samples_in`].
    #[must_use]
    pub fn samples_in(&self, id: u64, t0: u64, t1: u64, limit: usize) -> Vec<Point> {
        let Some(cpu) = self.cpu else {
            return self.index.samples_in(id, t0, t1, limit);
        };
        let mut points: Vec<Point> = Vec::new();
        for run in self.runs(id, cpu) {
            points.extend(run.points(t0, t1).take(limit));
        }
        points.sort_by_key(|point| point.tsc);
        points.truncate(limit);
        points
    }

    /// Returns the last sample of a lane before `tsc`; `None` for a [coarse](Index::is_coarse)
    /// lane.
    #[must_use]
    pub fn last_before(&self, id: u64, tsc: u64) -> Option<Point> {
        let runs = self.index.runs(id).into_iter().flat_map(|runs| &runs.runs);
        let runs = runs.filter(|run| self.cpu.is_none_or(|cpu| cpu == run.cpu()));
        runs.filter_map(|run| run.last_before(tsc))
            .max_by_key(|point| (point.tsc, point.cpu))
    }

    /// Equivalent of [`Index::visit`].
    pub fn visit(&self, id: u64, t0: u64, t1: u64, mut visit: impl FnMut(Point)) {
        match self.cpu {
            None => self.index.visit(id, t0, t1, visit),
            Some(cpu) => {
                for run in self.runs(id, cpu) {
                    run.points(t0, t1).for_each(&mut visit);
                }
            }
        }
    }
}
