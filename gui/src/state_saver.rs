//! Bookkeeping of the persistent state that was written last.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::desk::Shelf;
use crate::recent_paths::RecentPaths;
use crate::theme::Colours;

/// Layout, colours, and recent paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Preferences {
    pub(crate) look: Colours,
    pub(crate) layout: Option<Shelf>,
    pub(crate) recent: RecentPaths,
}

/// Writes the persistent state when it has changed.
#[derive(Debug, Default)]
pub(crate) struct StateSaver {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) preferences: Preferences,
    pub(crate) session: Option<(u64, u64)>,
    pub(crate) written: bool,
    pub(crate) changed: Option<Instant>,
}
