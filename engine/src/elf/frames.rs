//! Unwind tables: the bounds of functions, and the landing pads of exceptions.
//!
//! `.eh_frame` is that of the LSB Core specification, 10.6; the table of call sites
//! (`.gcc_except_table`) that of gcc/except.cc and libsupc++'s eh_personality.cc.

use gimli::{
    BaseAddresses, CieOrFde, DwEhPe, EhFrame, EndianSlice, LittleEndian, Reader, UnwindSection,
    constants,
};

use super::file::bad;
use crate::code::Memory;
use crate::{Addr, Result, Span};

/// Bytes of a section.
pub(super) type Bytes<'m> = EndianSlice<'m, LittleEndian>;

/// A function by its unwind entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameEntry {
    pub(super) span: Span,
    /// The start of its table of call sites.
    pub(super) table: Option<Addr>,
}

/// Reads the entries of `.eh_frame`, in the order of the file. Empty ones are left out, and those at
/// address 0, of functions that the linker removed.
///
/// # Errors
/// [`Error::Elf`](crate::Error::Elf) if an entry is damaged.
pub(super) fn frames(section: Span, memory: &Memory, slide: u64) -> Result<Vec<FrameEntry>> {
    let damaged = |error: gimli::Error| bad(format!("its .eh_frame is damaged: {error}"));
    let bytes = memory
        .bytes(section)
        .ok_or_else(|| bad("its .eh_frame is not loaded"))?;
    let mut table = EhFrame::new(bytes, LittleEndian);
    table.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(section.start.0);
    let mut entries = table.entries(&bases);
    let mut frames = Vec::new();
    while let Some(entry) = entries.next().map_err(damaged)? {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let entry = partial.parse(EhFrame::cie_from_offset).map_err(damaged)?;
        let start = Addr(entry.initial_address());
        if entry.len() == 0 || start == Addr(slide) || start == Addr(0) {
            continue;
        }
        if start.0.checked_add(entry.len()).is_none() {
            return Err(bad(format!(
                "its .eh_frame is damaged: a function of {} bytes at {start}",
                entry.len()
            )));
        }
        // The entry of a signal's trampoline begins a byte early, so that the address before a return
        // address is in it (glibc's sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c).
        let early = u64::from(entry.is_signal_trampoline());
        let table = entry.lsda().map(|pointer| match pointer {
            gimli::Pointer::Direct(at) => Some(Addr(at)),
            // No compiler writes it.
            gimli::Pointer::Indirect(_) => None,
        });
        let table = match table {
            Some(None) => return Err(bad("its .eh_frame refers to tables by pointers to them")),
            Some(table) => table,
            None => None,
        };
        frames.push(FrameEntry {
            span: Span::new(start.add(early), entry.len().saturating_sub(early)),
            table,
        });
    }
    Ok(frames)
}

/// Reads the landing pads of the function of a frame; `None` if its table is damaged or of a form that
/// is not known.
pub(super) fn landing_pads(frame: &FrameEntry, memory: &Memory) -> Option<Vec<Addr>> {
    let Some(at) = frame.table else {
        return Some(Vec::new());
    };
    let mut table = EndianSlice::new(memory.bytes_from(at, usize::MAX)?, LittleEndian);
    // Pads are counted from the function, unless it says otherwise, which no compiler does.
    if table.read_u8().ok()? != constants::DW_EH_PE_omit.0 {
        return None;
    }
    if table.read_u8().ok()? != constants::DW_EH_PE_omit.0 {
        table.read_uleb128().ok()?;
    }
    let encoding = DwEhPe(table.read_u8().ok()?);
    let len = usize::try_from(table.read_uleb128().ok()?).ok()?;
    let mut sites = table.split(len).ok()?;
    let mut pads = Vec::new();
    while !sites.is_empty() {
        let _start = number(&mut sites, encoding)?;
        let _len = number(&mut sites, encoding)?;
        let pad = number(&mut sites, encoding)?;
        let _action = sites.read_uleb128().ok()?;
        if pad != 0 {
            pads.push(Addr(frame.span.start.0.checked_add(pad)?));
        }
    }
    pads.sort_unstable();
    pads.dedup();
    Some(pads)
}

fn number(sites: &mut Bytes<'_>, encoding: DwEhPe) -> Option<u64> {
    match encoding {
        constants::DW_EH_PE_uleb128 => sites.read_uleb128().ok(),
        constants::DW_EH_PE_udata4 => sites.read_u32().ok().map(u64::from),
        constants::DW_EH_PE_udata8 => sites.read_u64().ok(),
        _ => None,
    }
}
