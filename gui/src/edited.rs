//! The part of a document that undo and redo restore, and the steps between its states.

use std::sync::Arc;

use gilk_engine::session::Placement;
use gilk_engine::{HookType, Session};
use serde::{Deserialize, Serialize};

/// A note on a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Seconds from the start.
    pub at: f64,
    /// Text typed by the user.
    pub text: String,
    /// The run that it is about, by its start in nanoseconds of Unix time; `None` for notes on every
    /// run of the session.
    #[serde(default)]
    pub run: Option<u64>,
}

/// The part of a document that undo and redo restore. A copy shares the session.
#[derive(Clone, Debug)]
pub struct Edited {
    /// The edited session.
    pub session: Arc<Session>,
    /// Notes on its times.
    pub notes: Vec<Note>,
}

impl PartialEq for Edited {
    fn eq(&self, other: &Self) -> bool {
        let shared = Arc::ptr_eq(&self.session, &other.session);
        (shared || self.session == other.session) && self.notes == other.notes
    }
}

/// A step from one state of a document to another: everything but the placements, and the range of
/// placements that differs. So steps of a session with 100,000 placements stay small.
#[derive(Clone, Debug)]
pub(crate) struct EditStep {
    /// The target's session without its placements.
    rest: Session,
    notes: Vec<Note>,
    /// Placements before the range, in both states.
    before: usize,
    /// Placements after the range, in both states.
    after: usize,
    /// The range in the target.
    placements: Vec<Placement>,
    extent: Extent,
}

/// An instrument at a hook: function, block, hook, and the instrument's name.
pub(crate) type HookKey = (Arc<str>, u32, HookType, Arc<str>);

/// Returns what a placement is besides its times.
pub(crate) fn hook_key(one: &Placement) -> HookKey {
    let (function, instrument) = (Arc::clone(&one.function), Arc::clone(&one.instrument));
    (function, one.block, one.hook, instrument)
}

/// The parts of a document that two states do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Notes only.
    Notes,
    /// The session, but neither the hooks of its placements nor their instruments.
    Session,
    /// Hooks, instruments, or the number of placements.
    Hooks,
}

impl EditStep {
    /// Returns the step from `from` to `to`; `None` if they are equal.
    pub(crate) fn between(from: &Edited, to: &Edited) -> Option<Self> {
        let rest = without_placements(&to.session);
        if Arc::ptr_eq(&from.session, &to.session) {
            let count = to.session.placements.len();
            let step = Self {
                rest,
                notes: to.notes.clone(),
                before: count,
                after: 0,
                placements: Vec::new(),
                extent: Extent::Notes,
            };
            return (from.notes != to.notes).then_some(step);
        }
        let (old, new) = (&from.session.placements, &to.session.placements);
        let equal = |pair: &(&Placement, &Placement)| pair.0 == pair.1;
        let before = old.iter().zip(new).take_while(equal).count();
        let different = old.len().min(new.len()) - before;
        let backwards = old.iter().rev().zip(new.iter().rev()).take(different);
        let after = backwards.take_while(equal).count();
        let range = |placements: &[Placement]| {
            let range = placements.get(before..placements.len() - after);
            debug_assert!(range.is_some(), "the common ends of two lists overlap");
            range.unwrap_or_default().to_vec()
        };
        let (old, new) = (range(old), range(new));
        let same_hooks = old.iter().map(hook_key).eq(new.iter().map(hook_key));
        let same_session = old == new && without_placements(&from.session) == rest;
        let extent = match (same_hooks, same_session) {
            (_, true) if from.notes == to.notes => return None,
            (_, true) => Extent::Notes,
            (true, false) => Extent::Session,
            (false, false) => Extent::Hooks,
        };
        Some(Self {
            rest,
            notes: to.notes.clone(),
            before,
            after,
            placements: new,
            extent,
        })
    }

    /// Returns the step back from changed times to the placements before, which begin at an index; `None`
    /// if they are equal.
    pub(crate) fn of_times(now: &Edited, first: usize, before: &[Placement]) -> Option<Self> {
        let all = &now.session.placements;
        let end = first + before.len();
        debug_assert!(end <= all.len(), "times of placements that are not there");
        (all.get(first..end) != Some(before)).then(|| Self {
            rest: without_placements(&now.session),
            notes: now.notes.clone(),
            before: first,
            after: all.len().saturating_sub(end),
            placements: before.to_vec(),
            extent: Extent::Session,
        })
    }

    /// Takes the step, and returns the step back.
    pub(crate) fn take(self, edited: &mut Edited) -> Self {
        let session = Arc::make_mut(&mut edited.session);
        let mut placements = std::mem::take(&mut session.placements);
        let end = placements.len().saturating_sub(self.after);
        debug_assert!(self.before <= end, "a step belongs to another session");
        let range = self.before.min(end)..end;
        let replaced = placements.splice(range, self.placements).collect();
        let mut rest = std::mem::replace(session, self.rest);
        session.placements = placements;
        rest.placements = Vec::new();
        Self {
            rest,
            notes: std::mem::replace(&mut edited.notes, self.notes),
            before: self.before,
            after: self.after,
            placements: replaced,
            extent: self.extent,
        }
    }

    /// Returns the parts that the two states do not share.
    pub(crate) const fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the number of placements that it stores.
    pub(crate) const fn len(&self) -> usize {
        self.placements.len()
    }
}

/// Returns a session without its placements. Every field is named, so that a new one is not lost.
pub(crate) fn without_placements(session: &Session) -> Session {
    Session {
        version: session.version,
        name: session.name.clone(),
        duration: session.duration,
        workload: session.workload.clone(),
        placements: Vec::new(),
        styles: session.styles.clone(),
        sources: session.sources.clone(),
        save_all: session.save_all,
        tracepoints: session.tracepoints,
        collection: session.collection,
    }
}
