//! The instrument identifier: major number, type, block index and order (GILK report, 3.2).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Sample;

/// Events of a block at which an instrument can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HookType {
    /// Control enters the block, before its first instruction.
    Pre,
    /// Control leaves the block, after its last sequential instruction and before the branch that
    /// ends it.
    Post,
    /// The conditional branch that ends the block is taken.
    Taken,
    /// The conditional branch that ends the block falls through.
    Untaken,
}

impl HookType {
    /// Returns whether it is a way of the branch that ends the block.
    #[must_use]
    pub const fn is_way(self) -> bool {
        matches!(self, Self::Taken | Self::Untaken)
    }
}

impl fmt::Display for HookType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Taken => "taken",
            Self::Untaken => "untaken",
        })
    }
}

/// Identifier of a sample's instrument. Packs into the 48 bits of a sample's identifier word: major
/// 20, type 2, block index 18, order 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstrumentId {
    /// The kernel function, as numbered by the session.
    pub major: u32,
    /// Hook of the block.
    pub hook: HookType,
    /// Index of the basic block in the function's control-flow graph.
    pub block: u32,
    /// Position among the instruments of one hook: 0 runs first.
    pub order: u8,
}

impl InstrumentId {
    /// Number of major numbers.
    pub const MAJORS: u32 = 1 << 20;
    /// Number of block indices.
    pub const BLOCKS: u32 = 1 << 18;

    /// Returns the identifier, or `None` if a part exceeds its bits.
    #[must_use]
    pub fn new(major: u32, hook: HookType, block: u32, order: u8) -> Option<Self> {
        (major < Self::MAJORS && block < Self::BLOCKS).then_some(Self {
            major,
            hook,
            block,
            order,
        })
    }

    /// Packs the identifier into the 48 bits that a sample carries.
    #[must_use]
    pub fn pack(self) -> u64 {
        let hook = match self.hook {
            HookType::Pre => 0,
            HookType::Post => 1,
            HookType::Taken => 2,
            HookType::Untaken => 3,
        };
        (u64::from(self.major) << 28)
            | (hook << 26)
            | (u64::from(self.block) << 8)
            | u64::from(self.order)
    }

    /// Returns a sample's identifier word in a recording that numbers the functions from `first_major` on. A mark of
    /// further words stays.
    #[must_use]
    pub fn renumbered(word: u64, first_major: u32) -> u64 {
        let mark = word & Sample::WORD;
        word.wrapping_add(u64::from(first_major) << 28) & ((1 << 48) - 1) | mark
    }

    /// Unpacks a sample's identifier word; `None` if it has more than 48 bits, as words of
    /// aggregates have.
    #[must_use]
    pub fn unpack(word: u64) -> Option<Self> {
        if word >> 48 != 0 {
            return None;
        }
        let hook = match (word >> 26) & 3 {
            0 => HookType::Pre,
            1 => HookType::Post,
            2 => HookType::Taken,
            _ => HookType::Untaken,
        };
        let part = |shift: u32, bits: u32| u32::try_from((word >> shift) & ((1 << bits) - 1)).ok();
        Some(Self {
            major: part(28, 20)?,
            hook,
            block: part(8, 18)?,
            order: u8::try_from(word & 0xff).ok()?,
        })
    }
}

impl fmt::Display for InstrumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}.{}",
            self.major, self.hook, self.block, self.order
        )
    }
}
