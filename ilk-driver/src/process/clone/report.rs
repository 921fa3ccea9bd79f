//! The report of an execution in the cache.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gilk_engine::Addr;
use gilk_samples::cache_numbers::CacheNumbers;
use gilk_samples::process_end::{EndWay, ProcessEnd};
use gilk_samples::recording::{Summary, sidecar_path};
use gilk_samples::totals::Totals;

use super::agent::CloneEnd;
use super::block_counters::DynamicBlock;
use super::moments::CountedMoment;
use super::recording::{CacheRecorder, CacheRecording, CountedSoFar, ReadImages};
use crate::accesses::AccessTotals;
use crate::process::code_lines::CodeLines;
use crate::process::executions::write_beside;
use crate::process::launched::HeldProcess;
use crate::process::names::ProcessNames;
use crate::process::parts::LoadedPart;
use crate::sources::SourceLine;
use crate::{Error, Result};

/// The name of counted blocks beside instruments.
const BLOCKS: &str = "blocks";

/// Results of an execution in the cache.
pub struct CloneReport {
    /// The number of the process.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// The end of it.
    pub end: CloneEnd,
    /// The program that the process has executed then, if that is to be held, or the reason why it could not be.
    pub next: Option<Result<HeldProcess>>,
    /// Dynamic blocks, in the order of their first translations, and their executions.
    pub blocks: Vec<(DynamicBlock, u64)>,
    /// Hits and totals of instruments, by key.
    pub counts: Vec<(u64, u64)>,
    /// Objects with instruments that were loaded later.
    pub parts: Vec<LoadedPart<usize>>,
    /// Objects that were loaded later and have no instruments, with the reasons; each once.
    pub not_instrumented: BTreeSet<String>,
    /// The process was about to filter its system calls: instruments have not read its memory after that.
    pub reads_ended: bool,
    /// Readings of the counters before the end.
    pub(super) moments: Vec<CountedMoment>,
    /// Numbers of the cache.
    pub numbers: CacheNumbers,
    /// Knows the begin, and the objects that were read for recordings before the end.
    pub(super) recorder: CacheRecorder,
    /// The end, in ticks of the time-stamp counter.
    pub ended: u64,
    /// Sizes and losses of the records of accesses.
    pub accesses: Option<AccessTotals>,
    /// Names of the code that the process had in that time.
    pub names: ProcessNames,
    /// Source lines of that code.
    pub(super) lines: CodeLines,
    /// The reason why the blocks of this program are not known at its next start, or were not at this one.
    pub unkept: Option<String>,
}

/// Returns the file to which the executions of all blocks are written before they are added to a recording.
#[must_use]
pub fn blocks_path(recording: &Path) -> PathBuf {
    recording.with_added_extension(BLOCKS)
}

/// Writes the recordings of instruments, and of the executions of all blocks, whose labels begin with `blocks: `, as one.
pub(super) fn with_blocks(instruments: &Path, blocks: &Path, path: &Path) -> Result<Summary> {
    let parts = [(String::new(), instruments), (BLOCKS.to_owned(), blocks)];
    write_beside(parts.into_iter(), path)
}

impl From<&CloneEnd> for EndWay {
    fn from(end: &CloneEnd) -> Self {
        match end {
            CloneEnd::Ended(status) => Self::Ended(*status),
            CloneEnd::Executed => Self::Executed,
            CloneEnd::Detached => Self::Requested,
            CloneEnd::LetGo(refusal) => Self::LetGo {
                rule: refusal.rule.to_string(),
                at: refusal.at.0,
                why: refusal.why.clone(),
            },
        }
    }
}

impl CloneReport {
    /// Returns the end of the execution, as recordings have it.
    #[must_use]
    pub fn process_end(&self) -> ProcessEnd {
        ProcessEnd {
            machine: String::new(),
            pid: self.pid,
            program: self.program.clone(),
            way: EndWay::from(&self.end),
            reads_ended: self.reads_ended,
        }
    }

    /// Returns the source line of an address, where the debug information of its file has it.
    pub fn line(&mut self, at: Addr) -> Option<SourceLine> {
        self.lines.line(&self.names, self.pid, at)
    }

    /// Returns the reasons why lines of files are not known that have debug information.
    pub fn unread_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.unread()
    }

    /// Has recordings use the objects that were read for other executions with the same.
    pub fn reuse(&mut self, images: &ReadImages) {
        self.recorder.reuse(images);
    }

    /// Writes the executions of all blocks and the numbers of the cache as a recording, in the place of an existing one.
    ///
    /// # Errors
    /// [`Error::Recording`] if it cannot be written; [`Error::Io`] if this machine cannot be described.
    pub fn record(&mut self, path: &Path) -> Result<CacheRecording> {
        let totals = Totals {
            ends: vec![self.process_end()],
            cache: Some(self.numbers),
            ..Totals::default()
        };
        self.record_blocks(path, totals)
    }

    /// Adds the executions of all blocks to the finished recording of the instruments, which has the rest; their labels
    /// begin with `blocks: `. They are written to [another file](blocks_path) first, in the place of an existing one.
    ///
    /// # Errors
    /// As [`record`](Self::record); [`Error::Recording`] also if a recording cannot be read.
    pub fn record_beside(&mut self, instruments: &Path) -> Result<CacheRecording> {
        let blocks = blocks_path(instruments);
        let recorded = self.record_blocks(&blocks, Totals::default())?;
        let written = with_blocks(instruments, &blocks, instruments);
        for file in [&blocks, &sidecar_path(&blocks)] {
            std::fs::remove_file(file).map_err(Error::io(file, "It is not needed any more."))?;
        }
        Ok(CacheRecording {
            summary: written?,
            ..recorded
        })
    }

    fn record_blocks(&mut self, path: &Path, totals: Totals) -> Result<CacheRecording> {
        let counted = CountedSoFar {
            blocks: &self.blocks,
            moments: &self.moments,
            ticks: (self.recorder.begin.at.tsc, self.ended),
        };
        let lines = Some(&mut self.lines);
        self.recorder
            .write(path, (&mut self.names, lines), &counted, totals)
    }
}
