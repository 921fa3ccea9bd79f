//! The sidecar `<recording>.idx`: offset, times and checksum of every batch.
//!
//! Arrow IPC has no checksums and no times in its footer. The sidecar is optional: a recording
//! opens
//! without it, by reading every batch once. It is appended to after each batch, so that after a
//! crash it lacks at most a few batches.
//!
//! A head of sixteen bytes (`GILKIDX1`, crc32 of the recording's bytes before its first batch, size
//! of an entry), then entries of 48 bytes, all little-endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 0–7 | offset of the batch in the recording |
//! | 8–15, 16–23 | minimum and maximum time |
//! | 24–27 | length of the batch, metadata and body |
//! | 28–31 | length of its metadata |
//! | 32–35 | rows |
//! | 36–39 | crc32 of the batch |
//! | 40–41 | CPU |
//! | 42 | 0 samples, 1 losses and marks |
//! | 43 | 0 |
//! | 44–47 | crc32 of the 44 bytes before |

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::path::sidecar_path;
use crate::output::Output;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"GILKIDX1";
const HEAD: usize = 16;
const ENTRY: usize = 48;
/// Minimum length in bytes of a batch of five columns.
const SMALLEST_BATCH: u64 = 512;
/// Maximum number of entries for batches that a truncated recording no longer has.
const MISSING_BATCHES: u64 = 1 << 16;

/// One batch of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Offset in bytes from the start of the recording.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Number of rows.
    pub rows: u32,
    /// CPU of all rows, or [`ALL_CPUS`](crate::record::ALL_CPUS).
    pub cpu: u16,
    /// The rows are samples; otherwise losses and marks.
    pub is_samples: bool,
    /// Minimum time in TSC ticks.
    pub first: u64,
    /// Maximum time in TSC ticks.
    pub last: u64,
    /// Length of the metadata before the body.
    pub(crate) meta: u32,
    /// Checksum of all its bytes.
    pub(crate) crc: u32,
}

impl Block {
    /// Returns the offset of the first byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// Returns its entry in a footer.
    pub(crate) fn footer_entry(&self) -> arrow_ipc::Block {
        let body = i64::from(self.length) - i64::from(self.meta);
        arrow_ipc::Block::new(self.offset as i64, self.meta as i32, body)
    }

    fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = Vec::with_capacity(ENTRY);
        for word in [self.offset, self.first, self.last] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.length, self.meta, self.rows, self.crc] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.cpu.to_le_bytes());
        bytes.extend_from_slice(&[u8::from(!self.is_samples), 0]);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let mut entry = [0; ENTRY];
        entry
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
        entry
    }

    fn decode(entry: &[u8; ENTRY]) -> Option<Self> {
        let (bytes, check) = entry.split_last_chunk::<4>()?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(*check) {
            return None;
        }
        let (longs, rest) = bytes.split_first_chunk::<24>()?;
        let (words, rest) = rest.split_first_chunk::<16>()?;
        let [offset, first, last] = longs.as_chunks::<8>().0 else {
            return None;
        };
        let [length, meta, rows, crc] = words.as_chunks::<4>().0 else {
            return None;
        };
        let [cpu_low, cpu_high, kind, _] = rest else {
            return None;
        };
        let block = Self {
            offset: u64::from_le_bytes(*offset),
            length: u32::from_le_bytes(*length),
            rows: u32::from_le_bytes(*rows),
            cpu: u16::from_le_bytes([*cpu_low, *cpu_high]),
            is_samples: *kind == 0,
            first: u64::from_le_bytes(*first),
            last: u64::from_le_bytes(*last),
            meta: u32::from_le_bytes(*meta),
            crc: u32::from_le_bytes(*crc),
        };
        (block.meta <= block.length && i64::try_from(block.offset).is_ok()).then_some(block)
    }
}

/// A sidecar that grows with its recording.
#[derive(Debug)]
pub(crate) struct Sidecar {
    file: File,
    path: PathBuf,
    end: u64,
}

impl Sidecar {
    /// Creates the sidecar of the recording at `path`, whose head has the checksum `head_crc`.
    pub(crate) fn create(path: &Path, head_crc: u32) -> Result<Self> {
        let path = sidecar_path(path);
        let file = Output::create(&path)?.named()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&head_crc.to_le_bytes());
        bytes.extend_from_slice(&(ENTRY as u32).to_le_bytes());
        let mut sidecar = Self { file, path, end: 0 };
        sidecar.write(&bytes)?;
        Ok(sidecar)
    }

    /// Adds a batch.
    pub(crate) fn append(&mut self, block: &Block) -> Result<()> {
        self.write(&block.encode())
    }

    /// Adds many batches in one write.
    pub(crate) fn extend(&mut self, blocks: &[Block]) -> Result<()> {
        self.write(&blocks.iter().flat_map(Block::encode).collect::<Vec<_>>())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, self.end)
            .map_err(|error| Error::io(&self.path, error))?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

/// Loads the batches in the sidecar of the recording at `path`, in the order of the file, up to the
/// first invalid entry. Empty if there is no sidecar, or it belongs to another recording. The
/// recording's batches are between `first_batch` and `len`.
pub(crate) fn load(path: &Path, head_crc: u32, first_batch: u64, len: u64) -> Vec<Block> {
    let mut bytes = Vec::new();
    // Reads no more of a file with that name than such a recording can need.
    let most = HEAD as u64 + (len / SMALLEST_BATCH + MISSING_BATCHES) * ENTRY as u64;
    let read =
        File::open(sidecar_path(path)).and_then(|file| file.take(most).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let Some((head, entries)) = bytes.split_first_chunk::<HEAD>() else {
        return Vec::new();
    };
    let mut expected = MAGIC.to_vec();
    expected.extend_from_slice(&head_crc.to_le_bytes());
    expected.extend_from_slice(&(ENTRY as u32).to_le_bytes());
    if *head != *expected {
        return Vec::new();
    }
    let mut end = first_batch;
    let blocks = entries
        .as_chunks::<ENTRY>()
        .0
        .iter()
        .map_while(Block::decode);
    blocks
        .take_while(|block| {
            let in_order = block.offset >= end && block.rows > 0;
            end = block.end();
            in_order
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_survive_and_damage_is_detected(
            offset in 0..1u64 << 60, length: u32, meta: u32, rows in 1u32.., cpu: u16,
            is_samples: bool, first: u64, last: u64, crc: u32, bit in 0usize..ENTRY * 8,
        ) {
            let (length, meta) = (length.max(meta), length.min(meta));
            let block = Block { offset, length, rows, cpu, is_samples, first, last, meta, crc };
            let mut entry = block.encode();
            prop_assert_eq!(Block::decode(&entry), Some(block));
            entry[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Block::decode(&entry), None);
        }
    }
}
