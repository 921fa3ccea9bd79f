//! Refusals of replacements of functions: what a replacement may stand for.

use std::collections::BTreeSet;

use iced_x86::OpKind;

use super::functions::Functions;
use super::major::Major;
use super::model::PlannedInstrument;
use super::refusals::Refusals;
use crate::cfg::{BlockEnd, BlockIndex, Cfg};
use crate::code::{Contract, Function, FunctionId};
use crate::layout::RuntimeLayout;
use crate::{Addr, HookType, Image, Refusal, Rule};

/// The most functions that are looked at for a call of unknown code.
const MOST_FUNCTIONS: usize = 256;

/// Collects the refusals of instruments that replace functions.
pub(super) fn check(
    image: &Image,
    functions: &Functions<'_>,
    instruments: &[PlannedInstrument],
    layout: &RuntimeLayout,
    refusals: &Refusals,
) {
    for instrument in instruments {
        let native = instrument.definition.native();
        let Some(native) = native.filter(|native| native.replaces) else {
            continue;
        };
        let cfg = &functions.analysed(Major::of(instrument.id)).cfg;
        let why = match layout.replacement(native) {
            None => Some(
                "functions are replaced in processes, once the object file is opened there (--native, or native instruments \
                 in the window)",
            ),
            Some(_) => misplaced(image, cfg, instrument),
        };
        if let Some(why) = why {
            let refusal = Refusal::new(Rule::NotReplaceable, cfg.span.start, why);
            refusals.add(instrument.placement, refusal);
        }
    }
}

/// Returns the reason why a function cannot be replaced there.
fn misplaced(image: &Image, cfg: &Cfg, one: &PlannedInstrument) -> Option<&'static str> {
    let entry = BlockIndex(0);
    if one.id.hook != HookType::Pre || one.id.block != entry.0 {
        return Some("a function is replaced before its first block");
    }
    if cfg.edges.iter().any(|edge| edge.to == entry) {
        return Some("a branch of the function itself targets its entry, as a call does");
    }
    let function = &image[cfg.function];
    match function.contract {
        Contract::Believed => None,
        Contract::Read if calls_unknown_code(image, function) => None,
        Contract::Read => Some(
            "functions of the same file call it, and may rely on registers that it leaves alone (GCC's -fipa-ra), since \
             neither it nor what it calls calls code of another file",
        ),
        Contract::Unknown => Some("it is a part of a function, or keeps a convention of its own"),
    }
}

/// Returns whether a function, or one that it calls or ends with, calls code that a compiler cannot have seen: through a
/// pointer, or of another object. Its callers then rely on the calling convention alone (GCC's
/// `collect_fn_hard_reg_usage` adds the clobbered registers of all calls).
fn calls_unknown_code(image: &Image, function: &Function) -> bool {
    let mut worklist = vec![function.id];
    let mut visited: BTreeSet<FunctionId> = worklist.iter().copied().collect();
    while let Some(id) = worklist.pop() {
        let cfg = Cfg::of(image, id);
        for block in cfg.blocks.iter() {
            let calls = block.instructions.iter();
            let calls = calls.filter(|one| one.is_call_near() || one.is_call_near_indirect());
            let ends = matches!(block.end, BlockEnd::Jump | BlockEnd::Conditional)
                .then(|| block.last())
                .filter(|last| last.op0_kind() == OpKind::NearBranch64)
                .filter(|last| !cfg.span.contains(Addr(last.near_branch_target())));
            for branch in calls.chain(ends) {
                if branch.op0_kind() != OpKind::NearBranch64 {
                    return true;
                }
                let to = Addr(branch.near_branch_target());
                // Code that is in no function says nothing.
                let Some(callee) = image.function_at(to) else {
                    continue;
                };
                if callee.contract == Contract::Believed {
                    return true;
                }
                if visited.len() < MOST_FUNCTIONS && visited.insert(callee.id) {
                    worklist.push(callee.id);
                }
            }
        }
    }
    false
}
