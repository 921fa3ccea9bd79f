//! The processes that execute a program.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::proc;
use super::record::{Client, kept};
use crate::{Error, Result};

/// The file of a program, whose processes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    device: u64,
    inode: u64,
}

impl ProgramFile {
    /// The file at a path. One that takes its place later is another program.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none.
    pub fn at(path: &Path) -> Result<Self> {
        Self::read(path).map_err(Error::io(path, "Name the file of a program."))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self {
            device: about.dev(),
            inode: about.ino(),
        })
    }

    /// Returns the processes that execute it, by number. Those that have the instruments of this process already, as
    /// forked children of instrumented ones do, are left out, and so is this process.
    ///
    /// # Errors
    /// [`Error::Io`] if `/proc` cannot be read.
    pub fn processes(self) -> Result<Vec<Client>> {
        let own = Client::current()?;
        let entries = fs::read_dir("/proc").map_err(Error::io("/proc", "Is /proc mounted?"))?;
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // Processes may end meanwhile, and those of other users are not shown.
        let executing =
            numbers.filter(|&pid| Self::read(&proc(pid, "exe")).is_ok_and(|file| file == self));
        let mut processes: Vec<Client> = executing
            .filter_map(|pid| {
                let process = Client::of(pid).ok()?;
                let is_instrumented = kept(pid).ok()?.iter().any(|kept| kept.client == own);
                (process != own && !is_instrumented && process.is_alive()).then_some(process)
            })
            .collect();
        processes.sort_unstable();
        Ok(processes)
    }
}
