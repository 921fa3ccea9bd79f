//! Opening of recordings in any state.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_schema::Schema;

use super::batch::{BatchFile, BlockReader};
use super::format;
use super::head;
use super::merge::{Merged, Words};
use super::rows::{Loss, Mark, Row};
use super::sidecar::Block;
use crate::metadata::Metadata;
use crate::statistics;
use crate::totals::Totals;
use crate::{Batch, Error, Result, Sample};

mod scan;

/// A recording on disk: finished, still growing, truncated by a crash, or damaged.
#[derive(Debug)]
pub struct Recording {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) metadata: Metadata,
    pub(super) schema: Schema,
    pub(super) head_end: u64,
    pub(super) head_crc: u32,
    pub(super) blocks: Vec<Block>,
    /// The footer exists and names exactly the batches that could be read.
    pub(super) whole: bool,
    /// The sidecar names exactly the batches that could be read.
    pub(super) sidecar_complete: bool,
    pub(super) totals: Totals,
    recovered: Option<String>,
}

impl Recording {
    /// Opens the recording at `path`.
    ///
    /// With its sidecar this reads little; without, every batch once. A file that was not finished
    /// or is damaged opens with every intact batch, and [`recovered`](Self::recovered) describes
    /// the rest.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::NotARecording`] if it is something else
    /// or damaged before its first batch.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        // Checked before opening: opening a pipe would block until a writer opens it.
        let kind = fs::metadata(&path).map_err(|error| Error::io(&path, error))?;
        if !kind.is_file() {
            let reason = "it is not a regular file".to_owned();
            return Err(Error::NotARecording { path, reason });
        }
        let file = File::open(&path).map_err(|error| Error::io(&path, error))?;
        let head = head::read(&file, &path, kind.len())?;
        let scanned = scan::scan(&file, &path, &head, kind.len());
        let refuse = |reason| Error::Metadata {
            path: path.clone(),
            reason,
        };
        let (metadata, schema) = match scanned.metadata {
            Some(metadata) => {
                let schema = format::described(&metadata, &head.schema).map_err(refuse)?;
                (metadata, schema)
            }
            None => (head.metadata, head.schema),
        };
        Ok(Self {
            path,
            file,
            metadata,
            schema,
            head_end: head.end,
            head_crc: head.crc,
            blocks: scanned.blocks,
            whole: scanned.whole,
            sidecar_complete: scanned.sidecar_complete,
            totals: scanned.totals,
            recovered: scanned.recovered,
        })
    }

    /// Returns whether the file at `path` begins as a recording does; its batches are not read.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        let is_recording = || {
            let kind = fs::metadata(path).ok()?;
            let file = kind.is_file().then(|| File::open(path).ok())??;
            head::read(&file, path, kind.len()).ok()
        };
        is_recording().is_some()
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata of the recording.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns a description of what is missing, in whole sentences, if the file was not finished
    /// or is damaged.
    #[must_use]
    pub fn recovered(&self) -> Option<&str> {
        self.recovered.as_deref()
    }

    /// Returns the aggregates of the instruments at the end of the run: none, if it was not
    /// finished.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns every batch, in the order of the file.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Adds the whole batches that were appended to the file since it was opened.
    pub(super) fn find_appended(&mut self) -> Result<()> {
        let kind = self.file.metadata();
        let kind = kind.map_err(|error| Error::io(&self.path, error))?;
        let from = self.blocks.last().map_or(self.head_end, Block::end);
        self.blocks
            .extend(scan::appended(&self.file, from, kind.len()));
        Ok(())
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.sample_blocks()
            .map(|block| u64::from(block.rows))
            .sum()
    }

    /// Returns the minimum and maximum time of all samples, in TSC ticks; `None` without samples.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.sample_blocks().map(|block| block.first).min()?;
        Some((first, self.sample_blocks().map(|block| block.last).max()?))
    }

    /// Reads one batch of samples at a time, in the order of the file: in order of time within a
    /// CPU only. A batch that changed since it was written yields an error, and the next call
    /// continues after it.
    #[must_use]
    pub fn batches(&self) -> Batches<'_> {
        Batches {
            file: self.batch_file(),
            blocks: self.blocks.iter(),
            reader: BlockReader::default(),
        }
    }

    /// Reads every sample in order of time over all CPUs, with a batch of each CPU in memory.
    #[must_use]
    pub fn merged(&self) -> Merged<'_> {
        self.merge((0, u64::MAX))
    }

    /// Reads the samples from `t0` to `t1` (exclusive), in TSC ticks, like
    /// [`merged`](Self::merged); skips batches outside.
    pub fn merged_between(
        &self,
        t0: u64,
        t1: u64,
    ) -> impl Iterator<Item = Result<(u16, Sample)>> + use<'_> {
        let inside = move |sample: &Sample| (t0..t1).contains(&sample.tsc);
        self.merge((t0, t1)).filter(move |found| match found {
            Ok((_, sample)) => inside(sample),
            Err(_) => true,
        })
    }

    /// Returns a reader of the further words of samples.
    pub(crate) fn words(&self) -> Words<'_> {
        let notes = self.blocks.iter().filter(|block| !block.is_samples);
        Words::new(self.batch_file(), notes)
    }

    /// Reads the [further words](Sample::is_word) of samples, a batch at a time, in order of time within a CPU.
    pub(crate) fn word_batches(&self) -> impl Iterator<Item = Result<Batch>> {
        let mut reader = BlockReader::default();
        let notes = self.blocks.iter().filter(|block| !block.is_samples);
        notes.map(move |block| {
            let rows = reader.decode(self.batch_file(), block)?.rows();
            let words = rows.filter_map(|row| Some(row.word()?.as_word()));
            Ok(Batch {
                cpu: block.cpu,
                samples: words.collect(),
            })
        })
    }

    /// Returns time and value of the last sample before `t0` of each of `groups` groups of
    /// instruments, where `group` maps an instrument to its group. Reads batches backwards from
    /// `t0` until all are found.
    ///
    /// # Errors
    /// As for a batch of [`batches`](Self::batches).
    pub fn last_before(
        &self,
        t0: u64,
        groups: usize,
        group: impl Fn(u64) -> Option<u64>,
    ) -> Result<HashMap<u64, (u64, u64)>> {
        let mut blocks: Vec<&Block> = self
            .sample_blocks()
            .filter(|block| block.first < t0)
            .collect();
        // Of two samples at one tick the one on the higher CPU is later, as in `merged`, and of two on
        // one CPU the one in the later block.
        blocks.reverse();
        blocks.sort_by_key(|block| (Reverse(block.last), Reverse(block.cpu)));
        let mut last_readings: HashMap<u64, (u64, u16, u64)> = HashMap::new();
        let mut reader = BlockReader::default();
        for block in blocks {
            let later = |(tsc, ..): &(u64, u16, u64)| *tsc > block.last;
            if last_readings.len() == groups && last_readings.values().all(later) {
                break;
            }
            let mut names = HashMap::new();
            let batch = reader.samples(self.batch_file(), block)?;
            for sample in batch.samples.iter().filter(|sample| sample.tsc < t0) {
                if let Some(group) = group(sample.id) {
                    names.insert(group, (sample.tsc, batch.cpu, sample.value));
                }
            }
            for (group, last) in names {
                let known = last_readings.entry(group).or_insert(last);
                if (known.0, known.1) < (last.0, last.1) {
                    *known = last;
                }
            }
        }
        let last_readings = last_readings.into_iter();
        Ok(last_readings
            .map(|(group, (tsc, _, value))| (group, (tsc, value)))
            .collect())
    }

    /// Returns every loss, in the order of the file.
    ///
    /// # Errors
    /// As for a batch of [`batches`](Self::batches).
    pub fn losses(&self) -> Result<Vec<Loss>> {
        self.notes(|row| row.loss())
    }

    /// Returns every mark, in the order of the file.
    ///
    /// # Errors
    /// As for a batch of [`batches`](Self::batches).
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.notes(|row| row.mark())
    }

    /// Returns the metadata with the [measured](statistics::measured) times of each instrument.
    ///
    /// # Errors
    /// As for [`marks`](Self::marks).
    pub fn measured(&self) -> Result<Metadata> {
        Ok(statistics::measured(
            &self.metadata,
            &self.marks()?,
            self.rows(),
        ))
    }

    /// Returns the [whole](statistics::whole) span of the recording, in TSC ticks, never empty.
    ///
    /// # Errors
    /// As for [`marks`](Self::marks).
    pub fn whole(&self) -> Result<(u64, u64)> {
        Ok(statistics::whole(&self.measured()?, self.rows()))
    }

    /// Returns the times of the first and last row of any kind; the start of the instrumentation
    /// without rows.
    fn rows(&self) -> (u64, u64) {
        let first = self.blocks.iter().map(|block| block.first).min();
        let last = self.blocks.iter().map(|block| block.last).max();
        let start = self.metadata.clock.start;
        (first.unwrap_or(start), last.unwrap_or(start))
    }

    /// Merges the batches that have samples between both times, inclusive.
    fn merge(&self, (t0, t1): (u64, u64)) -> Merged<'_> {
        let inside = |block: &&Block| block.last >= t0 && block.first <= t1;
        Merged::new(self.batch_file(), self.sample_blocks().filter(inside))
    }

    pub(super) fn batch_file(&self) -> BatchFile<'_> {
        BatchFile {
            path: &self.path,
            file: &self.file,
        }
    }

    fn sample_blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.is_samples)
    }

    fn notes<T>(&self, pick: fn(&Row) -> Option<T>) -> Result<Vec<T>> {
        let mut reader = BlockReader::default();
        let mut notes = Vec::new();
        for block in self.blocks.iter().filter(|block| !block.is_samples) {
            let decoder = reader.decode(self.batch_file(), block)?;
            notes.extend(decoder.rows().filter_map(|row| pick(&row)));
        }
        Ok(notes)
    }
}

/// Iterator over the batches of a recording.
pub struct Batches<'a> {
    file: BatchFile<'a>,
    blocks: std::slice::Iter<'a, Block>,
    reader: BlockReader,
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.blocks.find(|block| block.is_samples)?;
        Some(self.reader.samples(self.file, block))
    }
}
