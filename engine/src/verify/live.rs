//! What the original code may still use at a point: this reader's own liveness, by instruction.
//!
//! Everything that is not understood uses everything. Argument instruments use their register too:
//! one hook must not spoil what another samples further on.

use std::collections::{BTreeSet, HashMap};

use super::effects::Mask;
use super::routine::{Decoded, Routine};

/// What argument instruments use: before an instruction, or behind one on some way.
#[derive(Clone, Debug, Default)]
pub(super) struct SampledAt {
    pub(super) before: HashMap<u64, Mask>,
    pub(super) behind: HashMap<u64, Mask>,
}

/// Live sets of one function.
#[derive(Clone, Debug)]
pub(super) struct Live {
    before: Vec<Mask>,
    /// The same, instruments at that very point not counted.
    behind_hook: Vec<Mask>,
}

impl Live {
    /// Backward over the function until nothing changes. `sampled` gives what argument instruments
    /// use at their hooks.
    pub(super) fn of(routine: &Routine, sampled: &SampledAt) -> Self {
        let count = routine.instructions.len();
        let mut before = vec![Mask::NONE; count];
        let mut behind_hook = vec![Mask::NONE; count];
        let targets: Vec<Vec<Option<usize>>> = routine
            .instructions
            .iter()
            .map(|decoded| {
                decoded
                    .leads_to
                    .iter()
                    .map(|&target| routine.index(target))
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
                    // A branch into the middle of an instruction: nothing is known there.
                    after = after.union(
                        target
                            .and_then(|target| before.get(target).copied())
                            .unwrap_or(Mask::ALL),
                    );
                }
                let hooks = |hooks: &HashMap<u64, Mask>| {
                    hooks.get(&decoded.at()).copied().unwrap_or_default()
                };
                after = after.union(hooks(&sampled.behind));
                let unhooked = after.without(decoded.kills).union(decoded.reads);
                let now = unhooked.union(hooks(&sampled.before));
                if let (Some(known), Some(own)) =
                    (before.get_mut(index), behind_hook.get_mut(index))
                {
                    changed |= *known != now;
                    (*known, *own) = (now, unhooked);
                }
                next = now;
            }
            if !changed {
                return Self {
                    before,
                    behind_hook,
                };
            }
        }
    }

    /// What may be used from an address on, instruments at that very point too.
    pub(super) fn before(&self, routine: &Routine, at: u64) -> Mask {
        routine
            .index(at)
            .and_then(|index| self.before.get(index).copied())
            .unwrap_or(Mask::ALL)
    }

    /// What may be used from an address on, instruments at that very point not counted.
    pub(super) fn behind_hook(&self, routine: &Routine, at: u64) -> Mask {
        routine
            .index(at)
            .and_then(|index| self.behind_hook.get(index).copied())
            .unwrap_or(Mask::ALL)
    }
}

/// Whether `register` has the value the caller passed, whichever way control came from the
/// function's entry to `point`: every instruction on any such way leaves it alone.
pub(super) fn is_intact(routine: &Routine, point: u64, register: Mask) -> bool {
    let Some(goal) = routine.index(point) else {
        return false;
    };
    if routine.strays {
        return false;
    }
    let mut ways_in: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, decoded) in routine.instructions.iter().enumerate() {
        if decoded.runs_on {
            ways_in.entry(index + 1).or_default().push(index);
        }
        for target in decoded
            .leads_to
            .iter()
            .filter_map(|&target| routine.index(target))
        {
            ways_in.entry(target).or_default().push(index);
        }
    }
    let from_entry = reached_from_entry(routine);
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut to_see = vec![goal];
    while let Some(index) = to_see.pop() {
        let Some(here) = routine.instructions.get(index) else {
            return false;
        };
        if !seen.insert(index) {
            continue;
        }
        if routine.entered.contains(&here.at()) {
            return false;
        }
        for &from in ways_in
            .get(&index)
            .into_iter()
            .flatten()
            .filter(|from| from_entry.contains(from))
        {
            let changes = routine
                .instructions
                .get(from)
                .map_or(Mask::ALL, |decoded: &Decoded| decoded.changes);
            if changes.0 & register.0 != 0 {
                return false;
            }
            to_see.push(from);
        }
    }
    true
}

fn reached_from_entry(routine: &Routine) -> BTreeSet<usize> {
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut to_see: Vec<usize> = vec![0];
    to_see.extend(routine.entered.iter().filter_map(|&at| routine.index(at)));
    while let Some(index) = to_see.pop() {
        let Some(decoded) = routine.instructions.get(index) else {
            continue;
        };
        if !seen.insert(index) {
            continue;
        }
        if decoded.runs_on {
            to_see.push(index + 1);
        }
        to_see.extend(
            decoded
                .leads_to
                .iter()
                .filter_map(|&target| routine.index(target)),
        );
    }
    seen
}
