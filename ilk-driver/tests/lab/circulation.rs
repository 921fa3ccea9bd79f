//! Whether counts of blocks can be those of real executions of a control-flow graph.
//!
//! Counts of blocks alone are consistent if and only if there are counts of *edges*, none negative,
//! such that what enters a measured block and what leaves it are both its count, and what enters a
//! block that was not measured leaves it. That is a circulation with demands; a maximum flow finds
//! one or shows that there is none (Ahuja, Magnanti, Orlin: Network Flows, section 6.7).

use std::collections::{BTreeMap, VecDeque};

use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg};

const UNBOUNDED: u64 = u64::MAX / 4;

/// Gives the blocks at which flow is not conserved: (block, its count, what of it no path explains).
pub(crate) fn unexplained(cfg: &Cfg, counts: &BTreeMap<u32, u64>) -> Vec<(u32, u64, u64)> {
    let blocks = cfg.blocks.len();
    let (outside, source, sink) = (2 * blocks, 2 * blocks + 1, 2 * blocks + 2);
    let mut network = Network::new(2 * blocks + 3);
    let mut demands = Vec::new();
    for (index, block) in cfg.blocks.iter().enumerate() {
        let (entry, exit) = (2 * index, 2 * index + 1);
        match counts.get(&block.index.0) {
            // What is measured comes in at one side and goes out at the other, all of it.
            Some(&count) => {
                network.edge(entry, sink, count);
                demands.push((block.index.0, count, network.edge(source, exit, count)));
            }
            None => {
                network.edge(entry, exit, UNBOUNDED);
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
        network.edge(
            2 * position(cfg, edge.from) + 1,
            2 * position(cfg, edge.to),
            UNBOUNDED,
        );
    }
    network.fill(source, sink);
    demands
        .into_iter()
        .map(|(block, count, edge)| (block, count, network.left(edge)))
        .filter(|(_, _, left)| *left > 0)
        .collect()
}

fn position(cfg: &Cfg, block: BlockIndex) -> usize {
    cfg.blocks
        .iter()
        .position(|candidate| candidate.index == block)
        .expect("edges join blocks of the graph")
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

    /// Sends as much as can be sent, along shortest ways (Edmonds and Karp).
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
