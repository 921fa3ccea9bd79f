//! What one CPU has of an index, or all of it: what a lane is drawn from.

use std::collections::BTreeSet;

use super::run::Run;
use super::{Column, Index, Lane, NEAR, Point};

/// An index as far as one CPU's samples go, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    index: &'a Index,
    cpu: Option<u16>,
}

impl Index {
    /// What `cpu` delivered; without one, all of it.
    #[must_use]
    pub const fn part(&self, cpu: Option<u16>) -> Part<'_> {
        Part { index: self, cpu }
    }

    /// The CPUs whose samples lane `id` has. None are known of a [coarse](Self::is_coarse) lane.
    #[must_use]
    pub fn cpus(&self, id: u64) -> BTreeSet<u16> {
        let runs = self.runs(id).into_iter().flat_map(|runs| &runs.runs);
        runs.map(Run::cpu).collect()
    }
}

impl<'a> Part<'a> {
    /// The runs of a lane that are of this CPU.
    fn runs(&self, id: u64, cpu: u16) -> impl Iterator<Item = &'a Run> + use<'a> {
        let runs = self.index.runs(id).into_iter();
        runs.flat_map(|runs| &runs.runs)
            .filter(move |run| run.cpu() == cpu)
    }

    /// One lane, if it has samples here.
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

    /// As [`Index::view`].
    #[must_use]
    pub fn view(&self, id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
        let Some(cpu) = self.cpu else {
            return self.index.view(id, t0, t1, columns);
        };
        let mut out = vec![Column::default(); columns];
        for run in self.runs(id, cpu) {
            // Where there are many, what is in a column is added up by the pyramid.
            if run.count(t0, t1) <= NEAR {
                run.scan(t0, t1, std::slice::from_ref(&(t0..t1)), &mut out);
            } else {
                run.columns(t0, t1, &mut out);
            }
        }
        out
    }

    /// As [`Index::total`].
    #[must_use]
    pub fn total(&self, id: u64, t0: u64, t1: u64) -> Column {
        let Some(cpu) = self.cpu else {
            return self.index.total(id, t0, t1);
        };
        let mut out = [Column::default()];
        for run in self.runs(id, cpu) {
            run.columns(t0, t1, &mut out);
        }
        let [total] = out;
        total
    }

    /// As [`Index::samples_in`].
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

    /// As [`Index::visit`].
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
