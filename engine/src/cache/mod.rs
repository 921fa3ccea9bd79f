//! The code cache: code of a process translated into fragments, which execute in its place.
//!
//! A fragment is the code that direct branches reach from an address, block by block, at another address and with
//! instruments between its instructions. The original code stays as it is; data are read from it, and every return
//! address on a stack is one of it, so control may leave the cache at any branch and continue in the original.
//! Direct branches of fragments target fragments of the same region, which is a mapping of code and is dropped as a
//! whole; others are lookups. Indirect ones, returns among them, look their target up:
//!
//! 1. The branch spills `rcx` and `rdx` below the red zone, loads the target into `rcx`, and jumps through the
//!    [table of recent targets](CacheLayout::recent) by the low 16 bits of the target.
//! 2. The *landing* there compares `rcx` with the one address that it stands for, and falls into its fragment.
//! 3. Any other landing branches to the [resident code](resident), which searches the
//!    [table of all targets](CacheLayout::targets), and makes what it finds the recent one.
//! 4. A target that is in neither stops the thread for the agent that translates, or, where the agent was lost, is
//!    executed in the original code.
//!
//! A block before which [instruments](CacheInstruments) run begins with a branch to a patch, as a splice is one, which
//! continues with the rest of the block.
//!
//! No step changes a flag that may be read, takes a lock, or calls anything. What the agent adds is written before the
//! word by which a thread finds it.
//!
//! Translation is pure. [`verify::fragments`](mod@crate::verify::fragments) proves its bytes, and only what it has
//! proved is written.

mod accesses;
mod blocks;
mod counters;
mod dead;
mod emit;
mod flow;
mod holders;
mod instruments;
mod original;
mod patches;
mod pending;
mod record;
mod regions;
pub mod resident;
mod rows;
mod starts;
mod targets;
mod translate;
mod translation;
mod unlinked;

use crate::layout::{Abi, ReturnPush, WordSegment};
use crate::{Addr, Image, Span};

pub use accesses::{AccessArea, AccessPlace, RecordedAccess, RecordedBlock, RecordedExit};
pub use blocks::TranslationReach;
pub use counters::CounterNumbers;
pub use instruments::CacheInstruments;
pub use rows::{CacheRow, RowState};
pub use targets::{TargetWrite, Targets};
pub use translate::Translator;
pub use translation::{BlockPatch, CachedBlock, Counting, Landing, Link, PatchMoment, Translation};

/// Conventions of translated code. It reaches no words by a segment, and pushes return addresses from memory.
pub(crate) const CACHE_ABI: Abi = Abi {
    segment: WordSegment::Gs,
    red_zone: 128,
    return_push: ReturnPush::Halves,
    shadow_stack: false,
    moves_indirect_jumps: false,
};

/// Bytes of code that may be translated.
pub trait CodeBytes {
    /// Returns the bytes from an address to the end of its code; `None` if no code is there.
    fn code_from(&self, at: Addr) -> Option<&[u8]>;
}

impl CodeBytes for Image {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        let end = self.text_at(at)?.span.end;
        self.bytes(Span { start: at, end })
    }
}

/// The words of a code cache, all in the lower 2 GiB, where operands name them without a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// Table of recent targets: 65,536 addresses of landings, by the low 16 bits of the original address. Entries
    /// without one have [`Resident::search`](resident::Resident::search).
    pub recent: Addr,
    /// Table of all targets: pairs of an original address and its landing, found by linear probing; 0 where there is
    /// none.
    pub targets: Addr,
    /// The number of pairs, as a power of two.
    pub targets_log2: u8,
    /// A 32-bit word, a robust futex that the agent owns: the kernel sets its bit 30 when the agent's thread ends.
    pub agent: Addr,
    /// Words of 64 bits, one for each block that is not dropped.
    pub counters: Span,
}

impl CacheLayout {
    /// Entries of the table of recent targets.
    pub const RECENT: u64 = 1 << 16;

    /// Returns whether all words are aligned and in the lower 2 GiB.
    #[must_use]
    pub fn is_low(&self) -> bool {
        const LOW: u64 = 1 << 31;
        let pairs = 1_u64
            .checked_shl(self.targets_log2.into())
            .unwrap_or(u64::MAX);
        let spans = [
            (self.recent, 8 * Self::RECENT),
            (self.targets, pairs.saturating_mul(16)),
            (self.agent, 4),
            (self.counters.start, self.counters.len()),
        ];
        let fits = |&(start, len): &(Addr, u64)| {
            start.0.is_multiple_of(8) && start.0.checked_add(len).is_some_and(|end| end <= LOW)
        };
        (4..=24).contains(&self.targets_log2) && spans.iter().all(fits)
    }

    /// Returns the word of a block's counter.
    #[must_use]
    pub fn counter(&self, number: u32) -> Option<Addr> {
        let at = self.counters.start.add(8 * u64::from(number));
        (at.add(8) <= self.counters.end).then_some(at)
    }
}
