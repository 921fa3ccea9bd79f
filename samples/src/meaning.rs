//! Meanings of an instrument's values, so that a file is self-describing (the report names the lack
//! of this as its major flaw, 5.2.3) and a screen can choose how to draw it.

use serde::{Deserialize, Serialize};

/// Meaning of an instrument's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Meaning {
    /// An event at the sample's time; the value carries no information (a tick on a lane).
    Event,
    /// A running total (steps).
    Count,
    /// A measured quantity (points).
    Value,
    /// A duration in TSC ticks that ended at the sample's time (a slice).
    Duration,
    /// The index of a basic block.
    Block,
    /// A value that holds until the next sample of the same placement, on any CPU (steps).
    Level,
}
