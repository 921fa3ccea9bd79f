use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Errors of samples and recordings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system returned an error.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
        /// Next step for the user.
        hint: &'static str,
    },
    /// The file is not a recording, or is damaged before its first sample.
    #[error("{path} is not a recording that can be opened: {reason}.")]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// Expected content, and its position.
        reason: String,
    },
    /// A batch inside a recording changed after it was written; the others can be read.
    #[error(
        "{path} is damaged at byte {offset}: {reason}. The samples before and after it can be read."
    )]
    DamagedBatch {
        /// The file.
        path: PathBuf,
        /// Offset of the batch in bytes from the start of the file.
        offset: u64,
        /// Expected content.
        reason: String,
    },
    /// The metadata of a new recording cannot be written.
    #[error("The metadata of {path} cannot be written: {reason}.")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// Obstacle, as part of a sentence.
        reason: String,
    },
    /// A text has no events that can be imported.
    #[error("{path} cannot be imported: {reason}.")]
    Import {
        /// The text.
        path: PathBuf,
        /// Expected content.
        reason: String,
    },
    /// A picture cannot be drawn.
    #[error("The chart cannot be drawn: {reason}.")]
    Chart {
        /// Error of the renderer, or the size that was requested.
        reason: String,
    },
    /// A file that a person named cannot be an input.
    #[error("{path} cannot be read: {reason}.")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The obstacle, as part of a sentence.
        reason: String,
    },
    /// An output would replace something that is not to be replaced.
    #[error("{path} is not written: {reason}.")]
    Occupied {
        /// The output.
        path: PathBuf,
        /// The obstacle, and what to do next.
        reason: String,
    },
    /// The user stopped an export.
    #[error("The export was stopped after {samples} samples; nothing unfinished was kept.")]
    Cancelled {
        /// Samples read.
        samples: u64,
    },
    /// No export format has this name.
    #[error("No export format is called {name:?}; the formats are {names}.")]
    NoFormat {
        /// The requested name.
        name: String,
        /// Names of the formats.
        names: String,
    },
    /// A recording has no stacks.
    #[error(
        "{path} has no call trace, so there are no stacks; record one with caller on a function and \
         call-trace on what it calls, or count by `kstack`."
    )]
    NoCalls {
        /// The recording.
        path: PathBuf,
    },
    /// A recording that is to be put beside another one has another clock.
    #[error(
        "{path} is not of the same machine and time: its clock is another one; `ilk join` joins such recordings."
    )]
    OtherClock {
        /// The recording.
        path: PathBuf,
    },
    /// The recordings have too many machines, or too large ones.
    #[error(
        "The recordings have more {what} together than one recording can identify; join fewer of them."
    )]
    Joint {
        /// Quantity that exceeds its limit.
        what: &'static str,
    },
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps an error of the system at `path`, with a hint for the user.
    #[must_use]
    pub fn io(path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "Check the path, and that its directory exists.",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "Choose a place that you may read and write."
            }
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => "Free some space, or choose another disk.",
            io::ErrorKind::IsADirectory => "Name a file in it.",
            _ => "Check the disk and try again.",
        };
        Self::Io {
            path: path.to_path_buf(),
            source,
            hint,
        }
    }
}
