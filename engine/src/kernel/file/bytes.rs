//! Numbers and symbols in a kernel's file.

use crate::code::{Symbol, Symbols};
use crate::{Addr, Error};

/// The error of a file that is no usable kernel.
pub(super) fn bad(reason: impl Into<String>) -> Error {
    Error::Image {
        reason: reason.into(),
    }
}

/// The four bytes at `at` as a number.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The eight bytes at `at` as a number.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The address of a symbol of the core kernel.
pub(super) fn address(symbols: &Symbols, name: &str) -> Option<Addr> {
    let named = |symbol: &&Symbol| symbols.name(symbol) == name;
    Some(symbols.entries().iter().find(named)?.at)
}
