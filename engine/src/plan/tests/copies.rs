//! Instructions that are executed only as copies, and the points of all of these.

use std::collections::{BTreeMap, BTreeSet};

use super::places::{at, next, stops};
use crate::cfg::{Cfg, EdgeKind};
use crate::placement::{InsnEdge, Point, Site, SiteIndex};
use crate::{Addr, Image, Span};

/// Copies of instructions, by patch.
pub(super) struct Copies<'c> {
    pub(super) image: &'c Image,
    pub(super) cfg: &'c Cfg,
    pub(super) sites: &'c [Site],
    /// The copies of each instruction.
    pub(super) stretches: BTreeMap<Addr, Vec<(SiteIndex, Span)>>,
    pub(super) displaced: BTreeMap<Addr, SiteIndex>,
}

impl Copies<'_> {
    /// The instructions from which control comes to that one, if all are known.
    pub(super) fn before(&self, to: Addr) -> Option<Vec<Addr>> {
        let block = self.cfg.block_at(to)?;
        if block.span.start < to {
            let before = block
                .instructions
                .iter()
                .filter(|one| at(one) < to)
                .last()?;
            return (!stops(&before)).then(|| vec![at(&before)]);
        }
        let ways = self.cfg.ways_in(self.image, block.index)?;
        if !ways.complete || !ways.branches.is_empty() || block.index.0 == 0 {
            return None;
        }
        let froms = ways.edges.into_iter().map(|way| {
            assert_ne!(way.kind, EdgeKind::Fixup);
            let from = self.cfg.block(way.from)?.instructions.last()?;
            // After a call, control is in the original code.
            (!(stops(&from) && next(&from) == to)).then(|| at(&from))
        });
        froms.collect()
    }

    /// Returns whether only copies of the instruction are executed.
    fn inside(&self, this: Addr, waiting: &mut BTreeSet<Addr>) -> bool {
        if self.displaced.contains_key(&this) {
            return true;
        }
        if !self.stretches.contains_key(&this) || !waiting.insert(this) {
            return false;
        }
        let Some(froms) = self.before(this) else {
            return false;
        };
        froms.into_iter().all(|from| {
            let edge = InsnEdge { from, to: this };
            self.inside(from, waiting)
                && self.stretches[&from].iter().all(|(site, span)| {
                    let continuations = &self.sites[site.0 as usize].continuations;
                    (span.contains(from) && span.contains(this) && from < this)
                        || continuations.iter().any(|run_on| run_on.edge == edge)
                })
        })
    }

    /// Points before every copy of an instruction.
    pub(super) fn at(&self, this: Addr) -> Option<Vec<(SiteIndex, Point)>> {
        if !self.inside(this, &mut BTreeSet::new()) {
            return None;
        }
        let mut points = BTreeSet::new();
        for &(site, span) in &self.stretches[&this] {
            let displaced = self.sites[site.0 as usize].displaced;
            let continuations = &self.sites[site.0 as usize].continuations;
            let again = continuations.iter().any(|run_on| run_on.copied == span);
            if displaced == span && displaced.start == this {
                points.insert((site, Point::Entry));
            }
            if displaced != span || displaced.start != this || again {
                points.insert((site, Point::Before(this)));
            }
        }
        Some(points.into_iter().collect())
    }

    /// Points on every copy of an edge.
    pub(super) fn on(&self, edge: InsnEdge) -> Option<Vec<(SiteIndex, Point)>> {
        if !self.inside(edge.from, &mut BTreeSet::new()) {
            return None;
        }
        let sites: BTreeSet<SiteIndex> = self.stretches[&edge.from]
            .iter()
            .map(|(site, _)| *site)
            .collect();
        Some(
            sites
                .into_iter()
                .map(|site| (site, Point::On(edge)))
                .collect(),
        )
    }
}
