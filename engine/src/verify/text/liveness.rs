//! Liveness of the original code by instruction, independent of the planner's.
//!
//! Everything that is not understood is live. Instruments read registers too, so that one hook does
//! not clobber what a later one samples.

use super::effects::Mask;
use super::routine::Routine;
use crate::Addr;
use crate::verify::hash::Map;

/// Registers that instruments read: before an instruction, or after one on some path.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampledAt {
    pub(crate) before: Map<u64, Mask>,
    pub(crate) after: Map<u64, Mask>,
}

/// Live sets of one function.
#[derive(Clone, Debug)]
pub(crate) struct LiveSets {
    before: Vec<Mask>,
    /// Live sets that exclude the instruments at that very point.
    after_hook: Vec<Mask>,
}

impl LiveSets {
    /// Iterates backward over the function to a fixpoint. `sampled` has the registers that
    /// instruments read at their hooks.
    pub(crate) fn of(routine: &Routine, sampled: &SampledAt) -> Self {
        let count = routine.instructions.len();
        let mut before = vec![Mask::NONE; count];
        let mut after_hook = vec![Mask::NONE; count];
        let targets: Vec<Vec<Option<usize>>> = routine
            .instructions
            .iter()
            .map(|decoded| {
                decoded
                    .leads_to
                    .iter()
                    .map(|&target| routine.executed_from(target))
                    .collect()
            })
            .collect();
        loop {
            let mut changed = false;
            let mut next = Mask::ALL;
            for (index, decoded) in routine.instructions.iter().enumerate().rev() {
                let mut after = decoded.leaves_with;
                if decoded.runs_on {
                    after = after.union(next);
                }
                for target in targets.get(index).into_iter().flatten() {
                    // A branch into the middle of an instruction: everything is live there.
                    after = after.union(
                        target
                            .and_then(|target| before.get(target).copied())
                            .unwrap_or(Mask::ALL),
                    );
                }
                let hooks =
                    |hooks: &Map<u64, Mask>| hooks.get(&decoded.at()).copied().unwrap_or_default();
                after = after.union(hooks(&sampled.after));
                let unhooked = after.without(decoded.kills).union(decoded.reads);
                let now = unhooked.union(hooks(&sampled.before));
                let (known, after) = (before.get_mut(index), after_hook.get_mut(index));
                let (Some(known), Some(after)) = (known, after) else {
                    // Both have an entry for each instruction: without one nothing is dead.
                    debug_assert!(false, "instruction {index} of {count}");
                    return Self {
                        before: Vec::new(),
                        after_hook: Vec::new(),
                    };
                };
                changed |= *known != now;
                (*known, *after) = (now, unhooked);
                next = now;
            }
            if !changed {
                return Self { before, after_hook };
            }
        }
    }

    /// Returns the live set before an address, including the instruments at that very point.
    pub(crate) fn before(&self, routine: &Routine, at: u64) -> Mask {
        routine
            .executed_from(at)
            .and_then(|index| self.before.get(index).copied())
            .unwrap_or(Mask::ALL)
    }

    /// Returns the live set before an address, excluding the instruments at that very point.
    pub(crate) fn after_hook(&self, routine: &Routine, at: u64) -> Mask {
        routine
            .index(at)
            .and_then(|index| self.after_hook.get(index).copied())
            .unwrap_or(Mask::ALL)
    }
}

/// Registers that may have changed since the function's entry, of the function of the last request.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    of: Option<Addr>,
    before: Vec<Mask>,
}

impl Changed {
    /// Returns the registers that may not have the value that the caller passed, on some path from
    /// the function's entry to the instruction at `at`.
    pub(crate) fn before(&mut self, routine: &Routine, at: u64) -> Mask {
        if self.of != Some(routine.span.start) {
            self.of = Some(routine.span.start);
            self.before = changed(routine);
        }
        routine
            .index(at)
            .filter(|_| !routine.strays)
            .and_then(|index| self.before.get(index).copied())
            .unwrap_or(Mask::ALL)
    }
}

/// Iterates forward over the function to a fixpoint. All registers are changed where other code
/// enters it.
fn changed(routine: &Routine) -> Vec<Mask> {
    let mut before: Vec<Option<Mask>> = vec![None; routine.instructions.len()];
    let entered = routine.entered.iter().filter_map(|&at| routine.index(at));
    let mut ways: Vec<(usize, Mask)> = entered.map(|index| (index, Mask::ALL)).collect();
    ways.push((0, Mask::NONE));
    while let Some((index, with)) = ways.pop() {
        let (Some(live), Some(decoded)) = (before.get_mut(index), routine.instructions.get(index))
        else {
            // Control falls off the end of the function.
            continue;
        };
        let all = live.unwrap_or_default().union(with);
        if *live == Some(all) {
            continue;
        }
        *live = Some(all);
        let after = all.union(decoded.changes);
        ways.extend(decoded.runs_on.then_some((index + 1, after)));
        let targets = decoded.leads_to.iter();
        ways.extend(targets.filter_map(|&to| Some((routine.executed_from(to)?, after))));
    }
    // Of an instruction that nothing reaches nothing is known.
    let known = before.into_iter();
    known.map(|known| known.unwrap_or(Mask::ALL)).collect()
}
