//! Conversion of a verified plan to writes of the module: the agent carries them out, and the client
//! compares their checksum with that of its own plan.

mod model;
mod poke;
mod words;

use gilk_engine::layout::EventCounter;
use gilk_engine::native::NativeCode;
use gilk_engine::plan::{Patch, PlannedInstrument};
use gilk_engine::{Addr, Plan, VerifiedPlan};
use gilk_instruments::program::{Event, Input};
use serde::Serialize;

use crate::protocol::{Bytes, CHUNK, PlanOutline};
use crate::{Error, Result};

pub use model::{ArenaWrite, Batch, Counter, Fault, Poke, Recovery, Retire, Row, SpliceKind, Wait};
pub use words::is_aggregate_word;
pub(crate) use words::{aggregates_of, failure_words, owners};
pub(crate) use words::{failed_reads_word, storage_full_word};

/// Alignment of patches.
const PATCH_ALIGN: i64 = 16;
const INT3: u8 = 0xcc;

/// Everything that the module is given for a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// Code, by address: object files' first, then patches.
    pub arena: Vec<ArenaWrite>,
    /// In order of time.
    pub batches: Vec<Batch>,
    /// The words to report.
    pub counters: Vec<Counter>,
    /// The splices that are removed early.
    pub retire: Vec<Retire>,
    /// The processor's events that programs read, with their counters.
    pub events: Vec<EventCounter>,
}

impl Writes {
    /// Converts a plan.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan refers to parts that it lacks, which no verified plan does, or
    /// if an object file has too much code.
    pub fn of(plan: &VerifiedPlan) -> Result<Self> {
        let retire = retirements(plan)?;
        Self::of_parts(plan.plan(), retire)
    }

    fn of_parts(plan: &Plan, retire: Vec<Retire>) -> Result<Self> {
        let natives = plan.natives.iter().map(|code| native_write(plan, code));
        let runs = runs(&plan.patches);
        let patches = runs.into_iter().map(|run| arena_write(plan, run));
        let batch = |batch: &gilk_engine::plan::Batch| {
            let pokes = batch.pokes.iter().map(|planned| poke::poke(plan, planned));
            Ok(Batch {
                at: batch.at,
                pokes: pokes.collect::<Result<_>>()?,
            })
        };
        let mut counters: Vec<Counter> = plan.instruments.iter().filter_map(counter).collect();
        counters.extend(words::words(plan));
        Ok(Self {
            arena: natives.chain(patches).collect::<Result<_>>()?,
            batches: plan.batches.iter().map(batch).collect::<Result<_>>()?,
            counters,
            retire,
            events: events_of(plan),
        })
    }

    /// Returns the number of pokes in all batches.
    #[must_use]
    pub fn pokes(&self) -> usize {
        self.batches.iter().map(|batch| batch.pokes.len()).sum()
    }

    /// Returns the plan's sizes and the checksum of these writes.
    ///
    /// # Errors
    /// [`Error::Protocol`] if a part cannot be encoded, which is an internal error.
    pub fn outline(&self, plan: &Plan) -> Result<PlanOutline> {
        let mut checksum = Checksum::default();
        checksum.add(&plan.duration)?;
        for write in &self.arena {
            checksum.add(write)?;
        }
        for batch in &self.batches {
            checksum.add(&(batch.at, batch.pokes.len()))?;
            for poke in &batch.pokes {
                checksum.add(poke)?;
            }
        }
        for counter in &self.counters {
            checksum.add(counter)?;
        }
        for retire in &self.retire {
            checksum.add(retire)?;
        }
        checksum.add(&self.events)?;
        // A plan has fewer parts of each kind than 2^32.
        let count = |parts: usize| u32::try_from(parts).unwrap_or(u32::MAX);
        Ok(PlanOutline {
            instruments: count(plan.instruments.len()),
            sites: count(plan.sites.len()),
            patches: count(plan.patches.len()),
            batches: count(self.batches.len()),
            pokes: count(self.pokes()),
            checksum: checksum.hasher.finalize(),
        })
    }
}

/// The CRC-32 of encoded values.
#[derive(Default)]
struct Checksum {
    hasher: crc32fast::Hasher,
    buffer: Vec<u8>,
}

impl Checksum {
    fn add<T: Serialize>(&mut self, value: &T) -> Result<()> {
        self.buffer.clear();
        let buffer = std::mem::take(&mut self.buffer);
        self.buffer = postcard::to_io(value, buffer).map_err(|error| Error::Protocol {
            what: format!("a part of a plan that cannot be encoded ({error})"),
        })?;
        self.hasher.update(&self.buffer);
        Ok(())
    }
}

/// Returns the events that a plan's programs read, with their planned counters.
pub(crate) fn events_of(plan: &Plan) -> Vec<EventCounter> {
    let instruments = plan.instruments.iter();
    let probes = instruments.filter_map(|instrument| instrument.probe.as_ref()?.probe());
    let inputs = probes.flat_map(|probe| probe.expressions().flat_map(|expr| expr.inputs()));
    let mut events: Vec<Event> = inputs
        .filter_map(|input| match input {
            Input::Event(event) => Some(event),
            _ => None,
        })
        .collect();
    events.sort();
    events.dedup();
    let counters = events.into_iter();
    counters
        .filter_map(|event| plan.layout.events.counter(event).ok())
        .collect()
}

/// Returns the retirements of a plan.
fn retirements(plan: &VerifiedPlan) -> Result<Vec<Retire>> {
    let retirements = plan.retirements();
    let retire = |retirement: &gilk_engine::verify::Retirement| {
        let site = plan.plan().sites.get(retirement.site.0 as usize);
        let site = site.ok_or_else(|| misfit(String::from("it retires a site that it lacks")))?;
        let hits = retirement.hits.iter();
        Ok(Retire {
            address: site.displaced.start.0,
            hits: hits.map(|word| (word.bank, word.slot)).collect(),
        })
    };
    retirements.iter().map(retire).collect()
}

/// Splits patches into runs that are contiguous except for alignment, of about [`CHUNK`] bytes
/// each: the module takes one run per request.
fn runs(patches: &[Patch]) -> Vec<&[Patch]> {
    let mut runs = Vec::new();
    let is_adjacent =
        |patch: &Patch, next: &Patch| (0..PATCH_ALIGN).contains(&end(patch).to(next.address));
    for run in patches.chunk_by(is_adjacent) {
        let mut rest = run;
        while let Some(first) = rest.first() {
            let within =
                |patch: &&Patch| first.address.to(patch.address).unsigned_abs() < CHUNK as u64;
            let (now, later) = rest.split_at(rest.iter().take_while(within).count());
            runs.push(now);
            rest = later;
        }
    }
    runs
}

fn end(patch: &Patch) -> Addr {
    patch.address.add(patch.code.len() as u64)
}

/// Converts the code of an object file. It has no unwind rows.
fn native_write(plan: &Plan, code: &NativeCode) -> Result<ArenaWrite> {
    if code.bytes.len() > CHUNK {
        return Err(misfit(format!(
            "{} has {} bytes of code, and the limit is {CHUNK}",
            code.file,
            code.bytes.len()
        )));
    }
    Ok(ArenaWrite {
        offset: offset(plan, code.address)?,
        rows: Vec::new(),
        faults: Vec::new(),
        code: Bytes::from(code.bytes.to_vec()),
    })
}

/// Returns an address's offset in the arena.
fn offset(plan: &Plan, at: Addr) -> Result<u64> {
    let offset = plan.layout.arena.start.to(at);
    u64::try_from(offset).map_err(|_| misfit(format!("it has a patch at {at}, outside the arena")))
}

/// Converts a run of patches, with `int3` in the gaps.
fn arena_write(plan: &Plan, patches: &[Patch]) -> Result<ArenaWrite> {
    debug_assert!(!patches.is_empty(), "a run has patches");
    let start = patches.first().map_or(Addr(0), |patch| patch.address);
    let offset = offset(plan, start)?;
    let mut code = Vec::new();
    let mut rows = Vec::new();
    for patch in patches {
        let gap = start.add(code.len() as u64).to(patch.address);
        let gap = usize::try_from(gap)
            .map_err(|_| misfit(format!("its patch at {} overlaps another", patch.address)))?;
        code.resize(code.len() + gap, INT3);
        let before = u32::try_from(code.len())
            .map_err(|_| misfit(format!("its patches at {start} exceed 4 GiB")))?;
        rows.extend(patch.rows.iter().map(|row| Row {
            offset: before.saturating_add(row.at),
            pushed: row.pushed,
            original: row.original.0,
        }));
        code.extend_from_slice(&patch.code);
    }
    Ok(ArenaWrite {
        offset,
        rows,
        faults: faults(plan, start, code.len() as u64),
        code: Bytes::from(code),
    })
}

/// Returns the instructions that may fault in a write of `length` bytes.
fn faults(plan: &Plan, start: Addr, length: u64) -> Vec<Fault> {
    let index = |at: Addr| plan.faults.partition_point(|fault| fault.at < at);
    // The faults are sorted by address, so the range is valid.
    let within = plan.faults.get(index(start)..index(start.add(length)));
    debug_assert!(within.is_some(), "faults are sorted by address");
    // Faults are within the write; the agent refuses an offset outside of it.
    let offset = |at: Addr| u32::try_from(start.to(at)).unwrap_or(u32::MAX);
    let within = within.unwrap_or_default().iter();
    let within = within.map(|fault| Fault {
        offset: offset(fault.at),
        recovery: match fault.recovery {
            gilk_engine::patch::Recovery::At(fixup) => Recovery::At(offset(fixup)),
            gilk_engine::patch::Recovery::Like(original) => Recovery::Like(original.0),
        },
    });
    within.collect()
}

/// Returns the counter of an instrument that counts.
fn counter(instrument: &PlannedInstrument) -> Option<Counter> {
    let counter = instrument.counter?;
    Some(Counter {
        id: instrument.id.pack(),
        bank: counter.bank,
        slot: counter.slot,
        largest: false,
    })
}

fn misfit(reason: String) -> Error {
    Error::Plan { reason }
}

#[cfg(test)]
mod tests;
