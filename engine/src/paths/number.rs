//! Numbers of paths, and increments on the arcs outside of a spanning tree.

use super::Paths;
use super::graph::{Arc, Graph};

/// A graph whose paths are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    graph: Graph,
    /// By arc: its share of the number of a path.
    values: Vec<u64>,
    /// By arc: its increment, modulo 2^64. Zero on arcs of the tree.
    increments: Vec<u64>,
    /// By block: the number of paths from it to the end; 0 if it never returns.
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
            // The numbers of each arc's paths follow those of the arcs before it.
            let mut paths = 0_u64;
            for (index, arc) in graph.leaving(from) {
                *values.get_mut(index)? = paths;
                let paths_after = match arc.to {
                    Some(to) => *from_here.get(to as usize)?,
                    None => 1,
                };
                paths = paths
                    .checked_add(paths_after)
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

    /// The number of paths.
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
        let mut rest_of_number = number;
        let mut from = None;
        let mut path = Vec::new();
        loop {
            // The last arc whose numbers do not begin after it. A block that never returns has no path.
            let value = |index: usize| self.values.get(index).copied().unwrap_or(u64::MAX);
            let ways = self.graph.leaving(from);
            let fit = ways
                .filter(|(index, arc)| value(*index) <= rest_of_number && self.reaches_end(arc));
            let (index, arc) = fit.last()?;
            rest_of_number -= value(index);
            path.push(*arc);
            from = arc.to;
            if from.is_none() {
                return (rest_of_number == 0).then_some(path);
            }
        }
    }

    /// Returns whether the end is reachable through an arc.
    fn reaches_end(&self, arc: &Arc) -> bool {
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

/// Moves the values to the arcs outside of a maximum spanning tree. Each block has a potential; the value of
/// an arc of the tree is the difference of its blocks' potentials. Those of the start and the end are equal,
/// so that along a path all potentials cancel.
fn increments(graph: &Graph, values: &[u64]) -> Vec<u64> {
    let blocks = graph.blocks as usize;
    // The start and the end are one node.
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
        // Halves of back edges have an instrument anyway, and so have the entry and the exits.
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
