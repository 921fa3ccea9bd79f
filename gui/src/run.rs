//! The running session and the path of its recording.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gilk_engine::VerifiedPlan;
use gilk_samples::index::Shared;
use ilk_driver::client::{StopFlag, Summary};

use crate::document::EditedSession;

/// The running session and the last one.
#[derive(Debug, Default)]
pub struct Run {
    /// The path typed for the recording; empty for a path named after the session.
    pub path: String,
    /// The running session.
    pub active: Option<Active>,
    /// Summary of the last run.
    pub last: Option<Box<Summary>>,
    /// The path shown for the next recording, with its wanted path and the state of the run.
    shown: Option<((PathBuf, bool), String)>,
}

/// A running session.
#[derive(Debug)]
pub struct Active {
    /// Stops it.
    pub stop: StopFlag,
    /// Time of second 0, once the run has started.
    pub started: Option<Instant>,
    /// Duration in seconds.
    pub duration: f64,
    /// The plan being executed.
    pub plan: Arc<VerifiedPlan>,
    /// The session at the start of the run.
    pub session: EditedSession,
    /// True if the recording will have more than the samples that arrive: those of other processes.
    pub is_several: bool,
    /// Libraries that the process has loaded since the start, and that have instruments.
    pub loaded: BTreeSet<String>,
    /// Path of the recording.
    pub recording: PathBuf,
    /// Its samples, added as they arrive.
    pub index: Shared,
    /// Status shared with the run's thread.
    pub status: SharedStatus,
    /// The last status read from it.
    pub live: RunStatus,
}

impl Active {
    /// A run that has not started, with samples and a status of its own.
    pub(crate) fn new(
        plan: &Arc<VerifiedPlan>,
        session: EditedSession,
        recording: PathBuf,
    ) -> Self {
        Self {
            stop: StopFlag::new(),
            started: None,
            duration: session.duration,
            plan: Arc::clone(plan),
            session,
            is_several: false,
            loaded: BTreeSet::new(),
            recording,
            index: Shared::default(),
            status: SharedStatus::default(),
            live: RunStatus::default(),
        }
    }
}

/// Counters of a run in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunStatus {
    /// Bytes recorded so far.
    pub bytes: u64,
    /// Samples recorded so far.
    pub samples: u64,
    /// Samples in the recording but not on the screen, because they arrived faster than it draws.
    pub missed: u64,
    /// Number of hits lost so far.
    pub lost: u64,
    /// Number of batches in effect.
    pub switched: usize,
    /// The last line printed by the session's program.
    pub last_line: Option<String>,
}

impl RunStatus {
    /// Combines the status of two machines; batches are those of the first.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            missed: self.missed + other.missed,
            lost: self.lost + other.lost,
            switched: self.switched,
            last_line: self.last_line.or(other.last_line),
        }
    }
}

/// Status shared between a run's thread and the window: each update replaces the last, so no queue
/// builds up if the window is slow.
#[derive(Clone, Debug, Default)]
pub struct SharedStatus(Arc<Mutex<RunStatus>>);

impl SharedStatus {
    /// Returns the current status.
    #[must_use]
    pub fn look(&self) -> RunStatus {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut RunStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Active {
    /// Returns the seconds since the start, at most the duration.
    #[must_use]
    pub fn elapsed(&self) -> f64 {
        self.started.map_or(0.0, |started| {
            started.elapsed().as_secs_f64().min(self.duration)
        })
    }
}

impl Run {
    /// Returns the recording path for a session by its name: the typed path, or one named after the session;
    /// with a number if that file exists, because recordings are never overwritten.
    #[must_use]
    pub fn recording_path(&self, session: &str) -> PathBuf {
        free(&self.wanted_path(session))
    }

    /// Returns the path that the next recording has without a typed one. Files are looked for after a
    /// change only.
    pub(crate) fn next_path(&mut self, session: &str) -> &str {
        let key = (default_path(session), self.active.is_some());
        let shown = self.shown.take().filter(|(known, _)| *known == key);
        let shown = shown.unwrap_or_else(|| {
            let path = match &self.active {
                Some(active) => active.recording.clone(),
                None => free(&key.0),
            };
            (key, path.display().to_string())
        });
        &self.shown.insert(shown).1
    }

    /// Returns the typed path, or the default path of the session.
    pub(crate) fn wanted_path(&self, session: &str) -> PathBuf {
        let typed = self.path.trim();
        if typed.is_empty() {
            default_path(session)
        } else {
            PathBuf::from(typed)
        }
    }
}

/// Returns `recordings/NAME.arrow`, with the name restricted to characters that are safe in a path.
#[must_use]
pub fn default_path(session: &str) -> PathBuf {
    let plain = |letter: char| {
        if letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.') {
            letter
        } else {
            '-'
        }
    };
    let name: String = session.trim().chars().map(plain).collect();
    let name = name.trim_matches(['.', '-']);
    Path::new("recordings").join(format!(
        "{}.arrow",
        if name.is_empty() { "untitled" } else { name }
    ))
}

/// Returns the path, with a number added to its name if it exists.
pub(crate) fn free(wanted: &Path) -> PathBuf {
    if !wanted.exists() {
        return wanted.to_path_buf();
    }
    let stem = wanted
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let ending = wanted
        .extension()
        .map(|ending| format!(".{}", ending.to_string_lossy()))
        .unwrap_or_default();
    let numbered = |number: u32| wanted.with_file_name(format!("{stem}-{number}{ending}"));
    (2..10_000)
        .map(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| wanted.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run {
            path: folder.path().join("a.arrow").display().to_string(),
            ..Run::default()
        };
        let session = "untitled";
        assert_eq!(run.recording_path(session), folder.path().join("a.arrow"));
        std::fs::write(folder.path().join("a.arrow"), "x").unwrap();
        assert_eq!(run.recording_path(session), folder.path().join("a-2.arrow"));
        std::fs::write(folder.path().join("a-2.arrow"), "x").unwrap();
        assert_eq!(run.recording_path(session), folder.path().join("a-3.arrow"));
    }

    #[test]
    fn session_names_become_safe_file_names() {
        assert_eq!(
            default_path("../etc/Fork & wait "),
            Path::new("recordings/etc-Fork---wait.arrow")
        );
        assert_eq!(default_path(" "), Path::new("recordings/untitled.arrow"));
    }
}
