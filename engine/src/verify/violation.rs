//! What can be wrong with a plan.

use thiserror::Error;

use super::reason::Reason;
use crate::{Addr, InstrumentId};

/// What is wrong with a plan: which part of it, where, and why in a sentence.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The plan as a whole, or the target it was made for.
    #[error("The plan is wrong: {why}.")]
    Plan {
        /// The reason.
        why: Reason,
    },
    /// A batch as a whole.
    #[error("Batch {batch}, at {time} s, is wrong: {why}.")]
    Batch {
        /// Index in the plan's batches.
        batch: usize,
        /// When it would be written, in seconds from the start.
        time: f64,
        /// The reason.
        why: Reason,
    },
    /// One write of text.
    #[error("Poke {poke} of batch {batch}, at {at}, is wrong: {why}.")]
    Poke {
        /// Index in the plan's batches.
        batch: usize,
        /// Index in the batch's pokes.
        poke: usize,
        /// Where it would write.
        at: Addr,
        /// The reason.
        why: Reason,
    },
    /// The bytes that a site's splice overwrites, or the instructions it displaces or copies.
    #[error("Site {site} may not be spliced, at {at}: {why}.")]
    Site {
        /// Index in the plan's sites.
        site: usize,
        /// The instruction or byte of the kernel's text.
        at: Addr,
        /// The reason.
        why: Reason,
    },
    /// The bytes of a bounce.
    #[error("Bounce {bounce} may not be at {at}: {why}.")]
    Bounce {
        /// Index in the plan's bounces.
        bounce: usize,
        /// Its first byte.
        at: Addr,
        /// The reason.
        why: Reason,
    },
    /// What is counted while batches' splices are in place.
    #[error("In batch {batch} or after it, hits at {at} are not what they should be: {why}.")]
    Hits {
        /// Index in the plan's batches.
        batch: usize,
        /// Where control comes to.
        at: Addr,
        /// The reason.
        why: Reason,
    },
    /// The code of a patch.
    #[error("Patch {patch} is wrong at {at}: {why}.")]
    Patch {
        /// Index in the plan's patches.
        patch: usize,
        /// The instruction in the patch.
        at: Addr,
        /// The reason.
        why: Reason,
    },
    /// An instrument, or where it stands.
    #[error("Instrument {id} is wrong at {at}: {why}.")]
    Instrument {
        /// The instrument.
        id: InstrumentId,
        /// Its hook.
        at: Addr,
        /// The reason.
        why: Reason,
    },
}

impl Violation {
    /// The rule that is broken.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        match self {
            Self::Plan { why }
            | Self::Batch { why, .. }
            | Self::Poke { why, .. }
            | Self::Site { why, .. }
            | Self::Bounce { why, .. }
            | Self::Hits { why, .. }
            | Self::Patch { why, .. }
            | Self::Instrument { why, .. } => why,
        }
    }
}
