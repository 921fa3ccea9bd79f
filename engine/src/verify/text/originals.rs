//! The original code of the functions that a plan touches.

use std::cell::Cell;

use super::decoded::DecodedInsn;
use super::effects::Mask;
use super::liveness::LiveSets;
use super::routine::Routine;
use crate::{Addr, Image};

/// The functions that the plan touches: decoded, with their liveness.
pub(crate) struct OriginalCode<'a> {
    pub(crate) image: &'a Image,
    /// By address.
    routines: Vec<(Routine, LiveSets)>,
    /// Index of the last result, which the next request most often repeats.
    last: Cell<usize>,
}

impl<'a> OriginalCode<'a> {
    /// Takes the functions in order of address.
    pub(crate) fn new(image: &'a Image, routines: Vec<(Routine, LiveSets)>) -> Self {
        Self {
            image,
            routines,
            last: Cell::new(0),
        }
    }

    /// Returns the index of the function that contains `at`.
    fn number(&self, at: u64) -> Option<usize> {
        let around = |number: &usize| {
            let known = self.routines.get(*number);
            known.is_some_and(|(routine, _)| routine.span.contains(Addr(at)))
        };
        let last = self.last.get();
        if around(&last) {
            return Some(last);
        }
        let after = self
            .routines
            .partition_point(|(routine, _)| routine.span.start.0 <= at);
        let found = after.checked_sub(1).filter(around)?;
        self.last.set(found);
        Some(found)
    }

    /// Returns the function that contains `at`.
    pub(crate) fn around(&self, at: u64) -> Option<&(Routine, LiveSets)> {
        self.routines.get(self.number(at)?)
    }

    /// Returns the function at or before `at`, if it is decoded.
    pub(crate) fn before(&self, at: u64) -> Option<&(Routine, LiveSets)> {
        let functions = self.image.functions();
        let after = functions.partition_point(|function| function.span.start.0 <= at);
        let function = functions.get(after.checked_sub(1)?)?;
        let known = self
            .routines
            .binary_search_by_key(&function.span.start, |(routine, _)| routine.span.start);
        self.routines.get(known.ok()?)
    }

    /// Returns the instruction that begins at `at`.
    pub(crate) fn instruction(&self, at: u64) -> Option<(&Routine, &DecodedInsn)> {
        let (routine, _) = self.around(at)?;
        Some((routine, routine.instructions.get(routine.index(at)?)?))
    }

    /// Returns the live set at `at`, excluding the instruments at that very point.
    pub(crate) fn live_after_hook(&self, at: u64) -> Mask {
        self.around(at)
            .map_or(Mask::ALL, |(routine, live)| live.after_hook(routine, at))
    }

    /// Returns the live set on the edge from the instruction at `from` to the text at `to`.
    pub(crate) fn live_on(&self, from: u64, to: u64) -> Mask {
        let Some((routine, live)) = self.around(from) else {
            return Mask::ALL;
        };
        if routine.span.contains(Addr(to)) {
            return live.before(routine, to);
        }
        match self.instruction(from) {
            // A jump to the next function is no fall-through.
            Some((_, decoded)) if decoded.end() != to || !decoded.runs_on => decoded.leaves_with,
            _ => Mask::ALL,
        }
    }
}
