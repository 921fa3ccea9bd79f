//! The sample: one layout, defined here and in `ilk-driver/kmod/ilk_abi.h`.

use serde::{Deserialize, Serialize};

/// Bytes of a slot in a ring: half a cache line, so that no sample crosses one.
pub const SLOT_BYTES: usize = 32;
/// CPU number of samples that belong to no CPU: totals over all of them.
pub const ALL_CPUS: u16 = u16::MAX;

/// The record of one hit of an instrument. Its CPU is the ring's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sample {
    /// The packed [`InstrumentId`](crate::InstrumentId), 48 bits.
    pub id: u64,
    /// Measured value; its meaning and unit are in the recording's metadata.
    pub value: u64,
    /// Time in TSC ticks.
    pub tsc: u64,
}

/// Samples of one CPU in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The CPU, or [`ALL_CPUS`].
    pub cpu: u16,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
}
