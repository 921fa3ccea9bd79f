//! What outlives the window: the arrangement and colours, and a session that no file has yet, so that
//! neither a crash nor a lost machine takes it.
//!
//! | file | what it is |
//! |---|---|
//! | `desk.ron` in the state folder | the arrangement and colours last used |
//! | `session-PID.ron` in the state folder | the session of a window that runs, or that ended without a word, and its notes |
//! | `NAME.desk.ron` beside a session's file | its arrangement, and notes on its timeline |

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

/// How long after a change it is written.
const PAUSE: Duration = Duration::from_millis(700);

/// Arrangement and colours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    look: Colours,
    layout: Option<Shelf>,
}

/// A session that no file has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unsaved {
    path: Option<PathBuf>,
    session: Session,
    #[serde(default)]
    notes: Vec<Note>,
}

/// Writes what is to outlive the window, when it has changed.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    folder: Option<PathBuf>,
    kept: Kept,
    session: Option<(u64, u64)>,
    written: bool,
    changed: Option<Instant>,
}

/// Where a session's arrangement is, beside the session at `path`.
pub(crate) fn beside(path: &Path) -> PathBuf {
    path.with_extension("desk.ron")
}

fn read<T: for<'d> Deserialize<'d>>(path: &Path) -> Option<T> {
    ron::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

/// What stands beside a session: its arrangement, and notes on its timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Beside {
    layout: Option<Shelf>,
    /// The notes.
    pub notes: Vec<Note>,
}

impl Beside {
    /// What stands beside the session at `path`, if anything does.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        read(&beside(path))
    }

    /// The arrangement.
    #[must_use]
    pub fn desk(&self) -> Option<Desk> {
        self.layout.as_ref()?.desk()
    }

    /// The text of what a window shows.
    pub(crate) fn text(state: &State) -> Option<String> {
        let beside = Self {
            layout: Shelf::of(&state.desk),
            notes: state.document.notes().to_vec(),
        };
        ron::to_string(&beside).ok()
    }
}

fn own(folder: &Path) -> PathBuf {
    folder.join(format!("session-{}.ron", std::process::id()))
}

impl App {
    /// Takes up what was kept: arrangement and colours, and a session whose window ended without a
    /// word, unless another is asked for.
    pub(crate) fn take_up(&mut self, folder: PathBuf, asked: bool) {
        let kept = read::<Kept>(&folder.join("desk.ron"));
        if kept.is_none() {
            // Nobody was here before.
            self.state.tour = Some(Tour::default());
        }
        if let Some(kept) = kept {
            if let Some(desk) = kept.layout.as_ref().and_then(Shelf::desk) {
                self.state.desk = desk;
            }
            self.state.look = kept.look;
        }
        if !asked && let Some((path, unsaved)) = orphan(&folder) {
            let words = format!(
                "The session \u{201c}{}\u{201d} is as it was when its window ended; no file has its last changes.",
                unsaved.session.name
            );
            self.state.tell(NoticeKind::Warning, words);
            self.replace_document(Document::restored(
                unsaved.session,
                unsaved.notes,
                unsaved.path,
            ));
            // From now on it is this window's.
            let _gone_or_not = std::fs::rename(path, own(&folder));
        }
        self.keeper.folder = Some(folder);
    }

    /// Writes what has changed, a little after the last change.
    pub(crate) fn keep(&mut self, ctx: &egui::Context) {
        let Some(folder) = self.keeper.folder.clone() else {
            return;
        };
        let kept = Kept {
            look: self.state.look,
            layout: Shelf::of(&self.state.desk),
        };
        let unsaved = self.state.document.unsaved();
        let session = unsaved.then(|| (self.documents, self.state.document.changes()));
        if kept == self.keeper.kept && session == self.keeper.session {
            self.keeper.changed = None;
            return;
        }
        let since = *self.keeper.changed.get_or_insert_with(Instant::now);
        if since.elapsed() < PAUSE {
            ctx.request_repaint_after(PAUSE);
            return;
        }
        self.keeper.changed = None;
        let mail = self.workers.mail();
        if kept != self.keeper.kept {
            if let Ok(text) = ron::to_string(&kept) {
                files::keep(mail, folder.join("desk.ron"), Some(text));
            }
            self.keeper.kept = kept;
        }
        if session != self.keeper.session {
            self.keeper.session = session;
            let unsaved = unsaved.then(|| Unsaved {
                path: self.state.document.path().map(Path::to_path_buf),
                session: self.state.document.session().clone(),
                notes: self.state.document.notes().to_vec(),
            });
            let text = unsaved.and_then(|unsaved| ron::to_string(&unsaved).ok());
            if text.is_some() || self.keeper.written {
                self.keeper.written = text.is_some();
                files::keep(mail, own(&folder), text);
            }
        }
    }

    /// The window ends as it should: what was unsaved was saved, or given up.
    pub(crate) fn keep_no_session(&self) {
        if let Some(folder) = &self.keeper.folder {
            let _gone = std::fs::remove_file(own(folder));
        }
    }
}

/// The newest session whose window no longer runs.
fn orphan(folder: &Path) -> Option<(PathBuf, Unsaved)> {
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
