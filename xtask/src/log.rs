//! Output of a stage: the terminal, or a file where stages run concurrently.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::fail::{Fail, Result};
use crate::tool;

/// Destination of everything that a stage and its programs print.
pub(crate) struct Log(Option<(PathBuf, Mutex<File>)>);

impl Log {
    /// Inherits the standard output of this program.
    pub(crate) fn terminal() -> Self {
        Self(None)
    }

    /// A new file.
    pub(crate) fn file(path: PathBuf) -> Result<Self> {
        let file = File::create(&path)
            .map_err(|error| Fail::new(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self(Some((path, Mutex::new(file)))))
    }

    /// Prints a line.
    pub(crate) fn say(&self, line: &str) {
        match &self.0 {
            None => println!("{line}"),
            Some((_, file)) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                // A log on a full disk is no reason to stop.
                let _ = writeln!(file, "{line}");
            }
        }
    }

    /// A handle of the file for a program's output; inherits the terminal.
    pub(crate) fn stdio(&self) -> Result<Stdio> {
        let Some((path, file)) = &self.0 else {
            return Ok(Stdio::inherit());
        };
        let file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = file.try_clone();
        let copy =
            copy.map_err(|error| Fail::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(copy.into())
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        command.stdout(self.stdio()?).stderr(self.stdio()?);
        tool::run(command)
    }

    /// The last lines of the file, and its path.
    pub(crate) fn tail(&self, lines: usize) -> Option<String> {
        let (path, _) = self.0.as_ref()?;
        let text = std::fs::read(path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        let last = all
            .get(all.len().saturating_sub(lines)..)
            .unwrap_or_default();
        Some(format!(
            "{}\n(all of it: {})",
            last.join("\n"),
            path.display()
        ))
    }
}
