use thiserror::Error;

use crate::Faults;

/// Errors of instruments and libraries.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The source has errors.
    #[error("The source of the instrument {file} has errors.\n{faults}")]
    Source {
        /// Its name.
        file: String,
        /// Every fault of the source.
        faults: Faults,
    },
    /// The object file does not give instruments.
    #[error(
        "The object file {file} gives no instruments: {reason}. instruments/native/gilk.h says how one is written and compiled."
    )]
    Native {
        /// Its name.
        file: String,
        /// Clause that completes the message.
        reason: String,
    },
    /// The source does not say the instrument's name.
    #[error(
        "The source of the instrument {file} does not say its name. Let it begin with: instrument my-name \"What it measures.\";"
    )]
    Unnamed {
        /// Its name.
        file: String,
    },
    /// No such instrument.
    #[error("There is no instrument named {name:?}; the library has {known}.")]
    Unknown {
        /// The requested name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A kernel's type data cannot be read.
    #[error(
        "The kernel's type data cannot be read: {reason}. Without it arguments are arg0, arg1 and so on, and fields have no names."
    )]
    Types {
        /// Clause that completes the message.
        reason: String,
    },
    /// Two files say they are the same instrument.
    #[error("The instrument {name:?} is defined twice; rename one of them.")]
    Twice {
        /// Their common name.
        name: String,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
