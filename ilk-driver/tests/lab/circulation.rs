//! Consistency of block counts with executions of a control-flow graph.
//!
//! Counts before and after blocks are consistent if and only if there are non-negative counts of
//! *edges* such that the sum over a block's incoming edges is the count before it, the sum over its
//! outgoing edges is the count after it, and both are equal unless an instruction of the block
//! continued at its fixup. For an uncounted block the two sums only have to be equal. This is a
//! circulation with demands; a maximum flow finds one or proves that there is none (Ahuja,
//! Magnanti, Orlin: Network Flows, section 6.7).
//! one or shows that there is none (Ahuja, Magnanti, Orlin: Network Flows, section 6.7).

use std::collections::{BTreeMap, VecDeque};

use gilk_engine::HookType;
use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};

const UNBOUNDED: u64 = u64::MAX / 4;

/// Counts by block and hook.
pub(crate) type Counts = BTreeMap<(u32, HookType), u64>;

/// Returns the hooks at which flow is not conserved: (block, hook, its count, the part that no path
/// explains).
pub(crate) fn unexplained(cfg: &Cfg, counts: &Counts) -> Vec<(u32, HookType, u64, u64)> {
    let blocks = cfg.blocks.len();
    let (outside, source, sink) = (3 * blocks, 3 * blocks + 1, 3 * blocks + 2);
    let mut network = Network::new(3 * blocks + 3);
    let mut demands = Vec::new();
    for (index, block) in cfg.blocks.iter().enumerate() {
        let [entry, within, exit] = [3 * index, 3 * index + 1, 3 * index + 2];
        for (hook, from, to) in [
            (HookType::Pre, entry, within),
            (HookType::Post, within, exit),
        ] {
            match counts.get(&(block.index.0, hook)) {
                // A measured count enters the network at one side and leaves it at the other.
                Some(&count) => {
                    network.edge(from, sink, count);
                    let out = network.edge(source, to, count);
                    demands.push((block.index.0, hook, count, out));
                }
                None => {
                    network.edge(from, to, UNBOUNDED);
                }
            }
        }
        if block.entered || index == 0 {
            network.edge(outside, entry, UNBOUNDED);
        }
        if cfg.exits(block.index) || block.end == BlockEnd::NoReturn {
            network.edge(exit, outside, UNBOUNDED);
        }
    }
    for edge in &cfg.edges {
        // A fault occurs inside a block.
        let side = if edge.kind == EdgeKind::Fixup { 1 } else { 2 };
        let from = 3 * position(cfg, edge.from) + side;
        network.edge(from, 3 * position(cfg, edge.to), UNBOUNDED);
    }
    network.fill(source, sink);
    demands
        .into_iter()
        .map(|(block, hook, count, edge)| (block, hook, count, network.left(edge)))
        .filter(|(_, _, _, left)| *left > 0)
        .collect()
}

fn position(cfg: &Cfg, block: BlockIndex) -> usize {
    let at = block.0 as usize;
    assert_eq!(cfg.blocks[at].index, block, "blocks are numbered in order");
    at
}

/// A network with residual capacities: edge `2k` and its reverse `2k + 1`.
struct Network {
    to: Vec<usize>,
    left: Vec<u64>,
    leaving: Vec<Vec<usize>>,
}

impl Network {
    fn new(nodes: usize) -> Self {
        Self {
            to: Vec::new(),
            left: Vec::new(),
            leaving: vec![Vec::new(); nodes],
        }
    }

    fn edge(&mut self, from: usize, to: usize, capacity: u64) -> usize {
        let edge = self.to.len();
        self.to.extend([to, from]);
        self.left.extend([capacity, 0]);
        self.leaving[from].push(edge);
        self.leaving[to].push(edge + 1);
        edge
    }

    fn left(&self, edge: usize) -> u64 {
        self.left[edge]
    }

    /// Computes a maximum flow along shortest augmenting paths (Edmonds and Karp).
    fn fill(&mut self, source: usize, sink: usize) {
        while let Some(way) = self.way(source, sink) {
            let amount = way.iter().map(|&edge| self.left[edge]).min().unwrap_or(0);
            for edge in way {
                self.left[edge] -= amount;
                self.left[edge ^ 1] += amount;
            }
        }
    }

    fn way(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut by = vec![None; self.leaving.len()];
        let mut waiting = VecDeque::from([source]);
        while let Some(node) = waiting.pop_front() {
            for &edge in &self.leaving[node] {
                let to = self.to[edge];
                if self.left[edge] > 0 && by[to].is_none() && to != source {
                    by[to] = Some(edge);
                    waiting.push_back(to);
                }
            }
        }
        let mut way = Vec::new();
        let mut node = sink;
        while node != source {
            let edge = by[node]?;
            way.push(edge);
            node = self.to[edge ^ 1];
        }
        Some(way)
    }
}
