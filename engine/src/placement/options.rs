//! The options of every block, each hook as if it were alone in a session.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::body::Body;
use super::family::families;
use super::finish::finish;
use super::ids::{BlockId, PartId};
use super::solution::{Solution, Wanted};
use super::solve::{Goal, Neighbours, Problem};
use super::tactic::{Tactic, Tactics};
use crate::cfg::{BlockEnd, BlockIndex, Cfg};
use crate::ids::{Id, to_u32};
use crate::{Addr, HookType, Image, Refusal, Rule};

/// The cost of a hook that is alone in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cost {
    /// Number of splices, those of donors included.
    pub sites: u32,
    /// Number of bounces.
    pub bounces: u32,
    /// Bytes of the original code that are executed as a copy while it is in place.
    pub displaced: u32,
    /// Bytes of continuations.
    pub copied: u32,
    /// Maximum number of instructions that are overwritten at one site: more than one requires quiescence.
    pub overwritten: u32,
}

impl Cost {
    fn of(solution: &Solution) -> Self {
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let sites = &solution.sites;
        let continuations = sites.iter().flat_map(|site| &site.continuations);
        let copied = continuations.map(|continuation| continuation.copied.len());
        Self {
            sites: to_u32(sites.len()),
            bounces: to_u32(solution.bounces.len()),
            displaced: bytes(sites.iter().map(|site| site.displaced.len()).sum()),
            copied: bytes(copied.sum()),
            overwritten: sites.iter().map(|site| site.overwritten).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for Cost {
    /// `1 splice and 1 bounce, 7 bytes displaced, after a wait`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        write!(f, "{} splice{}", self.sites, plural(self.sites))?;
        if self.bounces > 0 {
            write!(f, " and {} bounce{}", self.bounces, plural(self.bounces))?;
        }
        write!(
            f,
            ", {} byte{} displaced",
            self.displaced,
            plural(self.displaced)
        )?;
        if self.copied > 0 {
            write!(f, ", {} copied after edges", self.copied)?;
        }
        if self.overwritten > 1 {
            f.write_str(", after a wait")?;
        }
        Ok(())
    }
}

/// The way to reach a hook that is alone in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The most expensive tactic among those that it requires.
    pub tactic: Tactic,
    /// Splices, bounces and bytes that it takes.
    pub cost: Cost,
}

/// Whether, and how, each hook of a block can be instrumented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// Index in the function's graph.
    pub block: BlockIndex,
    /// A pre-hook alone.
    pub pre: Result<Choice, Refusal>,
    /// A post-hook alone.
    pub post: Result<Choice, Refusal>,
    /// Both in one session, or the refusal; `None` if one of them alone is refused.
    pub both: Option<Result<(), Refusal>>,
}

/// Returns every block's options with all tactics. A function that refuses refuses at every block.
#[must_use]
pub fn options(image: &Image, cfg: &Cfg) -> Vec<BlockOptions> {
    options_with(image, Tactics::ALL, cfg)
}

/// As [`options`], with some tactics.
#[must_use]
pub fn options_with(image: &Image, tactics: Tactics, cfg: &Cfg) -> Vec<BlockOptions> {
    let alone = Alone::new(image, tactics, cfg);
    let hook = |block: BlockIndex, hook| alone.choice(Goal::Hook(alone.base.after(block.0), hook));
    let blocks = cfg.blocks.iter().map(|block| {
        let pre = hook(block.index, HookType::Pre);
        let post = hook(block.index, HookType::Post);
        BlockOptions {
            block: block.index,
            both: alone.both(block.index, &pre, &post),
            pre,
            post,
        }
    });
    blocks.collect()
}

/// Returns how each way out of a block that ends with a conditional branch is reached alone, by
/// block: taken, then untaken.
#[must_use]
pub fn ways_out(image: &Image, cfg: &Cfg) -> BTreeMap<BlockIndex, [Result<Choice, Refusal>; 2]> {
    let alone = Alone::new(image, Tactics::ALL, cfg);
    let branches = cfg
        .blocks
        .iter()
        .filter(|block| block.end == BlockEnd::Conditional);
    let ways = branches.map(|block| {
        let ways = [HookType::Taken, HookType::Untaken]
            .map(|hook| alone.choice(Goal::Hook(alone.base.after(block.index.0), hook)));
        (block.index, ways)
    });
    ways.collect()
}

/// Returns the way to reach one hook alone, which may be one of its branch's ways.
///
/// # Errors
/// The rule that forbids it.
pub fn at_hook(
    image: &Image,
    cfg: &Cfg,
    block: BlockIndex,
    hook: HookType,
) -> Result<Choice, Refusal> {
    let alone = Alone::new(image, Tactics::ALL, cfg);
    alone.choice(Goal::Hook(alone.base.after(block.0), hook))
}

/// Returns the way to reach a point before one instruction.
///
/// # Errors
/// The rule that forbids it.
pub fn at_instruction(image: &Image, cfg: &Cfg, at: Addr) -> Result<Choice, Refusal> {
    let alone = Alone::new(image, Tactics::ALL, cfg);
    let instruction = alone.body.starting_at(at);
    match instruction.filter(|_| cfg.span.contains(at)) {
        Some(instruction) => alone.choice(Goal::Instruction(instruction)),
        None => Err(cfg.refusal.clone().unwrap_or_else(|| {
            Refusal::new(
                Rule::NothingToDisplace,
                at,
                "no instruction of the function begins here",
            )
        })),
    }
}

/// Hooks of one function, each placed as if there were no other.
pub(super) struct Alone<'a> {
    cfg: &'a Cfg,
    body: Rc<Body<'a>>,
    /// The number of its first block in the body.
    base: BlockId,
    neighbours: Neighbours<'a>,
}

impl<'a> Alone<'a> {
    pub(super) fn new(image: &'a Image, tactics: Tactics, cfg: &'a Cfg) -> Self {
        let family = families(image, &[cfg]).into_iter().next();
        debug_assert!(family.is_some(), "a graph is in a family");
        let body = Body::of(
            image,
            family.map(|family| family.graphs).unwrap_or_default(),
        );
        Self {
            cfg,
            // A function that refuses has no blocks.
            base: body.base(cfg.function).unwrap_or(BlockId::new(0)),
            body: Rc::new(body),
            neighbours: Neighbours::new(image, tactics),
        }
    }

    fn place(&self, goals: &[Goal]) -> Solution {
        let goals: Vec<_> = goals.iter().map(|&goal| (PartId::new(0), goal)).collect();
        let mut problem = Problem::new(&self.neighbours, [Rc::clone(&self.body)], &goals);
        problem.solve();
        finish(&mut problem)
    }

    fn choice(&self, goal: Goal) -> Result<Choice, Refusal> {
        let mut solution = self.place(&[goal]);
        let cost = Cost::of(&solution);
        let hook = solution.hooks.pop().unwrap_or_else(|| {
            let why = "internal error: placement has no answer for the hook";
            Err(Refusal::new(
                Rule::NothingToDisplace,
                self.cfg.span.start,
                why,
            ))
        });
        let tactic = hook?.tactic;
        Ok(Choice { tactic, cost })
    }

    /// The ways to reach points before every instruction of the function.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (Addr, Result<Choice, Refusal>)> {
        let insns = self.body.insns().iter();
        let starts = insns.map(|at| (at, self.body.start(at)));
        starts
            .filter(|&(_, start)| self.cfg.span.contains(start))
            .map(|(at, start)| (start, self.choice(Goal::Instruction(at))))
    }

    fn both(
        &self,
        block: BlockIndex,
        pre: &Result<Choice, Refusal>,
        post: &Result<Choice, Refusal>,
    ) -> Option<Result<(), Refusal>> {
        let (Ok(pre), Ok(post)) = (pre, post) else {
            return None;
        };
        // Splices without bounces do not compete: one or two of them serve both.
        if pre.cost.bounces == 0
            && post.cost.bounces == 0
            && pre.tactic < Tactic::Edges
            && post.tactic < Tactic::Edges
        {
            return Some(Ok(()));
        }
        let block = self.base.after(block.0);
        let goals = [HookType::Pre, HookType::Post].map(|hook| Goal::Hook(block, hook));
        let mut hooks = self.place(&goals).hooks.into_iter();
        Some(hooks.try_for_each(|hook| hook.map(|_| ())))
    }
}

/// Places all hooks of a session at once with all tactics: as few splices as possible, bounces where they
/// cost least, and the cheapest tactic for each hook that the others leave it. Deterministic.
///
/// Functions without hooks provide slots only if no function with hooks has one.
#[must_use]
pub fn place(image: &Image, graphs: &[&Cfg], wanted: &[Wanted]) -> Solution {
    place_with(image, Tactics::ALL, graphs, wanted)
}

/// As [`place`], with some tactics.
#[must_use]
pub fn place_with(image: &Image, tactics: Tactics, graphs: &[&Cfg], wanted: &[Wanted]) -> Solution {
    let neighbours = Neighbours::new(image, tactics);
    let (bodies, positions) = bodies(image, graphs);
    let goals: Vec<(PartId, Goal)> = wanted
        .iter()
        .map(|wanted| goal(&positions, wanted))
        .collect();
    let mut problem = Problem::new(&neighbours, bodies, &goals);
    problem.solve();
    finish(&mut problem)
}

/// The body that has a graph.
#[derive(Clone, Copy)]
pub(super) struct GraphPosition {
    pub(super) part: PartId,
    /// The number of its first block there.
    base: BlockId,
    /// Number of its blocks; `None` if it refuses.
    blocks: Option<usize>,
}

/// The function and the hook in it that are wanted; [`PartId::NONE`] for a graph or block that is not there.
pub(super) fn goal(positions: &[GraphPosition], wanted: &Wanted) -> (PartId, Goal) {
    let index = wanted.block.0;
    let position = positions.get(wanted.graph);
    let has_block = |position: &&GraphPosition| {
        let blocks = position.blocks;
        blocks.is_none_or(|blocks| (index as usize) < blocks)
    };
    match position.filter(has_block) {
        Some(position) => {
            let block = position.base.after(index);
            (position.part, Goal::Hook(block, wanted.hook))
        }
        None => (PartId::NONE, Goal::Hook(BlockId::new(0), wanted.hook)),
    }
}

/// The bodies of functions with their parts, and the position of each graph.
pub(super) fn bodies<'a>(
    image: &'a Image,
    graphs: &[&'a Cfg],
) -> (Vec<Rc<Body<'a>>>, Vec<GraphPosition>) {
    let mut bodies = Vec::new();
    let nowhere = GraphPosition {
        part: PartId::NONE,
        base: BlockId::new(0),
        blocks: Some(0),
    };
    let mut positions = vec![nowhere; graphs.len()];
    for family in families(image, graphs) {
        let body = Body::of(image, family.graphs);
        for index in family.given {
            let (Some(position), Some(cfg)) = (positions.get_mut(index), graphs.get(index)) else {
                debug_assert!(false, "graph {index} of {}", graphs.len());
                continue;
            };
            let base = body.base(cfg.function);
            *position = GraphPosition {
                part: PartId::new(bodies.len()),
                base: base.unwrap_or(BlockId::new(0)),
                blocks: base.map(|_| cfg.blocks.len()),
            };
        }
        bodies.push(Rc::new(body));
    }
    (bodies, positions)
}
