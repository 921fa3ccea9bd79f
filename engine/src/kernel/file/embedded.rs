//! The symbols that a kernel carries for itself (`CONFIG_KALLSYMS`): tables in its read-only data,
//! without a name or a mark, that are known by what stands in them (scripts/kallsyms.c of Linux).
//!
//! Names are packed with [`Tokens`]; their number precedes them, and for every 256th its position
//! follows them. Addresses are distances of 32 bits: from a base before the names up to Linux 6.3,
//! from one after the index of the tokens up to 6.19, and from each distance itself since 7.0.

use std::fmt::Write as _;

use super::bytes::{bad, u32_at, u64_at};
use super::elf::LoadedSegment;
use super::tokens::{ALIGNS, LEAST_ALIGN, Tokens};
use crate::Result;

/// Every how many names have a mark.
const MARKED: usize = 256;
/// More symbols than any kernel has.
const MOST: usize = 1 << 24;
/// The most names that the search for the tables may read: some hundred times as many as any kernel
/// has, so that a hostile file cannot keep the search busy.
const PATIENCE: usize = 1 << 26;

/// The text that `/proc/kallsyms` would be, without modules.
///
/// # Errors
/// [`crate::Error::Image`] if the kernel has no such tables, or they are damaged.
pub(super) fn kallsyms(segments: &[LoadedSegment<'_>]) -> Result<String> {
    let mut patience = PATIENCE;
    for segment in segments {
        for tokens in Tokens::all(segment.bytes) {
            let Some(names) = PackedNames::before(segment.bytes, tokens, &mut patience) else {
                continue;
            };
            return match names.addresses(segment, segments) {
                Some(addresses) => Ok(names.text(&addresses)),
                None => Err(bad(
                    "its table of symbols has addresses in a form that is not known, or damaged ones",
                )),
            };
        }
    }
    Err(bad(
        "it has no table of its symbols (CONFIG_KALLSYMS), or a damaged one",
    ))
}

/// The table of names.
#[derive(Debug)]
struct PackedNames<'b> {
    tokens: Tokens<'b>,
    /// The position of their number.
    start: usize,
    /// Each, packed, with the letter of its kind in front.
    packed: Vec<&'b [u8]>,
}

impl<'b> PackedNames<'b> {
    /// The table that belongs to `tokens`, which stands before them.
    fn before(memory: &'b [u8], tokens: Tokens<'b>, patience: &mut usize) -> Option<Self> {
        let starts = (0..tokens.start)
            .rev()
            .filter(|at| at.is_multiple_of(LEAST_ALIGN));
        for start in starts {
            // A number of 32 bits, with padding to 64 up to Linux 6.19.
            let Some(count) = u32_at(memory, start).and_then(|count| usize::try_from(count).ok())
            else {
                continue;
            };
            if !(MARKED..=MOST).contains(&count) || *patience == 0 {
                continue;
            }
            let padded = u32_at(memory, start + 4) == Some(0);
            let names = start + if padded { 8 } else { 4 };
            if let Some(packed) = unpacked(memory, names, count, tokens, patience) {
                return Some(Self {
                    tokens,
                    start,
                    packed,
                });
            }
        }
        None
    }

    /// The addresses: one of four forms, known by what comes out.
    fn addresses(
        &self,
        segment: &LoadedSegment<'_>,
        segments: &[LoadedSegment<'_>],
    ) -> Option<Vec<u64>> {
        let memory = segment.bytes;
        let len = (4 * self.packed.len()).next_multiple_of(8);
        let before = || {
            let base = self.start.checked_sub(8)?;
            Some((base.checked_sub(len)?, base))
        };
        let after = || Some((self.tokens.end, self.tokens.end + len));
        for (offsets, base) in [before(), after()].into_iter().flatten() {
            let Some(base) = u64_at(memory, base) else {
                continue;
            };
            // Of kernels with per-CPU symbols among them, addresses are counted down and per-CPU
            // offsets are as they are (`CONFIG_KALLSYMS_ABSOLUTE_PERCPU`); newer ones only count up.
            let forms: [fn(u64, u32) -> u64; 2] = [
                |base, offset| match offset.cast_signed() {
                    percpu @ 0.. => u64::from(percpu.cast_unsigned()),
                    down => base.wrapping_sub(1).wrapping_add_signed(-i64::from(down)),
                },
                |base, offset| base.wrapping_add(u64::from(offset)),
            ];
            for form in forms {
                let address =
                    |number| Some(form(base, u32_at(memory.get(offsets..)?, 4 * number)?));
                let addresses: Option<Vec<u64>> = (0..self.packed.len()).map(address).collect();
                if let Some(addresses) = addresses.filter(|all| self.is_right(all, segments)) {
                    return Some(addresses);
                }
            }
        }
        let itself = |number: usize| {
            let at = self.tokens.end + 4 * number;
            let distance = u32_at(memory, at)?.cast_signed();
            Some(
                segment
                    .at
                    .add(at as u64)
                    .0
                    .wrapping_add_signed(i64::from(distance)),
            )
        };
        let addresses: Option<Vec<u64>> = (0..self.packed.len()).map(itself).collect();
        addresses.filter(|all| self.is_right(all, segments))
    }

    /// Returns whether the addresses are in order, and the symbol of the kernel's first byte is there.
    fn is_right(&self, addresses: &[u64], segments: &[LoadedSegment<'_>]) -> bool {
        let first = self
            .packed
            .iter()
            .zip(addresses)
            .find(|(packed, _)| self.name(packed).get(1..) == Some(b"_text"));
        addresses.is_sorted()
            && first.is_some_and(|(_, at)| segments.iter().any(|segment| segment.at.0 == *at))
    }

    fn name(&self, packed: &[u8]) -> Vec<u8> {
        packed
            .iter()
            .flat_map(|&byte| self.tokens.text(byte))
            .copied()
            .collect()
    }

    fn text(&self, addresses: &[u64]) -> String {
        let mut text = String::with_capacity(48 * self.packed.len());
        for (packed, at) in self.packed.iter().zip(addresses) {
            let mut letters = packed.iter().flat_map(|&byte| self.tokens.text(byte));
            let kind = letters.next().map_or('?', |&kind| char::from(kind));
            // Writing to a string does not fail.
            let _ = write!(text, "{at:016x} {kind} ");
            text.extend(letters.map(|&letter| char::from(letter)));
            text.push('\n');
        }
        text
    }
}

/// Returns `count` packed names from `start`, if they are there and the right marks follow them.
fn unpacked<'b>(
    memory: &'b [u8],
    start: usize,
    count: usize,
    tokens: Tokens<'b>,
    patience: &mut usize,
) -> Option<Vec<&'b [u8]>> {
    let mut packed = Vec::new();
    let mut marks = Vec::new();
    let mut at = start;
    for number in 0..count {
        *patience = patience.checked_sub(1)?;
        if number.is_multiple_of(MARKED) {
            marks.push(u32::try_from(at - start).ok()?);
        }
        // Seven bits, and since 6.1 seven more where the eighth says so.
        let (len, header) = match *memory.get(at..)? {
            [low @ 1..0x80, ..] => (usize::from(low), 1),
            [low, high, ..] if low > 0x7f => (usize::from(low & 0x7f) | usize::from(high) << 7, 2),
            _ => return None,
        };
        let name = memory.get(at + header..at + header + len)?;
        let kind = name.first().and_then(|&byte| tokens.text(byte).first());
        // nm(1): a letter, or a question mark, as that of `__nosave_begin` in some configurations.
        if !kind.is_some_and(|kind| kind.is_ascii_alphabetic() || *kind == b'?') {
            return None;
        }
        packed.push(name);
        at += header + len;
    }
    let is_marked = |align: &usize| {
        let marked = at.next_multiple_of(*align);
        let mut places = (marked..).step_by(4).zip(&marks);
        marked <= tokens.start && places.all(|(at, mark)| u32_at(memory, at) == Some(*mark))
    };
    ALIGNS.iter().any(is_marked).then_some(packed)
}
