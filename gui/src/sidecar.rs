//! Sidecar of a session's file: the layout of its panes, the notes on its timeline, and the fate of what a process starts
//! that it runs in.

use std::path::{Path, PathBuf};

use ilk_driver::process::ProcessChoices;
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, Shelf};
use crate::document::{Edited, Note};

/// Sidecar of a session: its layout, the notes on its timeline, and choices for a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sidecar {
    layout: Option<Shelf>,
    /// Notes on the session's times.
    pub notes: Vec<Note>,
    /// The fate of what a process starts.
    pub choices: ProcessChoices,
}

impl Sidecar {
    /// Reads the sidecar of the session at `path`, if it exists.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        read_ron(&sidecar_path(path))
    }

    /// Returns the layout.
    #[must_use]
    pub fn desk(&self) -> Option<Desk> {
        self.layout.as_ref()?.desk()
    }

    /// Serializes the sidecar of a layout, and the notes and choices of a session.
    pub(crate) fn text(desk: &Desk, edited: &Edited) -> Option<String> {
        let sidecar = Self {
            layout: Shelf::of(desk),
            notes: edited.notes.clone(),
            choices: edited.choices,
        };
        ron::to_string(&sidecar).ok()
    }
}

/// Returns the path of the sidecar of the session at `path`.
pub(crate) fn sidecar_path(path: &Path) -> PathBuf {
    path.with_extension("desk.ron")
}

/// Reads a RON file; `None` if it is missing or of another version.
pub(crate) fn read_ron<T: for<'d> Deserialize<'d>>(path: &Path) -> Option<T> {
    ron::from_str(&std::fs::read_to_string(path).ok()?).ok()
}
