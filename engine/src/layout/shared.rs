//! Words and tables that the code of a process shares with the agent: those that end reads of memory, and those of stacks.

use serde::{Deserialize, Serialize};

use crate::Addr;

/// Two words of four bytes in the lower 2 GiB: one that is not 0 once reads have ended, and the number of those under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadGate {
    /// Address of the first.
    pub closed: Addr,
}

impl ReadGate {
    /// Bytes of both words.
    pub const LEN_BYTES: u64 = 8;

    /// Address of the number of reads under way.
    #[must_use]
    pub fn under_way(self) -> Addr {
        self.closed.add(4)
    }
}

/// Tables in the lower 2 GiB that the process and the agent share, in this order: three words, numbers of stacks, their
/// frames, rules, rows that were found recently, and all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackTables {
    /// Address of the first word: the index after the last row, and from bit 32 on that of the first one.
    pub start: Addr,
}

const _: () = {
    assert!(StackTables::LOST + 8 <= StackTables::NUMBERS);
    assert!(16 + 8 * StackTables::DEPTH == 1 << StackTables::STACK_LOG2);
    assert!(StackTables::PLACES.is_power_of_two());
};

impl StackTables {
    /// Bytes from the code that reads numbers in memory to the code that uses the tables.
    pub const CODE_OFFSET: u64 = 256;
    /// Stacks whose frames are kept, at most.
    pub const STACKS: u32 = 4096;
    /// Places for numbers of stacks, of which at most half are used: a power of two.
    pub const PLACES: u32 = 2 * Self::STACKS;
    /// Places that are tried for a number.
    pub const TRIES: u32 = 32;
    /// Frames of a stack, at most.
    pub const DEPTH: u64 = 126;
    /// Different rules, at most.
    pub const RULES: u64 = 1 << 16;
    /// Offset of the number of stacks whose frames are kept or were to be kept, four bytes.
    pub const USED: u64 = 8;
    /// Offset of the number of hits whose frames are not kept, eight bytes.
    pub const LOST: u64 = 16;
    /// Offset of the numbers of stacks, eight bytes each.
    pub const NUMBERS: u64 = 64;
    /// Offset of the frames of stacks: the number, the number of frames, or 0 until all are written, and the addresses.
    pub const FRAMES: u64 = Self::NUMBERS + 8 * Self::PLACES as u64;
    /// Bytes of each of these, as a power of two.
    pub const STACK_LOG2: u32 = 10;
    /// Offset of the rules: [`CallerRule::encoded`](crate::stacks::CallerRule::encoded).
    pub const RULE_TABLE: u64 = Self::FRAMES + ((Self::STACKS as u64) << Self::STACK_LOG2);
    /// Offset of rows that were found recently, by the low bits of an address: the address times 65,536, and the index of
    /// its rule.
    pub const RECENT: u64 = Self::RULE_TABLE + 8 * Self::RULES;
    /// The number of these: a power of two.
    pub const RECENT_ROWS: u32 = 4096;
    /// Offset of the rows: an address times 65,536, and the index of its rule; in order, the first one of address 0.
    pub const ROWS: u64 = Self::RECENT + 8 * Self::RECENT_ROWS as u64;

    /// Returns the address of what has an offset.
    #[must_use]
    pub const fn at(self, offset: u64) -> Addr {
        self.start.add(offset)
    }
}
