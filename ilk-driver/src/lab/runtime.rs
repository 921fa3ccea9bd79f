//! The directory of one running lab: its socket and its console.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::host::{StepResult as Result, on};

const PREFIX: &str = "gilk-lab-";

/// A directory that only its owner may enter, removed on drop.
pub(super) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Creates one with a short path: a unix socket's address holds 107 bytes.
    ///
    /// Also removes the directories of labs whose process was killed.
    pub(super) fn create() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|path| path.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        remove_orphans(&base);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(on("create", &path))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn remove_orphans(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|rest| rest.split('-').next());
        if let Some(process) = process.and_then(|process| process.parse::<u32>().ok())
            && !Path::new("/proc").join(process.to_string()).exists()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_with_its_owner_and_with_its_process() {
        let first = RunDirectory::create().unwrap();
        let second = RunDirectory::create().unwrap();
        assert_ne!(first.path(), second.path());
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists());
        let base = tempfile::tempdir().unwrap();
        // No process can have this number: it is beyond the largest pid_max.
        let orphan = base.path().join(format!("{PREFIX}4194305-0"));
        fs::create_dir(&orphan).unwrap();
        let alive = base
            .path()
            .join(format!("{PREFIX}{}-0", std::process::id()));
        fs::create_dir(&alive).unwrap();
        remove_orphans(base.path());
        assert!(!orphan.exists() && alive.exists());
    }
}
