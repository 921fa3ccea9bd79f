//! Reader of the rings that patches write: one per CPU, in memory shared with the module.
//!
//! The protocol (`ilk-driver/kmod/ilk_abi.h`): the sample with serial number `n` is in slot
//! `n % slots`; its first word, the mark, is the head by which it was reserved, and the patch
//! writes
//! it last. A head is `n << (32 - slots_log2) | cpu`. Serial numbers begin at `slots`, so the
//! zeroes
//! of a fresh ring are never taken for a sample. A patch reserves with a compare-and-exchange on
//! the
//! CPU's own head and stops at the limit, which the reader advances (`ILK_IOC_CONSUME`) after
//! copying: a slot that a [`RingReader`] reads is never written concurrently, and the mark alone
//! shows
//! whether a slot is complete. An interrupt inside a record leaves a hole that is filled when the
//! interrupted patch resumes; the reader waits in front of it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::record::{SLOT_BYTES, Sample};

/// Words of a slot: the mark, the value, the time, the identifier.
const WORDS: usize = 4;
const _: () = assert!(SLOT_BYTES == WORDS * size_of::<u64>());
/// Binary logarithm of the largest ring whose heads have bits for CPUs.
const MOST_SLOTS_LOG2: u32 = 24;

/// Reads samples from one CPU's ring in the order in which they were reserved.
#[derive(Debug)]
pub struct RingReader {
    words: *const u64,
    slots_log2: u32,
    tail: u64,
}

// SAFETY: the reader only loads, atomically, from memory whose owner promised in `new` that it
// outlives the reader; it is not tied to the thread that made it.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for RingReader {}

impl RingReader {
    /// Returns a reader of the ring of `1 << slots_log2` slots at `base`, positioned before its
    /// first sample.
    ///
    /// `None` if `base` is null or not aligned to 8 bytes, if `slots_log2` is above 24, or if `len`
    /// bytes do not hold that many slots.
    ///
    /// # Safety
    /// `base` must point to `len` bytes that stay mapped and readable as long as the reader lives,
    /// and that are written only by patches following the protocol above.
    #[must_use]
    #[allow(unsafe_code, reason = "the mapping is the caller's")]
    pub unsafe fn new(base: *const u8, len: usize, slots_log2: u32) -> Option<Self> {
        let slots = (slots_log2 <= MOST_SLOTS_LOG2).then(|| 1u64 << slots_log2)?;
        let bytes = usize::try_from(slots).ok()?.checked_mul(SLOT_BYTES)?;
        let words = base.cast::<u64>();
        (!words.is_null() && words.is_aligned() && bytes <= len).then_some(Self {
            words,
            slots_log2,
            tail: slots,
        })
    }

    /// Moves the reader to serial number `tail`: for a ring that was read before.
    #[must_use]
    pub fn starting_at(mut self, tail: u64) -> Self {
        self.tail = tail & self.serial_mask();
        self
    }

    /// Returns the serial number of the first unread sample, which the producer needs to free
    /// slots.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Appends at most `max` samples to `out` and returns their number.
    ///
    /// Stops at the first slot that is not reserved, or reserved but not yet written. Slots are
    /// free for new samples only when [`tail`](Self::tail) has been passed to the producer.
    pub fn drain(&mut self, out: &mut Vec<Sample>, max: usize) -> usize {
        let slots = 1u64 << self.slots_log2;
        let max = u64::try_from(max).unwrap_or(u64::MAX).min(slots);
        let before = self.tail;
        let mut taken = 0;
        while taken < max {
            let Some(sample) = self.sample(self.tail) else {
                break;
            };
            out.push(sample);
            self.tail = (self.tail + 1) & self.serial_mask();
            taken += 1;
        }
        debug_assert_eq!((before + taken) & self.serial_mask(), self.tail);
        usize::try_from(taken).unwrap_or(usize::MAX)
    }

    /// Returns the mask of serial numbers: the bits of a head above those of the CPU.
    fn serial_mask(&self) -> u64 {
        u64::MAX >> (32 - self.slots_log2)
    }

    /// Returns the sample with this serial number, if its slot is written.
    fn sample(&self, serial: u64) -> Option<Sample> {
        let slot = serial & ((1 << self.slots_log2) - 1);
        let first = usize::try_from(slot).ok()? * WORDS;
        if self.load(first) >> (32 - self.slots_log2) != serial {
            return None;
        }
        // Pairs with the patch's last store (release, as every store of x86-64 is): the words below
        // are those written before the mark just read. A fence after a relaxed load, because that
        // is the form allowed on a read-only mapping.
        fence(Ordering::Acquire);
        Some(Sample {
            id: self.load(first + 3),
            value: self.load(first + 1),
            tsc: self.load(first + 2),
        })
    }

    /// Loads one word of the ring.
    fn load(&self, word: usize) -> u64 {
        // SAFETY: `word` is below `WORDS << slots_log2`, inside the mapping promised to `new`,
        // aligned, and other writers write it in whole words only.
        #[allow(unsafe_code, reason = "shared memory is read through a raw pointer")]
        let cell = unsafe { AtomicU64::from_ptr(self.words.add(word).cast_mut()) };
        cell.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
