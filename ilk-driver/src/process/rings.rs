//! The rings of a process, mapped into this one: a ring of each CPU, whose head its threads increment by restartable
//! sequences, and whose limit this side advances; or one that all threads share ([`shared_ring`](super::shared_ring)).

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use gilk_engine::layout::RuntimeLayout;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause};
use gilk_samples::{Batch, Sample};

use super::ring_words::RingWords;
use super::shared_ring::SharedEnd;
use super::tsc;
use crate::{Error, Result};

/// The reader of a process's samples.
#[derive(Debug)]
pub struct SampleRings {
    words: RingWords,
    ends: RingEnds,
    /// Lost samples of each row that were reported.
    reported: Vec<u64>,
}

/// The places up to which rings were read.
#[derive(Debug)]
enum RingEnds {
    /// The number of slots that were read of the ring of each CPU.
    OfCpus(Vec<u64>),
    Shared(SharedEnd),
}

/// Samples and losses since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The samples of each CPU, in order of time.
    pub batches: Vec<Batch>,
    /// Hits without a sample: of full rings, of threads that have not registered for restartable sequences where others
    /// have, and those whose threads have left them.
    pub losses: Vec<Loss>,
}

impl SampleRings {
    /// Maps the rings of a file of words and empties them. No thread samples yet.
    ///
    /// # Errors
    /// `mmap` failed, or the layout is not that of the file.
    pub(super) fn open(file: &File, layout: &RuntimeLayout) -> io::Result<Self> {
        let words = RingWords::open(file, layout)?;
        words.keep_clock();
        let cpus = words.sequences.cpus as usize;
        let ends = match words.sequences.area {
            Some(_) => RingEnds::OfCpus(vec![0; cpus]),
            None => RingEnds::Shared(SharedEnd::new(&words)),
        };
        for ring in 0..words.sequences.rings() as usize {
            let first = ends.next(ring);
            let misfit = || io::Error::other("the file has no words of its rings");
            let head = words.head(ring).ok_or_else(misfit)?;
            head.store(first, Ordering::Relaxed);
            let limit = words.limit(ring).ok_or_else(misfit)?;
            limit.store(first + (1 << words.slots_log2), Ordering::Release);
        }
        Ok(Self {
            words,
            ends,
            reported: vec![0; cpus + 1],
        })
    }

    /// Takes all samples out of the rings, and the losses since the last call.
    ///
    /// # Errors
    /// [`Error::Target`] if the process has written over the words of its rings.
    pub fn drain(&mut self) -> Result<Drained> {
        let mut drained = Drained::default();
        self.words.keep_clock();
        match &mut self.ends {
            RingEnds::OfCpus(ends) => {
                for (cpu, end) in ends.iter_mut().enumerate() {
                    let samples = of_cpu(&self.words, cpu, end);
                    let samples = samples
                        .ok_or_else(|| overwritten(&format!("ring of samples of CPU {cpu}")))?;
                    if !samples.is_empty() {
                        let cpu = u16::try_from(cpu).unwrap_or(ALL_CPUS);
                        drained.batches.push(Batch { cpu, samples });
                    }
                }
            }
            RingEnds::Shared(end) => {
                let taken = end.take(&self.words);
                let taken = taken.ok_or_else(|| overwritten("ring of samples"))?;
                drained.batches = taken;
            }
        }
        drained.losses = self.losses();
        Ok(drained)
    }

    /// Returns whether the ring that all threads share is held up by a sample that has not been written for long: the
    /// number of the samples that were begun.
    pub(super) fn held_up(&mut self) -> Option<u64> {
        match &mut self.ends {
            RingEnds::OfCpus(_) => None,
            RingEnds::Shared(end) => end.held_up(&self.words),
        }
    }

    /// Takes the samples up to a number for lost, if they are not written.
    pub(super) fn give_up(&mut self, before: u64) {
        if let RingEnds::Shared(end) = &mut self.ends {
            end.give_up(before);
        }
    }

    /// Takes all samples for lost that are not written: no thread of the process is in a patch any more.
    pub fn end(&mut self) {
        self.give_up(u64::MAX);
    }

    fn losses(&mut self) -> Vec<Loss> {
        let tsc = tsc();
        let mut losses = Vec::new();
        let mut add = |cpu, cause, count| {
            if count > 0 {
                losses.push(Loss {
                    cpu,
                    tsc,
                    cause,
                    count,
                });
            }
        };
        let cpus = self.words.sequences.cpus as usize;
        for (row, reported) in self.reported.iter_mut().enumerate() {
            let lost = self.words.lost(row);
            let Some(lost) = lost.map(|word| word.load(Ordering::Relaxed)) else {
                continue;
            };
            let count = lost.saturating_sub(std::mem::replace(reported, lost));
            // After the rows of CPUs is that of threads without an area, which may share a ring.
            let (cpu, cause) = match &self.ends {
                _ if row < cpus => (u16::try_from(row).unwrap_or(ALL_CPUS), LossCause::RingFull),
                RingEnds::OfCpus(_) => (ALL_CPUS, LossCause::RingOff),
                RingEnds::Shared(_) => (ALL_CPUS, LossCause::RingFull),
            };
            add(cpu, cause, count);
        }
        if let RingEnds::Shared(end) = &mut self.ends {
            add(ALL_CPUS, LossCause::Unfinished, end.take_unfinished());
        }
        losses
    }
}

impl RingEnds {
    /// The number of the next sample of a ring.
    fn next(&self, ring: usize) -> u64 {
        match self {
            Self::OfCpus(ends) => ends.get(ring).copied().unwrap_or_default(),
            Self::Shared(end) => end.next(),
        }
    }
}

/// The error of words that are not as the process's code leaves them.
fn overwritten(what: &str) -> Error {
    Error::Target(format!(
        "The process has written over the {what}; its samples are not read any more."
    ))
}

/// Takes the samples of the ring of a CPU, of which so many were read; `None` if its words are not as the process's
/// code leaves them.
fn of_cpu(words: &RingWords, cpu: usize, end: &mut u64) -> Option<Vec<Sample>> {
    let slots = 1_u64 << words.slots_log2;
    // Pairs with the commit, a store of the process: the slots below the head are written.
    let head = words.head(cpu)?.load(Ordering::Acquire);
    let count = head.checked_sub(*end).filter(|count| *count <= slots)?;
    let mut samples = Vec::with_capacity(usize::try_from(count).ok()?);
    for serial in *end..head {
        samples.push(words.sample(cpu, serial)?);
    }
    // The loads are before the store, after which the slots are written again.
    words.limit(cpu)?.store(head + slots, Ordering::Release);
    *end = head;
    Some(samples)
}
