//! The schedule: every instrument as a bar from launch to splash, grouped by function.
//!
//! [`drag`] computes the effect of a drag, without a window; `pane` draws and handles input.

mod bar;
pub mod drag;
mod pane;
mod ruler;

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::Session;

pub(crate) use pane::{header, show};

use drag::Drag;

/// State of the pane.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Functions whose instruments are folded.
    pub folded: BTreeSet<Arc<str>>,
    /// The drag in progress.
    pub(crate) drag: Option<Drag>,
    /// The rows listed last.
    listed: Option<Listed>,
}

/// Rows, with the session and the folded functions that they list.
#[derive(Debug)]
struct Listed {
    session: Arc<Session>,
    folded: BTreeSet<Arc<str>>,
    rows: Arc<Vec<Row>>,
}

/// A row of the pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A function and the indices of its placements in the session.
    Group(Arc<str>, Vec<usize>),
    /// An instrument, by the index of its placement.
    Bar(usize),
}

impl Schedule {
    /// Returns the [rows](Self::rows), computed only after a change.
    pub(crate) fn list(&mut self, session: &Arc<Session>) -> Arc<Vec<Row>> {
        if let Some(listed) = &self.listed
            && Arc::ptr_eq(&listed.session, session)
            && listed.folded == self.folded
        {
            return Arc::clone(&listed.rows);
        }
        let rows = Arc::new(self.rows(session));
        self.listed = Some(Listed {
            session: Arc::clone(session),
            folded: self.folded.clone(),
            rows: Arc::clone(&rows),
        });
        rows
    }

    /// Returns the rows of a session: functions in the order of their first placements.
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
