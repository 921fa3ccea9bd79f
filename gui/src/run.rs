//! The session that runs, and where it is recorded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gilk_engine::{Session, VerifiedPlan};
use gilk_samples::index::Shared;
use ilk_driver::client::{StopFlag, Summary};

/// The session that runs, and the last that did.
#[derive(Debug, Default)]
pub struct Run {
    /// What was typed as the recording's path; empty for one named after the session.
    pub path: String,
    /// The one that runs.
    pub active: Option<Active>,
    /// How the last one went.
    pub last: Option<Box<Summary>>,
}

/// A session that runs.
#[derive(Debug)]
pub struct Active {
    /// Ends it.
    pub stop: StopFlag,
    /// When second 0 was, once it was.
    pub started: Option<Instant>,
    /// Seconds that it lasts.
    pub duration: f64,
    /// The plan that is carried out.
    pub plan: Arc<VerifiedPlan>,
    /// The session as it was when it began.
    pub session: Session,
    /// Where it is recorded.
    pub recording: PathBuf,
    /// Its samples, which are added as they come.
    pub index: Shared,
    /// Where its thread tells how it is going.
    pub going: Going,
    /// What it told last.
    pub live: Live,
}

/// How a run is going.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Bytes of the recording so far.
    pub bytes: u64,
    /// Samples so far.
    pub samples: u64,
    /// Samples that are in the recording and not on the screen, because they came faster than it drew.
    pub missed: u64,
    /// Hits lost so far: ring full, timer stop without a start.
    pub lost: (u64, u64),
    /// Batches of pokes that are in effect.
    pub switched: usize,
    /// The last line that its program printed.
    pub said: Option<String>,
}

impl Live {
    /// Two machines' as one; batches are those of the first.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            samples: self.samples + other.samples,
            missed: self.missed + other.missed,
            lost: (self.lost.0 + other.lost.0, self.lost.1 + other.lost.1),
            switched: self.switched,
            said: self.said.or(other.said),
        }
    }
}

/// Where a run's thread writes how it is going and the window looks: however long the window takes, nothing
/// piles up.
#[derive(Clone, Debug, Default)]
pub struct Going(Arc<Mutex<Live>>);

impl Going {
    /// As it is now.
    #[must_use]
    pub fn look(&self) -> Live {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Live)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Active {
    /// Seconds since the start, at most the duration.
    #[must_use]
    pub fn elapsed(&self) -> f64 {
        self.started.map_or(0.0, |started| {
            started.elapsed().as_secs_f64().min(self.duration)
        })
    }
}

impl Run {
    /// Where a run of `session` would be recorded: the path that was typed, or one named after the
    /// session; with a number if that exists, because a recording is never written over.
    #[must_use]
    pub fn recording_path(&self, session: &Session) -> PathBuf {
        free(&self.wanted_path(session))
    }

    /// What was typed, or what it is called by the session's name.
    pub(crate) fn wanted_path(&self, session: &Session) -> PathBuf {
        let typed = self.path.trim();
        if typed.is_empty() {
            default_path(session)
        } else {
            PathBuf::from(typed)
        }
    }
}

/// `recordings/NAME.arrow`, with nothing in the name that a path could trip over.
#[must_use]
pub fn default_path(session: &Session) -> PathBuf {
    let plain = |letter: char| {
        if letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.') {
            letter
        } else {
            '-'
        }
    };
    let name: String = session.name.trim().chars().map(plain).collect();
    let name = name.trim_matches(['.', '-']);
    Path::new("recordings").join(format!(
        "{}.arrow",
        if name.is_empty() { "untitled" } else { name }
    ))
}

/// The same, or with a number behind its name where that exists.
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
    fn recordings_are_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run {
            path: folder.path().join("a.arrow").display().to_string(),
            ..Run::default()
        };
        let session = Session::empty();
        assert_eq!(run.recording_path(&session), folder.path().join("a.arrow"));
        std::fs::write(folder.path().join("a.arrow"), "x").unwrap();
        assert_eq!(
            run.recording_path(&session),
            folder.path().join("a-2.arrow")
        );
        std::fs::write(folder.path().join("a-2.arrow"), "x").unwrap();
        assert_eq!(
            run.recording_path(&session),
            folder.path().join("a-3.arrow")
        );
    }

    #[test]
    fn a_name_makes_a_file_name() {
        let mut session = Session::empty();
        session.name = "../etc/Fork & wait ".into();
        assert_eq!(
            default_path(&session),
            Path::new("recordings/etc-Fork---wait.arrow")
        );
        session.name = " ".into();
        assert_eq!(
            default_path(&session),
            Path::new("recordings/untitled.arrow")
        );
    }
}
