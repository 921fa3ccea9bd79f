//! A virtual environment of Python, whose packages read recordings and know nothing of gilk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::tool;

/// Packages, and the module that each is imported by.
const READERS: [(&str, &str); 5] = [
    ("pyarrow", "pyarrow"),
    ("polars", "polars"),
    ("duckdb", "duckdb"),
    ("pillow", "PIL"),
    (
        "perfetto",
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    ),
];

/// Returns the interpreter of an environment that has the packages; it is made once and stays in the cache.
pub(crate) fn provide(log: &Log) -> Result<PathBuf> {
    let home = tool::cache().join("python");
    let python = home.join("bin/python");
    let names = READERS.map(|(name, _)| name);
    let check = format!("import {}", READERS.map(|(_, module)| module).join(", "));
    if tool::output(Command::new(&python).args(["-c", &check])).is_some() {
        return Ok(python);
    }
    if home.exists() {
        fs::remove_dir_all(&home)
            .map_err(|error| Fail::new(format!("cannot empty {}: {error}", home.display())))?;
    }
    let system = Path::new("/usr/bin/python3");
    let maker = if system.is_file() {
        system
    } else {
        Path::new("python3")
    };
    log.run(Command::new(maker).args(["-m", "venv"]).arg(&home))?;
    log.run(
        Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
            ])
            .args(names),
    )?;
    if tool::output(Command::new(&python).args(["-c", &check])).is_none() {
        return Err(Fail::new(format!(
            "pip installed {}, and {} cannot import them",
            names.join(", "),
            python.display()
        )));
    }
    Ok(python)
}
