//! The mappings of a process (proc(5), `/proc/pid/maps`).

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;

use gilk_engine::{Addr, Span};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object, ObjectSegment as _};

use super::text;
use crate::Result;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedSpan {
    pub(crate) span: Span,
    pub(super) executable: bool,
    pub(super) writable: bool,
    /// True if other mappings of the same memory see its writes.
    pub(super) shared: bool,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// The file's number; 0 of memory without a file.
    pub(crate) inode: u64,
    /// The file's path, or the kernel's name, or nothing.
    pub(crate) name: String,
}

impl MappedSpan {
    /// The name of its file.
    pub(super) fn file(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// The address of its file's first byte, if all of the file were mapped as this is.
    pub(super) fn origin(&self) -> u64 {
        self.span.start.0.wrapping_sub(self.offset)
    }
}

/// Reads the mappings of a process, by address.
pub(crate) fn read(pid: u32) -> Result<Vec<MappedSpan>> {
    Ok(parsed(&lines(pid)?))
}

/// Reads the lines of the mappings of a process, which are the same as long as the mappings are.
pub(crate) fn lines(pid: u32) -> Result<String> {
    text(pid, "maps")
}

/// The mappings of such lines.
pub(crate) fn parsed(lines: &str) -> Vec<MappedSpan> {
    lines.lines().filter_map(parse).collect()
}

/// A line: `7f00-7f10 r-xp 0000 08:01 1234   /usr/lib/libc.so.6`.
fn parse(line: &str) -> Option<MappedSpan> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail.trim_start();
        word
    };
    let (start, end) = word().split_once('-')?;
    let flags = word();
    let offset = number(word())?;
    word();
    let inode = word().parse().ok()?;
    Some(MappedSpan {
        span: Span {
            start: Addr(number(start)?),
            end: Addr(number(end)?),
        },
        executable: flags.contains('x'),
        writable: flags.contains('w'),
        shared: flags.contains('s'),
        offset,
        inode,
        name: rest.to_owned(),
    })
}

/// Returns the offset in an ELF file of the byte that is loaded at an address of it.
pub(super) fn offset_in_file<'d>(elf: &impl Object<'d>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let (offset, bytes) = segment.file_range();
        let inside = address.checked_sub(segment.address())?;
        (inside < bytes).then_some(offset + inside)
    })
}

/// Opens a mapped file.
pub(super) fn open(pid: u32, mapping: &MappedSpan) -> io::Result<(File, Metadata)> {
    let span = mapping.span;
    let (start, end) = (span.start.0, span.end.0);
    let mapped = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    // The process may have ended since its mappings were read.
    let file = mapped.or_else(|_| File::open(&mapping.name))?;
    let about = file.metadata()?;
    if !about.is_file() || about.ino() != mapping.inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok((file, about))
}

/// Returns the distance from the addresses in a file to those of a mapping.
pub(super) fn slide(file: &[u8], mapping: &MappedSpan) -> Option<u64> {
    let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let page = |number: u64| number & !(PAGE - 1);
    let segments = header.program_headers(endian, file).ok()?;
    let segment = segments.iter().find(|segment| {
        let start = page(segment.p_offset(endian));
        let end = segment
            .p_offset(endian)
            .saturating_add(segment.p_filesz(endian));
        segment.p_type(endian) == object::elf::PT_LOAD && (start..end).contains(&mapping.offset)
    })?;
    let inside = mapping.offset - page(segment.p_offset(endian));
    let in_file = page(segment.p_vaddr(endian)).wrapping_add(inside);
    Some(mapping.span.start.0.wrapping_sub(in_file))
}

/// Pages have this many bytes.
pub(super) const PAGE: u64 = 4096;
/// The lowest address that is used (`vm.mmap_min_addr` is at most this).
const LOWEST: u64 = 1 << 20;
/// The end of the addresses of a process.
const HIGHEST: u64 = 0x7fff_ffff_f000;

/// The gaps between mappings, less a distance in which stacks and the heap may grow.
fn gaps(maps: &[MappedSpan]) -> impl Iterator<Item = Span> {
    const DISTANCE: u64 = 4 << 20;
    let starts = std::iter::once(LOWEST).chain(maps.iter().map(|one| one.span.end.0 + DISTANCE));
    let ends = maps
        .iter()
        .map(|one| one.span.start.0.saturating_sub(DISTANCE));
    let ends = ends.chain(std::iter::once(HIGHEST));
    starts
        .zip(ends)
        .filter(|(start, end)| start < end)
        .map(|(start, end)| Span {
            start: Addr(start),
            end: Addr(end),
        })
}

/// Adds a span that will be mapped.
pub(super) fn insert(maps: &mut Vec<MappedSpan>, span: Span) {
    let at = maps.partition_point(|one| one.span.start < span.start);
    let reserved = MappedSpan {
        span,
        writable: false,
        executable: true,
        shared: false,
        offset: 0,
        inode: 0,
        name: String::new(),
    };
    maps.insert(at, reserved);
}

/// Returns the highest free span of so many bytes below an address.
pub(super) fn free_below(maps: &[MappedSpan], bytes: u64, end: u64) -> Option<Span> {
    let fits = gaps(maps).filter_map(|gap| {
        let end = gap.end.0.min(end) & !(PAGE - 1);
        let start = end.checked_sub(bytes)?;
        (start >= gap.start.0).then(|| Span::new(Addr(start), bytes))
    });
    fits.last()
}

/// Returns the free span of so many bytes that is nearest to another span, if every byte of the two is within reach of
/// a 32-bit displacement.
pub(super) fn free_near(maps: &[MappedSpan], bytes: u64, near: Span) -> Option<Span> {
    const REACH: u64 = (1 << 31) - (1 << 20);
    let distance = |span: &Span| span.end.0.max(near.end.0) - span.start.0.min(near.start.0);
    let both_ends = gaps(maps).flat_map(|gap| {
        let low = gap.start.0.next_multiple_of(PAGE);
        let high = (gap.end.0 & !(PAGE - 1)).checked_sub(bytes);
        let fits = high.filter(|&high| high >= low);
        [fits.map(|_| low), fits]
    });
    let spans = both_ends
        .flatten()
        .map(|start| Span::new(Addr(start), bytes));
    spans
        .filter(|span| distance(span) < REACH)
        .min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_spaces() {
        let line =
            "7f0000001000-7f0000003000 r-xp 00002000 08:01 77                    /a b (deleted)";
        let expected = MappedSpan {
            span: Span {
                start: Addr(0x7f00_0000_1000),
                end: Addr(0x7f00_0000_3000),
            },
            executable: true,
            writable: false,
            shared: false,
            offset: 0x2000,
            inode: 77,
            name: "/a b (deleted)".to_owned(),
        };
        assert_eq!(parse(line), Some(expected));
        let nameless = "1000-2000 rw-p 00000000 00:00 0 ";
        assert_eq!(parse(nameless).unwrap().name, "");
        assert_eq!(parse("nonsense"), None);
    }

    fn mapped(start: u64, end: u64) -> MappedSpan {
        MappedSpan {
            span: Span {
                start: Addr(start),
                end: Addr(end),
            },
            executable: false,
            writable: false,
            shared: false,
            offset: 0,
            inode: 0,
            name: String::new(),
        }
    }

    #[test]
    fn free_memory_is_found_within_reach_and_nowhere_else() {
        let program = mapped(0x40_0000, 0x50_0000);
        let library = mapped(0x7f00_0000_0000, 0x7f00_0100_0000);
        let maps = [program, library.clone()];
        let low = free_below(&maps, 0x1000, 1 << 31).unwrap();
        assert_eq!(low.end.0, 1 << 31);
        let near = free_near(&maps, 0x10_0000, library.span).unwrap();
        assert!(near.end <= library.span.start || library.span.end <= near.start);
        assert!(near.start.0.abs_diff(library.span.start.0) < 1 << 30);
        // All around is taken.
        let maps = [
            mapped(LOWEST, library.span.start.0),
            library.clone(),
            mapped(library.span.end.0, HIGHEST),
        ];
        assert_eq!(free_near(&maps, 0x1000, library.span), None);
        assert_eq!(free_below(&maps, 0x1000, 1 << 31), None);
    }
}
