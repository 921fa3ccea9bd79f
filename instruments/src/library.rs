//! The ready instruments, built in from their files.

use crate::{Definition, Error, Result};

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../library/", $file)))),*]
    };
}

/// The files of `instruments/library/`, in the order in which a screen should offer them.
const FILES: &[(&str, &str)] = files![
    "counter.gilk",
    "timestamp.gilk",
    "block-trace.gilk",
    "argument-0.gilk",
    "argument-1.gilk",
    "argument-2.gilk",
    "argument-3.gilk",
    "argument-4.gilk",
    "argument-5.gilk",
    "elapsed.gilk",
    "elapsed-histogram.gilk",
    "elapsed-total.gilk",
    "processor-time.gilk",
    "cache-misses.gilk",
    "event-totals.gilk",
    "return-value.gilk",
    "errors.gilk",
    "register.gilk",
    "memory.gilk",
    "histogram.gilk",
    "linear-histogram.gilk",
    "usage.gilk",
    "by-process.gilk",
    "coverage.gilk",
    "edge-coverage.gilk",
    "branch.gilk",
    "branch-hint.gilk",
    "lock-retries.gilk",
    "lock-wait.gilk",
    "threads-inside.gilk",
    "threads-waiting.gilk",
    "running-thread.gilk",
    "thread-name.gilk",
    "caller.gilk",
    "elapsed-when-called.gilk",
    "call-trace.gilk",
    "elapsed-start.gilk",
    "elapsed-stop.gilk",
];

/// The instruments that can be placed.
///
/// ```
/// use gilk_instruments::{Library, Stand};
///
/// let mut library = Library::builtin()?;
/// library.add_file("mine.gilk", "instrument mine \"Samples the CPU.\"; hit { sample(cpu) }")?;
/// assert_eq!(library.get("mine")?.stand(), Stand::Hook);
/// # Ok::<(), gilk_instruments::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    definitions: Vec<Definition>,
}

impl Library {
    /// The instruments that come with the workbench.
    ///
    /// # Errors
    /// As [`Library::add_file`]; a test holds that the built-in files have none.
    pub fn builtin() -> Result<Self> {
        let mut library = Self {
            definitions: Vec::new(),
        };
        for (file, text) in FILES {
            library.add_file(file, text)?;
        }
        Ok(library)
    }

    /// Adds an instrument from the text of a file.
    ///
    /// # Errors
    /// As [`Definition::from_source`] and [`Library::add`].
    pub fn add_file(&mut self, file: &str, text: &str) -> Result<()> {
        self.add(Definition::from_source(file, text)?)
    }

    /// Adds an instrument of the user's own.
    ///
    /// # Errors
    /// [`Error::Twice`] if there is one of that name.
    pub fn add(&mut self, definition: Definition) -> Result<()> {
        let mut known = self.definitions.iter();
        if known.any(|known| known.name == definition.name) {
            return Err(Error::Twice {
                name: definition.name,
            });
        }
        self.definitions.push(definition);
        Ok(())
    }

    /// Takes the native instrument of that name out, if there is one: another build of it is to come.
    pub fn forget_native(&mut self, name: &str) {
        self.definitions
            .retain(|known| known.name != name || known.native().is_none());
    }

    /// The instrument of that name.
    ///
    /// # Errors
    /// [`Error::Unknown`], which lists the names there are.
    pub fn get(&self, name: &str) -> Result<&Definition> {
        self.definitions
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| Error::Unknown {
                name: name.to_owned(),
                known: self
                    .definitions
                    .iter()
                    .map(|known| known.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// All of them, in the order in which a screen should offer them.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.iter()
    }
}

#[cfg(test)]
mod tests;
