//! Running the host's tools, and saying plainly what went wrong with one.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// Lines of a failed tool's output that go into the error.
const TAIL: usize = 20;

/// Why something was not done, before it is known which step of the lab that stops.
#[derive(Debug)]
pub(super) struct Trouble(String);

/// The lab's own result.
pub(super) type Result<T> = std::result::Result<T, Trouble>;

impl Trouble {
    /// The crate's error, once the step is known: `build the module`.
    pub(super) fn stopped(self, step: &str) -> Error {
        Error::Lab {
            step: step.to_owned(),
            reason: self.0,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Trouble in words: why, and what to do about it.
pub(super) fn failed(reason: impl Into<String>) -> Trouble {
    Trouble(reason.into())
}

/// Turns an [`io::Error`] into words that say what was tried with which file.
pub(super) fn on(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Trouble {
    move |source| failed(format!("cannot {action} {}: {source}", path.display()))
}

/// Runs a tool to its end and passes each line it prints (to either output) to `line`.
pub(super) fn run(command: &mut Command, line: &mut dyn FnMut(&str)) -> Result<()> {
    let tool = name(command);
    let (reader, writer) =
        io::pipe().map_err(|source| failed(format!("cannot make a pipe for {tool}: {source}")))?;
    let second = writer
        .try_clone()
        .map_err(|source| failed(format!("cannot make a pipe for {tool}: {source}")))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let mut child = command
        .spawn()
        .map_err(|source| not_started(&tool, &source))?;
    // The command holds the pipe's writing ends: as long as it does, reading never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tail = VecDeque::with_capacity(TAIL);
    for text in BufReader::new(reader).split(b'\n') {
        let Ok(text) = text else { break };
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        line(&text);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(text);
    }
    let status = child
        .wait()
        .map_err(|source| failed(format!("cannot wait for {tool}: {source}")))?;
    if status.success() {
        return Ok(());
    }
    let said: Vec<String> = tail.into();
    Err(failed(format!(
        "{tool} failed ({status}). It said last:\n{}",
        said.join("\n")
    )))
}

/// Runs a tool to its end and returns what it wrote to its standard output.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let tool = name(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| not_started(&tool, &source))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!(
        "{tool} failed ({}). It said: {}",
        output.status,
        said.trim()
    )))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn not_started(tool: &str, source: &io::Error) -> Trouble {
    if source.kind() == io::ErrorKind::NotFound {
        failed(format!(
            "the lab needs the program {tool}, and it is not installed; on Debian `cargo xtask run` installs what is missing"
        ))
    } else {
        failed(format!("cannot start {tool}: {source}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_are_passed_on_and_a_failure_quotes_them() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let error = run(&mut command, &mut |line| lines.push(line.to_owned()))
            .unwrap_err()
            .to_string();
        assert_eq!(lines, ["one", "two"]);
        assert!(
            error.contains("sh failed") && error.contains("one\ntwo"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_tool_is_named() {
        let error = output(&mut Command::new("no-such-tool-of-the-lab"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no-such-tool-of-the-lab") && error.contains("not installed"),
            "{error}"
        );
    }
}
