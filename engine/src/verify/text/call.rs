//! Effects of calls on the registers of their caller.

use super::effects::Mask;
use crate::{Addr, Image};

/// The registers that a call may read, and those that it overwrites on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) reads: Mask,
    pub(crate) kills: Mask,
}

impl Call {
    pub(crate) const UNKNOWN: Self = Self {
        reads: Mask::ALL,
        kills: Mask::NONE,
    };
    pub(crate) const CONVENTION: Self = Self {
        reads: Mask::CALL,
        kills: Mask::CLOBBERED,
    };

    /// Returns the registers that are live before the call, if `after` are live after it.
    pub(crate) fn before(self, after: Mask) -> Mask {
        after.without(self.kills).union(self.reads)
    }
}

/// Maximum depth of calls whose callees are read.
pub(crate) const FOLLOWED: u8 = 3;

/// A source of call effects, by target.
pub(crate) trait CallEffects {
    /// The image of the targets.
    fn image(&self) -> &Image;

    /// The effect of a call of `to`, or of a jump in its place. Callees of callees are read to a depth of
    /// `followed`.
    fn call(&self, to: Addr, followed: u8) -> Call;
}
