//! The kernel's tables of special sites. Every field that is an address is written as the distance
//! from the field itself (include/linux/jump_label.h, include/linux/static_call_types.h,
//! arch/x86/include/asm/extable.h, include/asm-generic/bug.h of Linux 6.1 to 7.3).

use crate::{Addr, Error, Result, Span};

/// A jump label (`struct jump_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JumpEntry {
    pub(crate) code: Addr,
    pub(crate) target: Addr,
    /// The `struct static_key`.
    pub(crate) key: Addr,
    /// True if the code jumps while the key is off (`jump_entry_is_branch`).
    pub(crate) inverted: bool,
}

/// A call or jump that the kernel redirects (`struct static_call_site`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticCallEntry {
    pub(crate) code: Addr,
    /// The `struct static_call_key`.
    pub(crate) key: Addr,
    /// `STATIC_CALL_SITE_TAIL`: it jumps.
    pub(crate) tail: bool,
}

/// An instruction that may fault (`struct exception_table_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExceptionEntry {
    pub(crate) instruction: Addr,
    pub(crate) fixup: Addr,
    /// The kind of its handler: the low byte of its last field.
    pub(crate) handler: u8,
}

/// A `BUG` or `WARN` (`struct bug_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BugEntry {
    pub(crate) at: Addr,
    pub(crate) warn: bool,
    /// A `WARN` with arguments, which a static call reports (`WARN_trap`): no trap stands at `at`.
    pub(crate) called: bool,
}

/// The layout of `struct bug_entry`, whose first field is the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BugLayout {
    pub(crate) len_bytes: usize,
    /// The offset of its 16 bits of flags.
    pub(crate) flags: usize,
}

/// `BUGFLAG_WARNING`: the trap's handler continues after the `ud2`.
const WARNING: u16 = 1;
/// `BUGFLAG_ARGS`, since Linux 6.19.
const CALLED: u16 = 1 << 4;
/// The low bits of a jump label's key are `jump_entry_is_branch` and `jump_entry_is_init`, those of
/// a static call's `STATIC_CALL_SITE_TAIL` and `STATIC_CALL_SITE_INIT`.
const FLAGS: u64 = 3;

/// Entries of `SIZE` bytes of a table, with the address of each.
fn entries<const SIZE: usize>(
    name: &str,
    table: Span,
    bytes: &[u8],
) -> Result<Vec<(Addr, [u8; SIZE])>> {
    let (entries, rest) = bytes.as_chunks::<SIZE>();
    if !rest.is_empty() {
        return Err(torn(name, bytes.len(), SIZE));
    }
    let addresses = (0..).map(|number: u64| table.start.add(number * SIZE as u64));
    Ok(addresses.zip(entries.iter().copied()).collect())
}

fn torn(name: &str, len_bytes: usize, entry_bytes: usize) -> Error {
    Error::Image {
        reason: format!(
            "the {name} is {len_bytes} bytes long, which is not a whole number of entries of {entry_bytes}"
        ),
    }
}

/// The address at the distance that an entry has at byte `OFFSET`.
fn relative<const OFFSET: u64, const SIZE: usize>(entry: Addr, bytes: &[u8; SIZE]) -> Addr {
    const { assert!(OFFSET as usize + 4 <= SIZE, "the field is in the entry") };
    let field = bytes.get(OFFSET as usize..).and_then(<[u8]>::first_chunk);
    let distance = i64::from(i32::from_le_bytes(field.copied().unwrap_or_default()));
    entry.add(OFFSET).add(distance.cast_unsigned())
}

/// Reads `[__start___jump_table, __stop___jump_table)`.
pub(crate) fn jump_labels(table: Span, bytes: &[u8]) -> Result<Vec<JumpEntry>> {
    let entries = entries::<16>("jump table", table, bytes)?;
    Ok(entries
        .iter()
        .map(|(at, entry)| JumpEntry {
            code: relative::<0, 16>(*at, entry),
            target: relative::<4, 16>(*at, entry),
            key: key(at.add(8), u64::from_le_bytes(last_chunk(entry))),
            inverted: u64::from_le_bytes(last_chunk(entry)) & 1 != 0,
        })
        .collect())
}

/// Reads `[__start_static_call_sites, __stop_static_call_sites)`.
pub(crate) fn static_calls(table: Span, bytes: &[u8]) -> Result<Vec<StaticCallEntry>> {
    let entries = entries::<8>("table of static calls", table, bytes)?;
    Ok(entries
        .iter()
        .map(|(at, entry)| {
            let distance = i32::from_le_bytes(last_chunk(entry));
            StaticCallEntry {
                code: relative::<0, 8>(*at, entry),
                key: key(at.add(4), i64::from(distance).cast_unsigned()),
                tail: distance & 1 != 0,
            }
        })
        .collect())
}

/// The last field of an entry.
fn last_chunk<const LEN: usize, const SIZE: usize>(entry: &[u8; SIZE]) -> [u8; LEN] {
    const { assert!(LEN <= SIZE, "the field is in the entry") };
    entry.last_chunk().copied().unwrap_or([0; LEN])
}

/// The address of a key, whose distance is written at `field` with flags in its low bits.
fn key(field: Addr, distance: u64) -> Addr {
    field.add(distance & !FLAGS)
}

/// Reads `[__start___ex_table, __stop___ex_table)`.
pub(crate) fn exceptions(table: Span, bytes: &[u8]) -> Result<Vec<ExceptionEntry>> {
    let entries = entries::<12>("exception table", table, bytes)?;
    Ok(entries
        .iter()
        .map(|(at, entry)| ExceptionEntry {
            instruction: relative::<0, 12>(*at, entry),
            fixup: relative::<4, 12>(*at, entry),
            handler: {
                let [.., handler, _, _, _] = *entry;
                handler
            },
        })
        .collect())
}

/// Reads `[__start___bug_table, __stop___bug_table)`.
pub(crate) fn bugs(table: Span, bytes: &[u8], layout: BugLayout) -> Result<Vec<BugEntry>> {
    let BugLayout { len_bytes, flags } = layout;
    if !bytes.len().is_multiple_of(len_bytes) {
        return Err(torn("bug table", bytes.len(), len_bytes));
    }
    let entry = |(number, entry): (u64, &[u8])| {
        let at = table.start.add(number * len_bytes as u64);
        let distance = i64::from(i32::from_le_bytes(*entry.first_chunk()?));
        let flags = u16::from_le_bytes(*entry.get(flags..)?.first_chunk()?);
        Some(BugEntry {
            at: at.add(distance.cast_unsigned()),
            warn: flags & WARNING != 0,
            called: flags & CALLED != 0,
        })
    };
    let entries: Option<Vec<_>> = (0..)
        .zip(bytes.chunks_exact(len_bytes))
        .map(entry)
        .collect();
    entries.ok_or_else(|| Error::Image {
        reason: format!("the flags of the bug table lie outside its entries of {len_bytes}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0xffff_ffff_8200_0000;
    const SHORT: BugLayout = BugLayout {
        len_bytes: 12,
        flags: 10,
    };

    fn distance(from: u64, to: u64) -> [u8; 4] {
        i32::try_from(to.wrapping_sub(from) as i64)
            .unwrap()
            .to_le_bytes()
    }

    proptest! {
        #[test]
        fn tables_read_back(sites in proptest::collection::vec((0_u64..0x100_0000, 0_u64..0x100_0000, any::<bool>()), 0..9)) {
            let (mut jumps, mut calls, mut faults, mut traps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let text = 0xffff_ffff_8100_0000;
            for (number, &(one, two, warn)) in (0..).zip(&sites) {
                let jump = BASE + 16 * number;
                jumps.extend(distance(jump, text + one));
                jumps.extend(distance(jump + 4, text + two));
                let keys = BASE + 0x1_0000;
                let to_key = (keys + 8 * one).wrapping_sub(jump + 8) | u64::from(warn) | 2;
                jumps.extend(to_key.to_le_bytes());
                let call = BASE + 8 * number;
                calls.extend(distance(call, text + one));
                let [low, rest @ ..] = distance(call + 4, keys + 4 * two);
                calls.push(low | u8::from(warn));
                calls.extend(rest);
                let fault = BASE + 12 * number;
                faults.extend(distance(fault, text + one));
                faults.extend(distance(fault + 4, text + two));
                faults.extend([3, 0, 0, 0]);
                traps.extend(distance(fault, text + one));
                traps.extend([9, 9, 9, 9, 7, 7, u8::from(warn), 0]);
            }
            let span = |bytes: &[u8]| Span::new(Addr(BASE), bytes.len() as u64);
            for (read, &(one, two, inverted)) in jump_labels(span(&jumps), &jumps).unwrap().iter().zip(&sites) {
                let key = Addr(BASE + 0x1_0000 + 8 * one);
                prop_assert_eq!(*read, JumpEntry { code: Addr(text + one), target: Addr(text + two), key, inverted });
            }
            for (read, &(one, two, tail)) in static_calls(span(&calls), &calls).unwrap().iter().zip(&sites) {
                let key = Addr(BASE + 0x1_0000 + 4 * two);
                prop_assert_eq!(*read, StaticCallEntry { code: Addr(text + one), key, tail });
            }
            for (read, &(one, two, _)) in exceptions(span(&faults), &faults).unwrap().iter().zip(&sites) {
                prop_assert_eq!(*read, ExceptionEntry { instruction: Addr(text + one), fixup: Addr(text + two), handler: 3 });
            }
            let read = bugs(span(&traps), &traps, SHORT).unwrap();
            prop_assert_eq!(read.len(), sites.len());
            for (read, &(one, _, warn)) in read.iter().zip(&sites) {
                prop_assert_eq!(*read, BugEntry { at: Addr(text + one), warn, called: false });
            }
        }
    }

    #[test]
    fn a_table_with_half_an_entry_is_refused() {
        let error = bugs(Span::new(Addr(BASE), 13), &[0; 13], SHORT)
            .unwrap_err()
            .to_string();
        assert!(error.contains("bug table"), "{error}");
    }
}
