//! The one file of the records of all processes of a command.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gilk_engine::cache::RecordedBlock;

use crate::accesses::{AccessTotals, AccessWriter};
use crate::{Error, Result};

/// The records to make of accesses of memory. Copies have the same file.
#[derive(Clone, Debug)]
pub struct AccessOptions(Arc<SharedAccesses>);

/// A file, and what was written to it.
#[derive(Debug)]
struct SharedAccesses {
    path: PathBuf,
    /// An existing file is replaced.
    replaces: bool,
    /// Bytes of records after which no more are kept, but counted.
    most: u64,
    written: Mutex<Option<WrittenAccesses>>,
}

#[derive(Debug)]
struct WrittenAccesses {
    writer: AccessWriter<BufWriter<File>>,
    /// Executions that have begun.
    executions: u32,
    /// The execution that the last chunk is of.
    last: u32,
    /// Bytes of records.
    bytes: u64,
}

impl AccessOptions {
    /// Records of at most so many bytes in a file, which is created when a process is about to begin. It must not exist,
    /// unless it `replaces` one.
    #[must_use]
    pub fn new(path: PathBuf, replaces: bool, most: u64) -> Self {
        Self(Arc::new(SharedAccesses {
            path,
            replaces,
            most,
            written: Mutex::default(),
        }))
    }

    /// Begins the records of a process in one of its programs.
    pub(super) fn begin(&self, pid: u32, program: &str) -> Result<ProcessRecords> {
        let mut written = self
            .0
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let begun = (|| {
            let written = match &mut *written {
                Some(written) => written,
                none => none.insert(WrittenAccesses {
                    writer: AccessWriter::new(BufWriter::new(self.0.create()?))?,
                    executions: 0,
                    last: 0,
                    bytes: 0,
                }),
            };
            written.executions += 1;
            written.last = written.executions;
            let execution = written.executions;
            written.writer.process(execution, pid, program)?;
            Ok(execution)
        })();
        let execution = begun.map_err(|error| unwritten(&self.0.path, &error))?;
        Ok(ProcessRecords {
            file: Arc::clone(&self.0),
            execution,
        })
    }
}

impl SharedAccesses {
    /// Creates the file. What is no file, such as a pipe, is written to.
    fn create(&self) -> io::Result<File> {
        match fs::metadata(&self.path) {
            Ok(existing) if !existing.is_file() => File::options().write(true).open(&self.path),
            Ok(_) if self.replaces => {
                // A link stays, and a program that reads the former file keeps it.
                let file = fs::canonicalize(&self.path)?;
                fs::remove_file(&file)?;
                File::create_new(file)
            }
            _ => File::create_new(&self.path),
        }
    }
}

/// The records of a process in one of its programs.
#[derive(Debug)]
pub(super) struct ProcessRecords {
    file: Arc<SharedAccesses>,
    execution: u32,
}

impl ProcessRecords {
    /// Writes chunks of this execution.
    fn write(&self, write: impl FnOnce(&mut WrittenAccesses) -> io::Result<()>) -> Result<()> {
        let mut written = self
            .file
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(written) = &mut *written else {
            debug_assert!(false, "records have begun without a file");
            return Ok(());
        };
        let mut begun = Ok(());
        if written.last != self.execution {
            written.last = self.execution;
            begun = written.writer.execution(self.execution);
        }
        begun
            .and_then(|()| write(written))
            .map_err(|error| unwritten(&self.file.path, &error))
    }

    /// Writes a block.
    pub(super) fn block(&self, block: &RecordedBlock) -> Result<()> {
        self.write(|written| written.writer.block(block))
    }

    /// Writes the groups of a thread, unless the file would have too many bytes. Returns whether they were written.
    pub(super) fn groups(&self, thread: u32, fs: u64, words: &[u8]) -> Result<bool> {
        let mut is_kept = false;
        self.write(|written| {
            let bytes = written.bytes.saturating_add(words.len() as u64);
            is_kept = bytes <= self.file.most;
            if !is_kept {
                return Ok(());
            }
            written.bytes = bytes;
            written.writer.groups(thread, fs, words)
        })?;
        Ok(is_kept)
    }

    /// Ends the records, with names of blocks.
    pub(super) fn end(&self, names: &[(u32, String)], totals: &AccessTotals) -> Result<()> {
        self.write(|written| {
            for (number, name) in names {
                written.writer.name(*number, name)?;
            }
            written.writer.end(totals)
        })
    }
}

/// The error of a file of records.
fn unwritten(path: &Path, error: &io::Error) -> Error {
    Error::Target(format!("{} cannot be written ({error}).", path.display()))
}
