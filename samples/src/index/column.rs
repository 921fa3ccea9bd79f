//! The results of queries: samples, aggregates of samples, and summaries of lanes.

/// A sample of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Time in TSC ticks.
    pub tsc: u64,
    /// Measured value.
    pub value: u64,
    /// CPU of the sample.
    pub cpu: u16,
}

/// Aggregate of the samples in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number of samples.
    pub count: u64,
    /// Minimum of the values; `u64::MAX` without samples.
    pub min: u64,
    /// Maximum of the values; 0 without samples.
    pub max: u64,
    /// Sum of the values, modulo 2¹²⁸.
    pub sum: u128,
}

impl Default for Column {
    fn default() -> Self {
        Self {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }
}

impl Column {
    /// Returns the mean of the values; `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum = self.sum.wrapping_add(u128::from(value));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Summary of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The packed identifier of its instrument.
    pub id: u64,
    /// Aggregate of all of its samples.
    pub total: Column,
    /// Time of its first sample, in TSC ticks.
    pub first: u64,
    /// Time of its last sample, in TSC ticks.
    pub last: u64,
}
