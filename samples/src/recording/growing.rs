//! A recording that is read while a writer appends to it.

use std::path::Path;

use super::batch::BlockReader;
use super::reader::Recording;
use super::rows::Loss;
use crate::metadata::Metadata;
use crate::{Batch, Result};

/// A recording that a [`Writer`](super::Writer), of another process too, still appends to.
#[derive(Debug)]
pub struct GrowingRecording {
    recording: Recording,
    /// Its batches that were read.
    read: usize,
}

/// Rows that were written since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Samples and their [further words](crate::Sample::is_word), in the order of the file.
    pub batches: Vec<Batch>,
    /// Losses, in the order of the file.
    pub losses: Vec<Loss>,
}

impl GrowingRecording {
    /// Opens the recording at `path`; its rows of before are the first that are [read](Self::read_on).
    ///
    /// # Errors
    /// As for [`Recording::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            recording: Recording::open(path)?,
            read: 0,
        })
    }

    /// Returns the metadata that the recording was created with, if it was not finished when it was opened.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        self.recording.metadata()
    }

    /// Reads what was appended since the last call. A batch that is not whole yet is left to a later one.
    ///
    /// # Errors
    /// As for a batch of [`Recording::batches`].
    pub fn read_on(&mut self) -> Result<Appended> {
        self.recording.find_appended()?;
        let mut appended = Appended::default();
        let mut reader = BlockReader::default();
        let file = self.recording.batch_file();
        for block in self.recording.blocks.iter().skip(self.read) {
            if block.is_samples {
                appended.batches.push(reader.samples(file, block)?);
            } else {
                let decoder = reader.decode(file, block)?;
                let words = decoder.rows().filter_map(|row| Some(row.word()?.as_word()));
                let (cpu, samples) = (block.cpu, words.collect::<Vec<_>>());
                if !samples.is_empty() {
                    appended.batches.push(Batch { cpu, samples });
                }
                let losses = decoder.rows().filter_map(|row| row.loss());
                appended.losses.extend(losses);
            }
            self.read += 1;
        }
        Ok(appended)
    }
}
