//! The words of a process's rings of samples, mapped into this one.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_engine::layout::{RuntimeLayout, Sequences};
use gilk_samples::Sample;

use super::monotonic;
use super::reserved::rows;
use super::shared::SharedWords;

/// Words of memory of a sample, or of a word of a line: the mark, the value, the time, the identifier.
const SLOT_WORDS: usize = 4;

/// The words of rings, mapped.
#[derive(Debug)]
pub(super) struct RingWords {
    shared: SharedWords,
    pub(super) sequences: Sequences,
    pub(super) slots_log2: u32,
    /// Words of a line that a slot has, at most.
    pub(super) words_of_slot: usize,
    /// Indexes of the words of CPU 0.
    head: usize,
    limit: usize,
    lost: usize,
    /// Index of the first word of ring 0.
    first: usize,
    /// Index of the word of the monotonic clock, and its factor.
    clock: Option<(usize, u64)>,
}

impl RingWords {
    /// Maps them.
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
        let bytes = rows(sequences) + (u64::from(sequences.rings()) << rings.stride_log2);
        Ok(Self {
            shared: SharedWords::new(file, usize::try_from(bytes).map_err(|_| misfit())?)?,
            sequences,
            slots_log2: rings.slots_log2,
            words_of_slot: rings.words_of_slot() as usize,
            head: index(rings.head.0).ok_or_else(misfit)?,
            limit: index(rings.limit.0).ok_or_else(misfit)?,
            lost: index(rings.lost_full.0).ok_or_else(misfit)?,
            first: index(rings.base.0).ok_or_else(misfit)?,
            clock: match layout.clock {
                Some(clock) => Some((index(clock.offset.0).ok_or_else(misfit)?, clock.factor)),
                None => None,
            },
        })
    }

    /// The word of a row.
    fn word(&self, first: usize, row: usize) -> Option<&AtomicU64> {
        let further = row.checked_shl(self.sequences.stride_log2)? / size_of::<u64>();
        self.shared.word(first.checked_add(further)?)
    }

    /// The row of the words of a ring: its CPU's, or that of threads without an area.
    fn row(&self, ring: usize) -> usize {
        match self.sequences.area {
            Some(_) => ring,
            None => self.sequences.cpus as usize,
        }
    }

    /// Keeps the monotonic clock of the instruments.
    pub(super) fn keep_clock(&self) {
        let clock = self.clock;
        if let Some((word, factor)) =
            clock.and_then(|(at, factor)| Some((self.shared.word(at)?, factor)))
        {
            monotonic::keep(word, factor);
        }
    }

    /// The lost samples of a row.
    pub(super) fn lost(&self, row: usize) -> Option<&AtomicU64> {
        self.word(self.lost, row)
    }

    /// The number of filled slots of a ring so far.
    pub(super) fn head(&self, ring: usize) -> Option<&AtomicU64> {
        self.word(self.head, self.row(ring))
    }

    /// The number of slots at which a ring is full.
    pub(super) fn limit(&self, ring: usize) -> Option<&AtomicU64> {
        self.word(self.limit, self.row(ring))
    }

    /// A word of the slot of a sample, or of that of a further word of a line.
    fn slot_word(
        &self,
        ring: usize,
        (serial, further): (u64, usize),
        word: usize,
    ) -> Option<&AtomicU64> {
        let slots = 1_u64 << self.slots_log2;
        let slot = usize::try_from(serial & (slots - 1)).ok()?;
        let slot = (ring << self.slots_log2) + slot;
        let place = slot * self.words_of_slot + further;
        self.shared.word(self.first + place * SLOT_WORDS + word)
    }

    /// The mark of the slot of a sample.
    pub(super) fn mark(&self, ring: usize, serial: u64) -> Option<&AtomicU64> {
        self.slot_word(ring, (serial, 0), 0)
    }

    /// The sample of a slot, which is written.
    pub(super) fn sample(&self, ring: usize, serial: u64) -> Option<Sample> {
        self.word_of_line(ring, (serial, 0))
    }

    /// The further words of the line of a slot, which is written. What an earlier sample has left after them has another
    /// time: the clock is read between two reservations.
    pub(super) fn further(
        &self,
        ring: usize,
        (serial, head): (u64, Sample),
    ) -> impl Iterator<Item = Sample> {
        let words =
            (1..self.words_of_slot).map_while(move |word| self.word_of_line(ring, (serial, word)));
        words.take_while(move |word| {
            word.is_word() && word.without_mark().id == head.id && word.tsc == head.tsc
        })
    }

    fn word_of_line(&self, ring: usize, place: (u64, usize)) -> Option<Sample> {
        let load = |word| {
            let word = self.slot_word(ring, place, word)?;
            Some(word.load(Ordering::Relaxed))
        };
        Some(Sample {
            value: load(1)?,
            tsc: load(2)?,
            id: load(3)?,
        })
    }
}
