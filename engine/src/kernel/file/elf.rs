//! The memory that an ELF `vmlinux` describes.

use object::LittleEndian;
use object::elf::{EM_X86_64, ET_CORE, ET_EXEC, ET_REL, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use super::bytes::bad;
use crate::{Addr, Result};

/// The first bytes of ELF files.
pub(super) const MAGIC: &[u8] = b"\x7fELF";

/// Kernels live in the upper half; what is below is the template of per-CPU data.
const UPPER_HALF: u64 = 1 << 63;

/// A stretch of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedSegment<'b> {
    pub(super) at: Addr,
    pub(super) bytes: &'b [u8],
}

/// The segments of a kernel that the file holds bytes of.
///
/// # Errors
/// [`crate::Error::Image`] if this is no kernel for x86-64, or the file is cut off or damaged.
pub(super) fn segments(file: &[u8]) -> Result<Vec<LoadedSegment<'_>>> {
    if !matches!(file.get(4..6), Some([2, 1])) {
        return Err(bad(
            "it is an ELF file, but not of 64 bits and little-endian; only kernels for x86-64 can be read",
        ));
    }
    let header = FileHeader64::<LittleEndian>::parse(file)
        .map_err(|error| bad(format!("its ELF header is damaged: {error}")))?;
    let machine = header.e_machine(LittleEndian);
    if machine != EM_X86_64 {
        return Err(bad(format!(
            "it is for another processor (ELF machine {}); only kernels for x86-64 can be read",
            machine.0
        )));
    }
    match header.e_type(LittleEndian) {
        ET_EXEC => {}
        ET_REL => return Err(bad("it is an object file or a module, and not a kernel")),
        ET_CORE => return Err(bad("it is a core file, and not a kernel")),
        _ => return Err(bad("it is a program or a library, and not a kernel")),
    }
    let programs = header
        .program_headers(LittleEndian, file)
        .map_err(|error| bad(format!("its ELF program headers are damaged: {error}")))?;
    let mut segments = Vec::new();
    let mut held = 0_usize;
    for program in programs {
        let at = program.p_vaddr(LittleEndian);
        if program.p_type(LittleEndian) != PT_LOAD || at < UPPER_HALF {
            continue;
        }
        let bytes = program.data(LittleEndian, file).map_err(|()| {
            bad(format!(
                "it is cut off: its memory at {at:#x} lies after its {} bytes",
                file.len()
            ))
        })?;
        held = held.saturating_add(bytes.len());
        if held > file.len() || at.checked_add(bytes.len() as u64).is_none() {
            return Err(bad("its ELF program headers are damaged: they overlap"));
        }
        segments.push(LoadedSegment {
            at: Addr(at),
            bytes,
        });
    }
    if segments.is_empty() {
        return Err(bad(
            "it is an ELF program, but not a kernel: nothing of it lies in the upper half of memory",
        ));
    }
    Ok(segments)
}
