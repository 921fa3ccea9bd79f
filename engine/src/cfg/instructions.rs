//! A block's instructions, kept as bytes and decoded at each use. Decoded instructions of a whole kernel would
//! take ten times the memory.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::Addr;
use crate::ids::{part, to_u32};

/// The bytes of a function, which its blocks share.
#[derive(PartialEq, Eq)]
pub(super) struct FunctionBytes {
    pub(super) start: Addr,
    pub(super) bytes: Box<[u8]>,
}

/// Instructions in a row. Their `ip` is the live address.
#[derive(Clone)]
pub struct Instructions {
    text: Arc<FunctionBytes>,
    /// Offset of the first.
    first: u32,
    /// Offset of the last.
    last: u32,
    /// Offset of the end of the last.
    end: u32,
    count: u32,
}

impl Instructions {
    /// `count` instructions of a text, from the first to the last.
    pub(super) fn new(
        text: &Arc<FunctionBytes>,
        first: &Instruction,
        last: &Instruction,
        count: usize,
    ) -> Self {
        let offset = |at: u64| {
            let offset = u32::try_from(at.wrapping_sub(text.start.0));
            debug_assert!(
                offset.is_ok(),
                "an instruction at {at:#x} of {}",
                text.start
            );
            offset.unwrap_or(u32::MAX)
        };
        Self {
            text: Arc::clone(text),
            first: offset(first.ip()),
            last: offset(last.ip()),
            end: offset(last.next_ip()),
            count: to_u32(count),
        }
    }

    /// The number of instructions.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there are none, which no block is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Decodes the instructions in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            decoder: self.decoder(self.first),
            remaining: self.count,
        }
    }

    /// All of them, decoded.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Instruction> {
        self.iter().collect()
    }

    /// Decodes the first instruction.
    #[must_use]
    pub fn first(&self) -> Option<Instruction> {
        self.iter().next()
    }

    /// Decodes the last instruction.
    #[must_use]
    pub fn last(&self) -> Option<Instruction> {
        (!self.is_empty()).then(|| self.decoder(self.last).decode())
    }

    /// The address of the last instruction.
    pub(super) fn last_at(&self) -> Addr {
        self.text.start.add(self.last.into())
    }

    /// Decodes the instruction at `at`, which must be the start of one of them.
    #[must_use]
    pub fn starting_at(&self, at: Addr) -> Option<Instruction> {
        let offset = u32::try_from(at.0.checked_sub(self.text.start.0)?).ok()?;
        let inside = (self.first..self.end).contains(&offset);
        inside.then(|| self.decoder(offset).decode())
    }

    fn bytes(&self, from: u32) -> &[u8] {
        let range = from as usize..self.end as usize;
        part(&self.text.bytes, range)
    }

    fn decoder(&self, from: u32) -> Decoder<'_> {
        let ip = self.text.start.0.wrapping_add(u64::from(from));
        Decoder::with_ip(64, self.bytes(from), ip, DecoderOptions::NONE)
    }
}

impl PartialEq for Instructions {
    fn eq(&self, other: &Self) -> bool {
        self.text.start.add(u64::from(self.first)) == other.text.start.add(u64::from(other.first))
            && self.bytes(self.first) == other.bytes(other.first)
            && self.count == other.count
    }
}

impl fmt::Debug for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.iter().map(|one| format!("{:#x} {one}", one.ip()));
        f.debug_list().entries(each).finish()
    }
}

impl<'i> IntoIterator for &'i Instructions {
    type Item = Instruction;
    type IntoIter = Iter<'i>;

    fn into_iter(self) -> Iter<'i> {
        self.iter()
    }
}

/// Iterator that decodes instructions.
pub struct Iter<'i> {
    decoder: Decoder<'i>,
    remaining: u32,
}

impl Iterator for Iter<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(self.decoder.decode())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, Some(self.remaining as usize))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl FusedIterator for Iter<'_> {}
