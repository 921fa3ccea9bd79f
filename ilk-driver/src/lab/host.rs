//! Execution of the host's tools, with error messages that contain their output.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// Lines of a failed tool's output in the error.
const TAIL: usize = 20;

/// The reason of a failure, without the step of the lab that failed.
#[derive(Debug)]
pub(super) struct Failure(String);

/// The result of a part of a step.
pub(super) type StepResult<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Adds the failed step, as in `build the module`.
    pub(super) fn at_step(self, step: &str) -> Error {
        Error::Lab {
            step: step.to_owned(),
            reason: self.0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Creates a failure from its cause and advice.
pub(super) fn failed(reason: impl Into<String>) -> Failure {
    Failure(reason.into())
}

/// Returns a converter for an [`io::Error`] of an action on a file.
pub(super) fn on(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |source| failed(format!("cannot {action} {}: {source}", path.display()))
}

/// Runs a tool and passes each line of its output (standard output and error) to `line`.
pub(super) fn run(command: &mut Command, line: &mut dyn FnMut(&str)) -> StepResult<()> {
    let tool = name(command);
    let (reader, writer) = io::pipe()
        .map_err(|source| failed(format!("cannot create a pipe for {tool}: {source}")))?;
    let second = writer
        .try_clone()
        .map_err(|source| failed(format!("cannot create a pipe for {tool}: {source}")))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let mut child = command
        .spawn()
        .map_err(|source| not_started(&tool, &source))?;
    // The command owns the pipe's writing ends; the reader only sees the end when they are closed.
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
    let last_lines: Vec<String> = tail.into();
    Err(failed(format!(
        "{tool} failed ({status}). Its last output:\n{}",
        last_lines.join("\n")
    )))
}

/// Runs a tool and returns its standard output.
pub(super) fn output(command: &mut Command) -> StepResult<Vec<u8>> {
    let tool = name(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| not_started(&tool, &source))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!(
        "{tool} failed ({}). Its error output: {}",
        output.status,
        errors.trim()
    )))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn not_started(tool: &str, source: &io::Error) -> Failure {
    if source.kind() == io::ErrorKind::NotFound {
        failed(format!(
            "the lab needs the program {tool}, which is not installed; on Debian `cargo xtask run` installs missing programs"
        ))
    } else {
        failed(format!("cannot start {tool}: {source}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_quotes_standard_output_and_errors() {
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
