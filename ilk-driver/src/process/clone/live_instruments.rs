//! The counts and totals of instruments in the cache up to now, as a recording without samples. The thread that takes samples
//! reads them on request, and another one writes them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use gilk_engine::Plan;
use gilk_samples::metadata::Metadata;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::Writer;
use gilk_samples::totals::Totals;
use gilk_samples::{Batch, Sample};

use crate::{Error, Result};

/// Returns the metadata of a recording with objects that were loaded later: of each the number that was kept with its plan,
/// and that of its first function.
pub type LiveDescription<'r> =
    dyn Fn(&[(usize, u32)]) -> std::result::Result<Metadata, String> + Send + Sync + 'r;

/// Instruments whose counts and totals are written while they run.
pub struct LiveInstruments<'r> {
    /// The plan for the objects from the start.
    pub plan: &'r Plan,
    /// Describes them.
    pub describe: Box<LiveDescription<'r>>,
}

/// Counts and totals at a moment.
pub(super) struct InstrumentsNow {
    pub(super) tsc: u64,
    /// Hits by recorded identifier.
    pub(super) counts: Vec<(u64, u64)>,
    pub(super) totals: Totals,
    /// Objects that were loaded later, as [`LiveDescription`] takes them.
    pub(super) parts: Vec<(usize, u32)>,
}

/// A request for counts and totals, and its answer.
#[derive(Default)]
pub(super) struct LiveRequest {
    is_open: AtomicBool,
    answer: Mutex<Option<InstrumentsNow>>,
}

impl LiveRequest {
    /// Takes the answer; without one, the request is open from now on.
    pub(super) fn take(&self) -> Option<InstrumentsNow> {
        let answer = self
            .answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if answer.is_none() {
            self.is_open.store(true, Ordering::Release);
        }
        answer
    }

    /// Answers an open request.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn answer(&self, read: impl FnOnce() -> Result<InstrumentsNow>) -> Result<()> {
        if self.is_open.swap(false, Ordering::AcqRel) {
            let now = read()?;
            *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        }
        Ok(())
    }
}

impl LiveInstruments<'_> {
    /// Writes a recording of a moment.
    pub(super) fn write(&self, path: &Path, now: InstrumentsNow) -> Result<()> {
        let metadata = (self.describe)(&now.parts).map_err(Error::Target)?;
        let tsc = now.tsc;
        let samples = now.counts.into_iter().filter(|(_, value)| *value > 0);
        let samples = samples.map(|(id, value)| Sample { id, value, tsc });
        let batch = Batch {
            cpu: ALL_CPUS,
            samples: samples.collect(),
        };
        let written = Writer::create(path, &metadata).and_then(|mut writer| {
            if !batch.samples.is_empty() {
                writer.write(&batch)?;
            }
            writer.totals(now.totals);
            writer.finish()
        });
        let written = written.map_err(|source| Error::Recording { source });
        written.map(drop)
    }
}
