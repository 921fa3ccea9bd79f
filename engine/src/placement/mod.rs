//! Which tactic reaches a hook, or the refusal, by rule.
//!
//! A splice is a five-byte jump. It displaces whole instructions of one block; those that its five
//! bytes overlap are overwritten, the bytes behind them stay as they are (and are never run while
//! the splice is in place, unless control comes to them from elsewhere).

mod admit;
mod sites;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::cfg::{BlockIndex, Cfg};
use crate::{Addr, HookType, Image, Refusal, Span};

pub use sites::{Sited, choose};

/// Bytes of a splice: `jmp rel32`.
pub const SPLICE_BYTES: u64 = 5;

/// A way to reach a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tactic {
    /// A splice over the first (pre-hook) or last (post-hook) instructions of the block.
    DirectSplice,
    /// A splice over the block's start, and the whole block relocated: one patch serves both hooks.
    /// Chosen where their direct splices would meet. Those share an instruction then, and the
    /// others of either have four bytes at most, so the block is well below the 32 bytes up to
    /// which the report relocates blocks (3.4.1).
    BlockRelocation,
}

impl Tactic {
    /// What a person reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirectSplice => "direct splice",
            Self::BlockRelocation => "block relocation",
        }
    }
}

/// Where a splice goes and what it displaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// How the hooks are reached.
    pub tactic: Tactic,
    /// The relocated sequence: whole instructions of one block, at least five bytes; the splice is
    /// written over its first five.
    pub displaced: Span,
    /// Where in the relocated sequence post-hook instruments run: the address of the instruction
    /// that ends the block if it is displaced, else the end of `displaced`. Pre-hook instruments
    /// run at its start.
    pub split: Addr,
    /// Instructions that the five bytes of the splice overlap: one needs no waiting.
    pub overwritten: u32,
}

impl Site {
    /// The bytes that the splice is written over.
    #[must_use]
    pub const fn splice(&self) -> Span {
        Span::new(self.displaced.start, SPLICE_BYTES)
    }

    /// The point of the original code that instruments of this hook stand for.
    #[must_use]
    pub const fn point(&self, hook: HookType) -> Addr {
        match hook {
            HookType::Pre => self.displaced.start,
            HookType::Post => self.split,
        }
    }
}

/// What can be done at one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// The block.
    pub block: BlockIndex,
    /// A pre-hook alone.
    pub pre: Result<Site, Refusal>,
    /// A post-hook alone.
    pub post: Result<Site, Refusal>,
    /// Whether both can be there in one session; `None` if one of them alone cannot.
    pub both: Option<Result<(), Refusal>>,
}

/// Every block's options, before anyone clicks. A function that refuses refuses at every block.
#[must_use]
pub fn options(image: &Image, cfg: &Cfg) -> Vec<BlockOptions> {
    cfg.blocks
        .iter()
        .map(|block| {
            let pre = sites::direct(image, cfg, block, HookType::Pre);
            let post = sites::direct(image, cfg, block, HookType::Post);
            let both = match (&pre, &post) {
                (Ok(_), Ok(_)) => Some(
                    choose(image, cfg, block, true, true)
                        .map(|_| ())
                        .map_err(|(_, refusal)| refusal),
                ),
                _ => None,
            };
            BlockOptions {
                block: block.index,
                pre,
                post,
                both,
            }
        })
        .collect()
}
