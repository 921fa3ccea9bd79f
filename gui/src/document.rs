//! The session being edited: undo, redo, and whether it is saved.

use std::path::{Path, PathBuf};

use gilk_engine::Session;

/// How many steps can be undone.
const STEPS: usize = 200;

/// A session, what it was, and where it is kept.
#[derive(Clone, Debug)]
pub struct Document {
    session: Session,
    saved: Session,
    path: Option<PathBuf>,
    undo: Vec<Session>,
    redo: Vec<Session>,
    /// What the last edit changed, while more of the same may follow (a number being dragged).
    open: Option<String>,
    revision: u64,
}

impl Document {
    /// A new, empty session.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Session::empty(), None)
    }

    /// A session that was read from `path`.
    #[must_use]
    pub fn of(session: Session, path: Option<PathBuf>) -> Self {
        Self {
            saved: session.clone(),
            session,
            path,
            undo: Vec::new(),
            redo: Vec::new(),
            open: None,
            revision: 0,
        }
    }

    /// A session whose window ended before it was saved.
    #[must_use]
    pub fn restored(session: Session, path: Option<PathBuf>) -> Self {
        Self {
            saved: Session::empty(),
            ..Self::of(session, path)
        }
    }

    /// The session as it is now.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Where it is kept, if it was ever saved.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Grows with every change, undone ones too.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether there are changes that no file has.
    #[must_use]
    pub fn unsaved(&self) -> bool {
        self.session != self.saved
    }

    /// Whether there is something to undo.
    #[must_use]
    pub fn can_undo(&self) -> bool {
        !self.undo.is_empty()
    }

    /// Whether something undone can be done again.
    #[must_use]
    pub fn can_redo(&self) -> bool {
        !self.redo.is_empty()
    }

    /// Changes the session. One call is one step to undo; but calls in a row with the same `what`
    /// are one step, until [`Document::close_step`].
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut Session)) {
        let before = self.session.clone();
        change(&mut self.session);
        if self.session == before {
            return;
        }
        self.revision += 1;
        self.redo.clear();
        if self.open.as_deref() != Some(what) || self.undo.is_empty() {
            self.undo.push(before);
            if self.undo.len() > STEPS {
                self.undo.remove(0);
            }
        }
        self.open = Some(what.to_owned());
    }

    /// Ends a step: what follows is another, even with the same name.
    pub fn close_step(&mut self) {
        self.open = None;
    }

    /// Takes the last step back. Returns whether there was one.
    pub fn undo(&mut self) -> bool {
        let Some(before) = self.undo.pop() else {
            return false;
        };
        self.redo.push(std::mem::replace(&mut self.session, before));
        self.moved();
        true
    }

    /// Does the last undone step again. Returns whether there was one.
    pub fn redo(&mut self) -> bool {
        let Some(after) = self.redo.pop() else {
            return false;
        };
        self.undo.push(std::mem::replace(&mut self.session, after));
        self.moved();
        true
    }

    fn moved(&mut self) {
        self.revision += 1;
        self.close_step();
    }

    /// Counts the session as saved though it is not: a person said that the changes may go.
    pub fn forget_changes(&mut self) {
        self.saved = self.session.clone();
    }

    /// Notes that `session` stands in the file at `path` now.
    pub fn saved_as(&mut self, session: Session, path: PathBuf) {
        self.saved = session;
        self.path = Some(path);
    }
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Name(u8),
        Drag(u8),
        Close,
        Undo,
        Redo,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u8>().prop_map(Step::Name),
            any::<u8>().prop_map(Step::Drag),
            Just(Step::Close),
            Just(Step::Undo),
            Just(Step::Redo),
        ]
    }

    proptest! {
        #[test]
        fn undoing_everything_and_redoing_everything_leads_back(steps in prop::collection::vec(step(), 0..40)) {
            let mut document = Document::new();
            for step in steps {
                match step {
                    Step::Name(n) => { document.edit("name", |s| s.name = format!("n{n}")); document.close_step(); }
                    Step::Drag(n) => document.edit("duration", |s| s.duration = f64::from(n) + 1.0),
                    Step::Close => document.close_step(),
                    Step::Undo => { document.undo(); }
                    Step::Redo => { document.redo(); }
                }
            }
            while document.redo() {}
            let last = document.session().clone();
            while document.undo() {}
            prop_assert_eq!(document.session(), &Session::empty());
            prop_assert!(!document.unsaved());
            while document.redo() {}
            prop_assert_eq!(document.session(), &last);
        }
    }

    #[test]
    fn a_drag_is_one_step() {
        let mut document = Document::new();
        for seconds in 11..20 {
            document.edit("duration", |s| s.duration = f64::from(seconds));
        }
        assert!(document.undo());
        assert_eq!(document.session().duration, 10.0);
        assert!(!document.can_undo());
    }

    #[test]
    fn saving_is_of_what_was_written() {
        let mut document = Document::new();
        document.edit("name", |s| s.name = "one".into());
        let written = document.session().clone();
        document.edit("name", |s| s.name = "two".into());
        document.saved_as(written, "one.ron".into());
        assert!(
            document.unsaved(),
            "what was typed while the file was written is not in it"
        );
    }
}
