//! The words of a plan's instruments in a process: those of all CPUs, in a file that outlives it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gilk_engine::layout::{CounterSlot, RuntimeLayout, Sequences};
use gilk_engine::{Addr, Plan};

use super::refused;
use super::reserved::{Reserved, rows};
use super::stacks::{Callers, NumberedStacks, StackReports};
use crate::Result;
use crate::writes;

/// The places of words, with their keys.
#[derive(Clone, Debug)]
pub(super) struct PlannedWords {
    pub(super) layout: RuntimeLayout,
    pub(super) sequences: Sequences,
    slots: Vec<(u64, CounterSlot)>,
    /// Ways to find callers, if the plan numbers stacks.
    callers: Option<Arc<Callers>>,
}

impl PlannedWords {
    /// The words of a plan.
    pub(super) fn of(plan: &Plan, reserved: &Reserved) -> Self {
        Self {
            layout: reserved.layout.clone(),
            sequences: reserved.sequences,
            slots: slots(plan),
            callers: reserved.callers.clone(),
        }
    }

    /// Writes the tables of stacks to the file of the words, which is mapped at an address; returns their reader. There is
    /// none if the plan numbers no stacks.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the file cannot be written.
    pub(super) fn write_callers(
        &self,
        pid: u32,
        file: &File,
        start: Addr,
    ) -> Result<NumberedStacks> {
        let Some((callers, tables)) = self.callers.as_ref().zip(self.layout.stack_tables) else {
            return Ok(NumberedStacks::default());
        };
        let offset = start.to(tables.start).cast_unsigned();
        let callers = Callers::clone(callers).of_process(pid);
        let file = file.try_clone();
        let reports = file.and_then(|file| StackReports::new(callers, file, offset));
        reports.map(NumberedStacks::of).map_err(|error| {
            let why = format!("its tables of stacks cannot be written ({error})");
            refused(pid, why)
        })
    }

    /// The sums over all CPUs, by key, of words whose file is mapped at an address.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the file cannot be read.
    pub(super) fn counts(&self, pid: u32, file: &File, start: Addr) -> Result<Vec<(u64, u64)>> {
        let mut bytes = vec![0; usize::try_from(rows(self.sequences)).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, 0);
        read.map_err(|error| refused(pid, format!("its counters cannot be read ({error})")))?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: u64| {
            let offset = at.checked_sub(start.0)?;
            Some(u64::from_le_bytes(
                *words.get(usize::try_from(offset / 8).ok()?)?,
            ))
        };
        let sum = |slot: CounterSlot| -> Option<u64> {
            let first = self.layout.counter(slot)?.0;
            let rows = 0..=u64::from(self.sequences.cpus);
            let mut words = rows.map(|row| word(first + (row << self.sequences.stride_log2)));
            // Words of sums may be negative.
            words.try_fold(0_u64, |sum, word| Some(sum.wrapping_add(word?)))
        };
        let counts = self.slots.iter().map(|&(key, slot)| {
            let sum = sum(slot).ok_or_else(|| {
                refused(
                    pid,
                    "a counter is outside of its file, which is a bug in gilk",
                )
            });
            Ok((key, sum?))
        });
        counts.collect()
    }
}

/// The words of a plan, with their keys.
fn slots(plan: &Plan) -> Vec<(u64, CounterSlot)> {
    let instruments = plan.instruments.iter();
    let hits = instruments.filter_map(|one| Some((one.id.pack(), one.counter?)));
    let aggregates = writes::owners(plan).flat_map(|(owner, probed)| {
        writes::aggregates_of(owner, probed).flat_map(|(_, words)| words)
    });
    let failures =
        writes::owners(plan).flat_map(|(owner, probed)| writes::failure_words(owner, probed));
    hits.chain(aggregates).chain(failures).collect()
}
