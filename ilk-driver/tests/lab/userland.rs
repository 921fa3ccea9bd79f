//! Programs of this machine, with the libraries that they load, as one archive that a script in the lab unpacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ilk_driver::lab::libraries;
use tempfile::TempDir;

/// The folder of the programs in the lab.
pub(crate) const PROGRAMS: &str = "/suite/bin";
/// The archive's path in the lab.
const ARCHIVE: &str = "lab/userland.tar";

/// A tree to be unpacked in the lab.
pub(crate) struct Userland {
    tree: TempDir,
}

impl Userland {
    /// A tree with some programs of this machine.
    pub(crate) fn of(programs: &[&str]) -> Self {
        let userland = Self {
            tree: tempfile::tempdir().unwrap(),
        };
        for name in programs {
            let program = found(name);
            userland.add(&format!("{PROGRAMS}/{name}"), &program);
            for library in libraries(&program).unwrap() {
                userland.add(library.to_str().unwrap(), &library);
            }
        }
        userland
    }

    /// Adds a file, or a folder with all that is in it, at a path of the lab.
    pub(crate) fn add(&self, path: &str, from: &Path) {
        let to = self.tree.path().join(path.trim_start_matches('/'));
        if from.is_dir() {
            fs::create_dir_all(&to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                self.add(&format!("{path}/{name}"), &entry.path());
            }
        } else {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, &to)
                .unwrap_or_else(|error| panic!("cannot copy {}: {error}", from.display()));
        }
    }

    /// Packs the tree, and returns the archive with its path in the lab.
    pub(crate) fn pack(&self, home: &Path) -> (String, PathBuf) {
        let archive = home.join("userland.tar");
        let status = Command::new("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(self.tree.path())
            .arg(".")
            .status();
        assert!(status.unwrap().success(), "tar packs {}", archive.display());
        (ARCHIVE.to_owned(), archive)
    }
}

/// The beginning of a script that uses the programs.
pub(crate) fn unpacked() -> String {
    format!("[ -d {PROGRAMS} ] || tar -xf /{ARCHIVE} -C /; PATH={PROGRAMS}:$PATH; export PATH\n")
}

/// Finds a program of this machine.
pub(crate) fn found(name: &str) -> PathBuf {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .map(|folder| Path::new(folder).join(name))
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!("{name} is not on this machine; xtask/src/packages.rs has its package")
        })
}
