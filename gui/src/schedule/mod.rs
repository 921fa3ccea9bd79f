//! The schedule: every instrument a bar from launch to splash, on one ruler, by function.
//!
//! [`bars`] is what a drag does to times, without a window; `pane` draws and takes input.

mod bar;
pub mod bars;
mod pane;
mod ruler;

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::Session;

pub(crate) use pane::{header, show};

use bars::Drag;

/// The pane's state.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Functions whose instruments are not listed.
    pub folded: BTreeSet<Arc<str>>,
    /// The bar that is being dragged.
    pub(crate) drag: Option<Drag>,
}

/// A row of the pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A function and the places of its instruments in the session.
    Group(Arc<str>, Vec<usize>),
    /// An instrument, by its place in the session.
    Bar(usize),
}

impl Schedule {
    /// The rows of a session: functions in the order of their first instruments.
    #[must_use]
    pub fn rows(&self, session: &Session) -> Vec<Row> {
        let mut groups: Vec<(Arc<str>, Vec<usize>)> = Vec::new();
        let mut known: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
        for (place, placement) in session.placements.iter().enumerate() {
            let group = *known.entry(&placement.function).or_insert_with(|| {
                groups.push((Arc::clone(&placement.function), Vec::new()));
                groups.len() - 1
            });
            if let Some((_, places)) = groups.get_mut(group) {
                places.push(place);
            }
        }
        let mut rows = Vec::new();
        for (function, places) in groups {
            let open = !self.folded.contains(&function);
            rows.push(Row::Group(function, places.clone()));
            if open {
                rows.extend(places.into_iter().map(Row::Bar));
            }
        }
        rows
    }
}
