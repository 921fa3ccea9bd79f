//! One instrument, as its file says.

use std::fmt;
use std::sync::Arc;

use gilk_samples::Meaning;
use serde::{Deserialize, Serialize};

use crate::program::Hook;
use crate::source::ast::{Node, Probe, StatementKind};
use crate::{Error, Native, Result, Source};

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
    /// What it was written as, if that was the language.
    #[serde(skip)]
    pub source: Option<Arc<Source>>,
    /// The function of an object file that it calls.
    #[serde(skip)]
    pub native: Option<Arc<Native>>,
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
    /// Calls a function of an object file; no file of this form says so.
    #[serde(skip)]
    Native,
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

/// What a person points at to place an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// One hook, before or after a block.
    Hook,
    /// A block; which of its hooks are meant is in the source.
    Block,
    /// A block that ends with a conditional branch.
    Branch,
    /// A function: any block and hook of it mean the same.
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
    /// Whether it has a counter of its own.
    #[must_use]
    pub fn counts(&self) -> bool {
        let native = self.native.as_deref();
        native.map_or(self.program == Program::Count, Native::counts)
    }

    /// Where it is placed.
    #[must_use]
    pub fn stand(&self) -> Stand {
        let Some(source) = &self.source else {
            return Stand::Hook;
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
        self.source.as_ref().map(|source| source.text())
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
    /// [`Error::Source`] if `text` is not a source, [`Error::Name`] if it does not say its name.
    pub fn from_source(file: &str, text: &str) -> Result<Self> {
        let source = Source::parse(text).map_err(|faults| Error::Source {
            file: file.to_owned(),
            faults,
        })?;
        if source.name().is_empty() {
            return Err(Error::Name {
                file: file.to_owned(),
                name: String::new(),
            });
        }
        Ok(Self {
            name: source.name().to_owned(),
            summary: source.summary().to_owned(),
            program: plain(&source).unwrap_or(Program::Probe),
            meaning: source.meaning(),
            unit: source.unit().to_owned(),
            source: Some(Arc::new(source)),
            native: None,
        })
    }

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

/// The program of a source that does one of the things that need no compiler.
fn plain(source: &Source) -> Option<Program> {
    let [
        Probe {
            hook: Hook::Hit,
            predicate: None,
            statements,
            ..
        },
    ] = source.parts.probes.as_slice()
    else {
        return None;
    };
    if source.once() || !source.parts.declarations.is_empty() {
        return None;
    }
    let [statement] = statements.as_slice() else {
        return None;
    };
    match &statement.kind {
        StatementKind::Assign(_, value) => match &value.node {
            Node::Call(word, arguments) if word.text == "count" && arguments.is_empty() => {
                Some(Program::Count)
            }
            _ => None,
        },
        StatementKind::Sample(value) => match &value.node {
            Node::Name(name) => Some(Program::Sample(match name.as_str() {
                "tsc" => Sampled::Tsc,
                "block" => Sampled::BlockIndex,
                "arg0" => Sampled::Argument(0),
                "arg1" => Sampled::Argument(1),
                "arg2" => Sampled::Argument(2),
                "arg3" => Sampled::Argument(3),
                "arg4" => Sampled::Argument(4),
                "arg5" => Sampled::Argument(5),
                _ => return None,
            })),
            _ => None,
        },
        StatementKind::Add(..) => None,
    }
}
