//! One instrument: its name, its texts, and the program of a hit.

use std::fmt;
use std::sync::Arc;

use gilk_samples::Meaning;

use crate::program::Hook;
use crate::{Error, Native, Result, Source};

/// An instrument of the library, of a session, or of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name in sessions: lower case, digits and dashes.
    pub name: String,
    /// One sentence for the person choosing an instrument.
    pub summary: String,
    /// The code of a hit.
    pub program: Program,
    /// Meaning of its samples, for readers and charts.
    pub meaning: Meaning,
    /// Unit of the values; empty for none.
    pub unit: String,
}

/// The code of a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A source in the language.
    Source(Arc<Source>),
    /// A function of an object file.
    Native(Arc<Native>),
}

/// The position that an instrument is placed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// One hook, before or after a block.
    Hook,
    /// A block; which of its hooks are meant is in the source.
    Block,
    /// A block that ends with a conditional branch.
    Branch,
    /// A function: any block and hook of it mean the same. One that replaces functions is placed before the first block.
    Function,
}

/// In words that follow "it stands".
impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hook => "at a hook",
            Self::Block => "at a block",
            Self::Branch => "at a branch",
            Self::Function => "in a function",
        })
    }
}

impl Definition {
    /// Returns the source, unless the instrument is a native function.
    #[must_use]
    pub fn source(&self) -> Option<&Arc<Source>> {
        match &self.program {
            Program::Source(source) => Some(source),
            Program::Native(_) => None,
        }
    }

    /// Returns the native function, unless the instrument is a source.
    #[must_use]
    pub fn native(&self) -> Option<&Arc<Native>> {
        match &self.program {
            Program::Source(_) => None,
            Program::Native(native) => Some(native),
        }
    }

    /// Returns whether it replaces the function at whose entry it is placed.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.native().is_some_and(|native| native.replaces)
    }

    /// Returns whether each of its hooks has a counter.
    #[must_use]
    pub fn counts(&self) -> bool {
        match &self.program {
            Program::Source(source) => source.is_counter(),
            Program::Native(native) => native.counts(),
        }
    }

    /// Returns the position that it is placed at.
    #[must_use]
    pub fn stand(&self) -> Stand {
        let Some(source) = self.source() else {
            return match self.replaces() {
                true => Stand::Function,
                false => Stand::Hook,
            };
        };
        let has = |hooks: &[Hook]| {
            let mut probes = source.parts.probes.iter();
            probes.any(|probe| hooks.contains(&probe.hook))
        };
        if has(&[Hook::Hit]) {
            Stand::Hook
        } else if has(&[Hook::Taken, Hook::Untaken]) {
            Stand::Branch
        } else if has(&[Hook::Pre, Hook::Post]) {
            Stand::Block
        } else {
            Stand::Function
        }
    }

    /// Its source as it was written, if that was the language.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.source().map(|source| source.text())
    }

    /// More about it than the summary: the comments that its source begins with.
    #[must_use]
    pub fn explanation(&self) -> String {
        let lines = self.text().unwrap_or_default().lines();
        let comments = lines.map_while(|line| line.strip_prefix("//"));
        comments.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// Reads one instrument in the language.
    ///
    /// # Errors
    /// [`Error::Source`] if `text` is not a source, [`Error::Unnamed`] if it does not say its name.
    pub fn from_source(file: &str, text: &str) -> Result<Self> {
        let source = Source::parse(text).map_err(|faults| Error::Source {
            file: file.to_owned(),
            faults,
        })?;
        if source.name().is_empty() {
            return Err(Error::Unnamed {
                file: file.to_owned(),
            });
        }
        Ok(Self {
            name: source.name().to_owned(),
            summary: source.summary().to_owned(),
            meaning: source.meaning(),
            unit: source.unit().to_owned(),
            program: Program::Source(Arc::new(source)),
        })
    }
}
