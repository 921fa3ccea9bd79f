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

/// Groups every function with its parts, whether their graphs are given or not. A graph that refuses is alone.
pub(super) fn families<'a>(image: &'a Image, graphs: &[&'a Cfg]) -> Vec<Family<'a>> {
    let mut alone: Vec<(usize, &'a Cfg)> = Vec::new();
    let mut by_root: BTreeMap<FunctionId, Vec<(usize, &'a Cfg)>> = BTreeMap::new();
    for (index, &cfg) in graphs.iter().enumerate() {
        if cfg.refusal.is_some() {
            alone.push((index, cfg));
        } else {
            by_root
                .entry(root(image, cfg))
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
        let root = members.iter().find(|cfg| cfg.function == function);
        for part in root.map(|cfg| parts(image, cfg)).unwrap_or_default() {
            add(image, &mut members, part);
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

/// The function whose part a graph is, or its own.
fn root(image: &Image, cfg: &Cfg) -> FunctionId {
    if !image[cfg.function].is_part() {
        return cfg.function;
    }
    let sources = image.branches_into(cfg.span).iter();
    let from = sources.filter_map(|branch| image.function_at(branch.source));
    let whole = from
        .map(|function| function.id)
        .find(|&id| id != cfg.function);
    whole.unwrap_or(cfg.function)
}

/// The target of the branch at the end of a block; of a static key's, that of the key's decision.
pub(crate) fn branch_target(image: &Image, branch: &Instruction) -> Addr {
    match image.decided(Addr(branch.ip())).map(|site| site.by) {
        Some(Decision::StaticKey { target, .. }) => target,
        _ => Addr(branch.near_branch_target()),
    }
}

/// The parts that only this function branches to.
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
        let sources = image.branches_into(image[part].span).iter();
        let mut from = sources.filter_map(|branch| image.function_at(branch.source));
        from.find(|function| function.id != part)
            .is_some_and(|function| function.id == cfg.function)
    });
    parts
}
