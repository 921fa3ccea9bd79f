//! Functions whose code stands in several places: what GCC took out of the way (`.cold`) branches back
//! into its function, so both are looked at as one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use iced_x86::Instruction;

use crate::cfg::Cfg;
use crate::code::{Decision, Function, FunctionId};
use crate::{Addr, Image};

/// Graphs that are looked at as one, and which of those given they are.
pub(super) struct Family<'a> {
    pub(super) graphs: Vec<Cow<'a, Cfg>>,
    /// By index of the graph given.
    pub(super) given: Vec<usize>,
}

/// Puts every function together with its parts, whether their graphs are given or not. A graph that
/// refuses stands alone.
pub(super) fn families<'a>(image: &'a Image, graphs: &[&'a Cfg]) -> Vec<Family<'a>> {
    let mut alone: Vec<usize> = Vec::new();
    let mut by_root: BTreeMap<FunctionId, Vec<usize>> = BTreeMap::new();
    for (index, cfg) in graphs.iter().enumerate() {
        if cfg.refusal.is_some() {
            alone.push(index);
        } else {
            by_root.entry(root(image, cfg)).or_default().push(index);
        }
    }
    let mut families: Vec<Family<'a>> = Vec::with_capacity(alone.len() + by_root.len());
    families.extend(alone.into_iter().map(|index| {
        Family {
            graphs: graphs
                .get(index)
                .copied()
                .map(Cow::Borrowed)
                .into_iter()
                .collect(),
            given: vec![index],
        }
    }));
    for (function, given) in by_root {
        let mut members: Vec<Cow<'a, Cfg>> = Vec::with_capacity(given.len());
        members.extend(
            (given.iter()).filter_map(|&index| graphs.get(index).copied().map(Cow::Borrowed)),
        );
        add(image, &mut members, function);
        let root = members.iter().find(|cfg| cfg.function == function);
        for part in root.map(|cfg| parts(image, cfg)).unwrap_or_default() {
            add(image, &mut members, part);
        }
        members.shrink_to_fit();
        families.push(Family {
            graphs: members,
            given,
        });
    }
    families
}

/// Adds the graph of a function that is not there yet, unless it refuses.
fn add(image: &Image, members: &mut Vec<Cow<'_, Cfg>>, function: FunctionId) {
    if members.iter().all(|cfg| cfg.function != function) {
        let cfg = Cfg::of(image, function);
        if cfg.refusal.is_none() {
            members.push(Cow::Owned(cfg));
        }
    }
}

/// The function that a graph is a part of, or its own.
fn root(image: &Image, cfg: &Cfg) -> FunctionId {
    if !image.function(cfg.function).is_some_and(Function::is_part) {
        return cfg.function;
    }
    let sources = image.branches_into(cfg.span).iter();
    let from = sources.filter_map(|branch| image.function_at(branch.source));
    let whole = from
        .map(|function| function.id)
        .find(|&id| id != cfg.function);
    whole.unwrap_or(cfg.function)
}

/// Where the branch at the end of a block leads; that of a static key where the key sends it.
pub(crate) fn branch_target(image: &Image, branch: &Instruction) -> Addr {
    match image.decided(Addr(branch.ip())).map(|site| site.by) {
        Some(Decision::StaticKey { target, .. }) => target,
        _ => Addr(branch.near_branch_target()),
    }
}

/// The parts that a function branches to.
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
        let part = (image.function_at(target)).filter(|function| function.is_part());
        parts.extend(part.map(|function| function.id));
    }
    parts.sort_unstable();
    parts.dedup();
    parts.retain(|&part| {
        let span = image.function(part).map(|function| function.span);
        let sources = span
            .map(|span| image.branches_into(span))
            .unwrap_or_default();
        let mut from = sources
            .iter()
            .filter_map(|branch| image.function_at(branch.source));
        from.find(|function| function.id != part)
            .is_some_and(|function| function.id == cfg.function)
    });
    parts
}
