//! Starting programs, and where this workspace has its things.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fail::{Fail, Result};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// The cache that the lab uses too: `GILK_CACHE`, else `.cache` in the workspace.
pub(crate) fn cache() -> PathBuf {
    std::env::var_os("GILK_CACHE")
        .filter(|value| !value.is_empty())
        .map_or_else(|| root().join(".cache"), PathBuf::from)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .filter(|value| !value.is_empty())
        .map_or_else(|| root().join("target"), |given| root().join(given))
}

/// The cargo that runs us, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    cargo
}

/// Builds programs of ours: `ilk`, and `gilk`, the window.
pub(crate) fn build(programs: &[&str]) -> Result<()> {
    let mut cargo = cargo(&["build"]);
    for program in programs {
        let package = if *program == "gilk" {
            "gilk-gui"
        } else {
            "ilk-driver"
        };
        cargo.args(["--package", package, "--bin", program]);
    }
    run(&mut cargo)
}

/// A program of ours that was built, to be run in the workspace's root.
pub(crate) fn program(name: &str) -> Command {
    let mut program = Command::new(target().join("debug").join(name));
    program.current_dir(root());
    program
}

/// Makes the directory for what runs leave behind, `target/gilk`.
pub(crate) fn results() -> Result<PathBuf> {
    let results = root().join("target/gilk");
    fs::create_dir_all(&results)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", results.display())))?;
    Ok(results)
}

/// Runs a program that prints what it does itself.
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

/// What a program writes to its standard output, if it succeeds.
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

/// Whether a program of this name can be started.
pub(crate) fn exists(program: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|place| place.join(program).is_file())
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
