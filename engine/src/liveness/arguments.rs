//! Arguments that still are what the caller passed.

use super::RegisterSet;
use super::effect::Effects;
use crate::cfg::{BlockIndex, Cfg};
use crate::ids::Ids;
use crate::isa::abi::ARGUMENTS;
use crate::{Addr, Image};

/// Arguments that still have the value the caller passed, at each point: no instruction on any way
/// from the entry has written a part of the register. Where control comes from elsewhere, and in
/// unreachable code, there are none.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// By address.
    intact: Vec<(Addr, RegisterSet)>,
}

impl Arguments {
    /// Analyses one function.
    #[must_use]
    pub fn of(image: &Image, cfg: &Cfg) -> Self {
        let mut effects = Effects::new(image, cfg.span);
        let steps: Ids<BlockIndex, Vec<(Addr, RegisterSet)>> = cfg
            .blocks
            .iter()
            .map(|block| {
                let written = effects
                    .of_block(block)
                    .into_iter()
                    .map(|effect| effect.writes);
                block
                    .instructions
                    .iter()
                    .map(|instruction| Addr(instruction.ip()))
                    .zip(written)
                    .collect()
            })
            .collect();

        let all = RegisterSet::of(&ARGUMENTS);
        let at_entry = if image[cfg.function].is_part() {
            RegisterSet::EMPTY
        } else {
            all
        };
        // Known to be intact at the start of each block; `None` until a way to it has been found.
        let mut starts: Ids<BlockIndex, Option<RegisterSet>> = cfg
            .blocks
            .iter()
            .map(|block| match block.index.0 {
                0 => Some(at_entry),
                _ => block.entered.then_some(RegisterSet::EMPTY),
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (block, steps) in steps.iter() {
                let Some(start) = starts[block] else {
                    continue;
                };
                let end = steps
                    .iter()
                    .fold(start, |intact, (_, lost)| intact.difference(*lost));
                // The start of a fixup's block is entered from elsewhere, so its edge changes nothing.
                for edge in cfg.successors(block) {
                    let known = &mut starts[edge.to];
                    let met = known.map_or(end, |known| known.intersection(end));
                    if *known != Some(met) {
                        *known = Some(met);
                        changed = true;
                    }
                }
            }
        }

        let mut intact = Vec::new();
        for (block, steps) in steps.iter() {
            let mut now = starts[block].unwrap_or(RegisterSet::EMPTY);
            for (at, lost) in steps {
                intact.push((*at, now));
                now = now.difference(*lost);
            }
        }
        Self { intact }
    }

    /// Argument registers that are intact before the instruction at `at`; none where nothing is known.
    #[must_use]
    pub fn intact(&self, at: Addr) -> RegisterSet {
        let found = self
            .intact
            .binary_search_by_key(&at, |(known, _)| *known)
            .ok()
            .and_then(|index| self.intact.get(index));
        found.map_or(RegisterSet::EMPTY, |(_, intact)| *intact)
    }
}
