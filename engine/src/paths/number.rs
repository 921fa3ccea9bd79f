//! Numbers of paths, and increments on the arcs outside of a spanning tree.

use super::Paths;
use super::graph::{Arc, ArcIndex, Graph};
use crate::cfg::BlockIndex;
use crate::ids::{Id, Ids, id};

/// A graph whose paths are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    graph: Graph,
    /// The share of each arc of the number of a path.
    values: Ids<ArcIndex, u64>,
    /// The increment on each arc, modulo 2^64. Zero on arcs of the tree.
    increments: Ids<ArcIndex, u64>,
    /// The number of paths from each block to the end; 0 if it never returns.
    from_here: Ids<BlockIndex, u64>,
    count: u64,
}

impl Numbered {
    /// Numbers the paths; `None` if there are more than [`Paths::MOST`].
    #[must_use]
    pub fn of(graph: Graph) -> Option<Self> {
        let mut from_here = Ids::<BlockIndex, u64>::from(vec![0; graph.blocks]);
        let mut values = Ids::like(&graph.arcs, 0_u64);
        let starts = std::iter::once(None);
        let blocks = graph.order.iter().rev().map(|block| Some(*block));
        let mut count = 0;
        for from in blocks.chain(starts) {
            // The numbers of each arc's paths follow those of the arcs before it.
            let mut paths = 0_u64;
            for (index, arc) in graph.leaving(from) {
                values[index] = paths;
                let paths_after = arc.to.map_or(1, |to| from_here[to]);
                paths = paths
                    .checked_add(paths_after)
                    .filter(|all| *all <= Paths::MOST)?;
            }
            match from {
                Some(block) => from_here[block] = paths,
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
        let increments = self.increments.values().iter().copied();
        self.graph.arcs.values().iter().zip(increments)
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
            let value = |index: ArcIndex| self.values[index];
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
        arc.to.is_none_or(|block| self.from_here[block] > 0)
    }
}

id!(
    /// A block as a node of the spanning tree, or the start and the end, which are one node.
    NodeIndex
);

/// Trees of nodes that are connected: the parent of each, and of a root itself.
struct Forest(Ids<NodeIndex, NodeIndex>);

impl Forest {
    fn root(&self, mut node: NodeIndex) -> NodeIndex {
        while self.0[node] != node {
            node = self.0[node];
        }
        node
    }

    /// Connects two; false if they were.
    fn connect(&mut self, one: NodeIndex, other: NodeIndex) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one] = other;
        one != other
    }
}

/// Moves the values to the arcs outside of a maximum spanning tree. Each block has a potential; the value of
/// an arc of the tree is the difference of its blocks' potentials. Those of the start and the end are equal,
/// so that along a path all potentials cancel.
fn increments(graph: &Graph, values: &Ids<ArcIndex, u64>) -> Ids<ArcIndex, u64> {
    let outside = NodeIndex::new(graph.blocks);
    let node =
        |block: Option<BlockIndex>| block.map_or(outside, |block| NodeIndex::new(block.index()));
    let mut forest = Forest((0..=graph.blocks).map(NodeIndex::new).collect());
    let mut by_weight: Vec<ArcIndex> = graph.arcs.keys().collect();
    by_weight.sort_by_key(|&arc| std::cmp::Reverse(graph.arcs[arc].weight));
    let mut beside = Ids::like(&forest.0, Vec::<(NodeIndex, u64)>::new());
    for index in by_weight {
        let (arc, value) = (&graph.arcs[index], values[index]);
        // Halves of back edges have an instrument anyway, and so have the entry and the exits.
        let joins = arc.weight > 0;
        let (from, to) = (node(arc.from), node(arc.to));
        if joins && forest.connect(from, to) {
            beside[from].push((to, value));
            beside[to].push((from, value.wrapping_neg()));
        }
    }
    let mut potentials: Ids<NodeIndex, Option<u64>> = Ids::like(&beside, None);
    for root in std::iter::once(outside).chain(beside.keys()) {
        let mut worklist = vec![(root, 0_u64)];
        while let Some((node, potential)) = worklist.pop() {
            if potentials[node].is_some() {
                continue;
            }
            potentials[node] = Some(potential);
            let next = beside[node].iter();
            worklist.extend(next.map(|(to, value)| (*to, potential.wrapping_add(*value))));
        }
    }
    // The loop above has visited every node.
    let potential = |block| {
        let potential = potentials[node(block)];
        debug_assert!(potential.is_some(), "{block:?} has no potential");
        potential.unwrap_or(0)
    };
    let increment = |(arc, value): (&Arc, &u64)| {
        let before = value.wrapping_add(potential(arc.from));
        before.wrapping_sub(potential(arc.to))
    };
    let arcs = graph.arcs.values().iter().zip(values.values());
    arcs.map(increment).collect()
}
