//! Rings of samples.

use serde::{Deserialize, Serialize};

use super::SegmentOffset;
use crate::Addr;

/// Bytes of a slot, as a power of two (`struct ilk_slot`).
pub const SLOT_LOG2: u32 = 5;

/// Words of a line, at most, as a power of two: slots of 32 bytes that a slot of the ring that all threads share has, where
/// instruments have lines.
pub const LINE_LOG2: u32 = 3;

/// Bits of the number of a CPU in the mark of a slot of the ring that all threads share.
pub const CPU_BITS: u32 = 12;

/// The rings of samples, and the words by which slots are reserved. With [`Sequences`] the words are memory in the rows
/// of counters, the head is the number of filled slots so far, and nothing is written to a slot's mark; without rings there
/// only [`Rings::per`] has a meaning.
///
/// Where no thread has an area for sequences, all threads share ring 0, whose words are those of threads without an area:
/// a locked `cmpxchg` advances the head, and the mark, which makes a slot a sample, is
/// `serial number of the sample << CPU_BITS | number of the CPU`. A slot of this ring is one of a whole line
/// ([`Rings::slot_log2`]): the words after the first are where further slots would be, and have no marks. So a line is
/// reserved by one exchange and committed by one mark, and one that its thread leaves is one lost sample of a known length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// The owner of a ring.
    pub per: RingOwner,
    /// The first byte of ring 0.
    pub base: Addr,
    /// Ring `n` begins at `base + (n << stride_log2)`: slots of 32 bytes, or of the ring that all threads share of
    /// `1 << (stride_log2 - slots_log2)`, one ring after the other.
    pub stride_log2: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// `serial number of the next sample << (32 - slots_log2) | number of the ring`.
    pub head: SegmentOffset,
    /// The value of `head` at which the ring is full.
    pub limit: SegmentOffset,
    /// Counts hits not sampled because the ring was full.
    pub lost_full: SegmentOffset,
}

/// The owner of a ring, of its words, and of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RingOwner {
    /// A CPU, with words at the base of its segment. Reservations are local: an unlocked `cmpxchg`, which only an
    /// interrupt or a migration makes fail.
    Cpu,
    /// A thread. Per-CPU variables and words that all CPUs share have no meaning then; refused
    /// ([`Rule::RingOwner`](crate::Rule::RingOwner)).
    Thread,
    /// A CPU, from user space, by restartable sequences (`rseq(2)`): each write of a CPU's word is the commit of one.
    /// Without an area, all threads: what needs a CPU's words is refused ([`Rule::RingOwner`](crate::Rule::RingOwner)).
    Rseq(Sequences),
}

/// Restartable sequences of a process: how a thread finds the words of its CPU.
///
/// The [counters](super::RuntimeLayout::counter) are memory: those of CPU 0 at their addresses, those of CPU `n`
/// `n << stride_log2` bytes on. After the last CPU come the words of threads that have not registered an area: these
/// are updated with a lock prefix, and are the words that all CPUs [share](super::RuntimeLayout::shared).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sequences {
    /// The thread's `struct rseq` (include/uapi/linux/rseq.h), from the base of the segment: `__rseq_offset` of
    /// glibc. `None` if no thread registers one (musl, glibc before 2.35): then all update the words of threads without
    /// an area, and share a ring.
    pub area: Option<SegmentOffset>,
    /// The four bytes before the address where an aborted sequence continues, as the area was registered with them.
    pub signature: u32,
    /// CPUs that the machine may have: their numbers are below it.
    pub cpus: u32,
    /// Bytes from the words of a CPU to those of the next, as a power of two.
    pub stride_log2: u32,
}

impl Sequences {
    /// Bytes of a descriptor (`struct rseq_cs`), and its alignment.
    pub const DESCRIPTOR_BYTES: u64 = 32;

    /// The number of a CPU that the thread has executed on, 32 bits, always below [`Self::cpus`]: that of the last one,
    /// or 0 if the area is not registered (`cpu_id_start`).
    #[must_use]
    pub const fn cpu_id_start(self) -> Option<SegmentOffset> {
        self.area
    }

    /// The number of the CPU that the thread executes on, 32 bits: at least [`Self::cpus`] if the area is not
    /// registered.
    #[must_use]
    pub fn cpu_id(self) -> Option<SegmentOffset> {
        self.area.map(|area| SegmentOffset(area.0.wrapping_add(4)))
    }

    /// The address of the descriptor of the sequence that the thread executes, 64 bits.
    #[must_use]
    pub fn armed(self) -> Option<SegmentOffset> {
        self.area.map(|area| SegmentOffset(area.0.wrapping_add(8)))
    }

    /// The number of rings: one of each CPU, or one that all threads share.
    #[must_use]
    pub const fn rings(self) -> u32 {
        match self.area {
            Some(_) => self.cpus,
            None => 1,
        }
    }

    /// Bytes from a word of CPU 0 to that of threads without an area.
    #[must_use]
    pub const fn unregistered(self) -> u64 {
        (self.cpus as u64).wrapping_shl(self.stride_log2)
    }
}

impl Rings {
    /// Returns whether there are rings.
    #[must_use]
    pub const fn exist(&self) -> bool {
        !matches!(self.per, RingOwner::Rseq(_)) || self.base.0 != 0
    }

    /// Bytes of a slot, as a power of two.
    #[must_use]
    pub const fn slot_log2(&self) -> u32 {
        match self.per {
            RingOwner::Rseq(Sequences { area: None, .. }) => {
                self.stride_log2.saturating_sub(self.slots_log2)
            }
            RingOwner::Cpu | RingOwner::Thread | RingOwner::Rseq(_) => SLOT_LOG2,
        }
    }

    /// Words of a sample that a slot of the ring that all threads share has, at most.
    #[must_use]
    pub const fn words_of_slot(&self) -> u32 {
        1 << self.slot_log2().saturating_sub(SLOT_LOG2)
    }

    /// The same bytes as a ring whose slots have lines, if all threads share it.
    #[must_use]
    pub const fn with_lines(self) -> Self {
        match self.per {
            RingOwner::Rseq(Sequences { area: None, .. }) => Self {
                slots_log2: self.stride_log2.saturating_sub(SLOT_LOG2 + LINE_LOG2),
                ..self
            },
            RingOwner::Cpu | RingOwner::Thread | RingOwner::Rseq(_) => self,
        }
    }

    /// The rings of a process, each of `1 << slots_log2` slots, from `base` on, with the three words of CPU 0 at `words`.
    #[must_use]
    pub const fn of_sequences(
        sequences: Sequences,
        (base, slots_log2): (Addr, u32),
        words: u64,
    ) -> Self {
        Self {
            per: RingOwner::Rseq(sequences),
            base,
            stride_log2: slots_log2 + SLOT_LOG2,
            slots_log2,
            head: SegmentOffset(words),
            limit: SegmentOffset(words + 8),
            lost_full: SegmentOffset(words + 16),
        }
    }

    /// No rings: counters that are reached by restartable sequences.
    #[must_use]
    pub const fn none(sequences: Sequences) -> Self {
        Self {
            per: RingOwner::Rseq(sequences),
            base: Addr(0),
            stride_log2: 2 + SLOT_LOG2,
            slots_log2: 2,
            head: SegmentOffset(0),
            limit: SegmentOffset(0),
            lost_full: SegmentOffset(0),
        }
    }
}

impl RingOwner {
    /// Returns the reason why no code is generated for such rings, if none is.
    pub(crate) const fn unserved(self) -> Option<&'static str> {
        match self {
            Self::Cpu | Self::Rseq(_) => None,
            Self::Thread => {
                Some("the target has a ring per thread, and code is generated for rings of CPUs")
            }
        }
    }
}
