use std::path::PathBuf;

use thiserror::Error;

/// What the window itself can fail at; other crates' errors pass through with their own words.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do next.
        hint: &'static str,
    },
    /// A picture could not be written.
    #[error("The picture {path} could not be written: {reason}.")]
    Picture {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file's name does not say in which format a recording is to be written.
    #[error("The name {path} does not say what to write; end it with one of {endings}.")]
    Format {
        /// The file.
        path: PathBuf,
        /// What it may end with.
        endings: String,
    },
    /// What a picture was to show could not be had.
    #[error("No picture was made: {reason}")]
    NothingToShow {
        /// Why, as a whole sentence.
        reason: String,
    },
    /// The window could not be opened.
    #[error(
        "The window could not be opened: {reason}. Without a display, `ilk` does the same in the terminal."
    )]
    Window {
        /// What the system said.
        reason: String,
    },
    /// From the driver.
    #[error(transparent)]
    Driver(#[from] ilk_driver::Error),
    /// From instruments.
    #[error(transparent)]
    Instruments(#[from] gilk_instruments::Error),
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] gilk_engine::Error),
    /// From recordings.
    #[error(transparent)]
    Samples(#[from] gilk_samples::Error),
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
