//! Search for every batch of a file that may be truncated or damaged.
//!
//! Three sources contain the offsets of batches: the sidecar, the stream of messages itself, and
//! the footer. The sidecar is trusted as far as it goes; after its end the stream is read batch by
//! batch; after damage in the stream, sidecar and footer provide the offset to resume from.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::chart::scale;
use crate::metadata::Metadata;
use crate::recording::format::{DESCRIBED, END_OF_STREAM, MAGIC, TOTALS};
use crate::recording::head::Head;
use crate::recording::message::{self, Decoder, Found};
use crate::recording::sidecar::{self, Block};
use crate::totals::Totals;

/// Result of a scan.
pub(super) struct Scanned {
    pub(super) blocks: Vec<Block>,
    pub(super) whole: bool,
    pub(super) sidecar_complete: bool,
    pub(super) totals: Totals,
    /// The metadata of a finished recording, if it is not that of the head.
    pub(super) metadata: Option<Metadata>,
    pub(super) recovered: Option<String>,
}

/// Finds the batches of the file of `len` bytes at `path`.
pub(super) fn scan(file: &File, path: &Path, head: &Head, len: u64) -> Scanned {
    let (footer, totals, metadata) = match footer(file, len) {
        Some(footer) => (Some(footer.offsets), footer.totals, footer.metadata),
        None => (None, Ok(Totals::default()), Ok(None)),
    };
    let mut cached = sidecar::load(path, head.crc, head.end, len);
    let in_sidecar = cached.len();
    let kept = cached
        .iter()
        .position(|block| block.end() > len)
        .unwrap_or(in_sidecar);
    let missing: Vec<Block> = cached.split_off(kept);
    let mut walk = Walk {
        file,
        len,
        at: head.end,
        blocks: cached,
        rejected: Vec::new(),
        damage: Vec::new(),
        decoder: Decoder::default(),
    };
    // After a power loss the file may have the length of its last batches, but not their bytes.
    while footer.is_none()
        && walk
            .blocks
            .last()
            .is_some_and(|block| !walk.is_intact(block))
    {
        walk.rejected.extend(walk.blocks.pop());
    }
    walk.at = walk.blocks.last().map_or(head.end, Block::end);
    let trusted = walk.blocks.len();
    let ended = walk.read_on(footer.as_deref().unwrap_or_default());
    let named = footer.as_deref().is_some_and(|footer| {
        footer
            .iter()
            .eq(walk.blocks.iter().map(|block| &block.offset))
    });
    let whole = ended && named;
    let recovered =
        (!whole || !walk.damage.is_empty()).then(|| walk.explain(&missing, footer.is_some()));
    let unread = totals.is_err().then_some(UNREAD);
    let undescribed = metadata.is_err().then_some(UNDESCRIBED);
    let recovered = [
        unread.map(str::to_owned),
        undescribed.map(str::to_owned),
        recovered,
    ];
    let recovered: Vec<String> = recovered.into_iter().flatten().collect();
    Scanned {
        sidecar_complete: trusted == in_sidecar && trusted == walk.blocks.len(),
        blocks: walk.blocks,
        whole: whole && totals.is_ok() && metadata.is_ok(),
        totals: totals.unwrap_or_default(),
        metadata: metadata.unwrap_or_default(),
        recovered: (!recovered.is_empty()).then(|| recovered.join(" ")),
    }
}

/// Finds the whole batches from `from` on of a file of `len` bytes that a writer appends to.
pub(super) fn appended(file: &File, from: u64, len: u64) -> Vec<Block> {
    let mut walk = Walk {
        file,
        len,
        at: from,
        blocks: Vec::new(),
        rejected: Vec::new(),
        damage: Vec::new(),
        decoder: Decoder::default(),
    };
    // The last batch may not be whole yet.
    let _has_ended = walk.read_on(&[]);
    walk.blocks
}

/// Message for totals that cannot be parsed.
const UNREAD: &str = "What its instruments have added up cannot be read.";

/// Message for metadata that cannot be parsed.
const UNDESCRIBED: &str =
    "The functions and instruments that were added during the run cannot be read.";

/// Contents of a finished file's footer.
struct Footer {
    /// Offsets of the batches.
    offsets: Vec<u64>,
    totals: serde_json::Result<Totals>,
    metadata: serde_json::Result<Option<Metadata>>,
}

/// Reads the footer; `None` without one.
fn footer(file: &File, len: u64) -> Option<Footer> {
    let mut bytes = [0; MAGIC.len() + 4];
    let end = len.checked_sub(bytes.len() as u64)?;
    file.read_exact_at(&mut bytes, end).ok()?;
    let [a, b, c, d, magic @ ..] = bytes;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    let start = end.checked_sub(length).filter(|_| magic == MAGIC)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    let footer = arrow_ipc::root_as_footer(&bytes).ok()?;
    let blocks = footer.recordBatches()?.iter();
    let offsets = blocks.map(|block| u64::try_from(block.offset()).ok());
    let pairs = footer.schema().and_then(|schema| schema.custom_metadata());
    let json = |key: &str| {
        let mut pairs = pairs.into_iter().flatten();
        pairs.find(|pair| pair.key() == Some(key))?.value()
    };
    let totals = json(TOTALS);
    let described = json(DESCRIBED);
    Some(Footer {
        offsets: offsets.collect::<Option<_>>()?,
        totals: totals.map_or_else(|| Ok(Totals::default()), serde_json::from_str),
        metadata: described.map(serde_json::from_str).transpose(),
    })
}

/// Reader of the stream of messages.
struct Walk<'a> {
    file: &'a File,
    len: u64,
    at: u64,
    blocks: Vec<Block>,
    /// Batches whose checksum differs from that of the sidecar.
    rejected: Vec<Block>,
    /// Offsets at which the stream could not be read, and the reasons.
    damage: Vec<(u64, String)>,
    decoder: Decoder,
}

impl Walk<'_> {
    /// Reads from `self.at`, and returns whether it reached the end-of-stream marker.
    fn read_on(&mut self, footer: &[u64]) -> bool {
        while self.at < self.len {
            if let Some(bad) = self.rejected.iter().find(|block| block.offset == self.at) {
                self.damage.push((
                    self.at,
                    "has another checksum than when it was written".to_owned(),
                ));
                self.at = bad.end();
                continue;
            }
            match self.step() {
                Ok(Some(block)) => {
                    self.at = block.end();
                    self.blocks.push(block);
                }
                Ok(None) => return true,
                Err(reason) => {
                    let next = footer.iter().copied().find(|&offset| offset > self.at);
                    // After the last batch that the footer names, the stream only has its end.
                    let in_stream = footer.contains(&self.at);
                    self.damage.push((self.at, reason));
                    match next {
                        Some(next) => self.at = next,
                        None => return in_stream,
                    }
                }
            }
        }
        false
    }

    /// Reads a batch; `None` at the end of the stream.
    fn step(&mut self) -> Result<Option<Block>, String> {
        let (meta, length) = match message::probe(self.file, self.at, self.len)? {
            Found::End => return Ok(None),
            Found::Batch { meta, length } => (meta, length),
        };
        let mut bytes = vec![0; length as usize];
        self.file
            .read_exact_at(&mut bytes, self.at)
            .map_err(|error| format!("cannot be read ({error})"))?;
        let bad = |reason: String| format!("is damaged ({reason})");
        let rows = self.decoder.decode(&bytes).map_err(bad)?;
        let cpu = self.decoder.cpu().ok_or("mixes CPUs")?;
        let is_samples = self
            .decoder
            .is_samples()
            .ok_or("mixes samples and losses")?;
        let (first, last) = self.decoder.times().ok_or("is empty")?;
        let rows = u32::try_from(rows).map_err(|_| "has too many rows")?;
        let crc = crc32fast::hash(&bytes);
        Ok(Some(Block {
            offset: self.at,
            length,
            rows,
            cpu,
            is_samples,
            first,
            last,
            meta,
            crc,
        }))
    }

    /// Returns whether the bytes of a batch match its checksum.
    fn is_intact(&self, block: &Block) -> bool {
        let mut bytes = vec![0; block.length as usize];
        self.file.read_exact_at(&mut bytes, block.offset).is_ok()
            && crc32fast::hash(&bytes) == block.crc
    }

    /// Describes what is missing, in whole sentences.
    fn explain(&self, missing: &[Block], has_footer: bool) -> String {
        let mut sentences = Vec::new();
        if !has_footer {
            sentences.push("The recording was not finished.".to_owned());
        }
        for (at, reason) in self.damage.iter().take(3) {
            sentences.push(format!("The batch at byte {at} {reason} and is left out."));
        }
        if let Some(more) = self.damage.len().checked_sub(3).filter(|&more| more > 0) {
            sentences.push(format!(
                "{} more: damaged and left out.",
                scale::counted(more as u64, "batch")
            ));
        }
        let gone: u64 = missing
            .iter()
            .filter(|block| block.is_samples)
            .map(|block| u64::from(block.rows))
            .sum();
        if gone > 0 {
            sentences.push(format!(
                "Missing: {} that came after it, since the file is cut off.",
                scale::counted(gone, "sample")
            ));
        }
        let samples: u64 = self
            .blocks
            .iter()
            .filter(|b| b.is_samples)
            .map(|b| u64::from(b.rows))
            .sum();
        let end = self.blocks.last().map_or(self.at, Block::end);
        let rest = self.len.saturating_sub(end);
        if !has_footer && rest > END_OF_STREAM.len() as u64 && self.damage.is_empty() {
            sentences.push(format!("Its last {rest} bytes are not a whole batch."));
        }
        sentences.push(format!(
            "Found: {} in {}.",
            scale::counted(samples, "sample"),
            scale::counted(self.blocks.len() as u64, "whole batch")
        ));
        sentences.join(" ")
    }
}
