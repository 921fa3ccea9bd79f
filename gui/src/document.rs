//! The session being edited, and what was written beside its times: undo, redo, and whether it is saved.

use std::path::{Path, PathBuf};

use gilk_engine::Session;

use crate::timeline::notes::Note;

/// How many steps can be undone.
const STEPS: usize = 200;

/// All that is undone and done again.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The session.
    pub session: Session,
    /// What is written beside its times.
    pub notes: Vec<Note>,
}

/// A session, what it was, and where it is kept.
#[derive(Clone, Debug)]
pub struct Document {
    now: Edited,
    saved: Edited,
    path: Option<PathBuf>,
    undo: Vec<Edited>,
    redo: Vec<Edited>,
    /// What the last edit changed, while more of the same may follow (a number being dragged).
    open: Option<String>,
    revision: u64,
    changes: u64,
}

impl Document {
    /// A new, empty session.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Session::empty(), Vec::new(), None)
    }

    /// A session that was read from `path`, and the notes beside it.
    #[must_use]
    pub fn of(session: Session, notes: Vec<Note>, path: Option<PathBuf>) -> Self {
        let now = Edited { session, notes };
        Self {
            saved: now.clone(),
            now,
            path,
            undo: Vec::new(),
            redo: Vec::new(),
            open: None,
            revision: 0,
            changes: 0,
        }
    }

    /// A session whose window ended before it was saved.
    #[must_use]
    pub fn restored(session: Session, notes: Vec<Note>, path: Option<PathBuf>) -> Self {
        Self {
            saved: Self::new().now,
            ..Self::of(session, notes, path)
        }
    }

    /// The session as it is now.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.now.session
    }

    /// What is written beside its times.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.now.notes
    }

    /// Where it is kept, if it was ever saved.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Grows with every change of the session, undone ones too.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Grows with every change of the session or its notes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether there are changes that no file has.
    #[must_use]
    pub fn unsaved(&self) -> bool {
        self.now != self.saved
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
        self.change(what, |now| change(&mut now.session));
    }

    /// Changes the notes, as [`Document::edit`] does the session.
    pub fn annotate(&mut self, what: &str, change: impl FnOnce(&mut Vec<Note>)) {
        self.change(what, |now| change(&mut now.notes));
    }

    fn change(&mut self, what: &str, change: impl FnOnce(&mut Edited)) {
        let before = self.now.clone();
        change(&mut self.now);
        if self.now == before {
            return;
        }
        self.redo.clear();
        self.count(&before);
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
        let after = self.moved(before);
        self.redo.push(after);
        true
    }

    /// Does the last undone step again. Returns whether there was one.
    pub fn redo(&mut self) -> bool {
        let Some(after) = self.redo.pop() else {
            return false;
        };
        let before = self.moved(after);
        self.undo.push(before);
        true
    }

    /// Goes to another state, and returns the one that was.
    fn moved(&mut self, to: Edited) -> Edited {
        let was = std::mem::replace(&mut self.now, to);
        self.count(&was);
        self.close_step();
        was
    }

    fn count(&mut self, before: &Edited) {
        self.changes += 1;
        self.revision += u64::from(self.now.session != before.session);
    }

    /// Counts the session as saved though it is not: a person said that the changes may go.
    pub fn forget_changes(&mut self) {
        self.saved = self.now.clone();
    }

    /// All of it as it is now.
    #[must_use]
    pub fn edited(&self) -> Edited {
        self.now.clone()
    }

    /// Notes that what is `written` stands in the file at `path` now.
    pub fn saved_as(&mut self, written: Edited, path: PathBuf) {
        self.saved = written;
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
        Write(u8),
        Close,
        Undo,
        Redo,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u8>().prop_map(Step::Name),
            any::<u8>().prop_map(Step::Drag),
            any::<u8>().prop_map(Step::Write),
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
                    Step::Write(n) => document.annotate("note", |notes| {
                        let text = format!("n{n}");
                        notes.push(Note { at: f64::from(n), text });
                    }),
                    Step::Close => document.close_step(),
                    Step::Undo => { document.undo(); }
                    Step::Redo => { document.redo(); }
                }
            }
            while document.redo() {}
            let last = document.edited();
            while document.undo() {}
            prop_assert_eq!(document.session(), &Session::empty());
            prop_assert!(document.notes().is_empty());
            prop_assert!(!document.unsaved());
            while document.redo() {}
            prop_assert_eq!(document.edited(), last);
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
        let written = document.edited();
        document.edit("name", |s| s.name = "two".into());
        document.saved_as(written, "one.ron".into());
        assert!(
            document.unsaved(),
            "what was typed while the file was written is not in it"
        );
    }
}
