//! The files of a machine.

use std::fs;
use std::path::{Path, PathBuf};

/// A machine, as its files describe it.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

/// Distributions by how they install packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    Fedora,
    Suse,
    Arch,
    Other,
}

impl Machine {
    /// The machine that executes this program.
    #[must_use]
    pub fn this() -> Self {
        Self::at("/")
    }

    /// The machine whose files are below a folder: a root that is mounted there, or files that a machine's owner sent.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the path of a file of the machine, which is given from its root.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, file: &str) -> bool {
        // Links below another root point into this machine's: that a link is there suffices.
        self.path(file).symlink_metadata().is_ok()
    }

    /// Returns a file's text without its last line break; none if it cannot be read.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        let text = fs::read(self.path(file)).ok()?;
        Some(String::from_utf8_lossy(&text).trim_end().to_owned())
    }

    /// Returns a file's bytes; none if it cannot be read.
    pub(super) fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        fs::read(self.path(file)).ok()
    }

    /// Returns the names in a folder, sorted; none if it cannot be read.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Returns a file below a folder whose name satisfies a predicate.
    pub(super) fn find(&self, folder: &str, is_wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
        let mut worklist = vec![self.path(folder)];
        while let Some(folder) = worklist.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder {
                    worklist.push(path);
                } else if entry.file_name().to_str().is_some_and(is_wanted) {
                    return Some(path);
                }
            }
        }
        None
    }

    /// Returns the running kernel's release, as `uname -r` prints it.
    pub(super) fn release(&self) -> Option<String> {
        self.text("/proc/sys/kernel/osrelease")
    }

    /// Returns whether a flag is among those of the first processor.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        let cpu = self.text("/proc/cpuinfo").unwrap_or_default();
        let flags = cpu.lines().find(|line| line.starts_with("flags"));
        let mut flags = flags.unwrap_or_default().split_whitespace();
        flags.any(|word| word == flag)
    }

    pub(super) fn family(&self) -> Family {
        let release = self.text("/etc/os-release").unwrap_or_default();
        let value = |key: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_matches('"').to_owned())
        };
        // The distribution itself, then those that it derives from.
        let words = [value("ID="), value("ID_LIKE=")];
        let mut words = words
            .iter()
            .flatten()
            .flat_map(|ids| ids.split_whitespace());
        let family = words.find_map(|id| match id {
            "debian" | "ubuntu" => Some(Family::Debian),
            "fedora" | "rhel" | "centos" => Some(Family::Fedora),
            "suse" | "opensuse" => Some(Family::Suse),
            "arch" => Some(Family::Arch),
            _ => None,
        });
        family.unwrap_or(Family::Other)
    }

    /// Returns the socket's path on this machine.
    pub(super) fn socket(&self) -> PathBuf {
        self.path(crate::agent::SOCKET)
    }

    /// Returns whether its files are those of the running system, which answers more than files do.
    pub(super) fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }
}
