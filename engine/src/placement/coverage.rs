//! Coverage of a kernel: hooks counted by tactic and by rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::options::Alone;
use super::options::BlockOptions;
use super::solution::{Solution, Wanted};
use super::tactic::{Tactic, Tactics};
use crate::cfg::{Block, BlockEnd, Cfg};
use crate::{HookType, Image, Refusal, Rule};

/// Points of one kind, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Points that are reached, by the most expensive tactic that each requires.
    pub by_tactic: BTreeMap<Tactic, u64>,
    /// Points that are refused.
    pub by_rule: BTreeMap<Rule, u64>,
}

impl Counts {
    /// Counts a point.
    pub fn add(&mut self, point: Result<Tactic, &Refusal>) {
        match point {
            Ok(tactic) => *self.by_tactic.entry(tactic).or_default() += 1,
            Err(refusal) => *self.by_rule.entry(refusal.rule).or_default() += 1,
        }
    }

    /// Adds the counts of other points.
    pub fn merge(&mut self, other: &Self) {
        for (&tactic, count) in &other.by_tactic {
            *self.by_tactic.entry(tactic).or_default() += count;
        }
        for (&rule, count) in &other.by_rule {
            *self.by_rule.entry(rule).or_default() += count;
        }
    }

    /// Number of points that are reached.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.by_tactic.values().sum()
    }

    /// Number of points, reached or refused.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.reached() + self.by_rule.values().sum::<u64>()
    }
}

/// Functions that are refused as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Number of functions.
    pub functions: u64,
    /// Bytes of the functions.
    pub bytes: u64,
}

/// The coverage of functions, each point as if it were alone in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Number of functions that are not refused as a whole.
    pub functions: u64,
    /// Bytes of all functions, with those that are.
    pub bytes: u64,
    /// Functions that are, by rule; in no other total.
    pub refused: BTreeMap<Rule, Refused>,
    /// Number of trampolines of static calls: eight bytes that the kernel rewrites as a whole; in no other total.
    pub trampolines: u64,
    /// Number of unreachable blocks; in no total below.
    pub unreachable: u64,
    /// Pre-hooks of reachable blocks.
    pub pre: Counts,
    /// Post-hooks of reachable blocks.
    pub post: Counts,
    /// Points before each instruction of a reachable block.
    pub instructions: Counts,
}

impl Coverage {
    /// Adds the coverage of other functions.
    pub fn merge(&mut self, other: &Self) {
        self.functions += other.functions;
        self.bytes += other.bytes;
        for (&rule, refused) in &other.refused {
            let sum = self.refused.entry(rule).or_default();
            sum.functions += refused.functions;
            sum.bytes += refused.bytes;
        }
        self.trampolines += other.trampolines;
        self.unreachable += other.unreachable;
        self.pre.merge(&other.pre);
        self.post.merge(&other.post);
        self.instructions.merge(&other.instructions);
    }
}

/// Returns whether the function is the trampoline of a static call: not code of its own, but the place of
/// a jump that the kernel rewrites (`__static_call_transform` of arch/x86/kernel/static_call.c).
#[must_use]
pub fn is_trampoline(cfg: &Cfg) -> bool {
    cfg.name.starts_with("__SCT__")
}

/// Returns whether control can reach the block.
#[must_use]
pub fn reachable(image: &Image, cfg: &Cfg, block: &Block) -> bool {
    block.index.0 == 0
        || block.open
        || block.entered
        || cfg.predecessors(block.index).next().is_some()
        || !image
            .branches_into(crate::Span::new(block.span.start, 1))
            .is_empty()
}

/// Returns the coverage of one function, given its [`options`](super::options()).
#[must_use]
pub fn of_function(image: &Image, cfg: &Cfg, options: &[BlockOptions]) -> Coverage {
    of_function_with(image, Tactics::ALL, cfg, options)
}

/// As [`of_function`], given its [`options_with`](super::options_with) some tactics.
#[must_use]
pub fn of_function_with(
    image: &Image,
    tactics: Tactics,
    cfg: &Cfg,
    options: &[BlockOptions],
) -> Coverage {
    let mut coverage = Coverage {
        bytes: cfg.span.len(),
        ..Coverage::default()
    };
    if let Some(refusal) = &cfg.refusal {
        let refused = coverage.refused.entry(refusal.rule).or_default();
        refused.functions += 1;
        refused.bytes += cfg.span.len();
        return coverage;
    }
    if is_trampoline(cfg) {
        coverage.trampolines = 1;
        return coverage;
    }
    coverage.functions = 1;
    let mut counted = Vec::with_capacity(cfg.blocks.len());
    for (block, options) in cfg.blocks.iter().zip(options) {
        let reachable = reachable(image, cfg, block);
        counted.push(reachable);
        if reachable {
            coverage
                .pre
                .add(options.pre.as_ref().map(|choice| choice.tactic));
            coverage
                .post
                .add(options.post.as_ref().map(|choice| choice.tactic));
        } else {
            coverage.unreachable += 1;
        }
    }
    let alone = Alone::new(image, tactics, cfg);
    for (at, choice) in alone.instructions() {
        let block = cfg.block_at(at).map_or(0, |block| block.index.0 as usize);
        if counted.get(block) == Some(&true) {
            coverage
                .instructions
                .add(choice.as_ref().map(|choice| choice.tactic));
        }
    }
    coverage
}

/// Returns the pre-hook and post-hook of every reachable block of a graph, in order.
#[must_use]
pub fn wanted(graph: usize, image: &Image, cfg: &Cfg) -> Vec<Wanted> {
    if cfg.refusal.is_some() || is_trampoline(cfg) {
        return Vec::new();
    }
    let blocks = cfg
        .blocks
        .iter()
        .filter(|block| reachable(image, cfg, block));
    let hooks = |block: &Block| {
        let block = block.index;
        [HookType::Pre, HookType::Post].map(|hook| Wanted { graph, block, hook })
    };
    blocks.flat_map(hooks).collect()
}

/// Returns both ways of every reachable block that ends with a conditional branch, in order.
#[must_use]
pub fn ways_out(graph: usize, image: &Image, cfg: &Cfg) -> Vec<Wanted> {
    let mut all = wanted(graph, image, cfg);
    all.retain(|hook| {
        let end = cfg.block(hook.block).map(|block| block.end);
        hook.hook == HookType::Pre && end == Some(BlockEnd::Conditional)
    });
    let ways =
        |wanted: Wanted| [HookType::Taken, HookType::Untaken].map(|hook| Wanted { hook, ..wanted });
    all.into_iter().flat_map(ways).collect()
}

/// Returns the pre-hooks and post-hooks of a solution, counted.
#[must_use]
pub fn of_solution(wanted: &[Wanted], solution: &Solution) -> (Counts, Counts) {
    let (mut pre, mut post) = (Counts::default(), Counts::default());
    for (wanted, hook) in wanted.iter().zip(&solution.hooks) {
        let counts = match wanted.hook {
            HookType::Pre => &mut pre,
            HookType::Post => &mut post,
            HookType::Taken | HookType::Untaken => continue,
        };
        counts.add(hook.as_ref().map(|reached| reached.tactic));
    }
    (pre, post)
}
