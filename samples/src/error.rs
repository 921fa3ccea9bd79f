use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What can go wrong with samples and recordings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What to do next.
        hint: &'static str,
    },
    /// The file is not a recording, or is damaged before its first sample.
    #[error("{path} is not a recording that can be opened: {reason}.")]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What was expected, and where.
        reason: String,
    },
    /// A batch inside a recording changed after it was written; the others can be read.
    #[error(
        "{path} is damaged at byte {offset}: {reason}. The samples before and after it can be read."
    )]
    DamagedBatch {
        /// The file.
        path: PathBuf,
        /// Where the batch begins, in bytes from the start of the file.
        offset: u64,
        /// What was expected there.
        reason: String,
    },
    /// The metadata of a new recording cannot be written.
    #[error("The metadata of {path} cannot be written: {reason}.")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A text has no events that could be imported.
    #[error("{path} cannot be imported: {reason}.")]
    Import {
        /// The text.
        path: PathBuf,
        /// What was expected.
        reason: String,
    },
    /// A picture could not be drawn.
    #[error("The chart cannot be drawn: {reason}.")]
    Chart {
        /// What the renderer said, or which size it was asked for.
        reason: String,
    },
    /// The user stopped an export; what was written until then is whole.
    #[error("The export was stopped after {samples} samples.")]
    Cancelled {
        /// Samples written.
        samples: u64,
    },
    /// A recording has no stacks.
    #[error(
        "{path} has no call trace, so there are no stacks; record one with caller on a function and \
         call-trace on what it calls."
    )]
    NoCalls {
        /// The recording.
        path: PathBuf,
    },
    /// Recordings of too many or too large machines.
    #[error(
        "The recordings have more {what} together than one recording can tell apart; join fewer of \
         them."
    )]
    Joint {
        /// What there are too many of.
        what: &'static str,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the system said of `path`, with what to do next.
    #[must_use]
    pub fn io(path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "Check the path, and that its directory exists.",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "Choose a place that you may read and write."
            }
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => {
                "Free some space, or choose another disk; what was written before is whole."
            }
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
