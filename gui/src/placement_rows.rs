//! The placements of a session as rows, grouped by function: of the session's table and of the
//! schedule.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use egui::Context;
use gilk_engine::paths::counts_paths_of;
use gilk_engine::session::Placement;

use crate::derived::{Derived, LARGE};
use crate::document::Document;
use crate::placements::Placements;
use crate::widgets;

/// Rows of a session, computed after a change only; those of a large session on a thread.
#[derive(Debug, Default)]
pub(crate) struct PlacementRows {
    /// Functions whose placements are folded.
    folded: BTreeSet<Arc<str>>,
    /// Number of changes of `folded`.
    folds: u64,
    /// The rows by [`Document::hooks`] and `folds`.
    rows: Derived<(u64, u64), Arc<Vec<Row>>>,
}

/// A line of the table or of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// A function and the indices of its placements in the session.
    Group(Arc<str>, Vec<usize>),
    /// A placement, by its index.
    Placement(usize),
    /// The only placement of its function, by its index; its row has the function's name.
    Alone(usize),
    /// The function whose paths are counted, and the indices of the placements that count them together.
    Paths(Arc<str>, Vec<usize>),
}

impl PlacementRows {
    /// Returns the rows, functions in the order of their first placements, and whether they are those of the session
    /// now: until the rows of a large session are computed, the indices of the last rows are not to be used for edits.
    pub(crate) fn list(&mut self, document: &Document, ctx: &Context) -> (Arc<Vec<Row>>, bool) {
        let key = (document.hooks(), self.folds);
        if !self.rows.is_current(&key) {
            let placements = document.session().placements.clone();
            let folded = self.folded.clone();
            let is_large = placements.len() >= LARGE;
            let compute = move || Arc::new(rows(&placements, &folded));
            self.rows.request(key, is_large, ctx, compute);
        }
        let last = self.rows.last();
        let rows = last.map_or_else(Arc::default, |(_, rows)| Arc::clone(rows));
        (rows, self.rows.is_current(&key))
    }

    /// Folds the placements of a function, or unfolds them.
    pub(crate) fn fold(&mut self, function: &Arc<str>) {
        self.folds += 1;
        if !self.folded.remove(function) {
            self.folded.insert(Arc::clone(function));
        }
    }

    /// Returns whether the placements of a function are folded.
    pub(crate) fn is_folded(&self, function: &str) -> bool {
        self.folded.contains(function)
    }
}

fn rows(placements: &Placements, folded: &BTreeSet<Arc<str>>) -> Vec<Row> {
    let mut groups: Vec<(Arc<str>, Vec<usize>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    // Neighbours are mostly in the same function.
    let mut last: Option<(&Arc<str>, usize)> = None;
    for (place, placement) in placements.iter().enumerate() {
        let is_last = |(name, _): &(&Arc<str>, _)| Arc::ptr_eq(name, &placement.function);
        let group = match last.filter(is_last) {
            Some((_, group)) => group,
            None => *known.entry(&placement.function).or_insert_with(|| {
                groups.push((Arc::clone(&placement.function), Vec::new()));
                groups.len() - 1
            }),
        };
        last = Some((&placement.function, group));
        if let Some((_, places)) = groups.get_mut(group) {
            places.push(place);
        }
    }
    let mut rows = Vec::new();
    for (function, places) in groups {
        let open = !folded.contains(&function);
        let counts_paths = |place: &usize| {
            let placement = placements.get(*place);
            placement.is_some_and(|one| counts_paths_of(&one.instrument, &function))
        };
        if let [place] = places.as_slice()
            && !counts_paths(place)
        {
            rows.push(Row::Alone(*place));
            continue;
        }
        rows.push(Row::Group(Arc::clone(&function), places.clone()));
        if !open {
            continue;
        }
        let (paths, others): (Vec<_>, Vec<_>) = places.into_iter().partition(counts_paths);
        if !paths.is_empty() {
            rows.push(Row::Paths(Arc::clone(&function), paths));
        }
        rows.extend(others.into_iter().map(Row::Placement));
    }
    rows
}

/// Returns a placement's accessibility name.
pub(crate) fn label(one: &Placement) -> String {
    format!(
        "{} {} {} block {}",
        one.instrument, one.hook, one.function, one.block
    )
}

/// Returns the words of a row of instruments that count paths.
pub(crate) fn paths_label(hooks: usize) -> String {
    format!("counts paths, {}", widgets::counted(hooks, "hook"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_engine::{HookType, Session};

    #[test]
    fn placements_are_grouped_in_the_order_of_the_session() {
        let placement = |function: &str| Placement {
            function: function.into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: 1.0,
        };
        let mut session = Session::empty();
        session.placements = ["b", "a", "b"].map(placement).to_vec();
        let session = Document::of(session, Vec::new(), None);
        let mut rows = PlacementRows::default();
        let ctx = Context::default();
        let b: Arc<str> = Arc::from("b");
        let group = |function: &Arc<str>, places: &[usize]| {
            Row::Group(Arc::clone(function), places.to_vec())
        };
        let all = [
            group(&b, &[0, 2]),
            Row::Placement(0),
            Row::Placement(2),
            Row::Alone(1),
        ];
        assert_eq!(*rows.list(&session, &ctx).0, all);
        rows.fold(&b);
        assert_eq!(
            *rows.list(&session, &ctx).0,
            [group(&b, &[0, 2]), Row::Alone(1)]
        );
        rows.fold(&b);
        assert_eq!(*rows.list(&session, &ctx).0, all);
    }

    #[test]
    fn instruments_that_count_paths_are_one_row() {
        let placement = |instrument: &str| Placement {
            function: "f_1".into(),
            block: 0,
            hook: HookType::Pre,
            instrument: instrument.into(),
            launch: 0.0,
            splash: 1.0,
        };
        let mut session = Session::empty();
        session.placements = ["path-f-1-0", "counter", "path-f-1-1", "path-g-0"]
            .map(placement)
            .to_vec();
        let function: Arc<str> = "f_1".into();
        let rows = PlacementRows::default()
            .list(
                &Document::of(session, Vec::new(), None),
                &Context::default(),
            )
            .0;
        let expected = [
            Row::Group(Arc::clone(&function), vec![0, 1, 2, 3]),
            Row::Paths(function, vec![0, 2]),
            Row::Placement(1),
            Row::Placement(3),
        ];
        assert_eq!(*rows, expected);
    }
}
