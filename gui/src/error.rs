use std::path::PathBuf;

use thiserror::Error;

/// Errors of the window itself; errors of other crates pass through with their own messages.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// Advice for the user.
        hint: &'static str,
    },
    /// State of the window could not be written as text.
    #[error("{path} was not written: {reason}. Save the session to a file of its own.")]
    NotSerialized {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A picture could not be written.
    #[error("The picture {path} could not be written: {reason}.")]
    Picture {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A file's name does not select a format for the export of a recording.
    #[error("The name {path} does not select a format; end it with one of {endings}.")]
    Format {
        /// The file.
        path: PathBuf,
        /// The endings that select a format.
        endings: String,
    },
    /// The subject of a picture could not be shown.
    #[error("No picture was made: {reason}")]
    NothingToShow {
        /// The cause, as a whole sentence.
        reason: String,
    },
    /// The window could not be opened.
    #[error(
        "The window could not be opened: {reason}. Without a display, use `ilk` in a terminal."
    )]
    Window {
        /// The system's error.
        reason: String,
    },
    /// An error of the driver.
    #[error(transparent)]
    Driver(#[from] ilk_driver::Error),
    /// An error in an instrument.
    #[error(transparent)]
    Instruments(#[from] gilk_instruments::Error),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] gilk_engine::Error),
    /// An error in a recording.
    #[error(transparent)]
    Samples(#[from] gilk_samples::Error),
}

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
