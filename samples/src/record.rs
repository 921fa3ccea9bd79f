//! The sample: one layout, written here and in `ilk-driver/kmod/ilk_abi.h`.

use serde::{Deserialize, Serialize};

/// Bytes of a slot in a ring: half a cache line, so that no sample lies across two.
pub const SLOT_BYTES: usize = 32;
/// The CPU of samples that belong to no CPU: totals over all of them.
pub const ALL_CPUS: u16 = u16::MAX;

/// What one hit of an instrument delivers. The CPU is the ring's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sample {
    /// The packed [`InstrumentId`](crate::InstrumentId), 48 bits.
    pub id: u64,
    /// What was measured; its meaning and unit stand in the recording's metadata.
    pub value: u64,
    /// When, in TSC ticks.
    pub tsc: u64,
}

/// Samples of one CPU in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The CPU, or [`ALL_CPUS`].
    pub cpu: u16,
    /// In order of time.
    pub samples: Vec<Sample>,
}
