//! The programs that belong to this one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Returns the path of `ilk`: of this program, or in its folder.
///
/// # Errors
/// [`Error::Io`] if this program's own file is not known.
pub(crate) fn ilk() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(Error::io(
        "/proc/self/exe",
        "This program's own file is not known",
    ))?;
    Ok(match own.file_name() == Some(OsStr::new("ilk")) {
        true => own,
        false => folder(&own).join("ilk"),
    })
}

/// Returns the folder of a program; for a test or an example, that of cargo's programs: `target/PROFILE`.
pub(crate) fn folder(program: &Path) -> &Path {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let is_inner = ["deps", "examples"].map(OsStr::new).map(Some);
    match is_inner.contains(&folder.file_name()) {
        true => folder.parent().unwrap_or(folder),
        false => folder,
    }
}
