//! The path of a recording's sidecar.

use std::path::{Path, PathBuf};

/// Returns the path of a recording's sidecar.
#[must_use]
pub fn sidecar_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}
