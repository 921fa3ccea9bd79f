//! The schedule: every instrument as a bar from launch to splash, grouped by function.
//!
//! [`drag`] computes the effect of a drag, without a window; `pane` draws and handles input.

mod bar;
mod batch_words;
pub mod drag;
mod pane;
mod ruler;

pub(crate) use pane::{header, show};

use crate::placement_rows::PlacementRows;
use batch_words::BatchWords;
use drag::Drag;

/// State of the pane.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Functions and bars, from the top.
    pub(crate) rows: PlacementRows,
    /// The drag in progress.
    pub(crate) drag: Option<Drag>,
    /// Descriptions of the batches in view.
    words: BatchWords,
}
