//! Violations: the parts of a plan that break a rule.

use thiserror::Error;

use super::reason::Reason;
use crate::{Addr, InstrumentId};

/// A broken rule: the part of the plan, the place, and the reason as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The plan as a whole, or its target.
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
        /// Time of the write, in seconds from the start.
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
        /// Address of the write.
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
    /// Hits while the splices of a batch are in place.
    #[error("In batch {batch} or after it, hits at {at} are not what they should be: {why}.")]
    Hits {
        /// Index in the plan's batches.
        batch: usize,
        /// Address that control reaches.
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
    /// An instrument, or its hook.
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
    /// Returns the rule that is broken.
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
