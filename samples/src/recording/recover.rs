//! Completion of an unfinished or damaged recording.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::batch::BlockReader;
use super::format;
use super::reader::Recording;
use super::sidecar::{Block, Sidecar};
use crate::{Error, Result};

/// Result of [`recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Batches that the footer now names.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes removed from the end of the file that were not a whole batch.
    pub removed: u64,
    /// The file was already finished and intact; nothing was written.
    pub was_whole: bool,
}

/// Checks each batch of the recording at `path`, writes its footer, so that every Arrow reader
/// opens it, and writes a new sidecar. Bytes after the last whole batch are removed; a damaged
/// batch in the middle stays in place, but the footer does not name it.
///
/// Not to be called while a [`Writer`](super::Writer) writes the file.
///
/// # Errors
/// [`Error::Io`], or [`Error::NotARecording`] if not even the metadata can be read.
pub fn recover(path: impl AsRef<Path>) -> Result<Recovery> {
    let path = path.as_ref();
    let recording = Recording::open(path)?;
    let mut reader = BlockReader::default();
    let mut good: Vec<Block> = Vec::with_capacity(recording.blocks.len());
    for block in &recording.blocks {
        match reader.decode(recording.batch_file(), block) {
            Ok(_) => good.push(*block),
            Err(Error::DamagedBatch { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let all_good = good.len() == recording.blocks.len();
    let io = |error| Error::io(path, error);
    let samples = good
        .iter()
        .filter(|block| block.is_samples)
        .map(|block| u64::from(block.rows))
        .sum();
    let mut recovery = Recovery {
        batches: good.len() as u64,
        samples,
        removed: 0,
        was_whole: false,
    };
    if recording.whole && all_good {
        recovery.was_whole = true;
        if !recording.sidecar_complete {
            Sidecar::create(path, recording.head_crc)?.extend(&good)?;
        }
        return Ok(recovery);
    }
    let refuse = |reason| Error::NotARecording {
        path: path.to_path_buf(),
        reason,
    };
    let tail = format::tail(&recording.schema, &recording.totals, &good).map_err(refuse)?;
    let end = good.last().map_or(recording.head_end, Block::end);
    let file = File::options().write(true).open(path).map_err(io)?;
    recovery.removed = file.metadata().map_err(io)?.len().saturating_sub(end);
    // The footer is written before the file is truncated: on a full disk, nothing is lost.
    file.write_all_at(&tail, end).map_err(io)?;
    file.set_len(end + tail.len() as u64).map_err(io)?;
    file.sync_all().map_err(io)?;
    Sidecar::create(path, recording.head_crc)?.extend(&good)?;
    Ok(recovery)
}
