//! Calls that a function passes on: where it ends by jumping to another one (a tail call), that one returns to
//! who called the first. So the exits of the other are where the call comes back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::exits::{Exit, Leaves, exits};
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::placement::at_hook;
use crate::{Addr, HookType, Image, Refusal};

/// Functions that a call is followed into, one behind the other or by different jumps.
const MOST_FUNCTIONS: usize = 32;
/// Placements whose calls are followed into one function: each looks at every call of it.
pub(super) const MOST_PLACEMENTS: usize = 16;

/// Where the calls of a function end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// Its own exits, but for jumps that are followed.
    pub(super) own: Vec<Exit>,
    /// Its own jumps that are followed.
    pub(super) jumps: Vec<Exit>,
    /// Exits of the functions behind these, but for jumps that are followed.
    pub(super) behind: Vec<Exit>,
    /// Where a call is taken to end though another function goes on with it.
    pub(super) short: Vec<Short>,
    /// The functions behind the jumps, in the order in which they were come to.
    pub(super) functions: Vec<FunctionId>,
}

/// A jump that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) exit: Exit,
    /// What it leads to, and why it is not followed.
    pub(super) to: String,
}

/// Follows jumps.
pub(super) struct Jumps<'i> {
    image: &'i Image,
    known: HashMap<FunctionId, Arc<Known>>,
    /// How many placements come to a function by jumps.
    placements: BTreeMap<FunctionId, usize>,
}

/// What is known of a function.
struct Known {
    exits: Result<Vec<Exit>, Refusal>,
    entered: Entered,
}

/// Whether calls are followed into a function that is jumped to.
enum Entered {
    Yes,
    /// It never returns.
    Never,
    /// For this reason.
    Not(String),
}

impl<'i> Jumps<'i> {
    pub(super) fn new(image: &'i Image) -> Self {
        Self {
            image,
            known: HashMap::new(),
            placements: BTreeMap::new(),
        }
    }

    /// Notes that a placement asks where the calls of these functions return.
    pub(super) fn asked(&mut self, functions: impl IntoIterator<Item = FunctionId>) {
        let mut behind = BTreeSet::new();
        for function in functions {
            behind.extend(
                self.ends(function)
                    .map(|ends| ends.functions)
                    .unwrap_or_default(),
            );
        }
        for function in behind {
            *self.placements.entry(function).or_default() += 1;
        }
    }

    /// Where the calls of a function end.
    ///
    /// # Errors
    /// As [`exits`].
    pub(super) fn ends(&mut self, origin: FunctionId) -> Result<Ends, Refusal> {
        let mut ends = Ends::default();
        let known = self.known(origin);
        let mut left = vec![(origin, known.exits.clone()?)];
        while let Some((function, exits)) = left.pop() {
            for exit in exits {
                let followed = match exit.by {
                    Leaves::Return => Ok(None),
                    Leaves::Unknown => Err(String::from("a function that a register names")),
                    Leaves::Jump(to) => self.behind(origin, to, &ends),
                };
                let own = function == origin;
                let next = followed.unwrap_or_else(|to| {
                    let exit = exit.clone();
                    ends.short.push(Short { exit, to });
                    None
                });
                match next {
                    Some(next) => {
                        if own {
                            ends.jumps.push(exit);
                        }
                        if !ends.functions.contains(&next) {
                            ends.functions.push(next);
                            left.push((next, self.known(next).exits.clone()?));
                        }
                    }
                    None if own => ends.own.push(exit),
                    None => ends.behind.push(exit),
                }
            }
        }
        Ok(ends)
    }

    /// The function at the end of a jump, if a call of `origin` is followed into it: not one that never returns.
    ///
    /// # Errors
    /// What it leads to, and why no call is followed there.
    fn behind(
        &mut self,
        origin: FunctionId,
        to: Addr,
        so_far: &Ends,
    ) -> Result<Option<FunctionId>, String> {
        let Some(function) = self.image.function_at(to) else {
            let (name, _) = { self.image.symbol_at(to) }
                .filter(|(_, into)| *into == 0)
                .unwrap_or(("no function", 0));
            return Err(format!("{name} (of {to} no text is known)"));
        };
        let (id, name) = (function.id, &function.name);
        if function.span.start != to || function.is_part() {
            return Err(format!("the midst of {name}"));
        }
        if id == origin {
            return Err(format!("{name}, which begins anew"));
        }
        if so_far.functions.contains(&id) {
            return Ok(Some(id));
        }
        let crowd = self.placements.get(&id).copied().unwrap_or_default();
        let why = match &self.known(id).entered {
            Entered::Never => return Ok(None),
            Entered::Not(why) => why.clone(),
            Entered::Yes if crowd > MOST_PLACEMENTS => {
                format!("{crowd} placements would look at all its calls, and {MOST_PLACEMENTS} may")
            }
            Entered::Yes if so_far.functions.len() >= MOST_FUNCTIONS => {
                format!("the call is followed into {MOST_FUNCTIONS} functions already")
            }
            Entered::Yes => return Ok(Some(id)),
        };
        Err(format!("{name} ({why})"))
    }

    fn known(&mut self, function: FunctionId) -> Arc<Known> {
        let image = self.image;
        let new = || Arc::new(Known::of(image, &Cfg::of(image, function)));
        Arc::clone(self.known.entry(function).or_insert_with(new))
    }
}

impl Known {
    fn of(image: &Image, cfg: &Cfg) -> Self {
        let exits = exits(image, cfg);
        let entered = match &exits {
            Err(refusal) => Entered::Not(refusal.to_string()),
            Ok(exits) if exits.is_empty() => Entered::Never,
            Ok(_) if image.handles_faults(cfg.function) => {
                Entered::Not(String::from("it is part of how the kernel handles faults"))
            }
            Ok(exits) => { exits.iter().find_map(|exit| closed(image, cfg, exit)) }
                .map_or(Entered::Yes, Entered::Not),
        };
        Self { exits, entered }
    }
}

/// Why an exit takes no hook, if it takes none.
fn closed(image: &Image, cfg: &Cfg, exit: &Exit) -> Option<String> {
    let part = (exit.function != cfg.function).then(|| Cfg::of(image, exit.function));
    let cfg = part.as_ref().unwrap_or(cfg);
    let refusal = at_hook(image, cfg, exit.block, HookType::Post).err()?;
    Some(refusal.to_string())
}
