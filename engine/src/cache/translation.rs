//! Results of a translation.

use iced_x86::{Decoder, DecoderOptions};

use super::CodeBytes;
use super::accesses::RecordedBlock;
use super::rows::CacheRow;
use crate::unwind::Row;
use crate::{Addr, Span};

/// Records that blocks keep of their executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Nothing.
    Off,
    /// Their number, by an increment that is exact while one thread executes in the cache.
    OneThread,
    /// Their number, by a locked increment.
    Threads,
    /// Their accesses of memory, in the [area](super::AccessArea) of the thread.
    Accesses,
}

impl Counting {
    /// Returns whether each block has a counter.
    #[must_use]
    pub fn has_counters(self) -> bool {
        matches!(self, Self::OneThread | Self::Threads)
    }
}

/// A translated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBlock {
    /// Its original bytes.
    pub original: Span,
    /// Its first translated byte.
    pub at: Addr,
    /// The number of its counter.
    pub counter: Option<u32>,
    /// The number of its original instructions.
    pub instructions: u32,
}

/// The moment at which the instruments of a patch run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchMoment {
    /// Before the original instruction.
    Before,
    /// As the original instruction, a conditional branch, is taken.
    Taken,
    /// As it is not.
    Untaken,
    /// After the original instruction, which is no branch, as control falls through.
    After,
}

/// Code that runs the instruments before an original instruction, and continues with the block that begins there; or
/// after one, or on one of the two ways of a conditional branch, and continues there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPatch {
    /// The original instruction.
    pub original: Addr,
    /// Before the instruction, after it, or on one of its ways.
    pub moment: PatchMoment,
    /// The original instruction that executes after the patch, if the instruction of the patch has been executed, and may
    /// not be again: a copy, or a branch that changes `rcx`.
    pub next: Option<Addr>,
    /// The first instruction of those that branch to the patch, up to its exit. Up to where it has saved registers, a
    /// thread can execute the original instruction again, or else the next one.
    pub begin: Addr,
    /// Its bytes in the cache, and after them the descriptors of restartable sequences.
    pub span: Span,
    /// Descriptors at the end, 32 bytes each.
    pub sequences: u32,
    /// Unwind entries.
    pub rows: Vec<Row>,
    /// The place of the block's rest, or of the way of the branch, after the branch to the patch.
    pub exit: Addr,
}

/// The place that a lookup of an original address finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// The original address.
    pub original: Addr,
    /// The landing.
    pub at: Addr,
}

/// The displacement of a branch that was translated before its target was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The displacement's first byte.
    pub at: Addr,
    /// The original target.
    pub target: Addr,
    /// The displacement to the target's translation.
    pub bytes: [u8; 4],
}

/// Code, landings and links that one request adds to a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The address of its code.
    pub start: Addr,
    /// Its code.
    pub bytes: Vec<u8>,
    /// The blocks in it, in order of their original address.
    pub blocks: Vec<CachedBlock>,
    /// Its blocks that record their accesses, in the order of `blocks`.
    pub recorded: Vec<RecordedBlock>,
    /// Its patches, in order of address: after all other code.
    pub patches: Vec<BlockPatch>,
    /// Its landings, to be written to the tables after the code.
    pub landings: Vec<Landing>,
    /// Its rows, in order of address.
    pub rows: Vec<CacheRow>,
    /// Branches of earlier translations to its blocks. They work as they are, by the tables; a thread must not execute
    /// one while it is written.
    pub links: Vec<Link>,
}

impl Translation {
    /// Returns whether a block ends where the bytes end, or in an instruction that they do not have whole.
    #[must_use]
    pub fn is_cut(&self, code: &dyn CodeBytes) -> bool {
        self.blocks.iter().any(|block| {
            let at = block.original.end;
            code.code_from(at).is_none_or(|bytes| {
                let mut decoder = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE);
                decoder.decode().is_invalid()
                    && decoder.last_error() == iced_x86::DecoderError::NoMoreBytes
            })
        })
    }
}
