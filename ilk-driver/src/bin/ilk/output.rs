//! The files that commands write.

use clap::Args;
use gilk_samples::output::{Existing, Goals};

/// The switch for outputs that replace files.
#[derive(Args, Clone, Copy)]
pub(crate) struct Force {
    /// Replace existing files, even inputs of the command. Without it only a recording replaces an
    /// older recording.
    #[arg(long)]
    force: bool,
}

impl Force {
    /// Returns whether existing files are replaced.
    pub(crate) const fn replaces(self) -> bool {
        self.force
    }

    /// Returns the goals of a command with this switch.
    pub(crate) const fn goals(self) -> Goals {
        Goals::new(match self.force {
            true => Existing::Replaced,
            false => Existing::Kept,
        })
    }
}

#[cfg(test)]
mod tests;
