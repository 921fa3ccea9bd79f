//! Persistence across windows: layout and colours, and unsaved sessions, so that a crash does not
//! lose them.
//!
//! | file | contents |
//! |---|---|
//! | `desk.ron` in the state folder | the last layout, colours, and recent paths |
//! | `session-PID.ron` in the state folder | the unsaved session, notes and choices of a window that runs or crashed |
//! | `NAME.desk.ron` next to a session's file | the sidecar: its layout, the notes on its timeline, and choices for a process |

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gilk_engine::Session;
use ilk_driver::process::ProcessChoices;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::app::App;
use crate::desk::Shelf;
use crate::document::{Document, Note};
use crate::sidecar::read_ron;
use crate::state::{NoticeKind, Tour};
use crate::state_saver::Preferences;
use crate::worker::files;

/// Delay between a change and its write.
const DELAY: Duration = Duration::from_millis(700);

/// An unsaved session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unsaved {
    path: Option<PathBuf>,
    session: Session,
    #[serde(default)]
    notes: Vec<Note>,
    #[serde(default)]
    choices: ProcessChoices,
}

fn not_saved(error: &ron::Error) -> String {
    format!("The state of the window was not saved: {error}.")
}

fn unsaved_path(folder: &Path) -> PathBuf {
    folder.join(format!("session-{}.ron", std::process::id()))
}

impl App {
    /// Restores the layout and colours, and the session of a crashed window unless another session
    /// was requested.
    pub(crate) fn restore(&mut self, folder: PathBuf, session_requested: bool) {
        let preferences = read_ron::<Preferences>(&folder.join("desk.ron"));
        if preferences.is_none() {
            // The first start ever.
            self.state.tour = Some(Tour::default());
        }
        if let Some(preferences) = preferences {
            if let Some(desk) = preferences.layout.as_ref().and_then(Shelf::desk) {
                self.state.desk = desk;
            }
            self.state.look = preferences.look;
            self.state.recent_paths = preferences.recent;
        }
        if !session_requested && let Some((path, unsaved)) = crashed_session(&folder) {
            let words = format!(
                "The session \u{201c}{}\u{201d} was restored after a crash; save it to keep its last changes.",
                unsaved.session.name
            );
            self.state.notify(NoticeKind::Warning, words);
            self.replace_document(Document::restored(
                unsaved.session,
                (unsaved.notes, unsaved.choices),
                unsaved.path,
            ));
            // The file now belongs to this window's process. Otherwise later windows restore it too.
            if let Err(source) = std::fs::rename(&path, unsaved_path(&folder)) {
                let hint = "Remove it, or each new window restores it.";
                let error = Error::Io { path, source, hint };
                self.state.notify(NoticeKind::Warning, error.to_string());
            }
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
            recent: self.state.recent_paths.clone(),
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
        let mail = self.workers.mail().clone();
        if preferences != self.state_saver.preferences {
            match ron::to_string(&preferences) {
                Ok(text) => files::save_state(&mail, folder.join("desk.ron"), Some(text)),
                Err(error) => self.state.notify(NoticeKind::Warning, not_saved(&error)),
            }
            self.state_saver.preferences = preferences;
        }
        if session != self.state_saver.session {
            self.state_saver.session = session;
            if unsaved {
                self.state_saver.written = true;
                let edited = self.state.document.edited();
                let of = self.state.document.path().map(Path::to_path_buf);
                files::save_state_of(&mail, unsaved_path(&folder), move || {
                    let unsaved = Unsaved {
                        path: of,
                        session: edited.session.to_session(),
                        notes: edited.notes,
                        choices: edited.choices,
                    };
                    ron::to_string(&unsaved)
                });
            } else if std::mem::take(&mut self.state_saver.written) {
                files::save_state(&mail, unsaved_path(&folder), None);
            }
        }
    }

    /// Removes the unsaved session at a regular exit: it was saved or discarded.
    pub(crate) fn remove_unsaved_session(&self) {
        if let Some(folder) = &self.state_saver.folder {
            let path = unsaved_path(folder);
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                eprintln!("{}: {error}. Remove it by hand.", path.display());
            }
        }
    }
}

/// Returns the newest session file whose process no longer exists.
fn crashed_session(folder: &Path) -> Option<(PathBuf, Unsaved)> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut files: Vec<(std::time::SystemTime, PathBuf)> = entries
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
    files.sort();
    let (_, path) = files.pop()?;
    let unsaved = read_ron(&path)?;
    Some((path, unsaved))
}
