//! Groups of samples at one point: one reading of the clock, and one reservation for the slots of all.
//!
//! Samples of a group follow each other, of one instrument or of several, and sample what is at hand, so that nothing
//! executes between them. An instrument with a predicate has groups of its own: its code may be skipped.

use gilk_instruments::program::ActionKind;

use super::compile::is_sampled_as_it_is;
use super::instrument::Lost;
use super::{HookProgram, Hooked};
use crate::layout::RuntimeLayout;

/// The most samples of a group: with more a retry is beyond a short branch.
pub(super) const MOST: u32 = 4;

/// The samples of the programs at a point.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Number of slots that each sample reserves, in order; 0 if an earlier one has reserved its slot.
    reserved: Vec<u32>,
    /// Samples that have been emitted.
    emitted: usize,
    /// Ways on which the current group is lost.
    lost: Vec<Lost>,
}

impl Groups {
    /// Finds the groups of the programs at a point.
    pub(super) fn of(hooked: &[Hooked<'_>], layout: &RuntimeLayout) -> Self {
        // Each sample has a restartable sequence of its own.
        let most = match layout.sequences() {
            Some(_) => 1,
            None => MOST.min(1 << layout.rings.slots_log2.saturating_sub(2)),
        };
        let mut reserved: Vec<u32> = Vec::new();
        let mut open: Option<usize> = None;
        for hooked in hooked {
            let probe = match hooked.program {
                HookProgram::Probe(probed) => probed.probe(),
                HookProgram::Native(_) | HookProgram::Replaced(_) => None,
            };
            let Some(probe) = probe else {
                open = None;
                continue;
            };
            if probe.predicate.is_some() {
                open = None;
            }
            for action in &probe.actions {
                let ActionKind::Sample(value) = &action.kind else {
                    open = None;
                    continue;
                };
                // A line has a reservation of its own.
                let slots = action.kind.sampled().len();
                if slots != 1 {
                    open = None;
                    reserved.push(u32::try_from(slots).unwrap_or(u32::MAX));
                    continue;
                }
                let joins = is_sampled_as_it_is(value);
                let group = open.and_then(|first| reserved.get_mut(first));
                if let Some(slots) = group.filter(|slots| joins && **slots < most) {
                    *slots += 1;
                    reserved.push(0);
                } else {
                    open = joins.then_some(reserved.len());
                    reserved.push(1);
                }
            }
            if probe.predicate.is_some() {
                open = None;
            }
        }
        Self {
            reserved,
            ..Self::default()
        }
    }

    /// Returns whether any group has two samples or more.
    pub(super) fn any(&self) -> bool {
        self.reserved.contains(&0)
    }

    /// Returns the number of slots that the next sample reserves.
    pub(super) fn next(&mut self) -> Option<u32> {
        let slots = self.reserved.get(self.emitted).copied();
        self.emitted += 1;
        slots
    }

    /// Adds the ways on which the current group is lost.
    pub(super) fn may_lose(&mut self, lost: Vec<Lost>) {
        self.lost.extend(lost);
    }

    /// Returns the ways on which the current group is lost, after its last sample.
    pub(super) fn complete(&mut self) -> Vec<Lost> {
        let goes_on = self.reserved.get(self.emitted) == Some(&0);
        if goes_on {
            Vec::new()
        } else {
            std::mem::take(&mut self.lost)
        }
    }
}
