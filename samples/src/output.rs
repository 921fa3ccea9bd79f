//! The one writer of files that people name: whole or not at all.
//!
//! An [`Output`] is written to a temporary file beside its goal, synced, and renamed over the goal
//! when it is whole, so that a failure, a full disk or a kill leaves what was there as it was, and
//! a file that is read while it is replaced stays readable. [`Goals`] refuses, before any work is
//! done, to replace what the command reads or what another program wrote.

mod goals;

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempDir};

pub use goals::{Contents, Existing, Goals};

use crate::recording::sidecar_path;
use crate::{Error, Result};

/// A file that replaces its goal when it is [finished](Self::finish); dropped before, it leaves no
/// trace.
#[derive(Debug)]
pub struct Output {
    goal: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Renamed to the goal at the end.
    Temporary(NamedTempFile),
    /// A terminal, a pipe, `/dev/null`: written directly, since nothing in it can be replaced.
    Stream(File),
}

impl Output {
    /// Creates a temporary file beside `goal`; a link is followed, and an existing file's
    /// permissions are kept.
    ///
    /// # Errors
    /// [`Error::Io`], for example if the directory does not exist or cannot be written.
    pub fn create(goal: &Path) -> Result<Self> {
        let io = |error| Error::io(goal, error);
        let resolved = resolved(goal).map_err(io)?;
        let existing = match fs::metadata(&resolved) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io(error)),
        };
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io(io::ErrorKind::IsADirectory.into()));
        }
        if existing
            .as_ref()
            .is_some_and(|metadata| !metadata.is_file())
        {
            let stream = File::options().write(true).open(&resolved).map_err(io)?;
            return Ok(Self {
                goal: resolved,
                state: State::Stream(stream),
            });
        }
        // The process's mask applies, as to every new file.
        let file = Builder::new()
            .prefix(".gilk-")
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(&resolved))
            .map_err(io)?;
        if let Some(existing) = existing {
            let permissions = existing.permissions();
            file.as_file().set_permissions(permissions).map_err(io)?;
        }
        Ok(Self {
            goal: resolved,
            state: State::Temporary(file),
        })
    }

    /// Returns a handle to write to. Buffers over it must be flushed before the end.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no descriptor left.
    pub fn file(&self) -> Result<File> {
        let file = match &self.state {
            State::Temporary(file) => file.as_file(),
            State::Stream(file) => file,
        };
        file.try_clone()
            .map_err(|error| Error::io(&self.goal, error))
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`]: the goal is then as it was before.
    pub fn finish(self) -> Result<()> {
        if let State::Temporary(file) = &self.state {
            let synced = file.as_file().sync_all();
            synced.map_err(|error| Error::io(&self.goal, error))?;
        }
        self.named().map(drop)
    }

    /// Gives the file its name now, and returns it to be appended to: for files that are whole
    /// after each write.
    pub(crate) fn named(self) -> Result<File> {
        match self.state {
            State::Temporary(file) => {
                let named = file.persist(&self.goal);
                let file = named.map_err(|error| Error::io(&self.goal, error.error))?;
                sync_folder(&self.goal);
                Ok(file)
            }
            State::Stream(file) => Ok(file),
        }
    }
}

/// Writes `bytes` to the file `goal`, whole or not at all.
///
/// # Errors
/// [`Error::Io`]: the goal is then as it was before.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// let goal = folder.path().join("picture.svg");
/// gilk_samples::output::write(&goal, b"<svg/>")?;
/// assert_eq!(std::fs::read(&goal)?, b"<svg/>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(goal: &Path, bytes: &[u8]) -> Result<()> {
    let output = Output::create(goal)?;
    let mut file = output.file()?;
    let written = file.write_all(bytes);
    written.map_err(|error| Error::io(goal, error))?;
    output.finish()
}

/// Runs `write` with the path of a new recording beside `goal`, and gives the recording and its
/// sidecar their names when they are finished.
pub(crate) fn recording<T>(goal: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let io = |error| Error::io(goal, error);
    let resolved = resolved(goal).map_err(io)?;
    let folder = temporary_folder(&resolved).map_err(io)?;
    let new = folder.path().join("recording.arrow");
    let written = write(&new)?;
    let sidecar = sidecar_path(&resolved);
    // A sidecar of the old recording must never meet the new one.
    match fs::remove_file(&sidecar) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    fs::rename(&new, &resolved).map_err(io)?;
    fs::rename(sidecar_path(&new), sidecar).map_err(io)?;
    sync_folder(&resolved);
    Ok(written)
}

/// Runs `write` with the path of a new folder beside `goal`, and gives the folder that name when it
/// is finished. A folder at `goal` is removed then: the caller has ensured that it may be.
pub(crate) fn folder_of<T>(goal: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let io = |error| Error::io(goal, error);
    let resolved = resolved(goal).map_err(io)?;
    let temporary = temporary_folder(&resolved).map_err(io)?;
    let (new, old) = (temporary.path().join("new"), temporary.path().join("old"));
    fs::create_dir(&new).map_err(io)?;
    let written = write(&new)?;
    for entry in fs::read_dir(&new).map_err(io)? {
        let synced = entry.and_then(|entry| File::open(entry.path())?.sync_all());
        synced.map_err(io)?;
    }
    if resolved.exists() {
        fs::rename(&resolved, &old).map_err(io)?;
    }
    if let Err(error) = fs::rename(&new, &resolved) {
        // The old folder gets its name back; without one, there is nothing to rename.
        let _no_old = fs::rename(&old, &resolved);
        return Err(io(error));
    }
    sync_folder(&resolved);
    Ok(written)
}

/// Creates a folder beside `goal`, which is removed with its contents when it is dropped.
fn temporary_folder(goal: &Path) -> io::Result<TempDir> {
    let mut builder = Builder::new();
    // The process's mask applies, as to every new folder.
    builder
        .prefix(".gilk-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o777));
    builder.tempdir_in(folder(goal))
}

/// Returns the path that a goal stands for: the end of links to a file or folder.
fn resolved(goal: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(goal) {
        Ok(metadata) if metadata.is_symlink() => {
            let end = fs::metadata(goal)?;
            // The link of `/dev/stdout` to a pipe has no path at its end.
            match end.is_file() || end.is_dir() {
                true => fs::canonicalize(goal),
                false => Ok(goal.to_path_buf()),
            }
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(goal.to_path_buf()),
    }
}

/// Returns the folder that a path is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Syncs the entry of a path in its folder.
fn sync_folder(path: &Path) {
    // The file is whole and has its name. Not every file system syncs folders, and one that cannot
    // be read cannot be opened: then a loss of power may show the old file.
    let _best_effort = File::open(folder(path)).and_then(|folder| folder.sync_all());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn an_output_that_is_not_finished_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let goal = folder.path().join("goal");
        fs::write(&goal, "precious").unwrap();
        let output = Output::create(&goal).unwrap();
        output.file().unwrap().write_all(b"half").unwrap();
        drop(output);
        assert_eq!(fs::read(&goal).unwrap(), b"precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_reader_of_the_replaced_file_keeps_its_bytes() {
        use std::io::Read as _;
        let folder = tempfile::tempdir().unwrap();
        let goal = folder.path().join("goal");
        fs::write(&goal, "before").unwrap();
        fs::set_permissions(&goal, Permissions::from_mode(0o640)).unwrap();
        let (mut reader, mut text) = (File::open(&goal).unwrap(), String::new());
        write(&goal, b"after").unwrap();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before");
        assert_eq!(fs::read(&goal).unwrap(), b"after");
        assert_eq!(fs::metadata(&goal).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_keeps_its_place_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, b"after").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"after");
        fs::remove_file(&file).unwrap();
        let error = write(&link, b"nothing").unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }

    #[test]
    fn a_stream_is_written_directly() {
        write(Path::new("/dev/null"), b"nothing").unwrap();
        let error = write(Path::new("/dev/full"), b"much").unwrap_err();
        assert!(error.to_string().contains("Free some space"), "{error}");
        let error = write(Path::new("/"), b"").unwrap_err().to_string();
        assert!(error.contains("Name a file in it"), "{error}");
    }

    #[test]
    fn a_pipe_is_written_through_its_link() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;
        let (mut reader, writer) = io::pipe().unwrap();
        let link = format!("/proc/self/fd/{}", writer.as_raw_fd());
        write(Path::new(&link), b"text").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }

    #[test]
    fn a_folder_is_replaced_as_a_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let goal = home.path().join("goal");
        for text in ["one", "two"] {
            let written = folder_of(&goal, |new| {
                write(&new.join(text), text.as_bytes())?;
                Ok(text)
            });
            assert_eq!(written.unwrap(), text);
            let names = fs::read_dir(&goal).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, [text]);
        }
        let failed: Result<()> = folder_of(&goal, |_| Err(Error::Cancelled { samples: 1 }));
        assert!(failed.is_err() && goal.join("two").exists());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
