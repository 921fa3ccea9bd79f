//! The programs and libraries in folders.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// `\x7fELF`, 64 bits, little-endian (the ABI's chapter 4).
const ELF_64: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
/// Offset of the type, and that of executable and shared objects.
const TYPE: usize = 16;
const TYPES: [u8; 2] = [2, 3];

/// The programs and libraries of folders, and of those in them; each file once, however many names it has.
#[derive(Debug)]
pub(super) struct Programs {
    /// The folders.
    pub(super) title: String,
    /// By size, so that of many small ones the first are there at once.
    pub(super) files: Vec<PathBuf>,
    /// The number of files that are left out because of their size.
    pub(super) large: usize,
}

impl Programs {
    /// Finds them, but for files of more than `largest` bytes.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub(super) fn in_folders(folders: &[PathBuf], largest: u64) -> anyhow::Result<Self> {
        let names = folders.iter().map(|folder| folder.display().to_string());
        let mut found = Found {
            largest,
            ..Found::default()
        };
        for folder in folders {
            ensure!(folder.is_dir(), "{} is not a folder.", folder.display());
            found.look_into(folder)?;
        }
        found.files.sort();
        Ok(Self {
            title: names.collect::<Vec<_>>().join(", "),
            files: found.files.into_iter().map(|(_, path)| path).collect(),
            large: found.large,
        })
    }
}

#[derive(Default)]
struct Found {
    largest: u64,
    /// Devices and numbers of files, of which some have several names.
    seen: BTreeSet<(u64, u64)>,
    files: Vec<(u64, PathBuf)>,
    large: usize,
}

impl Found {
    fn look_into(&mut self, folder: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder);
        for entry in entries.with_context(|| format!("{} cannot be read.", folder.display()))? {
            let path = entry?.path();
            // Links point to files that are found by their names.
            let Ok(state) = path.symlink_metadata() else {
                continue;
            };
            if state.is_dir() {
                self.look_into(&path)?;
            } else if state.is_file()
                && is_object(&path)
                && self.seen.insert((state.dev(), state.ino()))
            {
                match state.len() > self.largest {
                    true => self.large += 1,
                    false => self.files.push((state.len(), path)),
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a file begins as a program or library of 64 bits does. One that may not be read does not.
fn is_object(path: &Path) -> bool {
    let mut header = [0; TYPE + 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok()
        && header.starts_with(&ELF_64)
        && header.get(TYPE).is_some_and(|kind| TYPES.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_found_once_whatever_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        let program = [&ELF_64[..], &[0; 10], &[3, 0, 62, 0], &[0; 100]].concat();
        let path = inner.join("program");
        fs::write(&path, &program).expect("written");
        fs::hard_link(&path, folder.path().join("again")).expect("linked");
        std::os::unix::fs::symlink(&path, folder.path().join("link")).expect("linked");
        fs::write(folder.path().join("text"), "words").expect("written");
        let mut object = program;
        object[TYPE] = 1;
        fs::write(folder.path().join("object.o"), object).expect("written");
        let folders = [folder.path().to_path_buf(), inner];
        let found = Programs::in_folders(&folders, u64::MAX).expect("read");
        assert_eq!((found.files.len(), found.large), (1, 0));
        let found = Programs::in_folders(&folders, 10).expect("read");
        assert_eq!((found.files.len(), found.large), (0, 1));
        assert!(Programs::in_folders(&[path], 10).is_err());
    }
}
