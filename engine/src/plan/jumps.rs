//! Tail calls: where a function ends by jumping to another one, that one returns to the caller of the first. So
//! the exits of the other are the returns of the call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::exits::{FunctionExit, Leaves, exits};
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::placement::at_hook;
use crate::{Addr, HookType, Image, Refusal};

/// Maximum number of functions that a call is followed into, by one jump after the other or by different jumps.
const MOST_FUNCTIONS: usize = 32;
/// Maximum number of placements whose calls are followed into one function: each observes every call of it.
pub(super) const MOST_PLACEMENTS: usize = 16;

/// The ends of a function's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// Its own exits, except jumps that are followed.
    pub(super) own: Vec<FunctionExit>,
    /// Its own jumps that are followed.
    pub(super) jumps: Vec<FunctionExit>,
    /// Exits of the functions that these jumps target, except jumps that are followed.
    pub(super) callees: Vec<FunctionExit>,
    /// Jumps at which a call is taken to end although another function continues it.
    pub(super) unfollowed: Vec<UnfollowedJump>,
    /// The functions that are jumped to, in the order of discovery.
    pub(super) functions: Vec<FunctionId>,
}

/// A jump that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnfollowedJump {
    pub(super) exit: FunctionExit,
    /// Its target, and the reason why it is not followed.
    pub(super) to: String,
}

/// Follows jumps.
pub(super) struct Jumps<'i> {
    image: &'i Image,
    cache: HashMap<FunctionId, Arc<CalleeSummary>>,
    /// Number of placements whose calls reach a function by jumps.
    placements: BTreeMap<FunctionId, usize>,
}

/// Exits of a function, and whether calls are followed into it.
struct CalleeSummary {
    exits: Result<Vec<FunctionExit>, Refusal>,
    entered: Entered,
}

/// Decision about calls into a function that is jumped to.
enum Entered {
    Yes,
    /// It never returns.
    Never,
    /// The jump cannot be followed, for this reason.
    Not(String),
}

impl<'i> Jumps<'i> {
    pub(super) fn new(image: &'i Image) -> Self {
        Self {
            image,
            cache: HashMap::new(),
            placements: BTreeMap::new(),
        }
    }

    /// Counts a placement that requests the returns of these functions' calls.
    pub(super) fn count(&mut self, functions: impl IntoIterator<Item = FunctionId>) {
        let mut callees = BTreeSet::new();
        for function in functions {
            // A function whose ends are refused is refused again where it is planned.
            if let Ok(ends) = self.ends(function) {
                callees.extend(ends.functions);
            }
        }
        for function in callees {
            *self.placements.entry(function).or_default() += 1;
        }
    }

    /// Finds where the calls of a function end.
    ///
    /// # Errors
    /// As [`exits`].
    pub(super) fn ends(&mut self, origin: FunctionId) -> Result<Ends, Refusal> {
        let mut ends = Ends::default();
        let known = self.summary(origin);
        let mut worklist = vec![(origin, known.exits.clone()?)];
        while let Some((function, exits)) = worklist.pop() {
            for exit in exits {
                let followed = match exit.by {
                    Leaves::Return => Ok(None),
                    Leaves::Unknown => Err(String::from("a function that a register names")),
                    Leaves::Jump(to) => self.callee(origin, to, &ends),
                };
                let is_internal = function == origin;
                let next = followed.unwrap_or_else(|to| {
                    let exit = exit.clone();
                    ends.unfollowed.push(UnfollowedJump { exit, to });
                    None
                });
                match next {
                    Some(next) => {
                        if is_internal {
                            ends.jumps.push(exit);
                        }
                        if !ends.functions.contains(&next) {
                            ends.functions.push(next);
                            worklist.push((next, self.summary(next).exits.clone()?));
                        }
                    }
                    None if is_internal => ends.own.push(exit),
                    None => ends.callees.push(exit),
                }
            }
        }
        Ok(ends)
    }

    /// The function that a jump targets, if a call of `origin` is followed into it: not one that never returns.
    ///
    /// # Errors
    /// The target, and the reason why no call is followed there.
    fn callee(
        &mut self,
        origin: FunctionId,
        to: Addr,
        visited: &Ends,
    ) -> Result<Option<FunctionId>, String> {
        let Some(function) = self.image.function_at(to) else {
            let (name, _) = self
                .image
                .symbol_at(to)
                .filter(|(_, into)| *into == 0)
                .unwrap_or(("no function", 0));
            return Err(format!("{name} (no function begins at {to})"));
        };
        let (id, name) = (function.id, &function.name);
        if function.span.start != to || function.is_part() {
            return Err(format!("the middle of {name}"));
        }
        if id == origin {
            return Err(format!("{name}, which begins again"));
        }
        if visited.functions.contains(&id) {
            return Ok(Some(id));
        }
        let crowd = self.placements.get(&id).copied().unwrap_or_default();
        let why = match &self.summary(id).entered {
            Entered::Never => return Ok(None),
            Entered::Not(why) => why.clone(),
            Entered::Yes if crowd > MOST_PLACEMENTS => {
                format!(
                    "{crowd} placements would observe all its calls, and at most {MOST_PLACEMENTS} may"
                )
            }
            Entered::Yes if visited.functions.len() >= MOST_FUNCTIONS => {
                format!("the call is followed into {MOST_FUNCTIONS} functions already")
            }
            Entered::Yes => return Ok(Some(id)),
        };
        Err(format!("{name} ({why})"))
    }

    fn summary(&mut self, function: FunctionId) -> Arc<CalleeSummary> {
        let image = self.image;
        let new = || Arc::new(CalleeSummary::of(image, &Cfg::of(image, function)));
        Arc::clone(self.cache.entry(function).or_insert_with(new))
    }
}

impl CalleeSummary {
    fn of(image: &Image, cfg: &Cfg) -> Self {
        let exits = exits(image, cfg);
        let entered = match &exits {
            Err(refusal) => Entered::Not(refusal.to_string()),
            Ok(exits) if exits.is_empty() => Entered::Never,
            Ok(_) if image.handles_faults(cfg.function) => {
                Entered::Not(String::from("it is part of how the kernel handles faults"))
            }
            Ok(exits) => {
                let refused = exits.iter().find_map(|exit| closed(image, cfg, exit));
                refused.map_or(Entered::Yes, Entered::Not)
            }
        };
        Self { exits, entered }
    }
}

/// Returns the reason why an exit takes no hook, if it takes none.
fn closed(image: &Image, cfg: &Cfg, exit: &FunctionExit) -> Option<String> {
    let part = (exit.function != cfg.function).then(|| Cfg::of(image, exit.function));
    let cfg = part.as_ref().unwrap_or(cfg);
    let refusal = at_hook(image, cfg, exit.block, HookType::Post).err()?;
    Some(refusal.to_string())
}
