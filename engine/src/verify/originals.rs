//! The original code around the patches, wherever it is.

use std::collections::BTreeMap;

use super::effects::Mask;
use super::live::Live;
use super::routine::{Decoded, Routine};
use crate::{Addr, Image};

/// The functions that are touched: decoded, with what is live in them.
pub(super) struct Originals<'a> {
    pub(super) image: &'a Image,
    /// By start.
    pub(super) routines: BTreeMap<Addr, (Routine, Live)>,
}

impl Originals<'_> {
    /// The function one of whose bytes is at `at`.
    pub(super) fn around(&self, at: u64) -> Option<&(Routine, Live)> {
        let (_, found) = self.routines.range(..=Addr(at)).next_back()?;
        Some(found).filter(|(routine, _)| routine.span.contains(Addr(at)))
    }

    /// The function at or before `at`, if that is decoded.
    pub(super) fn before(&self, at: u64) -> Option<&(Routine, Live)> {
        let functions = self.image.functions();
        let behind = functions.partition_point(|function| function.span.start.0 <= at);
        let function = functions.get(behind.checked_sub(1)?)?;
        self.routines.get(&function.span.start)
    }

    /// The instruction that begins at `at`.
    pub(super) fn instruction(&self, at: u64) -> Option<(&Routine, &Decoded)> {
        let (routine, _) = self.around(at)?;
        Some((routine, routine.instructions.get(routine.index(at)?)?))
    }

    /// What may be used from `at` on, instruments at that very point not counted.
    pub(super) fn live_behind_hook(&self, at: u64) -> Mask {
        self.around(at)
            .map_or(Mask::ALL, |(routine, live)| live.behind_hook(routine, at))
    }

    /// What may be used where control goes from the instruction at `from` to the text at `to`.
    pub(super) fn live_on(&self, from: u64, to: u64) -> Mask {
        let Some((routine, live)) = self.around(from) else {
            return Mask::ALL;
        };
        if routine.span.contains(Addr(to)) {
            return live.before(routine, to);
        }
        match self.instruction(from) {
            Some((_, decoded)) if decoded.end() != to => decoded.leaves_with,
            _ => Mask::ALL,
        }
    }
}
