//! A producer in Rust that follows the protocol of the patches, and readers of its rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;

const CPU: u64 = 3;

/// A ring with the producer's words, as the module lays them out for one CPU.
struct Ring {
    words: Vec<AtomicU64>,
    slots_log2: u32,
    head: AtomicU64,
    limit: AtomicU64,
    lost: AtomicU64,
}

impl Ring {
    fn new(slots_log2: u32, start: u64) -> Self {
        let slots = 1u64 << slots_log2;
        Self {
            words: (0..slots * 4).map(|_| AtomicU64::new(0)).collect(),
            slots_log2,
            head: AtomicU64::new(start),
            limit: AtomicU64::new(start + slots),
            lost: AtomicU64::new(0),
        }
    }

    fn reader(&self, start: u64) -> RingReader {
        // SAFETY: the ring outlives the reader in every test, and only `commit` writes it.
        #[allow(unsafe_code, reason = "the mapping under test")]
        let reader = unsafe {
            RingReader::new(
                self.words.as_ptr().cast(),
                self.words.len() * 8,
                self.slots_log2,
            )
        };
        reader.unwrap().starting_at(start)
    }

    /// Reserves a slot like a patch, and returns its serial number and time, or `None` when full.
    fn reserve(&self, clock: &AtomicU64) -> Option<(u64, u64)> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head == self.limit.load(Ordering::Acquire) {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let tsc = clock.fetch_add(1, Ordering::Relaxed);
            if self
                .head
                .compare_exchange(head, head + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return Some((head, tsc));
            }
        }
    }

    fn commit(&self, serial: u64, id: u64, value: u64, tsc: u64) {
        let first = (serial & ((1 << self.slots_log2) - 1)) as usize * 4;
        self.words[first + 1].store(value, Ordering::Relaxed);
        self.words[first + 2].store(tsc, Ordering::Relaxed);
        self.words[first + 3].store(id, Ordering::Relaxed);
        let mark = serial << (32 - self.slots_log2) | CPU;
        self.words[first].store(mark, Ordering::Release);
    }

    fn put(&self, clock: &AtomicU64, id: u64, value: u64) -> bool {
        let slot = self.reserve(clock);
        if let Some((serial, tsc)) = slot {
            self.commit(serial, id, value, tsc);
        }
        slot.is_some()
    }

    fn consume(&self, reader: &RingReader) {
        self.limit
            .store(reader.tail() + (1 << self.slots_log2), Ordering::Release);
    }
}

#[test]
fn a_fresh_ring_is_empty_and_a_bad_mapping_is_refused() {
    let ring = Ring::new(4, 16);
    let mut out = Vec::new();
    assert_eq!(ring.reader(16).drain(&mut out, usize::MAX), 0);
    let base = ring.words.as_ptr().cast::<u8>();
    // SAFETY: refused before anything is read.
    #[allow(unsafe_code, reason = "wrong mappings on purpose")]
    let refused = unsafe {
        [
            RingReader::new(base, 16 * 32 - 1, 4),
            RingReader::new(base.wrapping_add(1), 16 * 32, 4),
            RingReader::new(std::ptr::null(), 16 * 32, 4),
            RingReader::new(base, 16 * 32, 60),
        ]
    };
    assert!(refused.iter().all(Option::is_none));
}

#[test]
fn a_hole_stops_the_reader_until_it_is_filled() {
    let (ring, clock) = (Ring::new(3, 8), AtomicU64::new(0));
    let mut reader = ring.reader(8);
    let mut out = Vec::new();
    ring.put(&clock, 1, 1);
    let (serial, tsc) = ring.reserve(&clock).unwrap();
    ring.put(&clock, 3, 3);
    assert_eq!(reader.drain(&mut out, usize::MAX), 1);
    assert_eq!(reader.tail(), serial);
    ring.commit(serial, 2, 2, tsc);
    assert_eq!(reader.drain(&mut out, usize::MAX), 2);
    assert_eq!(out.iter().map(|s| s.id).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_full_ring_is_drained_completely_and_counts_its_losses() {
    let (ring, clock) = (Ring::new(5, 32), AtomicU64::new(0));
    let accepted = (0..100).filter(|&n| ring.put(&clock, n, n)).count();
    assert_eq!((accepted, ring.lost.load(Ordering::Relaxed)), (32, 68));
    let mut out = Vec::new();
    assert_eq!(ring.reader(32).drain(&mut out, usize::MAX), 32);
}

/// Runs a producer thread against a reader thread, for as many laps as necessary.
fn race(slots_log2: u32, start: u64, samples: u64, max: usize) {
    let ring = Arc::new(Ring::new(slots_log2, start));
    let producer = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            let clock = AtomicU64::new(1);
            (0..samples)
                .filter(|&n| ring.put(&clock, n, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                .count()
        })
    };
    let mut reader = ring.reader(start);
    let mut out = Vec::new();
    loop {
        let done = producer.is_finished();
        let before = out.len();
        let count = reader.drain(&mut out, max);
        assert_eq!(out.len() - before, count);
        ring.consume(&reader);
        if done && count == 0 {
            break;
        }
    }
    let accepted = producer.join().unwrap();
    assert_eq!(out.len(), accepted, "every accepted sample arrives once");
    assert_eq!(
        accepted as u64 + ring.lost.load(Ordering::Relaxed),
        samples,
        "hits = delivered + lost"
    );
    assert_eq!(reader.tail(), start + accepted as u64);
    assert!(
        out.iter()
            .all(|s| s.value == s.id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        "no sample is torn"
    );
    assert!(
        out.windows(2).all(|pair| pair[0].tsc < pair[1].tsc),
        "in order of time"
    );
}

#[test]
fn a_producer_and_a_reader_agree_over_many_laps() {
    race(6, 64, 400_000, usize::MAX);
    race(12, 4096, 400_000, 100);
}

#[test]
fn the_serial_number_wraps() {
    let slots = 8;
    // 2^32 laps of 2^3 slots.
    let serials = 1u64 << 35;
    let start = serials - 3;
    let ring = Ring::new(3, start);
    let clock = AtomicU64::new(0);
    for n in 0..slots {
        let (serial, tsc) = ring.reserve(&clock).unwrap();
        ring.commit(serial % serials, n, n, tsc);
    }
    let mut reader = ring.reader(start);
    let mut out = Vec::new();
    assert_eq!(reader.drain(&mut out, usize::MAX), 8);
    assert_eq!(reader.tail(), 5);
}

proptest! {
    /// Reserving, committing late and draining in any order: exactly the longest committed prefix
    /// of the reserved samples is delivered.
    #[test]
    fn any_schedule_delivers_in_order(
        slots_log2 in 1u32..6,
        laps in 1u64..70_000,
        steps in prop::collection::vec((0u8..4, 0usize..8), 1..300),
    ) {
        let start = laps << slots_log2;
        let (ring, clock) = (Ring::new(slots_log2, start), AtomicU64::new(0));
        let mut reader = ring.reader(start);
        let (mut open, mut all, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for (step, which) in steps {
            match step {
                0 | 1 => if let Some((serial, tsc)) = ring.reserve(&clock) {
                    open.push((serial, tsc));
                    all.push((serial, tsc, false));
                },
                2 if !open.is_empty() => {
                    let (serial, tsc) = open.swap_remove(which % open.len());
                    ring.commit(serial, serial, !serial, tsc);
                    all.iter_mut().find(|slot| slot.0 == serial).unwrap().2 = true;
                }
                _ => {
                    let count = reader.drain(&mut out, which);
                    prop_assert!(count <= which);
                    ring.consume(&reader);
                }
            }
        }
        reader.drain(&mut out, usize::MAX);
        let expected: Vec<_> = all
            .iter()
            .take_while(|slot| slot.2)
            .map(|&(serial, tsc, _)| Sample { id: serial, value: !serial, tsc })
            .collect();
        prop_assert_eq!(out, expected);
    }
}
