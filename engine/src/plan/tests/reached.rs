//! Hooks of sites at random: those whose event is known from what is copied where.

use std::collections::{BTreeMap, BTreeSet};

use super::copies::Copies;
use super::places::{Builder, at, begins, next, stops, target};
use crate::cfg::{Block, BlockEnd, Cfg};
use crate::placement::*;
use crate::{Addr, HookType, Image, Span};

impl Builder<'_> {
    /// Every hook whose event is known from what is copied where.
    pub(super) fn hooks(&self, sites: &[Site]) -> BTreeMap<(usize, u32, HookType), Reached> {
        let mut hooks = BTreeMap::new();
        for (graph, cfg) in self.graphs.iter().enumerate() {
            let copies = self.copies(sites, cfg);
            for block in &cfg.blocks {
                let Some(start) = begins(self.image, block) else {
                    continue;
                };
                let last = &block.instructions.last().unwrap();
                let in_edges = || {
                    let froms = copies.before(block.span.start)?;
                    let mut points = BTreeSet::new();
                    for from in froms {
                        let to = block.span.start;
                        points.extend(copies.on(InsnEdge { from, to })?);
                    }
                    (!points.is_empty()).then(|| points.into_iter().collect())
                };
                let after_tracer = || {
                    let alone = cfg.predecessors(block.index).next().is_none();
                    let tracer = (0..).map(SiteIndex).zip(sites).find(|(_, site)| {
                        site.splice == Splice::Tracer && site.displaced.start == cfg.span.start
                    });
                    let (site, _) = tracer.filter(|_| block.index.0 == 0 && alone)?;
                    Some(vec![(site, Point::Entry)])
                };
                let pre = copies.at(start).or_else(in_edges).or_else(after_tracer);
                if let Some(points) = pre {
                    hooks.insert((graph, block.index.0, HookType::Pre), reached(points));
                }
                let edge = InsnEdge {
                    from: at(last),
                    to: next(last),
                };
                let post = match block.end {
                    BlockEnd::FallThrough if stops(last) => None,
                    BlockEnd::FallThrough => copies.on(edge),
                    _ => copies.at(at(last)),
                };
                if let Some(points) = post {
                    hooks.insert((graph, block.index.0, HookType::Post), reached(points));
                }
                for (hook, edge) in ways_out(self.image, block) {
                    if let Some(points) = copies.on(edge) {
                        hooks.insert((graph, block.index.0, hook), reached(points));
                    }
                }
            }
        }
        hooks
    }

    fn copies<'c>(&'c self, sites: &'c [Site], cfg: &'c Cfg) -> Copies<'c> {
        let mut stretches: BTreeMap<Addr, Vec<(SiteIndex, Span)>> = BTreeMap::new();
        let mut displaced = BTreeMap::new();
        for (index, site) in (0..).map(SiteIndex).zip(sites) {
            for instruction in &self.instructions(site.displaced) {
                displaced.insert(at(instruction), index);
            }
            let copied = site.continuations.iter().map(|run_on| run_on.copied);
            let all: BTreeSet<Span> = copied.chain([site.displaced]).collect();
            for span in all {
                for one in &self.instructions(span) {
                    stretches.entry(at(one)).or_default().push((index, span));
                }
            }
        }
        Copies {
            image: self.image,
            cfg,
            sites,
            stretches,
            displaced,
        }
    }
}

/// The ways of a block's conditional branch, if there are two.
pub(super) fn ways_out(image: &Image, block: &Block) -> Vec<(HookType, InsnEdge)> {
    let last = &block.instructions.last().unwrap();
    let to = target(image, last).filter(|_| block.end == BlockEnd::Conditional);
    let Some(to) = to.filter(|&to| to != next(last)) else {
        return Vec::new();
    };
    [(HookType::Taken, to), (HookType::Untaken, next(last))]
        .map(|(hook, to)| (hook, InsnEdge { from: at(last), to }))
        .into()
}

fn reached(points: Vec<(SiteIndex, Point)>) -> Reached {
    Reached {
        tactic: Tactic::DirectSplice,
        points: points.into(),
        needs: Vec::new().into(),
    }
}
