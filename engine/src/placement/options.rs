//! What can be done at every block, before anyone clicks.

use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::family::families;
use super::finish::finish;
use super::segments::{BlockNumber, Number, Outline};
use super::solve::{Ask, Neighbours, Problem};
use super::{Solution, Tactic, Wanted};
use crate::cfg::{BlockIndex, Cfg};
use crate::{Addr, HookType, Image, Refusal, Rule};

/// What a hook costs when it is alone in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cost {
    /// Splices, donors' included.
    pub sites: u32,
    /// Bounces on the way to patches.
    pub bounces: u32,
    /// Bytes of the original code that run as a copy while it is in place.
    pub displaced: u32,
    /// Bytes that are copied once more, behind edges.
    pub copied: u32,
    /// The most instructions that are overwritten at one site: more than one needs waiting for threads
    /// that are between them.
    pub overwritten: u32,
}

impl Cost {
    fn of(placement: &Solution) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let sites = &placement.sites;
        let continuations = sites.iter().flat_map(|site| &site.continuations);
        Self {
            sites: count(sites.len()),
            bounces: count(placement.bounces.len()),
            displaced: bytes(sites.iter().map(|site| site.displaced.len()).sum()),
            copied: bytes(continuations.map(|run| run.copied.len()).sum()),
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
        write!(f, ", {} bytes displaced", self.displaced)?;
        if self.copied > 0 {
            write!(f, ", {} copied behind edges", self.copied)?;
        }
        if self.overwritten > 1 {
            f.write_str(", after a wait")?;
        }
        Ok(())
    }
}

/// How a hook can be reached when it is alone in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The dearest tactic that it needs.
    pub tactic: Tactic,
    /// What it costs.
    pub cost: Cost,
}

/// What can be done at one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// The block.
    pub block: BlockIndex,
    /// A pre-hook alone.
    pub pre: Result<Choice, Refusal>,
    /// A post-hook alone.
    pub post: Result<Choice, Refusal>,
    /// Whether both can be there in one session; `None` if one of them alone cannot.
    pub both: Option<Result<(), Refusal>>,
}

/// Every block's options. A function that refuses refuses at every block.
#[must_use]
pub fn options(image: &Image, cfg: &Cfg) -> Vec<BlockOptions> {
    let alone = Alone::new(image, cfg);
    let hook = |block: BlockIndex, hook| alone.choice(Ask::Hook(alone.base + block.0, hook));
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

/// One hook of a block, alone: [`options`] leaves out those of its branch.
///
/// # Errors
/// The rule that forbids it.
pub fn at_hook(
    image: &Image,
    cfg: &Cfg,
    block: BlockIndex,
    hook: HookType,
) -> Result<Choice, Refusal> {
    let alone = Alone::new(image, cfg);
    alone.choice(Ask::Hook(alone.base + block.0, hook))
}

/// Whether one instruction about to run can be a point, and how.
///
/// # Errors
/// The rule that forbids it.
pub fn at_instruction(image: &Image, cfg: &Cfg, at: Addr) -> Result<Choice, Refusal> {
    let alone = Alone::new(image, cfg);
    match alone.outline.number(at).filter(|_| cfg.span.contains(at)) {
        Some(number) => alone.choice(Ask::Instruction(number)),
        None => match &cfg.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Err(Refusal::new(
                Rule::NothingToDisplace,
                at,
                "no instruction of the function begins here",
            )),
        },
    }
}

/// Hooks of one function, each looked at as if there were no other.
pub(super) struct Alone<'a> {
    cfg: &'a Cfg,
    outline: Rc<Outline<'a>>,
    /// The number of its first block in the outline.
    base: BlockNumber,
    neighbours: Neighbours<'a>,
}

impl<'a> Alone<'a> {
    pub(super) fn new(image: &'a Image, cfg: &'a Cfg) -> Self {
        let family = families(image, &[cfg]).into_iter().next();
        let outline = Outline::of(
            image,
            family.map(|family| family.graphs).unwrap_or_default(),
        );
        Self {
            cfg,
            base: outline.base(cfg.function).unwrap_or(0),
            outline: Rc::new(outline),
            neighbours: Neighbours::new(image),
        }
    }

    fn place(&self, asks: &[(usize, Ask)]) -> Solution {
        let mut problem = Problem::new(&self.neighbours, [Rc::clone(&self.outline)], asks);
        problem.solve();
        finish(&mut problem)
    }

    fn choice(&self, ask: Ask) -> Result<Choice, Refusal> {
        let mut placement = self.place(&[(0, ask)]);
        let tactic = placement
            .hooks
            .pop()
            .map(|hook| hook.map(|reached| reached.tactic));
        let cost = Cost::of(&placement);
        tactic.map_or_else(
            || {
                Err(Refusal::new(
                    Rule::NothingToDisplace,
                    self.cfg.span.start,
                    "it was not looked at",
                ))
            },
            |tactic| tactic.map(|tactic| Choice { tactic, cost }),
        )
    }

    /// How every instruction of the function can be a point.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (Addr, Result<Choice, Refusal>)> {
        let own = (0..self.outline.len()).map(|at: Number| (at, self.outline.start(at)));
        own.filter(|&(_, start)| self.cfg.span.contains(start))
            .map(|(at, start)| (start, self.choice(Ask::Instruction(at))))
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
        // Whatever two splices do that need no bounce, one or two do for both.
        if pre.cost.bounces == 0
            && post.cost.bounces == 0
            && pre.tactic < Tactic::Edges
            && post.tactic < Tactic::Edges
        {
            return Some(Ok(()));
        }
        let asks =
            [HookType::Pre, HookType::Post].map(|hook| (0, Ask::Hook(self.base + block.0, hook)));
        let mut hooks = self.place(&asks).hooks.into_iter();
        Some(hooks.try_for_each(|hook| hook.map(|_| ())))
    }
}

/// Sites for all hooks of a session at once: as few splices as do, bounces where they cost least, and
/// the cheapest tactic for each hook that the others leave it. The same on every run.
///
/// Functions that no hook is in are used for room only where their graphs are given, or nothing else is left.
#[must_use]
pub fn place(image: &Image, graphs: &[&Cfg], wanted: &[Wanted]) -> Solution {
    let neighbours = Neighbours::new(image);
    let (outlines, places) = outlines(image, graphs);
    let asks: Vec<(usize, Ask)> = wanted.iter().map(|wanted| ask(&places, wanted)).collect();
    let mut problem = Problem::new(&neighbours, outlines, &asks);
    problem.solve();
    finish(&mut problem)
}

/// The outline that a graph is in, and the number of its first block there.
pub(super) type Place = (usize, BlockNumber);

/// What is asked of which outline.
pub(super) fn ask(places: &[Place], wanted: &Wanted) -> (usize, Ask) {
    let place = places.get(wanted.graph).copied();
    let (part, base) = place.unwrap_or((usize::MAX, 0));
    (part, Ask::Hook(base + wanted.block.0, wanted.hook))
}

/// Functions with their parts, and by graph where it is.
pub(super) fn outlines<'a>(
    image: &'a Image,
    graphs: &[&'a Cfg],
) -> (Vec<Rc<Outline<'a>>>, Vec<Place>) {
    let mut outlines = Vec::new();
    let mut places: Vec<Place> = vec![(usize::MAX, 0); graphs.len()];
    for family in families(image, graphs) {
        let outline = Outline::of(image, family.graphs);
        for index in family.given {
            let base = graphs.get(index).and_then(|cfg| outline.base(cfg.function));
            if let Some(place) = places.get_mut(index) {
                *place = (outlines.len(), base.unwrap_or(0));
            }
        }
        outlines.push(Rc::new(outline));
    }
    (outlines, places)
}
