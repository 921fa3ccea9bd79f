//! The sample: one layout, defined here and in `ilk-driver/kmod/ilk_abi.h`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Bytes of a slot in a ring: half a cache line, so that no sample crosses one.
pub const SLOT_BYTES: usize = 32;
/// CPU number of samples that belong to no CPU: totals over all of them.
pub const ALL_CPUS: u16 = u16::MAX;

/// Returns the number of a CPU, if there is one.
#[must_use]
pub fn known_cpu(cpu: u16) -> Option<u16> {
    (cpu != ALL_CPUS).then_some(cpu)
}

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

impl Sample {
    /// Mark of an identifier, above its bits, whose sample is a further word of the sample before it in the ring.
    pub const WORD: u64 = 1 << 48;

    /// Returns whether it is a further word of the sample before it, with the same time.
    #[must_use]
    pub const fn is_word(&self) -> bool {
        self.id & Self::WORD != 0
    }

    /// Returns the sample with the mark of a further word.
    #[must_use]
    pub const fn as_word(self) -> Self {
        Self {
            id: self.id | Self::WORD,
            ..self
        }
    }

    /// Returns the sample without that mark.
    #[must_use]
    pub const fn without_mark(self) -> Self {
        Self {
            id: self.id & !Self::WORD,
            ..self
        }
    }
}

impl Batch {
    /// Returns the number of samples, without further words.
    #[must_use]
    pub fn len(&self) -> usize {
        let samples = self.samples.iter();
        samples.filter(|sample| !sample.is_word()).count()
    }

    /// Returns the samples without further words.
    #[must_use]
    pub fn without_words(&self) -> Cow<'_, Self> {
        if !self.samples.iter().any(Sample::is_word) {
            return Cow::Borrowed(self);
        }
        let samples = self.samples.iter().copied();
        Cow::Owned(Self {
            cpu: self.cpu,
            samples: samples.filter(|sample| !sample.is_word()).collect(),
        })
    }

    /// Returns whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Samples of one CPU in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The CPU, or [`ALL_CPUS`].
    pub cpu: u16,
    /// Samples in order of time, each followed by its [further words](Sample::is_word).
    pub samples: Vec<Sample>,
}
