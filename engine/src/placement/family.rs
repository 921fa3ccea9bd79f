//! Functions whose code is in several places: a part that GCC moved elsewhere (`.cold`) branches back into
//! its function, so both are placed as one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use iced_x86::Instruction;

use crate::cfg::Cfg;
use crate::code::{Decision, FunctionId};
use crate::{Addr, Image};

/// Graphs that are placed as one.
pub(super) struct Family<'a> {
    pub(super) graphs: Vec<Cow<'a, Cfg>>,
    /// Indices of those that were given.
    pub(super) given: Vec<usize>,
}

/// Groups every function with its parts, whether their graphs are given or not. Each function is in one family: in two,
/// it would have sites that know nothing of each other. A graph that refuses is alone.
pub(super) fn families<'a>(image: &'a Image, graphs: &[&'a Cfg]) -> Vec<Family<'a>> {
    let mut alone: Vec<(usize, &'a Cfg)> = Vec::new();
    let mut by_root: BTreeMap<FunctionId, Vec<(usize, &'a Cfg)>> = BTreeMap::new();
    for (index, &cfg) in graphs.iter().enumerate() {
        if cfg.refusal.is_some() {
            alone.push((index, cfg));
        } else {
            by_root
                .entry(root(image, cfg.function))
                .or_default()
                .push((index, cfg));
        }
    }
    let mut families: Vec<Family<'a>> = Vec::with_capacity(alone.len() + by_root.len());
    families.extend(alone.into_iter().map(|(index, cfg)| Family {
        graphs: vec![Cow::Borrowed(cfg)],
        given: vec![index],
    }));
    for (function, given) in by_root {
        let mut members: Vec<Cow<'a, Cfg>> = Vec::with_capacity(given.len());
        members.extend(given.iter().map(|&(_, cfg)| Cow::Borrowed(cfg)));
        add(image, &mut members, function);
        // Parts have parts of their own.
        let mut next = 0;
        while let Some(member) = members.get(next) {
            for part in parts(image, member) {
                add(image, &mut members, part);
            }
            next += 1;
        }
        members.shrink_to_fit();
        families.push(Family {
            graphs: members,
            given: given.into_iter().map(|(index, _)| index).collect(),
        });
    }
    families
}

/// Adds the graph of a function that is not among the members yet, unless it refuses.
fn add(image: &Image, members: &mut Vec<Cow<'_, Cfg>>, function: FunctionId) {
    if members.iter().all(|cfg| cfg.function != function) {
        let cfg = Cfg::of(image, function);
        if cfg.refusal.is_none() {
            members.push(Cow::Owned(cfg));
        }
    }
}

/// The function that a part is of, or itself. Without names, code that only jumps reach is a part, so that parts may be
/// of parts, in a circle too: then it is the first of the circle.
fn root(image: &Image, function: FunctionId) -> FunctionId {
    let mut visited = vec![function];
    let mut at = function;
    while let Some(whole) = whole(image, at) {
        if let Some(first) = visited.iter().position(|&earlier| earlier == whole) {
            return visited.iter().skip(first).copied().fold(whole, Ord::min);
        }
        visited.push(whole);
        at = whole;
    }
    at
}

/// The function that a part is of; `None` of other functions, and of a part that nothing is known to branch to.
fn whole(image: &Image, part: FunctionId) -> Option<FunctionId> {
    if !image[part].is_part() {
        return None;
    }
    let sources = image.branches_into(image[part].span).iter();
    let from = sources.filter_map(|branch| image.function_at(branch.source));
    from.map(|function| function.id).find(|&id| id != part)
}

/// The target of the branch at the end of a block; of a static key's, that of the key's decision.
pub(crate) fn branch_target(image: &Image, branch: &Instruction) -> Addr {
    match image.decided(Addr(branch.ip())).map(|site| site.by) {
        Some(Decision::StaticKey { target, .. }) => target,
        _ => Addr(branch.near_branch_target()),
    }
}

/// The parts of a function, and of a part.
pub(crate) fn parts(image: &Image, cfg: &Cfg) -> Vec<FunctionId> {
    let mut parts: Vec<FunctionId> = Vec::new();
    for last in cfg
        .blocks
        .iter()
        .filter_map(|block| block.instructions.last())
    {
        let target = branch_target(image, &last);
        if cfg.span.contains(target) || target.0 == 0 {
            continue;
        }
        parts.extend(image.function_at(target).map(|function| function.id));
    }
    parts.sort_unstable();
    parts.dedup();
    parts.retain(|&part| whole(image, part) == Some(cfg.function));
    parts
}
