//! The one file of the records of all processes of a command.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gilk_engine::cache::RecordedBlock;

use super::chunk_file::{ChunkFile, is_full};
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
    file: ChunkFile,
    /// Chunks that are written before the next groups.
    pending: Vec<u8>,
    /// The last groups, in memory that is used again: areas are of some MiB.
    chunk: Vec<u8>,
    /// Executions that have begun.
    executions: u32,
    /// The execution that the last chunk is of.
    last: u32,
    /// Bytes of records.
    bytes: u64,
    /// The number of the error (errno) after which no groups are written.
    full: Option<i32>,
    /// Bytes of groups that were removed again, by execution.
    removed: BTreeMap<u32, u64>,
}

/// Bytes of chunks without groups that are kept before they are written.
const PENDING: usize = 1 << 16;

impl WrittenAccesses {
    /// Begins a file.
    fn new(file: File) -> io::Result<Self> {
        let mut pending = Vec::new();
        AccessWriter::new(&mut pending)?;
        Ok(Self {
            file: ChunkFile::new(file)?,
            pending,
            chunk: Vec::new(),
            executions: 0,
            last: 0,
            bytes: 0,
            full: None,
            removed: BTreeMap::new(),
        })
    }

    fn writer(&mut self) -> AccessWriter<&mut Vec<u8>> {
        AccessWriter::after(&mut self.pending)
    }

    /// Writes the chunks that are kept; where the file is full, in the place of groups.
    fn write_pending(&mut self) -> io::Result<()> {
        while !self.append_pending()? {}
        Ok(())
    }

    /// Appends the chunks that are kept; returns false if groups had to give way, so that there may be room now.
    fn append_pending(&mut self) -> io::Result<bool> {
        match self.file.append(&self.pending) {
            Ok(()) => {
                self.pending.clear();
                Ok(true)
            }
            Err(error) if is_full(&error) && self.remove_groups()? => {
                self.full = self.full.or(error.raw_os_error());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the last groups of executions that have no end yet; returns whether there were any.
    fn remove_groups(&mut self) -> io::Result<bool> {
        let Some(groups) = self.file.remove_last()? else {
            return Ok(false);
        };
        *self.removed.entry(groups.owner).or_default() += groups.bytes;
        Ok(true)
    }

    /// Continues an execution.
    fn execution(&mut self, execution: u32) -> io::Result<()> {
        if self.last == execution {
            return Ok(());
        }
        self.last = execution;
        self.writer().execution(execution)
    }

    /// Writes the groups of a thread; returns false if the file is full.
    fn groups(&mut self, (thread, fs): (u32, u64), words: &[u8]) -> io::Result<bool> {
        if self.full.is_some() {
            return Ok(false);
        }
        self.write_pending()?;
        self.chunk.clear();
        AccessWriter::after(&mut self.chunk).groups(thread, fs, words)?;
        let owner = (self.last, words.len() as u64);
        match self.file.append_removable(&self.chunk, owner) {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                self.full = error.raw_os_error();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends an execution, with names of blocks; where the file is full, in the place of groups, which are lost then.
    fn end(
        &mut self,
        execution: u32,
        names: &[(u32, String)],
        totals: &mut AccessTotals,
    ) -> io::Result<()> {
        for (number, name) in names {
            self.writer().name(*number, name)?;
        }
        let kept = self.pending.len();
        loop {
            let removed = self.removed.remove(&execution).unwrap_or(0);
            totals.bytes = totals.bytes.saturating_sub(removed);
            totals.bytes_lost += removed;
            totals.unwritten = self.full;
            self.pending.truncate(kept);
            self.writer().end(totals)?;
            if self.append_pending()? {
                break;
            }
        }
        self.file.keep(execution);
        Ok(())
    }
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
        let is_first = written.is_none();
        let begun = (|| {
            let written = match &mut *written {
                Some(written) => written,
                none => none.insert(WrittenAccesses::new(self.0.create()?)?),
            };
            written.executions += 1;
            written.last = written.executions;
            let execution = written.executions;
            written.writer().process(execution, pid, program)?;
            written.write_pending()?;
            Ok(execution)
        })();
        let execution = begun.map_err(|error| {
            if is_first && written.take().is_some() {
                self.0.remove();
            }
            unwritten(&self.0.path, &error)
        })?;
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
                created(&file)
            }
            _ => created(&self.path),
        }
    }

    /// Removes a file that was created, and to which nothing could be written.
    fn remove(&self) {
        if fs::metadata(&self.path).is_ok_and(|about| about.is_file()) {
            // The reason why nothing could be written is reported.
            let _kept = fs::remove_file(&self.path);
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
    fn write<T>(&self, write: impl FnOnce(&mut WrittenAccesses) -> io::Result<T>) -> Result<T> {
        let mut written = self
            .file
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(written) = &mut *written else {
            let why = "records of accesses were written without a file, which is a bug in gilk";
            return Err(Error::Target(why.to_owned()));
        };
        written
            .execution(self.execution)
            .and_then(|()| write(written))
            .map_err(|error| unwritten(&self.file.path, &error))
    }

    /// Writes a block.
    pub(super) fn block(&self, block: &RecordedBlock) -> Result<()> {
        self.write(|written| {
            written.writer().block(block)?;
            match written.pending.len() < PENDING {
                true => Ok(()),
                false => written.write_pending(),
            }
        })
    }

    /// Writes the groups of a thread, unless the file would have too many bytes, or is full. Returns whether they were
    /// written.
    pub(super) fn groups(&self, thread: u32, fs: u64, words: &[u8]) -> Result<bool> {
        self.write(|written| {
            let bytes = written.bytes.saturating_add(words.len() as u64);
            let is_kept = bytes <= self.file.most && written.groups((thread, fs), words)?;
            if is_kept {
                written.bytes = bytes;
            }
            Ok(is_kept)
        })
    }

    /// Ends the records, with names of blocks, and adds what was lost after it was written to the totals.
    pub(super) fn end(&self, names: &[(u32, String)], totals: &mut AccessTotals) -> Result<()> {
        self.write(|written| written.end(self.execution, names, totals))
    }
}

/// Creates a file that must not exist.
fn created(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).open(path)
}

/// The error of a file of records.
fn unwritten(path: &Path, error: &io::Error) -> Error {
    Error::Target(format!("{} cannot be written ({error}).", path.display()))
}
