//! The reader's end of a ring that all threads of a process share, where its C library registers none for restartable
//! sequences.
//!
//! A thread reserves a slot, fills it, and marks it as written; where instruments have lines, a slot has all words of one.
//! Samples are read in the order of their reservations, which
//! is that of their times, up to the first that is not written yet. Its thread may never write it: it was killed, or a
//! handler of a signal did not return to it. Once no thread is in a patch, such a sample is lost, and its slot is used
//! again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gilk_engine::layout::CPU_BITS;
use gilk_samples::{Batch, Sample};

use super::ring_words::RingWords;

/// The only ring.
const RING: usize = 0;
/// The time after which a sample that is not written holds the ring up. An attempt to give it up is made then; the time to
/// each further one is twice that before, as far as the longest.
const HELD_UP: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The place up to which the ring was read.
#[derive(Debug)]
pub(super) struct SharedEnd {
    /// The number of the next sample.
    next: u64,
    /// Samples below this number that are not written are lost.
    given_up: u64,
    /// Lost samples that were not reported.
    unfinished: u64,
    awaited: Option<Awaited>,
}

/// A sample that the reader waits for.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    serial: u64,
    /// The begin of the wait, or the last attempt to give the sample up.
    since: Instant,
    /// The time to the next attempt.
    pause: Duration,
}

impl SharedEnd {
    /// The end of an empty ring. Its samples are numbered from the number of slots on, so that no mark of theirs is 0.
    pub(super) fn new(words: &RingWords) -> Self {
        Self {
            next: 1 << words.slots_log2,
            given_up: 0,
            unfinished: 0,
            awaited: None,
        }
    }

    /// The number of the next sample.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Takes the samples that are written, by CPU; `None` if the ring's words are not as the process's code leaves them.
    pub(super) fn take(&mut self, words: &RingWords) -> Option<Vec<Batch>> {
        let slots = 1_u64 << words.slots_log2;
        let head = words.head(RING)?.load(Ordering::Acquire);
        head.checked_sub(self.next)
            .filter(|count| *count <= slots)?;
        let mut samples: BTreeMap<u16, Vec<Sample>> = BTreeMap::new();
        while self.next < head {
            // Pairs with the store of the mark, the last of the process: the slot's other words are written.
            let mark = words.mark(RING, self.next)?.load(Ordering::Acquire);
            if mark >> CPU_BITS == self.next {
                let cpu = mark & ((1 << CPU_BITS) - 1);
                let cpu = u16::try_from(cpu).ok();
                let cpu = cpu.filter(|cpu| u32::from(*cpu) < words.sequences.cpus)?;
                let sample = words.sample(RING, self.next)?;
                let of_cpu = samples.entry(cpu).or_default();
                of_cpu.push(sample);
                of_cpu.extend(words.further(RING, (self.next, sample)));
            } else if self.next < self.given_up {
                self.unfinished += 1;
            } else {
                break;
            }
            self.next += 1;
        }
        self.awaited = match self.awaited {
            _ if self.next == head => None,
            Some(awaited) if awaited.serial == self.next => Some(awaited),
            _ => Some(Awaited {
                serial: self.next,
                since: Instant::now(),
                pause: HELD_UP,
            }),
        };
        // The loads are before the store, after which the slots are written again.
        words
            .limit(RING)?
            .store(self.next + slots, Ordering::Release);
        let batches = samples.into_iter();
        let batches = batches.map(|(cpu, samples)| Batch { cpu, samples });
        Some(batches.collect())
    }

    /// Returns the number of samples that were begun, if the ring is held up and this is the time of an attempt to give
    /// samples up.
    pub(super) fn held_up(&mut self, words: &RingWords) -> Option<u64> {
        let awaited = self.awaited.as_mut()?;
        if awaited.since.elapsed() < awaited.pause {
            return None;
        }
        awaited.since = Instant::now();
        awaited.pause = LONGEST.min(awaited.pause * 2);
        Some(words.head(RING)?.load(Ordering::Acquire))
    }

    /// Takes samples below a number for lost, if they are not written.
    pub(super) fn give_up(&mut self, before: u64) {
        self.given_up = self.given_up.max(before);
    }

    /// Takes the number of lost samples since the last call.
    pub(super) fn take_unfinished(&mut self) -> u64 {
        std::mem::take(&mut self.unfinished)
    }
}
