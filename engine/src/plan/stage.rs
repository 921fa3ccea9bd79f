//! Whoever waits for a plan hears how far it is, and may give it up.

use std::fmt;
use std::ops::ControlFlow;

use crate::{Error, Result};

/// What a plan is at. A plan of a whole kernel takes seconds; most take less than one can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Functions and their graphs are looked up.
    Graphs,
    /// Every hook gets its site.
    Sites,
    /// Patches are assembled. What sites were found with is not needed any more.
    Patches,
    /// Writes are put in order.
    Batches,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Graphs => "reading functions",
            Self::Sites => "finding sites",
            Self::Patches => "assembling patches",
            Self::Batches => "ordering writes",
        })
    }
}

/// Is told the stage at its beginning and now and then within it, and says whether to go on.
pub type Watch<'a> = dyn FnMut(Stage) -> ControlFlow<()> + 'a;

/// Tells, and goes on if that is wanted.
///
/// # Errors
/// [`Error::GivenUp`] if it is not.
pub(super) fn told(watch: &mut Watch<'_>, stage: Stage) -> Result<()> {
    match watch(stage) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::GivenUp),
    }
}
