//! The kernel data that the agent reads: symbols, the probe blacklist, memory.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, elf::ProgramHeader64};

use super::sys;
use crate::protocol::{Refusal, RefusalKind};

const KALLSYMS: &str = "/proc/kallsyms";
const DEBUGFS: &str = "/sys/kernel/debug";
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";
const KCORE: &str = "/proc/kcore";
/// Size of an ELF-64 file header.
const HEADER: usize = size_of::<FileHeader64<LittleEndian>>();
/// Limit on the program headers of a core file; Linux writes some tens.
const MAX_SEGMENTS: usize = 4096;

/// `uname -r`.
pub(super) fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
        |_| String::from("unknown"),
        |release| release.trim().to_owned(),
    )
}

pub(super) fn kallsyms() -> Result<Vec<u8>, Refusal> {
    std::fs::read(KALLSYMS).map_err(|e| unreadable(KALLSYMS, &e))
}

/// debugfs at no place of the tree of files, where this machine has not mounted it.
static DETACHED: OnceLock<File> = OnceLock::new();

/// Opens debugfs for [`blacklist`] if it is not mounted; nothing is mounted for others. A failure shows when the
/// blacklist is read.
pub(super) fn open_debugfs() {
    if !Path::new(BLACKLIST).exists()
        && let Ok(root) = sys::detached(c"debugfs")
    {
        DETACHED.get_or_init(|| root);
    }
}

fn read_blacklist() -> std::io::Result<Vec<u8>> {
    let Some(root) = DETACHED.get() else {
        return std::fs::read(BLACKLIST);
    };
    let mut list = Vec::new();
    sys::open_in(root, c"kprobes/blacklist")?.read_to_end(&mut list)?;
    Ok(list)
}

/// Returns the blacklist, or a note for the user if it cannot be read.
pub(super) fn blacklist() -> (Vec<u8>, String) {
    match read_blacklist() {
        Ok(list) => (list, String::new()),
        Err(e) => {
            let note = format!(
                "The kernel's list of functions that must not be probed cannot be read \
                 ({BLACKLIST}: {e}); only the module checks it now. Mount debugfs on \
                 {DEBUGFS} to see refusals before the run."
            );
            (Vec::new(), note)
        }
    }
}

/// The kernel's memory, read through its core file.
pub(super) struct Memory {
    core: File,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    length: u64,
    offset: u64,
}

impl Memory {
    pub(super) fn open() -> Result<Self, Refusal> {
        let mut core = File::open(KCORE).map_err(|e| unreadable(KCORE, &e))?;
        let mut head = vec![0; HEADER];
        core.read_exact(&mut head)
            .map_err(|e| unreadable(KCORE, &e))?;
        let bad = || {
            Refusal::new(
                RefusalKind::Read,
                format!(
                    "{KCORE} is not an ELF core file of 64 bits; the kernel needs \
                     CONFIG_PROC_KCORE."
                ),
            )
        };
        head.resize(headers_end(&head).ok_or_else(bad)?, 0);
        core.read_exact_at(&mut head, 0)
            .map_err(|e| unreadable(KCORE, &e))?;
        let segments = segments(&head).ok_or_else(bad)?;
        Ok(Self { core, segments })
    }

    /// Fills `buffer` from `address`.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Refusal> {
        let length = buffer.len() as u64;
        let segment = self
            .segments
            .iter()
            .find(|segment| {
                address
                    .checked_sub(segment.address)
                    .is_some_and(|from| from.saturating_add(length) <= segment.length)
            })
            .ok_or_else(|| {
                Refusal::new(
                    RefusalKind::Read,
                    format!(
                        "{KCORE} does not hold {length} bytes at \
                         {address:#018x}; the kernel is locked down or was read with other symbols."
                    ),
                )
            })?;
        self.core
            .read_exact_at(
                buffer,
                segment
                    .offset
                    .wrapping_add(address.wrapping_sub(segment.address)),
            )
            .map_err(|e| unreadable(KCORE, &e))
    }
}

/// Returns the end of the program headers according to the file header.
fn headers_end(head: &[u8]) -> Option<usize> {
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let count = usize::from(header.e_phnum.get(LittleEndian));
    let start = usize::try_from(header.e_phoff.get(LittleEndian)).ok()?;
    let end = start.checked_add(count * size_of::<ProgramHeader64<LittleEndian>>())?;
    (header.is_little_endian() && (HEADER..=1 << 20).contains(&start) && count <= MAX_SEGMENTS)
        .then_some(end)
}

/// Returns the loaded segments, given the file up to the end of the program headers.
fn segments(head: &[u8]) -> Option<Vec<Segment>> {
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let programs = header.program_headers(LittleEndian, head).ok()?;
    let loaded = programs
        .iter()
        .filter(|program| program.p_type(LittleEndian) == PT_LOAD);
    let segment = |program: &ProgramHeader64<LittleEndian>| Segment {
        address: program.p_vaddr(LittleEndian),
        length: program.p_memsz(LittleEndian),
        offset: program.p_offset(LittleEndian),
    };
    Some(loaded.map(segment).collect())
}

fn unreadable(path: &str, error: &std::io::Error) -> Refusal {
    Refusal::new(
        RefusalKind::Read,
        format!(
            "{path} cannot be read on {} ({error}); run the agent as root, on a kernel that is \
             not locked down.",
            host()
        ),
    )
}

/// Returns the target's name, for messages.
pub(super) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(
        |_| String::from("the target"),
        |name| name.trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core_header(entry: u16, count: u16) -> Vec<u8> {
        let mut header = vec![0; 64];
        header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        header[32..40].copy_from_slice(&64_u64.to_le_bytes());
        header[54..56].copy_from_slice(&entry.to_le_bytes());
        header[56..58].copy_from_slice(&count.to_le_bytes());
        header
    }

    #[test]
    fn program_headers_are_found_and_only_loaded_segments_count() {
        assert_eq!(headers_end(&core_header(56, 3)), Some(64 + 3 * 56));
        assert_eq!(headers_end(&core_header(56, u16::MAX)), None);
        assert_eq!(headers_end(&[0; 64]), None);
        assert_eq!(headers_end(b"\x7fELF"), None);

        let mut head = core_header(56, 2);
        head.resize(64 + 2 * 56, 0);
        let table = &mut head[64..];
        table[0] = 4; // PT_NOTE
        table[56] = 1; // PT_LOAD
        table[56 + 8..56 + 16].copy_from_slice(&0x1000_u64.to_le_bytes());
        table[56 + 16..56 + 24].copy_from_slice(&0xffff_ffff_8100_0000_u64.to_le_bytes());
        table[56 + 40..56 + 48].copy_from_slice(&0x2000_u64.to_le_bytes());
        let loaded = Segment {
            address: 0xffff_ffff_8100_0000,
            length: 0x2000,
            offset: 0x1000,
        };
        assert_eq!(segments(&head), Some(vec![loaded]));

        let mut strange = core_header(32, 2);
        strange.resize(64 + 2 * 56, 0);
        assert_eq!(segments(&strange), None);
    }

    #[test]
    fn memory_is_read_only_inside_one_segment() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        let memory = Memory {
            core: file,
            segments: vec![Segment {
                address: 0x1000,
                length: 8,
                offset: 2,
            }],
        };
        let mut three = [0; 3];
        memory.read(0x1005, &mut three).unwrap();
        assert_eq!(&three, b"789");
        assert!(memory.read(0x1006, &mut three).is_err());
        assert!(memory.read(0xfff, &mut three).is_err());
        assert!(memory.read(u64::MAX, &mut three).is_err());
    }
}
