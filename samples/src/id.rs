//! The instrument identifier: major number, type, block index and order (GILK report, 3.2).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Before a block's first instruction, after its last sequential one, or on a way that its branch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HookType {
    /// Before the block's first instruction.
    Pre,
    /// After the block's last sequential instruction, before the branch that ends it.
    Post,
    /// Whenever the conditional branch that ends the block jumps.
    Taken,
    /// Whenever the conditional branch that ends the block runs on.
    Untaken,
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

/// Which instrument a sample is from. Packs into the 48 bits a ring's tag has room for:
/// major 20, type 2, block index 18, order 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstrumentId {
    /// The kernel function, as numbered by the session.
    pub major: u32,
    /// Which hook of the block.
    pub hook: HookType,
    /// Index of the basic block in the function's control-flow graph.
    pub block: u32,
    /// Place among the instruments of one hook: 0 runs first.
    pub order: u8,
}

impl InstrumentId {
    /// One more than the largest major number.
    pub const MAJORS: u32 = 1 << 20;
    /// One more than the largest block index.
    pub const BLOCKS: u32 = 1 << 18;

    /// The identifier, or `None` if a part exceeds its bits.
    #[must_use]
    pub fn new(major: u32, hook: HookType, block: u32, order: u8) -> Option<Self> {
        (major < Self::MAJORS && block < Self::BLOCKS).then_some(Self {
            major,
            hook,
            block,
            order,
        })
    }

    /// The 48 bits that stand in a sample.
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

    /// The identifier that a sample's word is, or `None` if it has more than 48 bits: words of aggregates do.
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
