//! Choices of the measurement of a process: the fate of what it starts, and the measurement in the code cache.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Children, CloneThreads, Exec};

/// The measurement of a process in the code cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CachedWork {
    /// Every block is counted.
    #[default]
    Blocks,
    /// The session's instruments run, and nothing else is measured.
    Instruments,
}

/// The fate of the children that a process in the code cache forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum CachedChildren {
    /// They execute their original code.
    #[default]
    Clean,
    /// Each is in a cache of its own, with counts of its own; with `--exec follows` those too that have executed another
    /// program at once, as by `posix_spawn`.
    Own,
}

/// The fate of what a measured process starts, its forked children and programs that it executes, and the measurement of
/// one in the code cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessChoices {
    /// Forked children of a process with splices.
    pub children: Children,
    /// The measurement when it executes another program.
    pub exec: Exec,
    /// The measurement when it executes in the code cache.
    pub cached: CachedWork,
    /// Forked children of a process in the code cache.
    pub cached_children: CachedChildren,
}

impl ProcessChoices {
    /// Returns whether all that a process with splices starts has the usual fate.
    #[must_use]
    pub fn is_usual(self) -> bool {
        self.children == Children::default() && self.exec == Exec::default()
    }

    /// Returns whether there is one measurement with splices: of one program, and of no child.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.children != Children::Own && self.exec == Exec::Ends
    }

    /// Returns whether there is one measurement in the code cache: of one program, and of no child.
    #[must_use]
    pub fn is_one_in_cache(self) -> bool {
        self.cached_children == CachedChildren::Clean && self.exec == Exec::Ends
    }

    /// Returns why what a process in the code cache starts cannot be measured beside a choice of threads, if so.
    #[must_use]
    pub fn refused_in_cache(self, threads: &CloneThreads) -> Option<&'static str> {
        let is_refused =
            self.cached_children == CachedChildren::Own && matches!(threads, CloneThreads::One(_));
        is_refused.then_some("Forked children are in the cache beside all threads, or those in a function, and not beside one")
    }

    /// Returns why a process with a part of the kernel cannot be measured so, if so.
    #[must_use]
    pub fn refused_with_kernel(self) -> Option<&'static str> {
        let children = self.children.refused_with_kernel();
        children.or_else(|| self.exec.refused_with_kernel())
    }
}
