//! A function's graph made acyclic, with one start and one end.

use crate::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::ids::{Ids, id};
use crate::{Refusal, Rule};

id!(
    /// An arc of a [`Graph`].
    pub ArcIndex
);

/// An arc; `None` stands for the start, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arc {
    /// Its source; `None` for the start.
    pub from: Option<BlockIndex>,
    /// Its target; `None` for the end.
    pub to: Option<BlockIndex>,
    /// True if it is an edge of the function. Otherwise it stands for one half of the back edge in `loops`.
    pub is_real: bool,
    /// The back edge of a loop, as its blocks.
    pub loops: Option<(BlockIndex, BlockIndex)>,
    /// Its weight for the spanning tree: the heaviest arcs get no instrument.
    pub weight: u32,
}

/// Blocks and the arcs between them; acyclic, if [`Graph::new`] made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// The number of blocks.
    pub blocks: usize,
    /// The arcs by source, those of the start first.
    pub arcs: Ids<ArcIndex, Arc>,
    /// The reachable blocks in topological order.
    pub order: Vec<BlockIndex>,
}

impl Graph {
    /// Makes a graph of edges (from, to, weight), and of exit blocks. Each back edge becomes an arc from its
    /// source to the end, and one from the start to its target.
    #[must_use]
    pub fn new(
        blocks: usize,
        edges: &[(BlockIndex, BlockIndex, u32)],
        exits: &[BlockIndex],
    ) -> Self {
        let arc = |from, to| Arc {
            from,
            to,
            is_real: true,
            loops: None,
            weight: 0,
        };
        let (order, closing) = search(blocks, edges);
        let reached = |block: &BlockIndex| order.contains(block);
        let mut arcs = vec![arc(None, Some(BlockIndex(0)))];
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
            arcs: arcs.into(),
            order,
        }
    }

    /// The arcs that leave a block, or the start.
    pub fn leaving(&self, from: Option<BlockIndex>) -> impl Iterator<Item = (ArcIndex, &Arc)> {
        let first = self.arcs.values().partition_point(|arc| arc.from < from);
        let arcs = self.arcs.iter().skip(first);
        arcs.take_while(move |(_, arc)| arc.from == from)
    }
}

/// Progress of a depth-first search at a block.
#[derive(Clone, Copy)]
enum SearchState {
    Never,
    OnStack,
    Done,
}

/// Depth-first search: the reachable blocks in topological order, back edges aside, and the back edges.
fn search(
    blocks: usize,
    edges: &[(BlockIndex, BlockIndex, u32)],
) -> (Vec<BlockIndex>, Vec<(BlockIndex, BlockIndex)>) {
    let ways = |block: BlockIndex| -> Vec<BlockIndex> {
        let own = edges.iter().filter(|(from, ..)| *from == block);
        own.map(|(_, to, _)| *to).collect()
    };
    let mut visits = Ids::<BlockIndex, _>::from(vec![SearchState::Never; blocks]);
    let mut order = Vec::new();
    let mut closing = Vec::new();
    let mut stack: Vec<(BlockIndex, Vec<BlockIndex>)> = Vec::new();
    if let Some(first) = visits.keys().next() {
        visits[first] = SearchState::OnStack;
        stack.push((first, ways(first)));
    }
    while let Some((block, successors)) = stack.last_mut() {
        let block = *block;
        let Some(to) = successors.pop() else {
            visits[block] = SearchState::Done;
            order.push(block);
            stack.pop();
            continue;
        };
        match visits[to] {
            SearchState::OnStack => closing.push((block, to)),
            SearchState::Never => {
                visits[to] = SearchState::OnStack;
                stack.push((to, ways(to)));
            }
            SearchState::Done => {}
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
    if cfg.blocks.is_empty() {
        let why = "its paths cannot be numbered: it has no code";
        return Err(Refusal::new(Rule::ExitUnknown, cfg.span.start, why));
    }
    let mut exits = Vec::new();
    for block in &cfg.blocks {
        let index = block.index;
        let entered = index.0 > 0 && (block.open || block.entered);
        let mut edges = cfg.predecessors(index);
        let fixup = edges.any(|edge| edge.kind == EdgeKind::Fixup);
        if entered && !fixup {
            return Err(refusal(
                cfg,
                index,
                "control comes to a block from elsewhere",
            ));
        }
        match block.end {
            BlockEnd::Return | BlockEnd::TailCall => exits.push(index),
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
    let mut edges: Vec<(BlockIndex, BlockIndex, u32)> = real
        .map(|edge| {
            let weight = if hook(cfg, edge.from, edge.to).is_some() {
                1
            } else {
                2
            };
            (edge.from, edge.to, weight)
        })
        .collect();
    edges.dedup_by_key(|(from, to, _)| (*from, *to));
    Ok(Graph::new(cfg.blocks.len(), &edges, &exits))
}

/// Returns the hook of a block that is equivalent to an edge, if there is one.
pub(super) fn hook(
    cfg: &Cfg,
    from: BlockIndex,
    to: BlockIndex,
) -> Option<(BlockIndex, &'static str)> {
    let ways = |block| {
        let edges = cfg.successors(block);
        edges.filter(|edge| edge.kind != EdgeKind::Fixup).count()
    };
    let entered = cfg[to].open || cfg[to].entered;
    if ways(from) == 1 {
        Some((from, "post"))
    } else if cfg.predecessors(to).count() == 1 && to.0 > 0 && !entered {
        Some((to, "pre"))
    } else {
        None
    }
}

pub(super) fn refusal(cfg: &Cfg, block: BlockIndex, why: &str) -> Refusal {
    Refusal::new(
        Rule::ExitUnknown,
        cfg[block].span.start,
        format!("its paths cannot be numbered: {why} (block {})", block.0),
    )
}

pub(super) fn too_many(cfg: &Cfg) -> Refusal {
    Refusal::new(
        Rule::ProgramUnsupported,
        cfg.span.start,
        format!("it has more than 2^{} paths", super::Paths::MOST.ilog2()),
    )
}
