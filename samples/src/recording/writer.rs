//! Writer of recordings, batch by batch.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::{Schema, SchemaRef};

use super::format::{self, MAX_ROWS};
use super::head;
use super::reader::Recording;
use super::rows::{Loss, LossCause, Mark, Row};
use super::sidecar::{Block, Sidecar};
use crate::metadata::Metadata;
use crate::output::Output;
use crate::totals::Totals;
use crate::{Batch, Error, Result, Sample};

mod encoder;

pub use encoder::Compression;
use encoder::Encoder;

/// Samples of a CPU per batch: with fewer, the batch's own bytes would dominate; with more, a crash
/// would lose more and a reader would have to decode more than it requested.
const ENOUGH_ROWS: usize = 1 << 14;
/// Longest time that samples wait before they are written: the maximum loss in a crash.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Writes a recording, in whole batches only, so that the file can be opened at any time.
///
/// Samples of a CPU are gathered until they fill a batch or the oldest has waited half a second;
/// [`flush`](Self::flush) writes them at once, and so does dropping the writer. Call `write` or
/// `flush` at intervals even without samples.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    end: u64,
    sidecar: Sidecar,
    schema: SchemaRef,
    encoder: Encoder,
    waiting: BTreeMap<u16, Vec<Sample>>,
    /// Further words of samples, by CPU.
    words: BTreeMap<u16, Vec<Row>>,
    notes: Vec<Row>,
    waiting_since: Option<Instant>,
    blocks: Vec<Block>,
    summary: Summary,
    totals: Totals,
    finished: bool,
}

/// Contents of a recording, counted while it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Record batches written.
    pub batches: u64,
    /// Samples written.
    pub samples: u64,
    /// Samples lost because a ring was full.
    pub lost_full: u64,
    /// Samples lost for other reasons.
    pub lost_otherwise: u64,
    /// Marks written, those of launches and splashes among them.
    pub marks: u64,
    /// Minimum and maximum time of all samples, in TSC ticks.
    pub span: Option<(u64, u64)>,
}

impl Summary {
    fn count(&mut self, loss: &Loss) {
        match loss.cause {
            LossCause::RingFull => self.lost_full += loss.count,
            _ => self.lost_otherwise += loss.count,
        }
    }
}

impl Writer {
    /// Creates a recording at `path`, and its sidecar next to it. It replaces an existing file when
    /// its head is written; readers of the replaced file keep their bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be created or written, [`Error::Metadata`] if the metadata
    /// cannot be serialized.
    pub fn create(path: impl AsRef<Path>, metadata: &Metadata) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let (output, schema, bytes) = Self::begin(&path, metadata)?;
        let file = output.named()?;
        let sidecar = Sidecar::create(&path, crc32fast::hash(&bytes))?;
        Ok(Self {
            summary: Summary {
                path: path.clone(),
                ..Summary::default()
            },
            path,
            file,
            end: bytes.len() as u64,
            sidecar,
            schema: Arc::new(schema),
            encoder: Encoder::default(),
            waiting: BTreeMap::new(),
            words: BTreeMap::new(),
            notes: Vec::new(),
            waiting_since: None,
            blocks: Vec::new(),
            totals: Totals::default(),
            finished: false,
        })
    }

    /// Returns an error if a recording could not be [created](Self::create) at `path`, where
    /// nothing is changed.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn check(path: impl AsRef<Path>, metadata: &Metadata) -> Result<()> {
        Self::begin(path.as_ref(), metadata).map(drop)
    }

    /// Writes the head of a recording that has no name yet.
    fn begin(path: &Path, metadata: &Metadata) -> Result<(Output, Schema, Vec<u8>)> {
        let refuse = |reason| Error::Metadata {
            path: path.to_path_buf(),
            reason,
        };
        let schema = format::schema(metadata).map_err(refuse)?;
        let bytes = head::encode(&schema).map_err(refuse)?;
        let output = Output::create(path)?;
        let written = output.file()?.write_all_at(&bytes, 0);
        written.map_err(|error| Error::io(path, error))?;
        Ok((output, schema, bytes))
    }

    /// Continues the recording at `path`, which no other process may be writing, at a length of
    /// `bytes`, as [`summary`](Self::summary) returned it after a [`flush`](Self::flush). Anything
    /// after that length is removed.
    ///
    /// # Errors
    /// As for [`Recording::open`], and [`Error::NotARecording`] if no batch ends there.
    pub fn resume(path: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        let mut recording = Recording::open(path)?;
        let path = recording.path.clone();
        recording.blocks.retain(|block| block.end() <= bytes);
        let last = recording.blocks.last();
        if last.map_or(recording.head_end, Block::end) != bytes {
            let reason =
                format!("it has no batch that ends at byte {bytes}, where it was to resume");
            return Err(Error::NotARecording { path, reason });
        }
        let mut summary = Summary {
            path: path.clone(),
            samples: recording.samples(),
            marks: recording.marks()?.len() as u64,
            span: recording.span(),
            ..Summary::default()
        };
        recording
            .losses()?
            .iter()
            .for_each(|loss| summary.count(loss));
        let io = |error| Error::io(&path, error);
        let file = File::options().write(true).open(&path).map_err(io)?;
        file.set_len(bytes).map_err(io)?;
        let mut sidecar = Sidecar::create(&path, recording.head_crc)?;
        sidecar.extend(&recording.blocks)?;
        Ok(Self {
            summary,
            path,
            file,
            end: bytes,
            sidecar,
            schema: Arc::new(recording.schema),
            encoder: Encoder::default(),
            waiting: BTreeMap::new(),
            words: BTreeMap::new(),
            notes: Vec::new(),
            waiting_since: None,
            blocks: recording.blocks,
            totals: Totals::default(),
            finished: false,
        })
    }

    /// Sets the compression of further batches. Initially: [`Compression::Auto`].
    pub fn set_compression(&mut self, compression: Compression) {
        self.encoder.compression = compression;
    }

    /// Returns the path of the recording.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds samples of one CPU, which must be in order of time and after those added before for
    /// this CPU. [Further words](Sample::is_word) of samples follow these.
    ///
    /// # Errors
    /// [`Error::Io`], for example when the disk is full. Everything written before is intact, and
    /// samples that could not be written are kept for the next call.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        self.encoder.load.count(batch.samples.len());
        if !batch.samples.is_empty() {
            self.waiting_since.get_or_insert_with(Instant::now);
            let waiting = self.waiting.entry(batch.cpu).or_default();
            if batch.samples.iter().any(Sample::is_word) {
                let words = self.words.entry(batch.cpu).or_default();
                for sample in &batch.samples {
                    match sample.is_word() {
                        true => words.push(Row::of_word(batch.cpu, &sample.without_mark())),
                        false => waiting.push(*sample),
                    }
                }
            } else {
                waiting.extend_from_slice(&batch.samples);
            }
            let words = self.words.get(&batch.cpu).map_or(0, Vec::len);
            if waiting.len() >= ENOUGH_ROWS || words >= ENOUGH_ROWS {
                self.write_cpu(batch.cpu)?;
                self.write_words(batch.cpu)?;
            }
        }
        self.flush_if_old()
    }

    /// Adds losses.
    ///
    /// # Errors
    /// [`Error::Io`], as [`write`](Self::write).
    pub fn losses(&mut self, losses: &[Loss]) -> Result<()> {
        for loss in losses.iter().filter(|loss| loss.count > 0) {
            self.summary.count(loss);
            self.note(Row::from(*loss));
        }
        self.flush_if_old()
    }

    /// Adds a mark.
    ///
    /// # Errors
    /// [`Error::Io`], as [`write`](Self::write).
    pub fn mark(&mut self, mark: Mark) -> Result<()> {
        self.summary.marks += 1;
        self.note(Row::from(mark));
        self.flush_if_old()
    }

    /// Stores the aggregates of the instruments, to be written into the footer of a
    /// [finished](Self::finish) recording.
    pub fn totals(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// Replaces the metadata in the footer of a [finished](Self::finish) recording: of functions and instruments that
    /// were not known at the start. An unfinished one has the metadata that it was created with.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the metadata cannot be serialized.
    pub fn describe(&mut self, metadata: &Metadata) -> Result<()> {
        let described = format::described(metadata, &self.schema);
        let schema = described.map_err(|reason| Error::Metadata {
            path: self.path.clone(),
            reason,
        })?;
        self.schema = Arc::new(schema);
        Ok(())
    }

    /// Writes all gathered rows.
    ///
    /// # Errors
    /// [`Error::Io`], as [`write`](Self::write).
    pub fn flush(&mut self) -> Result<()> {
        let cpus: Vec<u16> = self.waiting.keys().copied().collect();
        for cpu in cpus {
            self.write_cpu(cpu)?;
            self.write_words(cpu)?;
        }
        self.write_notes()?;
        self.waiting_since = None;
        Ok(())
    }

    /// Writes all gathered rows and the footer, and syncs the file to the disk.
    ///
    /// # Errors
    /// [`Error::Io`]: the recording then still opens, as an unfinished one.
    pub fn finish(mut self) -> Result<Summary> {
        self.flush()?;
        self.finished = true;
        let refuse = |reason| Error::Metadata {
            path: self.path.clone(),
            reason,
        };
        let tail = format::tail(&self.schema, &self.totals, &self.blocks).map_err(refuse)?;
        self.file
            .write_all_at(&tail, self.end)
            .map_err(|error| Error::io(&self.path, error))?;
        self.end += tail.len() as u64;
        self.file
            .sync_all()
            .map_err(|error| Error::io(&self.path, error))?;
        Ok(Summary {
            bytes: self.end,
            batches: self.blocks.len() as u64,
            ..self.summary.clone()
        })
    }

    /// Returns the contents written up to now, without gathered samples.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            bytes: self.end,
            batches: self.blocks.len() as u64,
            ..self.summary.clone()
        }
    }

    fn note(&mut self, row: Row) {
        self.waiting_since.get_or_insert_with(Instant::now);
        self.notes.push(row);
    }

    fn flush_if_old(&mut self) -> Result<()> {
        match self.waiting_since {
            Some(since) if since.elapsed() >= LONGEST_WAIT => self.flush(),
            _ => Ok(()),
        }
    }

    /// Writes the gathered samples of a CPU, in as many batches as necessary.
    fn write_cpu(&mut self, cpu: u16) -> Result<()> {
        let Some(mut samples) = self.waiting.remove(&cpu) else {
            return Ok(());
        };
        let mut written = 0;
        let result = samples.chunks(MAX_ROWS).try_for_each(|chunk| {
            let first = chunk
                .iter()
                .map(|sample| sample.tsc)
                .min()
                .unwrap_or_default();
            let last = chunk
                .iter()
                .map(|sample| sample.tsc)
                .max()
                .unwrap_or_default();
            let bytes = self.encoder.samples(&self.schema, cpu, chunk);
            self.append(bytes, cpu, true, chunk.len(), (first, last))?;
            let (from, to) = self.summary.span.unwrap_or((first, last));
            self.summary.span = Some((from.min(first), to.max(last)));
            self.summary.samples += chunk.len() as u64;
            written += chunk.len();
            Ok(())
        });
        // Reuses the memory and, after an error, keeps the samples.
        samples.drain(..written);
        self.waiting.insert(cpu, samples);
        result
    }

    /// Writes the gathered losses and marks.
    fn write_notes(&mut self) -> Result<()> {
        let notes = std::mem::take(&mut self.notes);
        let (written, result) = self.write_rows(&notes);
        self.notes = notes.into_iter().skip(written).collect();
        result
    }

    /// Writes the gathered words of a CPU's samples.
    fn write_words(&mut self, cpu: u16) -> Result<()> {
        let words = self.words.remove(&cpu).unwrap_or_default();
        let (written, result) = self.write_rows(&words);
        if written < words.len() {
            let rest = words.into_iter().skip(written).collect();
            self.words.insert(cpu, rest);
        }
        result
    }

    /// Writes rows of any kind but samples; returns the number of those written, also after an error.
    fn write_rows(&mut self, rows: &[Row]) -> (usize, Result<()>) {
        let mut written = 0;
        let result = rows.chunk_by(|a, b| a.cpu == b.cpu).try_for_each(|chunk| {
            for chunk in chunk.chunks(MAX_ROWS) {
                let Some(cpu) = chunk.first().map(|row| row.cpu) else {
                    continue;
                };
                let first = chunk.iter().map(|row| row.time).min().unwrap_or_default();
                let last = chunk.iter().map(|row| row.time).max().unwrap_or_default();
                let bytes = self.encoder.notes(&self.schema, chunk);
                self.append(bytes, cpu, false, chunk.len(), (first, last))?;
                written += chunk.len();
            }
            Ok(())
        });
        (written, result)
    }

    /// Appends one encoded batch to the file, and its entry to the sidecar.
    fn append(
        &mut self,
        encoded: std::result::Result<encoder::Encoded, String>,
        cpu: u16,
        is_samples: bool,
        rows: usize,
        (first, last): (u64, u64),
    ) -> Result<()> {
        let refuse = |reason: String| Error::Metadata {
            path: self.path.clone(),
            reason,
        };
        let encoded = encoded.map_err(refuse)?;
        let narrow =
            |len: usize| u32::try_from(len).map_err(|_| refuse("a batch exceeds 4 GiB".to_owned()));
        let block = Block {
            offset: self.end,
            length: narrow(encoded.bytes.len())?,
            rows: narrow(rows)?,
            cpu,
            is_samples,
            first,
            last,
            meta: narrow(encoded.meta)?,
            crc: crc32fast::hash(&encoded.bytes),
        };
        // At an explicit offset: the next write replaces a write that failed half-way.
        self.file
            .write_all_at(&encoded.bytes, self.end)
            .map_err(|error| Error::io(&self.path, error))?;
        self.encoder.take_back(encoded);
        self.sidecar.append(&block)?;
        self.end = block.end();
        self.blocks.push(block);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // There is no caller to report an error to; the file opens up to the last whole batch.
            let _ = self.flush();
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "for tests")]
impl Writer {
    /// Makes every further write find the disk full.
    pub(crate) fn fill_disk(&mut self) {
        let full = File::options().write(true).open("/dev/full");
        self.file = full.expect("this system has /dev/full");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_resumes_only_at_the_end_of_a_batch() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("recording.arrow");
        let sample = |n: u64| Sample {
            id: 1,
            value: n,
            tsc: 10 + n,
        };
        let batch = |cpu, numbers: std::ops::Range<u64>| Batch {
            cpu,
            samples: numbers.map(sample).collect(),
        };
        let loss = |count| Loss {
            cpu: 1,
            tsc: 5,
            cause: LossCause::RingFull,
            count,
        };
        let mark = Mark {
            kind: super::super::MarkKind::User,
            tsc: 6,
            id: 0,
            value: 0,
        };
        let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
        let empty = writer.summary().bytes;
        writer.write(&batch(0, 0..100)).unwrap();
        writer.losses(&[loss(3)]).unwrap();
        writer.mark(mark).unwrap();
        writer.flush().unwrap();
        let kept = writer.summary();
        writer.write(&batch(1, 0..50)).unwrap();
        writer.losses(&[loss(4)]).unwrap();
        // The state after a kill: everything written, and no end.
        writer.flush().unwrap();
        std::mem::forget(writer);
        File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &[7; 999]))
            .unwrap();

        let error = Writer::resume(&path, kept.bytes + 8).unwrap_err();
        assert!(error.to_string().contains("no batch that ends"), "{error}");
        let mut writer = Writer::resume(&path, kept.bytes).unwrap();
        assert_eq!(writer.summary(), kept);
        writer.write(&batch(0, 100..200)).unwrap();
        writer.losses(&[loss(5)]).unwrap();
        let summary = writer.finish().unwrap();
        assert_eq!(
            (summary.samples, summary.lost_full, summary.marks),
            (200, 8, 1)
        );
        let recording = Recording::open(&path).unwrap();
        assert_eq!((recording.recovered(), recording.blocks().len()), (None, 5));
        let read: Vec<_> = recording.merged().map(|one| one.unwrap().1).collect();
        assert!(read.into_iter().eq((0..200).map(sample)));
        let losses = recording.losses().unwrap();
        assert_eq!(losses.iter().map(|loss| loss.count).sum::<u64>(), 8);

        assert_eq!(Writer::resume(&path, empty).unwrap().summary().samples, 0);
    }

    #[test]
    fn a_full_disk_keeps_written_and_gathered_samples() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("recording.arrow");
        let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
        let batch = |from: u64| {
            let samples = (from..from + 20_000)
                .map(|n| Sample {
                    id: 1,
                    value: n,
                    tsc: n,
                })
                .collect();
            Batch { cpu: 0, samples }
        };
        writer.write(&batch(0)).unwrap();
        let disk = std::mem::replace(
            &mut writer.file,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        let error = writer.write(&batch(20_000)).unwrap_err();
        assert!(error.to_string().contains("Free some space"), "{error}");
        assert!(writer.flush().is_err());
        assert_eq!(Recording::open(&path).unwrap().samples(), 20_000);
        writer.file = disk;
        let summary = writer.finish().unwrap();
        assert_eq!((summary.samples, summary.batches), (40_000, 2));
        let recording = Recording::open(&path).unwrap();
        let merged: crate::Result<Vec<_>> = recording.merged().collect();
        assert!(
            merged
                .unwrap()
                .iter()
                .map(|(_, sample)| sample.value)
                .eq(0..40_000)
        );
    }
}
