//! What the values of an instrument mean, so that a file explains itself (the report names the
//! lack of this as its major flaw, 5.2.3) and a screen knows how to draw it.

use serde::{Deserialize, Serialize};

/// How the values of an instrument are to be read and drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Meaning {
    /// Something happened at the sample's time; the value says nothing more (a tick on a lane).
    Event,
    /// The value is a running total (steps).
    Count,
    /// The value is a measured quantity (points).
    Value,
    /// The value is a time in TSC ticks that ended at the sample's time (a slice).
    Duration,
    /// The value is the index of a basic block.
    Block,
    /// The value holds until the next sample of what was placed, on whatever CPU that is (steps).
    Level,
}
