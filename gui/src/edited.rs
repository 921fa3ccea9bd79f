//! The part of a document that undo and redo restore. Copies share what no edit has changed.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use gilk_engine::Session;
use gilk_engine::collection::Collection;
use gilk_engine::placement::Style;
use gilk_engine::session::Workload;
use serde::{Deserialize, Serialize};

use crate::placements::{Difference, Placements};

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

/// A map that copies share until one of them is changed.
#[derive(Clone, Debug)]
pub struct SharedMap<V>(Arc<BTreeMap<String, V>>);

impl<V> Deref for SharedMap<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<V: Clone> DerefMut for SharedMap<V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl<V: PartialEq> PartialEq for SharedMap<V> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// A [`Session`] that is edited: the same fields, of which a copy costs little.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of a session")]
pub struct EditedSession {
    pub version: u32,
    pub name: String,
    pub duration: f64,
    pub workload: Option<Workload>,
    pub placements: Placements,
    pub styles: SharedMap<Style>,
    pub sources: SharedMap<String>,
    pub save_all: bool,
    pub tracepoints: bool,
    pub collection: Collection,
}

impl From<Session> for EditedSession {
    fn from(session: Session) -> Self {
        // Every field is named, so that a new one is not lost.
        let Session {
            version,
            name,
            duration,
            workload,
            placements,
            styles,
            sources,
            save_all,
            tracepoints,
            collection,
        } = session;
        Self {
            version,
            name,
            duration,
            workload,
            placements: placements.into(),
            styles: SharedMap(Arc::new(styles)),
            sources: SharedMap(Arc::new(sources)),
            save_all,
            tracepoints,
            collection,
        }
    }
}

impl EditedSession {
    /// Returns the session. This copies all of its placements, which is work for a worker.
    #[must_use]
    pub fn to_session(&self) -> Session {
        Session {
            placements: self.placements.iter().cloned().collect(),
            ..self.without_placements()
        }
    }

    /// Returns the session without its placements.
    pub(crate) fn without_placements(&self) -> Session {
        Session {
            version: self.version,
            name: self.name.clone(),
            duration: self.duration,
            workload: self.workload.clone(),
            placements: Vec::new(),
            styles: self.styles.0.as_ref().clone(),
            sources: self.sources.0.as_ref().clone(),
            save_all: self.save_all,
            tracepoints: self.tracepoints,
            collection: self.collection,
        }
    }

    /// Returns the style of a function.
    #[must_use]
    pub fn style(&self, function: &str) -> Style {
        self.styles.get(function).copied().unwrap_or_default()
    }
}

impl PartialEq<Session> for EditedSession {
    fn eq(&self, other: &Session) -> bool {
        self.placements.iter().eq(&other.placements)
            && self.without_placements()
                == Session {
                    placements: Vec::new(),
                    ..other.clone()
                }
    }
}

/// The part of a document that undo and redo restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The edited session.
    pub session: EditedSession,
    /// Notes on its times.
    pub notes: Vec<Note>,
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

impl Extent {
    /// Returns the parts that differ between two states; `None` if they are equal.
    pub(crate) fn between(one: &Edited, other: &Edited) -> Option<Self> {
        let (session, changed) = (&one.session, &other.session);
        let same_rest = || {
            // A copy of the pieces' list, and not of the placements.
            let placements = session.placements.clone();
            *session
                == EditedSession {
                    placements,
                    ..changed.clone()
                }
        };
        match session.placements.difference(&changed.placements) {
            Some(Difference::Hooks) => Some(Self::Hooks),
            Some(Difference::Times) => Some(Self::Session),
            None if !same_rest() => Some(Self::Session),
            None => (one.notes != other.notes).then_some(Self::Notes),
        }
    }
}
