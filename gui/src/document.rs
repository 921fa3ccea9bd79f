//! The session being edited and the notes on its times, with undo, redo and the state of its file.
//!
//! Undo stores the states before the edits: they share all that an edit has left as it was.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_engine::Session;
use ilk_driver::process::ProcessChoices;

use crate::edited::Extent;
pub use crate::edited::{Edited, EditedSession, Note};

/// Maximum number of undo steps.
const STEPS: usize = 200;
/// Maximum number of placements that all undo steps store, some 250 MB. The last step is always
/// stored.
const STORED: usize = 4_000_000;

/// A session, its undo history, and its file.
#[derive(Clone, Debug)]
pub struct Document {
    now: Edited,
    saved: Edited,
    /// True if `now` differs from `saved`.
    unsaved: bool,
    path: Option<PathBuf>,
    undo: Vec<UndoState>,
    redo: Vec<UndoState>,
    /// The last edit, while further edits with the same name belong to the same step (e.g. a dragged
    /// number).
    open: Option<OpenStep>,
    revision: u64,
    changes: u64,
    /// Number of the hooks and instruments of the placements, unique among all documents.
    hooks: u64,
}

/// A state to return to.
#[derive(Clone, Debug)]
struct UndoState {
    edited: Edited,
    /// Number of placements that it does not share with the state after it.
    stored: usize,
}

/// An edit that is not finished.
#[derive(Clone, Debug)]
struct OpenStep {
    name: String,
    /// The state before it.
    base: Edited,
    /// True if its base is the last of the undo history; a drag that returned to its start has none.
    is_stored: bool,
}

/// Returns a number that it has not returned before.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Document {
    /// Creates an empty session.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Session::empty(), Vec::new(), None)
    }

    /// Creates a document from a session read from `path` and the notes of its sidecar.
    #[must_use]
    pub fn of(session: impl Into<EditedSession>, notes: Vec<Note>, path: Option<PathBuf>) -> Self {
        let now = Edited {
            session: session.into(),
            notes,
            choices: ProcessChoices::default(),
        };
        Self {
            saved: now.clone(),
            now,
            unsaved: false,
            path,
            undo: Vec::new(),
            redo: Vec::new(),
            open: None,
            revision: 0,
            changes: 0,
            hooks: next_number(),
        }
    }

    /// Has the choices of the session's sidecar.
    #[must_use]
    pub fn with_choices(mut self, choices: ProcessChoices) -> Self {
        self.now.choices = choices;
        self.saved.choices = choices;
        self
    }

    /// Creates a document from a session whose window ended before it was saved.
    #[must_use]
    pub fn restored(
        session: impl Into<EditedSession>,
        (notes, choices): (Vec<Note>, ProcessChoices),
        path: Option<PathBuf>,
    ) -> Self {
        let mut document = Self::of(session, notes, path).with_choices(choices);
        document.saved = Self::new().now;
        document.compare();
        document
    }

    /// Returns the session.
    #[must_use]
    pub const fn session(&self) -> &EditedSession {
        &self.now.session
    }

    /// Returns the notes.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.now.notes
    }

    /// Returns the fate of what a process starts that it runs in.
    #[must_use]
    pub const fn choices(&self) -> ProcessChoices {
        self.now.choices
    }

    /// Changes the fate of what a process starts, as one undo step.
    pub fn choose(&mut self, choices: ProcessChoices) {
        self.change("choices", |now| now.choices = choices);
        self.close_step();
    }

    /// Returns the session's file, if it was ever saved.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Increases with every change of the session, including undo and redo.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a number that changes with the hooks or instruments of the placements, and is unique
    /// among all documents. A change of times leaves it.
    pub(crate) const fn hooks(&self) -> u64 {
        self.hooks
    }

    /// Increases with every change of the session, its notes or its choices.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns whether there are unsaved changes.
    #[must_use]
    pub const fn unsaved(&self) -> bool {
        self.unsaved
    }

    /// Compares the current state with the saved one, after a change of either.
    fn compare(&mut self) {
        self.unsaved = self.now != self.saved;
    }

    /// Returns whether a step can be undone.
    #[must_use]
    pub fn can_undo(&self) -> bool {
        !self.undo.is_empty()
    }

    /// Returns whether an undone step can be redone.
    #[must_use]
    pub fn can_redo(&self) -> bool {
        !self.redo.is_empty()
    }

    /// Changes the session as one undo step; successive calls with the same `what` share a step
    /// until [`Document::close_step`].
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut EditedSession)) {
        self.change(what, |now| change(&mut now.session));
    }

    /// Changes the notes, in the same way as [`Document::edit`].
    pub fn annotate(&mut self, what: &str, change: impl FnOnce(&mut Vec<Note>)) {
        self.change(what, |now| change(&mut now.notes));
    }

    fn change(&mut self, what: &str, change: impl FnOnce(&mut Edited)) {
        let before = self.now.clone();
        change(&mut self.now);
        let Some(extent) = Extent::between(&before, &self.now) else {
            // It shares more than an equal state does.
            self.now = before;
            return;
        };
        self.redo.clear();
        self.count(extent);
        let open = self.open.take().filter(|open| open.name == what);
        let base = match open {
            Some(open) => {
                if open.is_stored {
                    self.undo.pop();
                }
                open.base
            }
            None => before,
        };
        let is_stored = base != self.now;
        if is_stored {
            self.undo.push(self.state_before(base.clone()));
        }
        let stored = |states: &[UndoState]| states.iter().map(|one| one.stored).sum::<usize>();
        while self.undo.len() > STEPS || (self.undo.len() > 1 && stored(&self.undo) > STORED) {
            self.undo.remove(0);
        }
        self.open = Some(OpenStep {
            name: what.to_owned(),
            base,
            is_stored,
        });
        self.compare();
    }

    /// Returns a state to return to from the current one.
    fn state_before(&self, edited: Edited) -> UndoState {
        let now = &self.now.session.placements;
        let stored = edited.session.placements.unshared(now);
        UndoState { edited, stored }
    }

    /// Returns whether the part of the kernel beside a process is shown and edited.
    #[must_use]
    pub const fn shows_kernel(&self) -> bool {
        self.now.session.shows_kernel
    }

    /// Shows the kernel's part or the process's, in all states of the history: this is no step of it.
    pub(crate) fn show_kernel(&mut self, kernel: bool) {
        self.close_step();
        let states = self.undo.iter_mut().chain(&mut self.redo);
        let states = states.map(|state| &mut state.edited);
        for edited in states.chain([&mut self.now, &mut self.saved]) {
            edited.session.show_kernel(kernel);
        }
        self.revision += 1;
        self.hooks = next_number();
    }

    /// Changes launch and splash of placements, in the way of [`Document::edit`].
    pub fn edit_times(&mut self, what: &str, times: &[(usize, f64, f64)]) {
        self.edit(what, |session| {
            for &(place, launch, splash) in times {
                let times = (launch, splash);
                let placements = &mut session.placements;
                placements.change(place, |one| (one.launch, one.splash) = times);
            }
        });
    }

    /// Returns whether the last edit may continue, as a drag does.
    pub(crate) const fn has_open_step(&self) -> bool {
        self.open.is_some()
    }

    /// Stores a note, in place of the note at `place` if that exists; an empty note is removed.
    pub(crate) fn write_note(&mut self, place: Option<usize>, note: Note) {
        self.annotate("write note", |notes| {
            let empty = note.text.trim().is_empty();
            match place.filter(|place| *place < notes.len()) {
                Some(place) if empty => drop(notes.remove(place)),
                Some(place) => {
                    if let Some(existing) = notes.get_mut(place) {
                        existing.clone_from(&note);
                    }
                }
                None if empty => {}
                None => notes.push(note),
            }
        });
        self.close_step();
    }

    /// Removes the note at `place`, if it exists.
    pub(crate) fn remove_note(&mut self, place: usize) {
        self.annotate("remove note", |notes| {
            if place < notes.len() {
                notes.remove(place);
            }
        });
        self.close_step();
    }

    /// Ends a step: a later edit is another step, even with the same name.
    pub fn close_step(&mut self) {
        self.open = None;
    }

    /// Undoes the last step. Returns whether there was one.
    pub fn undo(&mut self) -> bool {
        let Some(state) = self.undo.pop() else {
            return false;
        };
        let back = self.take(state);
        self.redo.push(back);
        true
    }

    /// Redoes the last undone step. Returns whether there was one.
    pub fn redo(&mut self) -> bool {
        let Some(state) = self.redo.pop() else {
            return false;
        };
        let back = self.take(state);
        self.undo.push(back);
        true
    }

    /// Returns to a state, and returns the state before.
    fn take(&mut self, state: UndoState) -> UndoState {
        let before = std::mem::replace(&mut self.now, state.edited);
        let extent = Extent::between(&before, &self.now);
        debug_assert!(extent.is_some(), "a step of the history changes nothing");
        self.count(extent.unwrap_or(Extent::Hooks));
        self.close_step();
        self.compare();
        self.state_before(before)
    }

    fn count(&mut self, extent: Extent) {
        self.changes += 1;
        self.revision += u64::from(extent >= Extent::Session);
        if extent == Extent::Hooks {
            self.hooks = next_number();
        }
    }

    /// Returns the session, its notes and its choices.
    #[must_use]
    pub fn edited(&self) -> Edited {
        self.now.clone()
    }

    /// Records that the file at `path` now contains `written`.
    pub fn saved_as(&mut self, mut written: Edited, path: PathBuf) {
        // The other part may be shown since.
        written.session.show_kernel(self.shows_kernel());
        self.saved = written;
        self.path = Some(path);
        self.compare();
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
    use gilk_engine::HookType;
    use gilk_engine::session::Placement;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Action {
        Name(u8),
        Drag(u8),
        Write(u8),
        Place(u8),
        Take(u8),
        Times(u8),
        Close,
        Undo,
        Redo,
    }

    fn step() -> impl Strategy<Value = Action> {
        prop_oneof![
            any::<u8>().prop_map(Action::Name),
            any::<u8>().prop_map(Action::Drag),
            any::<u8>().prop_map(Action::Write),
            any::<u8>().prop_map(Action::Place),
            any::<u8>().prop_map(Action::Take),
            any::<u8>().prop_map(Action::Times),
            Just(Action::Close),
            Just(Action::Undo),
            Just(Action::Redo),
        ]
    }

    fn placement(block: u8) -> Placement {
        Placement {
            function: "f".into(),
            block: block.into(),
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: 10.0,
        }
    }

    proptest! {
        #[test]
        fn undoing_and_redoing_everything_restores_the_document(steps in prop::collection::vec(step(), 0..40)) {
            let mut document = Document::new();
            for step in steps {
                match step {
                    Action::Name(n) => { document.edit("name", |s| s.name = format!("n{n}")); document.close_step(); }
                    Action::Drag(n) => document.edit("duration", |s| s.duration = f64::from(n) + 1.0),
                    Action::Write(n) => document.annotate("note", |notes| {
                        let text = format!("n{n}");
                        notes.push(Note { at: f64::from(n), text, run: None });
                    }),
                    Action::Place(n) => document.edit("place", |s| {
                        let at = usize::from(n) % (s.placements.len() + 1);
                        s.placements.insert(at, placement(n));
                    }),
                    Action::Take(n) => document.edit("take", |s| {
                        let kept = |place: usize| place % 7 != usize::from(n) % 7;
                        let mut places = 0..;
                        s.placements.retain(|_| places.next().is_some_and(kept));
                    }),
                    Action::Times(n) => {
                        let count = document.session().placements.len();
                        let times: Vec<_> = (0..count)
                            .filter(|place| place % 3 == usize::from(n) % 3)
                            .map(|place| (place, 0.0, 5.0 + f64::from(n)))
                            .collect();
                        document.edit_times("times", &times);
                        let differs = document.session() != &document.saved.session || document.notes() != document.saved.notes;
                        prop_assert_eq!(document.unsaved(), differs);
                    }
                    Action::Close => document.close_step(),
                    Action::Undo => { document.undo(); }
                    Action::Redo => { document.redo(); }
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
    fn edits_of_both_parts_are_undone_whichever_is_shown() {
        let mut document = Document::new();
        document.edit("place", |s| s.placements.push(placement(1)));
        document.close_step();
        document.show_kernel(true);
        assert!(document.session().placements.is_empty());
        document.edit("place", |s| s.placements.push(placement(2)));
        let both = document.edited();
        document.show_kernel(false);
        assert_eq!(document.session().placements.len(), 1);
        assert!(document.undo());
        assert!(
            document
                .session()
                .beside
                .as_ref()
                .is_none_or(|part| part.len() == 0)
        );
        assert!(document.undo() && !document.can_undo() && !document.unsaved());
        assert!(document.redo() && document.redo());
        document.show_kernel(true);
        assert_eq!(document.edited(), both);
        document.saved_as(both, "both.ron".into());
        document.show_kernel(false);
        assert!(!document.unsaved());
    }

    #[test]
    fn edits_during_a_save_stay_unsaved() {
        let mut document = Document::new();
        document.edit("name", |s| s.name = "one".into());
        let written = document.edited();
        document.edit("name", |s| s.name = "two".into());
        document.saved_as(written, "one.ron".into());
        assert!(
            document.unsaved(),
            "an edit made during the save is not in the file"
        );
    }

    #[test]
    fn steps_of_a_large_session_store_what_changed() {
        let mut session = Session::empty();
        session.placements = (0..100_000u32).map(|n| placement(n as u8)).collect();
        let mut document = Document::of(session, Vec::new(), None);
        for place in 0..50 {
            document.edit("remove", |s| drop(s.placements.remove(place * 1000)));
            document.close_step();
        }
        let stored: usize = document.undo.iter().map(|one| one.stored).sum();
        assert!((50..=50 * 512).contains(&stored), "{stored}");
        while document.undo() {}
        assert!(!document.unsaved());
    }

    #[test]
    fn a_drag_of_times_is_one_step_and_copies_what_it_changes() {
        let mut session = Session::empty();
        session.placements = (0..10_000u32).map(|n| placement(n as u8)).collect();
        let mut document = Document::of(session, Vec::new(), None);
        document.edit_times("splash", &[(7, 0.0, 9.0)]);
        let before = document.session().placements.clone();
        for tenths in 10..90 {
            document.edit_times("splash", &[(7, 0.0, f64::from(tenths) / 10.0)]);
        }
        assert!(document.session().placements.unshared(&before) <= 512);
        assert!(document.unsaved());
        document.edit_times("splash", &[(7, 0.0, 10.0)]);
        assert!(!document.unsaved() && !document.can_undo());
        document.edit_times("splash", &[(7, 0.0, 4.0)]);
        assert!(document.undo() && !document.can_undo());
        assert_eq!(document.session().placements[7].splash, 10.0);
        assert!(document.redo());
        assert_eq!(document.session().placements[7].splash, 4.0);
    }

    #[test]
    fn a_drag_back_to_its_start_is_saved() {
        let mut document = Document::new();
        document.edit("duration", |s| s.duration = 11.0);
        assert!(document.unsaved());
        document.edit("duration", |s| s.duration = 10.0);
        assert!(!document.unsaved());
        assert!(!document.can_undo());
        // The drag continues.
        document.edit("duration", |s| s.duration = 12.0);
        assert!(document.undo() && !document.unsaved() && !document.can_undo());
    }

    #[test]
    fn times_leave_the_number_of_the_hooks() {
        let mut document = Document::new();
        let empty = document.hooks();
        document.edit("place", |s| s.placements.push(placement(1)));
        let placed = document.hooks();
        assert_ne!(placed, empty);
        let revision = document.revision();
        document.edit("splash", |s| s.placements.change(0, |one| one.splash = 5.0));
        assert_eq!(document.hooks(), placed);
        assert!(document.revision() > revision);
        document.edit("block", |s| s.placements.change(0, |one| one.block = 2));
        assert_ne!(document.hooks(), placed);
        let moved = document.hooks();
        document.undo();
        assert_ne!(document.hooks(), moved);
        assert_ne!(Document::new().hooks(), Document::new().hooks());
    }
}
