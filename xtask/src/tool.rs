//! Programs and paths of this workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fail::{Fail, Result};

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Cache that is shared with the lab: `GILK_CACHE`, else `.cache` in the workspace.
pub(crate) fn cache() -> PathBuf {
    std::env::var_os("GILK_CACHE")
        .filter(|value| !value.is_empty())
        .map_or_else(|| root().join(".cache"), PathBuf::from)
}

/// Folder of cargo's products.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .filter(|value| !value.is_empty())
        .map_or_else(|| root().join("target"), |given| root().join(given))
}

/// The cargo that started this program, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    cargo
}

/// Builds programs of the workspace: `ilk`, and `gilk`, the window.
///
/// Features are those of the whole workspace, so that the window, built after `ilk`, finds its dependencies compiled.
pub(crate) fn build(programs: &[&str]) -> Result<()> {
    let mut cargo = cargo(&["build", "--workspace"]);
    for program in programs {
        cargo.args(["--bin", program]);
    }
    run(&mut cargo)
}

/// A built program of the workspace, started in its root. A lab that it starts carries the `ilk` built with it.
pub(crate) fn program(name: &str) -> Command {
    let folder = target().join("debug");
    let mut program = Command::new(folder.join(name));
    program
        .current_dir(root())
        .env("GILK_AGENT", folder.join("ilk"));
    program
}

/// Creates the folder of results, `target/gilk`.
pub(crate) fn results() -> Result<PathBuf> {
    let results = root().join("target/gilk");
    fs::create_dir_all(&results)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", results.display())))?;
    Ok(results)
}

/// Runs a program to its end. Its output is the caller's, unless `command` says otherwise.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| Fail::new(format!("cannot start {shown}: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Fail::new(format!("this failed ({status}): {shown}")))
    }
}

/// Returns the standard output of a program, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a program of this name is installed.
pub(crate) fn exists(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|folder| folder.join(program).is_file())
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    std::iter::once(program)
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
