//! Numbers of paths, and increments on the arcs outside of a spanning tree.

use super::Paths;
use super::graph::{Arc, Graph};

/// A graph whose paths are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    graph: Graph,
    /// By arc: what its place adds to the number of a path.
    values: Vec<u64>,
    /// By arc: what has to be added there, modulo 2^64. Zero on the tree's.
    increments: Vec<u64>,
    /// By block: how many ways lead from it to the end; none if it never returns.
    from_here: Vec<u64>,
    count: u64,
}

impl Numbered {
    /// Numbers the paths; `None` if there are more than [`Paths::MOST`].
    #[must_use]
    pub fn of(graph: Graph) -> Option<Self> {
        let mut from_here = vec![0_u64; graph.blocks as usize];
        let mut values = vec![0_u64; graph.arcs.len()];
        let starts = std::iter::once(None);
        let blocks = graph.order.iter().rev().map(|block| Some(*block));
        let mut count = 0;
        for from in blocks.chain(starts) {
            // Each way has the numbers behind those of the ways before.
            let mut paths = 0_u64;
            for (index, arc) in graph.leaving(from) {
                *values.get_mut(index)? = paths;
                let behind = match arc.to {
                    Some(to) => *from_here.get(to as usize)?,
                    None => 1,
                };
                paths = paths
                    .checked_add(behind)
                    .filter(|all| *all <= Paths::MOST)?;
            }
            match from {
                Some(block) => *from_here.get_mut(block as usize)? = paths,
                None => count = paths,
            }
        }
        let increments = increments(&graph, &values);
        Some(Self {
            graph,
            values,
            increments,
            from_here,
            count,
        })
    }

    /// How many paths there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Arcs with what is to be added on each, modulo 2^64; nothing on those of the spanning tree. Along
    /// every path the sum is its number.
    pub fn increments(&self) -> impl Iterator<Item = (&Arc, u64)> {
        self.graph.arcs.iter().zip(self.increments.iter().copied())
    }

    /// The arcs of a path, from the start to the end.
    #[must_use]
    pub fn arcs(&self, number: u64) -> Option<Vec<Arc>> {
        if number >= self.count {
            return None;
        }
        let mut left = number;
        let mut from = None;
        let mut path = Vec::new();
        loop {
            // The last way whose numbers do not begin behind it. A block that never returns has no path.
            let value = |index: usize| self.values.get(index).copied().unwrap_or(u64::MAX);
            let ways = self.graph.leaving(from);
            let fit = ways.filter(|(index, arc)| value(*index) <= left && self.leads(arc));
            let (index, arc) = fit.last()?;
            left -= value(index);
            path.push(*arc);
            from = arc.to;
            if from.is_none() {
                return (left == 0).then_some(path);
            }
        }
    }

    /// Whether an arc leads to the end at all.
    fn leads(&self, arc: &Arc) -> bool {
        let ways = |block: u32| self.from_here.get(block as usize);
        arc.to
            .is_none_or(|block| ways(block).is_some_and(|ways| *ways > 0))
    }
}

/// Trees of blocks that are connected.
struct Forest(Vec<usize>);

impl Forest {
    fn root(&self, mut one: usize) -> usize {
        while let Some(&up) = self.0.get(one).filter(|up| **up != one) {
            one = up;
        }
        one
    }

    /// Connects two; false if they were.
    fn connect(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        if let Some(up) = self.0.get_mut(one) {
            *up = other;
        }
        one != other
    }
}

/// What is to be added where: the values, less what a spanning tree of the arcs that weigh most makes
/// superfluous. Each block has a potential, the difference of which its tree's arcs have as their values; the
/// start's and the end's are equal, so along a path all potentials cancel.
fn increments(graph: &Graph, values: &[u64]) -> Vec<u64> {
    let blocks = graph.blocks as usize;
    // The start and the end are one.
    let place = |block: Option<u32>| block.map_or(blocks, |block| block as usize);
    let mut forest = Forest((0..=blocks).collect());
    let mut by_weight: Vec<usize> = (0..graph.arcs.len()).collect();
    let weight = |index: &usize| graph.arcs.get(*index).map_or(0, |arc| arc.weight);
    by_weight.sort_by_key(|index| std::cmp::Reverse(weight(index)));
    let mut beside: Vec<Vec<(usize, u64)>> = vec![Vec::new(); blocks + 1];
    for index in by_weight {
        let (Some(arc), Some(&value)) = (graph.arcs.get(index), values.get(index)) else {
            continue;
        };
        // What stands for a loop's edge has an instrument anyway, and so have the entry and the exits.
        let joins = arc.weight > 0;
        let (from, to) = (place(arc.from), place(arc.to));
        if joins && forest.connect(from, to) {
            if let Some(all) = beside.get_mut(from) {
                all.push((to, value));
            }
            if let Some(all) = beside.get_mut(to) {
                all.push((from, value.wrapping_neg()));
            }
        }
    }
    let mut potentials: Vec<Option<u64>> = vec![None; blocks + 1];
    for root in std::iter::once(blocks).chain(0..blocks) {
        if potentials.get(root) != Some(&None) {
            continue;
        }
        let mut open = vec![(root, 0_u64)];
        while let Some((block, potential)) = open.pop() {
            let Some(known) = potentials.get_mut(block).filter(|known| known.is_none()) else {
                continue;
            };
            *known = Some(potential);
            let next = beside.get(block).into_iter().flatten();
            open.extend(next.map(|(to, value)| (*to, potential.wrapping_add(*value))));
        }
    }
    let potential = |block| potentials.get(place(block)).copied().flatten().unwrap_or(0);
    let increment = |(arc, value): (&Arc, &u64)| {
        let before = value.wrapping_add(potential(arc.from));
        before.wrapping_sub(potential(arc.to))
    };
    graph.arcs.iter().zip(values).map(increment).collect()
}
