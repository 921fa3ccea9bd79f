//! The ready instruments, built in from their files.

use crate::{Definition, Error, Result};

/// The files of `instruments/library/`.
const FILES: &[(&str, &str)] = &[
    ("counter.ron", include_str!("../library/counter.ron")),
    ("timestamp.ron", include_str!("../library/timestamp.ron")),
    (
        "block-trace.ron",
        include_str!("../library/block-trace.ron"),
    ),
    ("argument-0.ron", include_str!("../library/argument-0.ron")),
    ("argument-1.ron", include_str!("../library/argument-1.ron")),
    ("argument-2.ron", include_str!("../library/argument-2.ron")),
    ("argument-3.ron", include_str!("../library/argument-3.ron")),
    ("argument-4.ron", include_str!("../library/argument-4.ron")),
    ("argument-5.ron", include_str!("../library/argument-5.ron")),
    (
        "elapsed-start.ron",
        include_str!("../library/elapsed-start.ron"),
    ),
    (
        "elapsed-stop.ron",
        include_str!("../library/elapsed-stop.ron"),
    ),
];

/// The instruments that can be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    definitions: Vec<Definition>,
}

impl Library {
    /// The instruments that come with the workbench.
    ///
    /// # Errors
    /// As [`Definition::from_ron`] and [`Library::add`]; a test holds that the built-in files have none.
    pub fn builtin() -> Result<Self> {
        let mut library = Self {
            definitions: Vec::new(),
        };
        for (file, text) in FILES {
            library.add(Definition::from_ron(file, text)?)?;
        }
        Ok(library)
    }

    /// Adds an instrument of the user's own.
    ///
    /// # Errors
    /// [`Error::Twice`] if there is one of that name.
    pub fn add(&mut self, definition: Definition) -> Result<()> {
        if self
            .definitions
            .iter()
            .any(|known| known.name == definition.name)
        {
            return Err(Error::Twice {
                name: definition.name,
            });
        }
        self.definitions.push(definition);
        Ok(())
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
mod tests {
    use super::*;
    use crate::{Program, Sampled};

    #[test]
    fn the_builtin_files_are_good_and_named_as_their_instrument() {
        let library = Library::builtin().unwrap();
        for ((file, _), definition) in FILES.iter().zip(library.iter()) {
            assert_eq!(*file, format!("{}.ron", definition.name));
            assert!(
                definition.summary.ends_with('.'),
                "{file}: the summary is not a sentence"
            );
        }
        assert_eq!(
            library.get("argument-3").unwrap().program,
            Program::Sample(Sampled::Argument(3))
        );
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/library");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), FILES.len());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let library = Library::builtin().unwrap();
        let unknown = library.get("conter").unwrap_err().to_string();
        assert!(
            unknown.contains("\"conter\"") && unknown.contains("counter"),
            "{unknown}"
        );

        let bad = Definition::from_ron("mine.ron", "(name: \"x\"")
            .unwrap_err()
            .to_string();
        assert!(bad.contains("mine.ron") && bad.contains("1:"), "{bad}");

        let text = include_str!("../library/argument-0.ron");
        let seven = Definition::from_ron("mine.ron", &text.replace("Argument(0)", "Argument(7)"));
        assert_eq!(
            seven,
            Err(Error::Argument {
                file: "mine.ron".into(),
                number: 7
            })
        );

        let twice = Library::builtin()
            .unwrap()
            .add(library.get("counter").unwrap().clone());
        assert_eq!(
            twice,
            Err(Error::Twice {
                name: "counter".into()
            })
        );
    }
}
