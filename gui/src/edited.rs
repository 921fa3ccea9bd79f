//! The part of a document that undo and redo restore. Copies share what no edit has changed.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use gilk_engine::Session;
use gilk_engine::collection::Collection;
use gilk_engine::placement::Style;
use gilk_engine::session::{KernelPart, Placement, Workload};
use ilk_driver::process::ProcessChoices;
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

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// The part of a session that is of one target: of the process, or of its kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EditedPart {
    placements: Placements,
    styles: SharedMap<Style>,
    sources: SharedMap<String>,
    tracepoints: bool,
}

impl EditedPart {
    /// Returns the number of its placements.
    pub(crate) fn len(&self) -> usize {
        self.placements.len()
    }
}

impl From<KernelPart> for EditedPart {
    fn from(part: KernelPart) -> Self {
        // Every field is named, so that a new one is not lost.
        let KernelPart {
            placements,
            styles,
            sources,
            tracepoints,
        } = part;
        Self {
            placements: placements.into(),
            styles: SharedMap(Arc::new(styles)),
            sources: SharedMap(Arc::new(sources)),
            tracepoints,
        }
    }
}

/// A [`Session`] that is edited: the same fields, of which a copy costs little. Of a session of a process and its
/// kernel, the fields are those of the part that is shown.
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
    /// The part of the other target.
    pub beside: Option<EditedPart>,
    /// True if the kernel's part is shown, and the process's is `beside`.
    pub shows_kernel: bool,
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
            kernel,
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
            beside: kernel.map(EditedPart::from),
            shows_kernel: false,
        }
    }
}

impl EditedSession {
    /// Returns the session with both parts, as files have it. This copies all of its placements, which is work for a
    /// worker.
    #[must_use]
    pub fn to_session(&self) -> Session {
        let mut process = self.clone();
        process.show_kernel(false);
        let mut kernel = self.clone();
        kernel.show_kernel(true);
        let kernel = KernelPart::of(kernel.shown());
        Session {
            kernel: (!kernel.is_empty()).then_some(kernel),
            ..process.shown()
        }
    }

    /// Returns the session of the part that is shown. This copies all of its placements.
    #[must_use]
    pub fn shown(&self) -> Session {
        Session {
            placements: self.placements.iter().cloned().collect(),
            ..self.without_placements()
        }
    }

    /// Returns the placements of both parts.
    pub(crate) fn all_placements(&self) -> impl Iterator<Item = &Placement> {
        let beside = self.beside.iter().flat_map(|part| &part.placements);
        self.placements.iter().chain(beside)
    }

    /// Changes launch and splash of the placements of both parts.
    pub(crate) fn change_all_times(&mut self, change: impl Fn(f64, f64) -> (f64, f64)) {
        let beside = self.beside.as_mut().map(|part| &mut part.placements);
        for placements in beside.into_iter().chain([&mut self.placements]) {
            placements.change_times(&change);
        }
    }

    /// Shows the kernel's part, or the process's.
    pub(crate) fn show_kernel(&mut self, kernel: bool) {
        if self.shows_kernel == kernel {
            return;
        }
        self.shows_kernel = kernel;
        let EditedPart {
            placements,
            styles,
            sources,
            tracepoints,
        } = self.beside.take().unwrap_or_default();
        let left = EditedPart {
            placements: std::mem::replace(&mut self.placements, placements),
            styles: std::mem::replace(&mut self.styles, styles),
            sources: std::mem::replace(&mut self.sources, sources),
            tracepoints: std::mem::replace(&mut self.tracepoints, tracepoints),
        };
        // A session without a part of the kernel is one of a process or a kernel alone.
        self.beside = (kernel || left != EditedPart::default()).then_some(left);
    }

    /// Returns the session of the part that is shown, without its placements.
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
            kernel: None,
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
        self.to_session() == *other
    }
}

/// The part of a document that undo and redo restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The edited session.
    pub session: EditedSession,
    /// Notes on its times.
    pub notes: Vec<Note>,
    /// The fate of what a process starts that it runs in.
    pub choices: ProcessChoices,
}

/// The parts of a document that two states do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Notes and choices, which the sidecar has.
    Sidecar,
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
            None => {
                let differs = one.notes != other.notes || one.choices != other.choices;
                differs.then_some(Self::Sidecar)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gilk_engine::HookType;

    use super::*;

    fn placement(function: &str) -> Placement {
        Placement {
            function: function.into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "timestamp".into(),
            launch: 0.0,
            splash: 10.0,
        }
    }

    #[test]
    fn both_parts_are_kept_whichever_is_shown() {
        let kernel = KernelPart {
            placements: vec![placement("vfs_write")],
            styles: BTreeMap::from([("vfs_write".to_owned(), Style::Whole)]),
            sources: BTreeMap::from([("own".to_owned(), "instrument own \"Own.\";".to_owned())]),
            tracepoints: true,
        };
        let session = Session {
            placements: vec![placement("libc.so.6:write"), placement("main")],
            kernel: Some(kernel.clone()),
            ..Session::empty()
        };
        let opened = EditedSession::from(session.clone());
        let mut edited = opened.clone();
        for shows_kernel in [false, true, true, false] {
            edited.show_kernel(shows_kernel);
            assert_eq!(edited.to_session(), session);
            assert_eq!(
                edited.shown().placements.len(),
                if shows_kernel { 1 } else { 2 }
            );
            assert_eq!(edited.shown().kernel, None);
        }
        assert_eq!(edited, opened);

        edited.show_kernel(true);
        assert_eq!(KernelPart::of(edited.shown()), kernel);
        edited.placements.push(placement("ksys_write"));
        assert_eq!(edited.to_session().kernel.unwrap().placements.len(), 2);
    }

    #[test]
    fn a_part_of_the_kernel_without_instruments_is_not_in_the_file() {
        let empty = EditedSession::from(Session::empty());
        let mut edited = empty.clone();
        edited.show_kernel(true);
        assert_eq!(edited.to_session(), Session::empty());
        edited.show_kernel(false);
        assert_eq!(edited, empty);
    }
}
