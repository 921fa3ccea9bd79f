//! The rings of a process, mapped into this one: a ring of each CPU, whose head its threads increment by restartable
//! sequences, and whose limit this side advances.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_engine::layout::{RuntimeLayout, Sequences};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause};
use gilk_samples::{Batch, Sample};

use super::shared::SharedWords;
use super::subject::rows;
use super::tsc;
use crate::{Error, Result};

/// Words of a slot: one without a use, the value, the time, the identifier.
const SLOT_WORDS: usize = 4;

/// The reader of a process's samples.
#[derive(Debug)]
pub struct SampleRings {
    shared: SharedWords,
    sequences: Sequences,
    slots_log2: u32,
    /// Indexes of the words of CPU 0.
    head: usize,
    limit: usize,
    lost: usize,
    /// Index of the first word of ring 0.
    first: usize,
    /// The number of samples that were read of each ring.
    tails: Vec<u64>,
    /// Lost samples of each row that were reported.
    reported: Vec<u64>,
}

/// Samples and losses since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The samples of each CPU, in order of time.
    pub batches: Vec<Batch>,
    /// Hits without a sample: of full rings, and of threads that have not registered for restartable sequences.
    pub losses: Vec<Loss>,
}

impl SampleRings {
    /// Maps the rings of a file of words and empties them. No thread samples yet.
    ///
    /// # Errors
    /// `mmap` failed, or the layout is not that of the file.
    pub(super) fn open(file: &File, layout: &RuntimeLayout) -> io::Result<Self> {
        let misfit = || io::Error::other("the layout is not that of the file");
        let sequences = layout.sequences().ok_or_else(misfit)?;
        let rings = &layout.rings;
        let start = rings.base.0.checked_sub(rows(sequences));
        let start = start.ok_or_else(misfit)?;
        let index = |at: u64| {
            let offset = at.checked_sub(start)?;
            usize::try_from(offset / 8).ok()
        };
        let bytes = rows(sequences) + (u64::from(sequences.cpus) << rings.stride_log2);
        let opened = Self {
            shared: SharedWords::new(file, usize::try_from(bytes).map_err(|_| misfit())?)?,
            sequences,
            slots_log2: rings.slots_log2,
            head: index(rings.head.0).ok_or_else(misfit)?,
            limit: index(rings.limit.0).ok_or_else(misfit)?,
            lost: index(rings.lost_full.0).ok_or_else(misfit)?,
            first: index(rings.base.0).ok_or_else(misfit)?,
            tails: vec![0; sequences.cpus as usize],
            reported: vec![0; sequences.cpus as usize + 1],
        };
        for cpu in 0..opened.tails.len() {
            let limit = opened.word(opened.limit, cpu).ok_or_else(misfit)?;
            limit.store(1 << rings.slots_log2, Ordering::Release);
        }
        Ok(opened)
    }

    /// The word of a row.
    fn word(&self, first: usize, row: usize) -> Option<&AtomicU64> {
        let further = row.checked_shl(self.sequences.stride_log2)? / size_of::<u64>();
        self.shared.word(first.checked_add(further)?)
    }

    /// Takes all samples out of the rings, and the losses since the last call.
    ///
    /// # Errors
    /// [`Error::Target`] if the process has written over the words of its rings.
    pub fn drain(&mut self) -> Result<Drained> {
        let mut drained = Drained::default();
        for cpu in 0..self.tails.len() {
            let samples = self.of_cpu(cpu).ok_or_else(|| {
                Error::Target(format!(
                    "The process has written over the ring of samples of CPU {cpu}; its samples are not read \
                     any more."
                ))
            })?;
            if !samples.is_empty() {
                let cpu = u16::try_from(cpu).unwrap_or(ALL_CPUS);
                drained.batches.push(Batch { cpu, samples });
            }
        }
        drained.losses = self.losses();
        Ok(drained)
    }

    /// Takes the samples of a ring; `None` if its words are not as the process's code leaves them.
    fn of_cpu(&mut self, cpu: usize) -> Option<Vec<Sample>> {
        let tail = *self.tails.get(cpu)?;
        let slots = 1_u64 << self.slots_log2;
        // Pairs with the commit, a store of the process: the slots below the head are written.
        let head = self.word(self.head, cpu)?.load(Ordering::Acquire);
        let count = head.checked_sub(tail).filter(|count| *count <= slots)?;
        let ring = self.first + (cpu << self.slots_log2) * SLOT_WORDS;
        let mut samples = Vec::with_capacity(usize::try_from(count).ok()?);
        for serial in tail..head {
            let slot = usize::try_from(serial & (slots - 1)).ok()?;
            let load = |word: usize| {
                let word = self.shared.word(ring + slot * SLOT_WORDS + word)?;
                Some(word.load(Ordering::Relaxed))
            };
            samples.push(Sample {
                value: load(1)?,
                tsc: load(2)?,
                id: load(3)?,
            });
        }
        // The loads are before the store, after which the slots are written again.
        self.word(self.limit, cpu)?
            .store(head + slots, Ordering::Release);
        *self.tails.get_mut(cpu)? = head;
        Some(samples)
    }

    fn losses(&mut self) -> Vec<Loss> {
        let tsc = tsc();
        let mut losses = Vec::new();
        for row in 0..self.reported.len() {
            let lost = self.word(self.lost, row);
            let Some(lost) = lost.map(|word| word.load(Ordering::Relaxed)) else {
                continue;
            };
            let Some(reported) = self.reported.get_mut(row) else {
                continue;
            };
            let count = lost.saturating_sub(std::mem::replace(reported, lost));
            // After the rows of CPUs is that of threads without an area.
            let (cpu, cause) = if row < self.tails.len() {
                (u16::try_from(row).unwrap_or(ALL_CPUS), LossCause::RingFull)
            } else {
                (ALL_CPUS, LossCause::RingOff)
            };
            if count > 0 {
                losses.push(Loss {
                    cpu,
                    tsc,
                    cause,
                    count,
                });
            }
        }
        losses
    }
}
