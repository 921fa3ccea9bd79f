//! What a plan does that a person might take for something else.

use std::collections::BTreeMap;
use std::fmt;

use gilk_instruments::program::Hook;

use super::{Plan, PlannedInstrument, probes};
use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg};
use crate::{Addr, HookType, Image};

/// One thing to know before a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Index of the placement.
    pub placement: usize,
    /// What it is about.
    pub at: Addr,
    /// A sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The notes on a plan, by placement.
///
/// A function that ends by jumping to another one (a tail call) has left before that one runs, and its
/// `return` probes run before the jump: no return address is changed, so nobody knows when the other
/// returns for its sake. Whoever times such a function should know that what it jumps to is not in the time.
#[must_use]
pub fn notes(image: &Image, plan: &Plan) -> Vec<Note> {
    let mut graphs: BTreeMap<u32, Cfg> = BTreeMap::new();
    let mut notes = Vec::new();
    for one in plan.instruments.iter().filter(|one| at_return(one)) {
        let Some(function) = plan.function(one.id.major) else {
            continue;
        };
        let graph = graphs.entry(one.id.major);
        let cfg = graph.or_insert_with(|| Cfg::of(image, function.outline.function));
        let jump = cfg.block(BlockIndex(one.id.block));
        notes.extend(jump.and_then(|jump| note(image, one, &function.name, jump)));
    }
    notes.sort_unstable();
    notes
}

fn at_return(one: &PlannedInstrument) -> bool {
    let probe = one.probe.as_ref().and_then(|probed| probed.probe());
    one.id.hook == HookType::Post && probe.is_some_and(|probe| probe.hook == Hook::Return)
}

fn note(image: &Image, one: &PlannedInstrument, function: &str, jump: &Block) -> Option<Note> {
    let at = Addr(jump.instructions.last()?.ip());
    let to = match jump.end {
        BlockEnd::TailCall => image.symbol_at(probes::target(image, jump)),
        BlockEnd::Indirect => None,
        _ => return None,
    };
    let (to, instead) = to.map_or(
        ("a function that a register names", String::new()),
        |(to, _)| (to, format!("; to have that too, place it on {to}")),
    );
    let text = format!(
        "{} ends where {function} jumps to {to}, at {at}, and not where that returns{instead}",
        one.definition.name
    );
    Some(Note {
        placement: one.placement,
        at,
        text,
    })
}
