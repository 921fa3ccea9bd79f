//! Layouts of the kernel's tables: what its own types state, checked against what stands in the tables.
//!
//! Entries of the bug table had 12 bytes up to Linux 6.18 and have 16 since (`format_disp` of
//! include/asm-generic/bug.h); in kernels without `CONFIG_DEBUG_BUGVERBOSE` they have 8.

use gilk_instruments::{StructLayout, Types};

use super::bounds::Bounds;
use super::tables::{self, BugLayout};
use crate::code::Memory;
use crate::{Addr, Error, Result};

/// The structures of entries that no known kernel changed, with their sizes in bytes
/// (include/linux/jump_label.h, include/linux/static_call_types.h, arch/x86/include/asm/extable.h).
const UNCHANGED: [(&str, u32); 3] = [
    ("jump_entry", 16),
    ("static_call_site", 8),
    ("exception_table_entry", 12),
];
const BUG_ENTRY: &str = "bug_entry";

/// Layout before Linux 6.19.
const BEFORE: BugLayout = BugLayout {
    len_bytes: 12,
    flags: 10,
};
/// Layouts by rising length: without places in source files, before Linux 6.19, and since.
const KNOWN: [BugLayout; 3] = [
    BugLayout {
        len_bytes: 8,
        flags: 4,
    },
    BEFORE,
    BugLayout {
        len_bytes: 16,
        flags: 14,
    },
];

impl BugLayout {
    /// Determines the layout of a kernel's bug table.
    ///
    /// # Errors
    /// [`Error::Image`] if the kernel's types give a table's entries a form that is not known, or the
    /// types and the table's contents contradict each other.
    pub(crate) fn of(bounds: &Bounds, memory: &Memory) -> Result<Self> {
        let by_contents = Self::by_contents(bounds, memory);
        // Damaged types are no types: an image can do without them.
        let types = bounds.types.and_then(|span| memory.bytes(span));
        let [jumps, calls, exceptions] = UNCHANGED.map(|(name, _)| name);
        let layouts = types
            .and_then(|types| Types::layouts(types, [jumps, calls, exceptions, BUG_ENTRY]).ok());
        let Some([unchanged @ .., bug]) = &layouts else {
            return Ok(by_contents);
        };
        for (layout, (name, expected)) in unchanged.iter().zip(UNCHANGED) {
            if let Some(layout) = layout.as_ref().filter(|layout| layout.bytes != expected) {
                return Err(unknown(format!(
                    "struct {name} has {} bytes by this kernel's types, and {expected} in every kernel that is known",
                    layout.bytes
                )));
            }
        }
        let Some(bug) = bug else {
            return Ok(by_contents);
        };
        let by_types = Self::by_types(bug)?;
        if by_types != by_contents && !bounds.bugs.is_empty() {
            return Err(unknown(format!(
                "struct {BUG_ENTRY} has {} bytes by this kernel's types, and {} by the contents of the bug table",
                by_types.len_bytes, by_contents.len_bytes
            )));
        }
        Ok(by_types)
    }

    fn by_types(layout: &StructLayout) -> Result<Self> {
        let begins_with_address = layout.offset("bug_addr_disp") == Some(0);
        let flags = layout.offset("flags").filter(|_| begins_with_address);
        let bug_layout = flags.and_then(|flags| {
            let flags = usize::try_from(flags).ok()?;
            let len_bytes = usize::try_from(layout.bytes).ok()?;
            KNOWN
                .into_iter()
                .find(|bug_layout| *bug_layout == Self { len_bytes, flags })
        });
        bug_layout.ok_or_else(|| {
            unknown(format!(
                "struct {BUG_ENTRY} has {} bytes and other fields than in the kernels that are known",
                layout.bytes
            ))
        })
    }

    /// Returns the layout with which most entries are those of traps; of two such, the longer one, with fewer others.
    fn by_contents(bounds: &Bounds, memory: &Memory) -> Self {
        let bytes = memory.bytes(bounds.bugs).unwrap_or_default();
        let traps = |layout: &Self| {
            let entries = tables::bugs(bounds.bugs, bytes, *layout).unwrap_or_default();
            let is_trap = |at: Addr| {
                bounds.text.contains(at)
                    && matches!(memory.bytes_from(at, 2), Some([0x0f, 0x0b | 0xb9]))
            };
            entries.iter().filter(|entry| is_trap(entry.at)).count()
        };
        let most = KNOWN.into_iter().max_by_key(traps);
        most.filter(|layout| traps(layout) > 0).unwrap_or(BEFORE)
    }
}

fn unknown(reason: String) -> Error {
    Error::Image { reason }
}

#[cfg(test)]
mod tests {
    use crate::kernel::fixture::Fixture;

    const UD2: [u8; 2] = [0x0f, 0x0b];

    fn warns() -> Fixture {
        let mut kernel = Fixture::new().bytes("f", &[UD2, UD2, UD2, UD2, UD2, UD2].concat());
        kernel.bugs = (0..6)
            .map(|n| (Fixture::address(0) + 2 * n, n != 3))
            .collect();
        kernel
    }

    /// The beginning of BTF with one structure: its bytes, and the offset of `flags`.
    fn types(bytes: u32, flags: u32) -> Vec<u8> {
        let strings = b"\0bug_entry\0bug_addr_disp\0flags\0";
        let (bug_addr, flags_name) = (11_u32, 25_u32);
        let words = [
            1,
            4 << 24 | 2,
            bytes, // struct bug_entry of two members
            bug_addr,
            0,
            0,
            flags_name,
            0,
            8 * flags,
        ];
        let body: Vec<u8> = words
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .collect();
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let len = body.len() as u32;
        for word in [24, 0, len, len, strings.len() as u32] {
            data.extend(word.to_le_bytes());
        }
        data.extend(body);
        data.extend(strings);
        data
    }

    #[test]
    fn bug_entries_of_every_length_are_read() {
        for bytes in [8, 12, 16] {
            let mut kernel = warns();
            kernel.bug_bytes = bytes;
            let image = kernel.image();
            let warns: Vec<bool> = image
                .fixed()
                .iter()
                .filter_map(|site| match site.why {
                    crate::code::Why::Bug { warn } => Some(warn),
                    _ => None,
                })
                .collect();
            assert_eq!(warns, [true, true, true, false, true, true], "{bytes}");
        }
    }

    #[test]
    fn a_warning_with_arguments_is_no_trap_where_its_entry_points() {
        let bytes = [0; 16];
        let table = crate::Span::new(crate::Addr(0x1000), 16);
        let read = |flags: u16| {
            let mut entry = bytes;
            entry[14..].copy_from_slice(&flags.to_le_bytes());
            super::tables::bugs(table, &entry, super::KNOWN[2]).unwrap()[0].called
        };
        assert_eq!((read(1), read(0x11)), (false, true));
    }

    #[test]
    fn a_table_that_contradicts_the_types_is_refused() {
        for (read, bytes, flags, expected) in [
            (8, 8, 4, None),
            (12, 12, 10, None),
            (16, 16, 14, None),
            (8, 12, 10, Some("12 bytes by this kernel's types, and 8")),
            (12, 16, 14, Some("16 bytes by this kernel's types, and 12")),
            (16, 12, 10, Some("12 bytes by this kernel's types, and 16")),
            (16, 24, 14, Some("24 bytes and other fields")),
            (16, 16, 4, Some("16 bytes and other fields")),
        ] {
            let mut kernel = warns();
            kernel.bug_bytes = read;
            kernel.types = types(bytes, flags);
            let answer = kernel
                .try_image()
                .map(|_| ())
                .map_err(|error| error.to_string());
            match (answer, expected) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => assert!(error.contains(part), "{error}"),
                (answer, expected) => panic!("{bytes}: {answer:?}, not {expected:?}"),
            }
        }
    }
}
