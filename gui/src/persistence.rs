//! Persistence across windows: layout and colours, and unsaved sessions, so that a crash does not
//! lose them.
//!
//! | file | contents |
//! |---|---|
//! | `desk.ron` in the state folder | the last layout and colours |
//! | `session-PID.ron` in the state folder | the unsaved session and notes of a window that runs or crashed |
//! | `NAME.desk.ron` next to a session's file | the sidecar: its layout and the notes on its timeline |

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gilk_engine::Session;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::desk::{Desk, Shelf};
use crate::document::Document;
use crate::state::{NoticeKind, State};
use crate::theme::Colours;
use crate::timeline::notes::Note;
use crate::tour::Tour;
use crate::worker::files;

/// Delay between a change and its write.
const DELAY: Duration = Duration::from_millis(700);

/// Layout and colours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Preferences {
    look: Colours,
    layout: Option<Shelf>,
}

/// An unsaved session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unsaved {
    path: Option<PathBuf>,
    session: Session,
    #[serde(default)]
    notes: Vec<Note>,
}

/// Writes the persistent state when it has changed.
#[derive(Debug, Default)]
pub(crate) struct StateSaver {
    folder: Option<PathBuf>,
    preferences: Preferences,
    session: Option<(u64, u64)>,
    written: bool,
    changed: Option<Instant>,
}

/// Returns the path of the sidecar of the session at `path`.
pub(crate) fn sidecar_path(path: &Path) -> PathBuf {
    path.with_extension("desk.ron")
}

fn read<T: for<'d> Deserialize<'d>>(path: &Path) -> Option<T> {
    ron::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

/// Sidecar of a session: its layout, and the notes on its timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sidecar {
    layout: Option<Shelf>,
    /// Notes on the session's times.
    pub notes: Vec<Note>,
}

impl Sidecar {
    /// Reads the sidecar of the session at `path`, if it exists.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        read(&sidecar_path(path))
    }

    /// Returns the layout.
    #[must_use]
    pub fn desk(&self) -> Option<Desk> {
        self.layout.as_ref()?.desk()
    }

    /// Serializes the sidecar of the current window.
    pub(crate) fn text(state: &State) -> Option<String> {
        let sidecar = Self {
            layout: Shelf::of(&state.desk),
            notes: state.document.notes().to_vec(),
        };
        ron::to_string(&sidecar).ok()
    }
}

fn unsaved_path(folder: &Path) -> PathBuf {
    folder.join(format!("session-{}.ron", std::process::id()))
}

impl App {
    /// Restores the layout and colours, and the session of a crashed window unless another session
    /// was requested.
    pub(crate) fn restore(&mut self, folder: PathBuf, session_requested: bool) {
        let preferences = read::<Preferences>(&folder.join("desk.ron"));
        if preferences.is_none() {
            // The first start ever.
            self.state.tour = Some(Tour::default());
        }
        if let Some(preferences) = preferences {
            if let Some(desk) = preferences.layout.as_ref().and_then(Shelf::desk) {
                self.state.desk = desk;
            }
            self.state.look = preferences.look;
        }
        if !session_requested && let Some((path, unsaved)) = crashed_session(&folder) {
            let words = format!(
                "The session \u{201c}{}\u{201d} was restored after a crash; save it to keep its last changes.",
                unsaved.session.name
            );
            self.state.notify(NoticeKind::Warning, words);
            self.replace_document(Document::restored(
                unsaved.session,
                unsaved.notes,
                unsaved.path,
            ));
            // The file now belongs to this window's process.
            let _missing_is_fine = std::fs::rename(path, unsaved_path(&folder));
        }
        self.state_saver.folder = Some(folder);
    }

    /// Writes changed state, shortly after the last change.
    pub(crate) fn save_state(&mut self, ctx: &egui::Context) {
        let Some(folder) = self.state_saver.folder.clone() else {
            return;
        };
        let preferences = Preferences {
            look: self.state.look,
            layout: Shelf::of(&self.state.desk),
        };
        let unsaved = self.state.document.unsaved();
        let session = unsaved.then(|| (self.documents, self.state.document.changes()));
        if preferences == self.state_saver.preferences && session == self.state_saver.session {
            self.state_saver.changed = None;
            return;
        }
        let since = *self.state_saver.changed.get_or_insert_with(Instant::now);
        if since.elapsed() < DELAY {
            ctx.request_repaint_after(DELAY);
            return;
        }
        self.state_saver.changed = None;
        let mail = self.workers.mail();
        if preferences != self.state_saver.preferences {
            if let Ok(text) = ron::to_string(&preferences) {
                files::save_state(mail, folder.join("desk.ron"), Some(text));
            }
            self.state_saver.preferences = preferences;
        }
        if session != self.state_saver.session {
            self.state_saver.session = session;
            let unsaved = unsaved.then(|| Unsaved {
                path: self.state.document.path().map(Path::to_path_buf),
                session: self.state.document.session().clone(),
                notes: self.state.document.notes().to_vec(),
            });
            let text = unsaved.and_then(|unsaved| ron::to_string(&unsaved).ok());
            if text.is_some() || self.state_saver.written {
                self.state_saver.written = text.is_some();
                files::save_state(mail, unsaved_path(&folder), text);
            }
        }
    }

    /// Removes the unsaved session at a regular exit: it was saved or discarded.
    pub(crate) fn remove_unsaved_session(&self) {
        if let Some(folder) = &self.state_saver.folder {
            let _missing_is_fine = std::fs::remove_file(unsaved_path(folder));
        }
    }
}

/// Returns the newest session file whose process no longer exists.
fn crashed_session(folder: &Path) -> Option<(PathBuf, Unsaved)> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let pid = name.strip_prefix("session-")?.strip_suffix(".ron")?;
            let pid: u32 = pid.parse().ok()?;
            let runs =
                pid == std::process::id() || Path::new("/proc").join(pid.to_string()).exists();
            let when = entry.metadata().ok()?.modified().ok()?;
            (!runs).then(|| (when, entry.path()))
        })
        .collect();
    found.sort();
    let (_, path) = found.pop()?;
    let unsaved = read(&path)?;
    Some((path, unsaved))
}
