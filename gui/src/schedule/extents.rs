//! Launch and splash of bars, computed after a change of the session only: a bar of a function may
//! stand for 100,000 placements.

use std::collections::HashMap;

use crate::document::Document;

/// First launch and last splash of the bars drawn since the last change, by the key of the bar.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// Numbers of the hooks and of the revision that they belong to.
    session: Option<(u64, u64)>,
    by_key: HashMap<u64, (f64, f64)>,
}

impl Extents {
    /// Returns the first launch and the last splash of placements, in seconds.
    pub(super) fn of(&mut self, document: &Document, key: u64, places: &[usize]) -> (f64, f64) {
        let session = Some((document.hooks(), document.revision()));
        if self.session != session {
            self.session = session;
            self.by_key.clear();
        }
        let placements = &document.session().placements;
        *self.by_key.entry(key).or_insert_with(|| {
            let all = places.iter().filter_map(|&place| placements.get(place));
            all.fold((f64::INFINITY, 0.0), |(launch, splash), one| {
                (one.launch.min(launch), one.splash.max(splash))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_duration::tests::scheduled;

    #[test]
    fn a_bar_covers_its_placements_after_each_change() {
        let session = scheduled(&[(2.0, 5.0), (1.0, 3.0), (0.0, 9.0)]);
        let mut document = Document::of(session, Vec::new(), None);
        let mut extents = Extents::default();
        assert_eq!(extents.of(&document, 7, &[0, 1]), (1.0, 5.0));
        document.edit("splash", |session| session.placements[1].splash = 8.0);
        assert_eq!(extents.of(&document, 7, &[0, 1]), (1.0, 8.0));
        assert_eq!(extents.of(&document, 8, &[2]), (0.0, 9.0));
    }
}
