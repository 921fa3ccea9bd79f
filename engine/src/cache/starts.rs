//! The addresses at which translated blocks begin, as bits: every instruction is compared with them.

use rustc_hash::FxHashMap;

use crate::Addr;

/// Addresses of a line, as a power of two.
const LINE: u32 = u64::BITS.ilog2();

/// A set of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockStarts(FxHashMap<u64, u64>);

impl BlockStarts {
    pub(super) fn insert(&mut self, at: Addr) {
        *self.0.entry(at.0 >> LINE).or_default() |= bit(at);
    }

    /// A view for addresses that are near to each other.
    pub(super) fn near(&self, at: Addr) -> NearStarts<'_> {
        let line = at.0 >> LINE;
        NearStarts {
            starts: self,
            line,
            bits: self.line(line),
        }
    }

    fn line(&self, line: u64) -> u64 {
        self.0.get(&line).copied().unwrap_or_default()
    }
}

/// The set, with its last line.
pub(super) struct NearStarts<'s> {
    starts: &'s BlockStarts,
    line: u64,
    bits: u64,
}

impl NearStarts<'_> {
    pub(super) fn contains(&mut self, at: Addr) -> bool {
        let line = at.0 >> LINE;
        if line != self.line {
            self.line = line;
            self.bits = self.starts.line(line);
        }
        self.bits & bit(at) != 0
    }
}

/// The bit of an address in its line.
const fn bit(at: Addr) -> u64 {
    1 << (at.0 % (1 << LINE))
}
