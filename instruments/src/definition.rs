//! One instrument, as its file says.

use gilk_samples::Meaning;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// An instrument of the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// How sessions name it: lower case, digits and dashes.
    pub name: String,
    /// One sentence for a person who chooses.
    pub summary: String,
    /// What runs at each hit.
    pub program: Program,
    /// How its samples are read and drawn.
    pub meaning: Meaning,
    /// Unit of the values; empty for none.
    pub unit: String,
}

/// What runs at each hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Program {
    /// Adds one to a counter of the CPU; read at intervals and at the end.
    Count,
    /// Puts a sample into the ring.
    Sample(Sampled),
    /// Starts a timer of the running thread.
    StartTimer,
    /// Samples the ticks since the running thread started the timer, and stops it.
    StopTimer,
    /// What a probe of an instrument in the language does; no file of this form says so.
    #[serde(skip)]
    Probe,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sampled {
    /// The TSC: what the report's timestamp instrument logs.
    Tsc,
    /// The index of the block.
    BlockIndex,
    /// An integer argument of the function by number, 0 (rdi) to 5 (r9), where no instruction on
    /// the way from the entry can have changed it.
    Argument(u8),
}

impl Definition {
    /// Reads one instrument file.
    ///
    /// # Errors
    /// [`Error::File`] with line and column if `text` is not an instrument, [`Error::Name`] and
    /// [`Error::Argument`] if a field is out of range.
    pub fn from_ron(file: &str, text: &str) -> Result<Self> {
        let definition: Self = ron::from_str(text).map_err(|source| Error::File {
            file: file.to_owned(),
            reason: source.to_string(),
        })?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if definition.name.is_empty() || !definition.name.chars().all(plain) {
            return Err(Error::Name {
                file: file.to_owned(),
                name: definition.name,
            });
        }
        if let Program::Sample(Sampled::Argument(number)) = definition.program
            && number > 5
        {
            return Err(Error::Argument {
                file: file.to_owned(),
                number,
            });
        }
        Ok(definition)
    }
}
