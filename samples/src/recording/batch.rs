//! Reading of single batches, each checked against its checksum.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::message::Decoder;
use super::sidecar::Block;
use crate::{Batch, Error, Result};

/// An open file of batches, and its path for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFile<'a> {
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
}

/// Reader of batches that reuses its memory.
#[derive(Default)]
pub(super) struct BlockReader {
    bytes: Vec<u8>,
    decoder: Decoder,
}

impl BlockReader {
    /// Reads and decodes a batch, after checking its checksum.
    pub(super) fn decode(&mut self, file: BatchFile<'_>, block: &Block) -> Result<&Decoder> {
        let damaged = |reason| Error::DamagedBatch {
            path: file.path.to_path_buf(),
            offset: block.offset,
            reason,
        };
        self.bytes.resize(block.length as usize, 0);
        match file.file.read_exact_at(&mut self.bytes, block.offset) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(damaged("the file has become shorter".to_owned()));
            }
            result => result.map_err(|error| Error::io(file.path, error))?,
        }
        if crc32fast::hash(&self.bytes) != block.crc {
            return Err(damaged(
                "the batch there has another checksum than when it was written".to_owned(),
            ));
        }
        let rows = self
            .decoder
            .decode(&self.bytes)
            .map_err(|reason| damaged(format!("in the batch there, {reason}")))?;
        if rows != block.rows as usize {
            return Err(damaged(
                "the batch there has another number of rows than when it was written".to_owned(),
            ));
        }
        Ok(&self.decoder)
    }

    /// Reads the samples of a batch.
    pub(super) fn samples(&mut self, file: BatchFile<'_>, block: &Block) -> Result<Batch> {
        let decoder = self.decode(file, block)?;
        // Allocated after the check: a sidecar may contain any number of rows.
        let mut samples = Vec::with_capacity(block.rows as usize);
        decoder.samples(&mut samples);
        Ok(Batch {
            cpu: block.cpu,
            samples,
        })
    }
}
