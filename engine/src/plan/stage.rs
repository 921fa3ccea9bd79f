//! Progress reports and cancellation of planning and verification.

use std::fmt;
use std::ops::ControlFlow;

use crate::{Error, Result};

/// A stage of planning. A plan of a whole kernel takes seconds, most others a few milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Functions and their graphs are resolved.
    Graphs,
    /// Every hook gets its site.
    Sites,
    /// Patches are assembled. The memory of placement is free.
    Patches,
    /// Writes are put in order.
    Batches,
    /// The plan is verified. The memory of planning is free.
    Proofs,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Graphs => "reading functions",
            Self::Sites => "finding sites",
            Self::Patches => "assembling patches",
            Self::Batches => "ordering writes",
            Self::Proofs => "verifying the plan",
        })
    }
}

/// Callback at the beginning of each stage and repeatedly within it; `Break` cancels the plan, or its verification.
pub type Watch<'a> = dyn FnMut(Stage) -> ControlFlow<()> + 'a;

/// Reports a stage.
///
/// # Errors
/// [`Error::GivenUp`] if the callback cancels the plan.
pub(crate) fn report(watch: &mut Watch<'_>, stage: Stage) -> Result<()> {
    match watch(stage) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::GivenUp),
    }
}
