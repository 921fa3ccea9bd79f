//! The refusal of outputs that would destroy something.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{folder, resolved};
use crate::recording::{Recording, sidecar_path};
use crate::{Error, Result};

/// First bytes of the sidecar of a recording.
const SIDECAR_MAGIC: &[u8] = b"GILKIDX";

/// The inputs and outputs of one command.
///
/// An output is refused if it is an input, by device and inode and so through every link; if it
/// exists, is not empty, and is not a recording that a new one replaces; and if another output of
/// the same command goes there. [`Existing`] permits the first two.
///
/// # Examples
/// ```
/// use gilk_samples::output::{Contents, Existing, Goals};
///
/// # let folder = tempfile::tempdir()?;
/// let text = folder.path().join("precious.txt");
/// std::fs::write(&text, "precious")?;
/// assert!(Goals::new(Existing::Kept).goal(&text, Contents::Recording).is_err());
/// assert!(Goals::new(Existing::Replaced).goal(&text, Contents::Recording).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Goals {
    existing: Existing,
    inputs: Vec<(PathBuf, FileIdentity)>,
    goals: Vec<PathBuf>,
}

/// The files that the outputs of a command may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Recordings by recordings, and empty files.
    Kept,
    /// Every file but an input: a person has confirmed it.
    Confirmed,
    /// Every file, inputs included.
    Replaced,
}

/// Device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// Contents of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A recording, which may replace an older recording.
    Recording,
    /// A folder to which files are added.
    Folder,
    /// Anything else.
    Other,
}

/// Returns the error that a new file beside this one would have: before a command begins, not after it has measured.
fn can_be_created(path: &Path) -> io::Result<()> {
    let folder = folder(path);
    fs::metadata(folder)?;
    let created = tempfile::tempfile_in(folder);
    // The path of the file is no part of the reason.
    created.map(drop).map_err(|error| error.kind().into())
}

impl Goals {
    /// Creates the goals of a command.
    #[must_use]
    pub const fn new(existing: Existing) -> Self {
        Self {
            existing,
            inputs: Vec::new(),
            goals: Vec::new(),
        }
    }

    /// Adds a file that the command reads. A path without a file is left to its reader to refuse.
    #[must_use]
    pub fn reads(mut self, path: &Path) -> Self {
        if let Some(identity) = FileIdentity::of(path) {
            self.inputs.push((path.to_path_buf(), identity));
        }
        self
    }

    /// Adds a file that the command writes.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the path may not be written; [`Error::Io`] if it cannot be inspected.
    pub fn goal(&mut self, path: &Path, contents: Contents) -> Result<()> {
        let refuse = |reason: String| {
            Err(Error::Occupied {
                path: path.to_path_buf(),
                reason,
            })
        };
        let io = |error| Error::io(path, error);
        let resolved = resolved(path).map_err(io)?;
        if self.goals.iter().any(|goal| *goal == place(&resolved)) {
            return refuse(String::from(
                "two outputs of this command have this path; name two files",
            ));
        }
        self.goals.push(place(&resolved));
        let existing = fs::metadata(&resolved);
        if contents != Contents::Folder && existing.as_ref().map_or(true, fs::Metadata::is_file) {
            can_be_created(&resolved).map_err(io)?;
        }
        let Ok(existing) = existing else {
            return Ok(());
        };
        if contents == Contents::Folder && existing.is_dir() {
            return Ok(());
        }
        if contents == Contents::Recording && existing.is_dir() {
            return refuse(String::from("it is a folder; name a file in it"));
        }
        if self.existing == Existing::Replaced {
            return Ok(());
        }
        if let Some(input) = self.input_at(&resolved) {
            return refuse(format!(
                "it is the same file as {}, which is read for it; name another file{}",
                input.display(),
                match self.existing {
                    Existing::Confirmed => "",
                    Existing::Kept | Existing::Replaced => ", or replace it with --force",
                }
            ));
        }
        if self.existing == Existing::Confirmed {
            return Ok(());
        }
        let kind = existing.file_type();
        if kind.is_char_device() || kind.is_fifo() || kind.is_socket() {
            return Ok(());
        }
        let is_empty = match existing.is_dir() {
            true => fs::read_dir(&resolved).map_err(io)?.next().is_none(),
            false => existing.is_file() && existing.len() == 0,
        };
        if is_empty {
            return Ok(());
        }
        if contents != Contents::Recording {
            return refuse(String::from(
                "it exists; choose a new name, or replace it with --force",
            ));
        }
        if !Recording::is_at(&resolved) {
            return refuse(String::from(
                "it exists and is not a recording; choose a new name, or replace it with --force",
            ));
        }
        let sidecar = sidecar_path(&resolved);
        if self.input_at(&sidecar).is_some() || is_foreign(&sidecar) {
            return refuse(format!(
                "its index {} exists and is another file; choose a new name, or replace it with --force",
                sidecar.display()
            ));
        }
        Ok(())
    }

    /// Returns the input that is the same file as `path`.
    fn input_at(&self, path: &Path) -> Option<&Path> {
        let identity = FileIdentity::of(path)?;
        let mut inputs = self.inputs.iter();
        let input = inputs.find(|(_, input)| *input == identity)?;
        Some(&input.0)
    }
}

impl FileIdentity {
    /// Returns the identity of the file at `path`, if there is one.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// Returns a path by which two names of one new file are equal.
fn place(path: &Path) -> PathBuf {
    let home = fs::canonicalize(folder(path));
    match (home, path.file_name()) {
        (Ok(home), Some(name)) => home.join(name),
        // Creating the file there fails with the reason.
        _ => path.to_path_buf(),
    }
}

/// Returns whether a file exists that is not the sidecar of a recording.
fn is_foreign(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return path.exists();
    };
    let mut bytes = Vec::new();
    let read = file
        .take(SIDECAR_MAGIC.len() as u64)
        .read_to_end(&mut bytes);
    read.is_err() || !(bytes.is_empty() || bytes == SIDECAR_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::metadata::Metadata;
    use crate::recording::Writer;

    fn refused(goals: &mut Goals, path: &Path, contents: Contents) -> String {
        let error = goals.goal(path, contents).unwrap_err();
        assert!(matches!(error, Error::Occupied { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn an_input_is_refused_through_every_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("input"), "text").unwrap();
        symlink(at("input"), at("soft")).unwrap();
        fs::hard_link(at("input"), at("hard")).unwrap();
        for name in ["input", "soft", "hard", "./input"] {
            let kinds = [Contents::Recording, Contents::Other];
            for (contents, existing) in kinds.into_iter().zip([Existing::Kept, Existing::Confirmed])
            {
                let mut goals = Goals::new(existing).reads(&at("input"));
                let reason = refused(&mut goals, &at(name), contents);
                assert!(reason.contains("which is read for it"), "{reason}");
            }
            let forced = Goals::new(Existing::Replaced)
                .reads(&at("input"))
                .goal(&at(name), Contents::Other);
            assert!(forced.is_ok());
        }
    }

    #[test]
    fn only_a_recording_replaces_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        Writer::create(at("a.arrow"), &Metadata::default())
            .and_then(Writer::finish)
            .unwrap();
        fs::write(at("text"), "text").unwrap();
        fs::write(at("empty"), "").unwrap();
        let mut goals = Goals::new(Existing::Kept);
        goals.goal(&at("a.arrow"), Contents::Recording).unwrap();
        goals.goal(&at("empty"), Contents::Recording).unwrap();
        goals.goal(&at("new"), Contents::Other).unwrap();
        goals.goal(Path::new("/dev/null"), Contents::Other).unwrap();
        let mut goals = Goals::new(Existing::Kept);
        refused(&mut goals, &at("a.arrow"), Contents::Other);
        refused(&mut goals, &at("text"), Contents::Recording);
        refused(&mut goals, &at("text"), Contents::Other);
        refused(&mut goals, folder.path(), Contents::Recording);
        refused(&mut goals, folder.path(), Contents::Other);
        // A recording whose index is another file.
        fs::write(sidecar_path(&at("a.arrow")), "my notes").unwrap();
        let reason = refused(
            &mut Goals::new(Existing::Kept),
            &at("a.arrow"),
            Contents::Recording,
        );
        assert!(reason.contains("a.arrow.idx"), "{reason}");
    }

    #[test]
    fn two_outputs_never_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut goals = Goals::new(Existing::Replaced);
        let path = folder.path().join("both");
        goals.goal(&path, Contents::Recording).unwrap();
        let again = folder.path().join(".").join("both");
        let reason = refused(&mut goals, &again, Contents::Other);
        assert!(reason.contains("two outputs"), "{reason}");
    }
}
