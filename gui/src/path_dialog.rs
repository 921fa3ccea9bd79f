//! The dialog for a path, and the question about the path.

use std::path::PathBuf;

use crate::command::Command;
use crate::purpose::Purpose;

/// The dialog for a path, with the command that uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathDialog {
    /// Purpose of the path.
    pub purpose: Purpose,
    /// The typed path.
    pub text: String,
    /// True while the desktop's file dialog is open.
    pub browsing: bool,
    /// The command to execute once the file is written.
    pub then: Option<Command>,
    /// True once the field has had the focus.
    pub focused: bool,
    /// Number of the dialog: each has a field with a cursor of its own.
    pub number: u64,
    /// The question about the typed path, which the next click answers.
    pub question: Option<PathQuestion>,
    /// The path whose completions were requested last.
    pub(crate) completed: Option<String>,
    /// Paths that begin as the typed one.
    pub completions: Vec<String>,
}

/// A question about a path before something is created or replaced there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathQuestion {
    /// The path that was typed.
    pub path: PathBuf,
    /// The condition, as a whole sentence.
    pub words: String,
    /// Label of the button that goes ahead.
    pub verb: &'static str,
}

impl PathQuestion {
    /// Returns the question about a path to write to, if there is one; `own` is the file that the
    /// session has already.
    pub(crate) fn of(path: &std::path::Path, own: Option<&std::path::Path>) -> Option<Self> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let (words, verb) = match folder.filter(|folder| !folder.exists()) {
            Some(folder) => (
                format!("The folder {} does not exist.", folder.display()),
                "Create folder and save",
            ),
            None if path.is_dir() => {
                let words = format!("{} is a folder. Add the name of a file.", path.display());
                (words, "Save")
            }
            None if path.exists() && own != Some(path) => {
                (format!("{} exists.", path.display()), "Replace file")
            }
            None => return None,
        };
        Some(Self {
            path: path.to_path_buf(),
            words,
            verb,
        })
    }
}
