//! Hooks of the probes of a placement.

use std::collections::BTreeMap;

use gilk_instruments::program::{Checked, Hook, Probe};

use super::exits::{FunctionExit, Leaves, exits};
use super::jumps::{Ends, Jumps};
use super::major::Major;
use super::notes::Note;
use super::numbered::FunctionTable;
use super::probes::is_idle;
use crate::cfg::{BlockEnd, BlockIndex, Cfg};
use crate::code::FunctionId;
use crate::session::Placement;
use crate::{HookType, Image, Refusal, Result, Rule};

/// A hook where a probe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbePlace {
    pub(super) major: Major,
    pub(super) block: BlockIndex,
    pub(super) hook: HookType,
}

/// The functions that a placement has `return` probes of: its own, and those that its probes name.
pub(super) fn returned(
    image: &Image,
    checked: &Checked,
    placement: &Placement,
) -> Result<Vec<FunctionId>> {
    let probes = checked.probes.iter();
    let probes = probes.filter(|probe| probe.hook == Hook::Return);
    let probes = probes.filter(|probe| !is_idle(probe));
    let functions = probes.map(|probe| of_probe(image, probe, placement));
    let mut functions = functions.collect::<Result<Vec<_>>>()?;
    functions.sort_unstable();
    functions.dedup();
    Ok(functions)
}

fn of_probe(image: &Image, probe: &Probe, placement: &Placement) -> Result<FunctionId> {
    let name = probe.function.as_deref().unwrap_or(&placement.function);
    Ok(image.function_named(name)?.id)
}

/// Finds places for the probes of one placement.
pub(super) struct Places<'p> {
    image: &'p Image,
    placement: &'p Placement,
    /// Ends of the calls of each function that it has `return` probes of.
    ends: BTreeMap<FunctionId, std::result::Result<Ends, Refusal>>,
}

impl<'p> Places<'p> {
    /// Those of a placement's program, [followed](Checked::followed) or not.
    ///
    /// # Errors
    /// [`crate::Error::NoFunction`] and [`crate::Error::Ambiguous`] for functions that its probes name.
    pub(super) fn new(
        image: &'p Image,
        placement: &'p Placement,
        checked: &Checked,
        jumps: &mut Jumps<'_>,
    ) -> Result<Self> {
        let functions = returned(image, checked, placement)?.into_iter();
        let ends = functions.map(|function| (function, jumps.ends(function)));
        Ok(Self {
            image,
            placement,
            ends: ends.collect(),
        })
    }

    fn ends(&self) -> impl Iterator<Item = (FunctionId, &Ends)> {
        let ends = self.ends.iter();
        ends.filter_map(|(&id, ends)| Some((id, ends.as_ref().ok()?)))
    }

    /// Returns whether calls are followed by jumps, so that the program has to be [`Checked::followed`].
    pub(super) fn follow(&self) -> bool {
        self.ends().any(|(_, ends)| !ends.jumps.is_empty())
    }

    /// Remarks about the ends of calls that are followed, or are not.
    pub(super) fn notes(&self, index: usize, instrument: &str) -> Vec<Note> {
        let name = |id| &self.image[id].name;
        let mut notes = Vec::new();
        for (id, ends) in self.ends() {
            let mut note = |exit: &FunctionExit, text| {
                notes.push(Note {
                    placement: index,
                    at: exit.at,
                    text,
                });
            };
            if let (Some(first), Some(&next)) = (ends.jumps.first(), ends.functions.first()) {
                let others = match ends.functions.len() - 1 {
                    0 => String::new(),
                    1 => String::from(" and one other function"),
                    more => format!(" and {more} other functions"),
                };
                let (of, into) = (name(id), name(next));
                let text = format!(
                    "{instrument} follows calls of {of} by jumps into {into}{others}: it observes the ends of all their calls"
                );
                note(first, text);
            }
            for jump in &ends.unfollowed {
                let (from, at) = (name(jump.exit.function), jump.exit.at);
                let text = format!(
                    "{instrument} ends where {from} jumps to {}, at {at}, and not where that returns",
                    jump.to
                );
                note(&jump.exit, text);
            }
        }
        notes
    }

    /// The hooks where a probe runs, or the refusal of one.
    ///
    /// # Errors
    /// As [`Places::new`].
    pub(super) fn of(
        &self,
        functions: &mut FunctionTable<'_>,
        probe: &Probe,
    ) -> Result<std::result::Result<Vec<ProbePlace>, Refusal>> {
        let (own, returns) = (self.placement, probe.reads_returned());
        let function = of_probe(self.image, probe, own)?;
        let major = functions.major_of(function);
        let one = |block, hook| {
            Ok(Ok(vec![ProbePlace {
                major,
                block: BlockIndex(block),
                hook,
            }]))
        };
        let ends = || match self.ends.get(&function) {
            Some(Ok(ends)) => Ok(ends),
            Some(Err(refusal)) => Err(refusal.clone()),
            None => Err(no_return(self.image, function)),
        };
        let places = match probe.hook {
            Hook::Hit => return one(own.block, own.hook),
            Hook::Pre => return one(own.block, HookType::Pre),
            Hook::Post => return one(own.block, HookType::Post),
            Hook::Taken => return one(own.block, HookType::Taken),
            Hook::Untaken => return one(own.block, HookType::Untaken),
            Hook::Entry => return one(0, HookType::Pre),
            Hook::Leave => exits(self.image, functions.graph(major)),
            Hook::Return => ends().and_then(|ends| {
                let by_return = |exit: &FunctionExit| exit.by == Leaves::Return;
                if returns && !ends.own.iter().chain(&ends.callees).any(by_return) {
                    return Err(no_return(self.image, function));
                }
                Ok(ends.own.clone())
            }),
            Hook::Onward => ends().map(|ends| ends.jumps.clone()),
            Hook::Back => ends().map(|ends| ends.callees.clone()),
        };
        // The returned value is not known where a jump leaves the function.
        let known = |exit: &FunctionExit| !returns || exit.by == Leaves::Return;
        Ok(places.map(|exits| {
            let exits = exits.into_iter().filter(known);
            let place = |exit: FunctionExit| ProbePlace {
                major: functions.major_of(exit.function),
                block: exit.block,
                hook: HookType::Post,
            };
            exits.map(place).collect()
        }))
    }
}

fn no_return(image: &Image, function: FunctionId) -> Refusal {
    Refusal::new(
        Rule::ReturnUnknown,
        image[function].span.start,
        String::from(
            "it has no return of its own with the returned value, and its jumps cannot be followed",
        ),
    )
}

/// Refuses a probe that reads the returned value anywhere but before a return.
pub(super) fn returned_is_known(cfg: &Cfg, probe: &Probe, place: ProbePlace) -> Option<Refusal> {
    let block = cfg.block(place.block)?;
    let known = place.hook == HookType::Post && block.end == BlockEnd::Return;
    (probe.reads_returned() && !known).then(|| {
        Refusal::new(
            Rule::ReturnUnknown,
            block.span.start,
            String::from("the returned value is known only before a return"),
        )
    })
}
