//! A function's graph made acyclic, with one start and one end.

use crate::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::{Addr, Refusal, Rule};

/// An arc; `None` stands for the start, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arc {
    /// Its source; `None` for the start.
    pub from: Option<u32>,
    /// Its target; `None` for the end.
    pub to: Option<u32>,
    /// True if it is an edge of the function. Otherwise it stands for one half of the back edge in `loops`.
    pub is_real: bool,
    /// The back edge of a loop, as its blocks.
    pub loops: Option<(u32, u32)>,
    /// Its weight for the spanning tree: the heaviest arcs get no instrument.
    pub weight: u32,
}

/// Blocks and the arcs between them; acyclic, if [`Graph::new`] made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// The number of blocks.
    pub blocks: u32,
    /// The arcs by source, those of the start first.
    pub arcs: Vec<Arc>,
    /// The reachable blocks in topological order.
    pub order: Vec<u32>,
}

impl Graph {
    /// Makes a graph of edges (from, to, weight), and of exit blocks. Each back edge becomes an arc from its
    /// source to the end, and one from the start to its target.
    #[must_use]
    pub fn new(blocks: u32, edges: &[(u32, u32, u32)], exits: &[u32]) -> Self {
        let arc = |from, to| Arc {
            from,
            to,
            is_real: true,
            loops: None,
            weight: 0,
        };
        let (order, closing) = search(blocks, edges);
        let reached = |block: &u32| order.contains(block);
        let mut arcs = vec![arc(None, Some(0))];
        for &(from, to, weight) in edges.iter().filter(|(from, ..)| reached(from)) {
            if closing.contains(&(from, to)) {
                let half = |from, to, loops| Arc {
                    is_real: false,
                    loops,
                    ..arc(from, to)
                };
                arcs.push(half(Some(from), None, Some((from, to))));
                arcs.push(half(None, Some(to), None));
            } else {
                arcs.push(Arc {
                    weight,
                    ..arc(Some(from), Some(to))
                });
            }
        }
        let exits = exits.iter().filter(|block| reached(block));
        arcs.extend(exits.map(|block| arc(Some(*block), None)));
        arcs.sort_unstable();
        // Several back edges to one block share the arc from the start.
        arcs.dedup();
        Self {
            blocks,
            arcs,
            order,
        }
    }

    /// The arcs that leave a block, or the start.
    pub fn leaving(&self, from: Option<u32>) -> impl Iterator<Item = (usize, &Arc)> {
        let first = self.arcs.partition_point(|arc| arc.from < from);
        let arcs = self.arcs.iter().enumerate().skip(first);
        arcs.take_while(move |(_, arc)| arc.from == from)
    }
}

/// Depth-first search: the reachable blocks in topological order, back edges aside, and the back edges.
fn search(blocks: u32, edges: &[(u32, u32, u32)]) -> (Vec<u32>, Vec<(u32, u32)>) {
    let ways = |block: u32| -> Vec<u32> {
        let own = edges.iter().filter(|(from, ..)| *from == block);
        own.map(|(_, to, _)| *to).collect()
    };
    let mut seen = vec![false; blocks as usize];
    let mut open = vec![false; blocks as usize];
    let mut order = Vec::new();
    let mut closing = Vec::new();
    let mut stack: Vec<(u32, Vec<u32>)> = Vec::new();
    let mark = |all: &mut Vec<bool>, block: u32, value| {
        if let Some(one) = all.get_mut(block as usize) {
            *one = value;
        }
    };
    if blocks > 0 {
        mark(&mut seen, 0, true);
        mark(&mut open, 0, true);
        stack.push((0, ways(0)));
    }
    while let Some((block, left)) = stack.last_mut() {
        let block = *block;
        let Some(to) = left.pop() else {
            mark(&mut open, block, false);
            order.push(block);
            stack.pop();
            continue;
        };
        if open.get(to as usize) == Some(&true) {
            closing.push((block, to));
        } else if seen.get(to as usize) == Some(&false) {
            mark(&mut seen, to, true);
            mark(&mut open, to, true);
            stack.push((to, ways(to)));
        }
    }
    order.reverse();
    (order, closing)
}

/// The graph of a function.
pub(super) fn of(cfg: &Cfg) -> Result<Graph, Refusal> {
    if let Some(refusal) = &cfg.refusal {
        return Err(refusal.clone());
    }
    let mut exits = Vec::new();
    for block in &cfg.blocks {
        let index = block.index;
        let entered = index.0 > 0 && (block.open || block.entered);
        let fixup = { cfg.predecessors(index) }.any(|edge| edge.kind == EdgeKind::Fixup);
        if entered && !fixup {
            return Err(refusal(
                cfg,
                index,
                "control comes to a block from elsewhere",
            ));
        }
        match block.end {
            BlockEnd::Return | BlockEnd::TailCall => exits.push(index.0),
            BlockEnd::Indirect => {
                return Err(refusal(
                    cfg,
                    index,
                    "a block ends with a jump by a register",
                ));
            }
            _ if cfg.exits(index) => {
                return Err(refusal(
                    cfg,
                    index,
                    "only one way of a block leaves the function",
                ));
            }
            _ => {}
        }
    }
    let real = cfg.edges.iter().filter(|edge| edge.kind != EdgeKind::Fixup);
    let mut edges: Vec<(u32, u32, u32)> = real
        .map(|edge| {
            let weight = if hook(cfg, edge.from, edge.to).is_some() {
                1
            } else {
                2
            };
            (edge.from.0, edge.to.0, weight)
        })
        .collect();
    edges.dedup_by_key(|(from, to, _)| (*from, *to));
    let blocks = u32::try_from(cfg.blocks.len()).unwrap_or(u32::MAX);
    Ok(Graph::new(blocks, &edges, &exits))
}

/// Returns the hook of a block that is equivalent to an edge, if there is one.
pub(super) fn hook(
    cfg: &Cfg,
    from: BlockIndex,
    to: BlockIndex,
) -> Option<(BlockIndex, &'static str)> {
    let ways = |block| {
        { cfg.successors(block) }
            .filter(|edge| edge.kind != EdgeKind::Fixup)
            .count()
    };
    let entered = cfg
        .block(to)
        .is_none_or(|block| block.open || block.entered);
    if ways(from) == 1 {
        Some((from, "post"))
    } else if cfg.predecessors(to).count() == 1 && to.0 > 0 && !entered {
        Some((to, "pre"))
    } else {
        None
    }
}

pub(super) fn refusal(cfg: &Cfg, block: BlockIndex, why: &str) -> Refusal {
    let at = cfg.block(block).map_or(Addr(0), |block| block.span.start);
    Refusal::new(
        Rule::ExitUnknown,
        at,
        format!("its paths cannot be numbered: {why} (block {})", block.0),
    )
}

pub(super) fn too_many(cfg: &Cfg) -> Refusal {
    Refusal::new(
        Rule::ProgramUnsupported,
        cfg.span.start,
        format!("it has more than {} paths", super::Paths::MOST),
    )
}
