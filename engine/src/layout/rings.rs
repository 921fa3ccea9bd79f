//! Rings of samples.

use serde::{Deserialize, Serialize};

use super::SegmentOffset;
use crate::Addr;

/// Bytes of a slot, as a power of two (`struct ilk_slot`).
pub const SLOT_LOG2: u32 = 5;

/// The rings of samples, and the words by which slots are reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// The owner of a ring.
    pub per: RingOwner,
    /// The first byte of ring 0.
    pub base: Addr,
    /// Ring `n` begins at `base + (n << stride_log2)`: slots of 32 bytes, one ring after the other.
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
    /// A CPU, from user space, by restartable sequences (`rseq(2)`): a reservation would have to be one; refused
    /// ([`Rule::RingOwner`](crate::Rule::RingOwner)).
    Rseq,
}

impl RingOwner {
    /// Returns the reason why no code is generated for such rings, if none is.
    pub(crate) const fn unserved(self) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Thread => {
                Some("the target has a ring per thread, and code is generated for rings of CPUs")
            }
            Self::Rseq => Some(
                "the target's rings are reached by restartable sequences, which are not generated",
            ),
        }
    }
}
