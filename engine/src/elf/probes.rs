//! Static probes, by their notes (`.note.stapsdt`; SystemTap's sys/sdt.h).

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{SectionHeader, SectionTable};

use crate::Addr;
use crate::code::{ProbeArgument, StaticProbe};

const ENDIAN: LittleEndian = LittleEndian;
/// The kind of a note that describes a probe (`NT_STAPSDT`).
const PROBE: u32 = 3;

/// The kind of bytes that an address in a note must point to, for the note to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoteAddress {
    /// Code.
    Nop,
    /// Two bytes of data that the object writes.
    Semaphore,
}

/// Reads the probes of an object that is loaded `slide` bytes above the addresses in it. A damaged note describes none:
/// objects are read as well without them.
pub(super) fn probes(
    table: &SectionTable<'_, FileHeader64<LittleEndian>>,
    file: &[u8],
    slide: u64,
    is_there: &dyn Fn(Addr, NoteAddress) -> bool,
) -> Vec<StaticProbe> {
    let named = |name: &[u8]| {
        table
            .section_by_name(ENDIAN, name)
            .map(|(_, header)| header)
    };
    let base = named(b".stapsdt.base").map_or(0, |header| header.sh_addr(ENDIAN));
    let mut probes = Vec::new();
    let notes = named(b".note.stapsdt").and_then(|header| header.notes(ENDIAN, file).ok()?);
    let Some(mut notes) = notes else {
        return probes;
    };
    while let Ok(Some(note)) = notes.next() {
        if note.name() != b"stapsdt" || note.n_type(ENDIAN).0 != PROBE {
            continue;
        }
        let probe = probe(note.desc(), base, slide).filter(|probe| {
            is_there(probe.at, NoteAddress::Nop)
                && probe
                    .semaphore
                    .is_none_or(|semaphore| is_there(semaphore, NoteAddress::Semaphore))
        });
        probes.extend(probe);
    }
    probes.sort_unstable();
    probes
}

/// Reads a note: the address of the nop, that of `.stapsdt.base` and of the semaphore when it was written, and three
/// strings.
fn probe(note: &[u8], base: u64, slide: u64) -> Option<StaticProbe> {
    let (words, strings) = note.split_at_checked(24)?;
    let (words, _) = words.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let [at, linked, semaphore] = words.as_slice() else {
        return None;
    };
    // An object that was moved since has its base elsewhere (prelink).
    let moved = base.wrapping_sub(*linked).wrapping_add(slide);
    let loaded = |at: u64| Addr(at.wrapping_add(moved));
    let mut strings = strings.split(|byte| *byte == 0);
    let mut string = || Some(String::from_utf8_lossy(strings.next()?).into_owned());
    let (provider, name, arguments) = (string()?, string()?, string()?);
    Some(StaticProbe {
        at: loaded(*at),
        provider,
        name,
        semaphore: (*semaphore != 0).then(|| loaded(*semaphore)),
        arguments: arguments
            .split_whitespace()
            .map(ProbeArgument::parse)
            .collect(),
    })
}
