//! The linker: lays the sections out one after the other, and resolves references to each other and to the kernel.

use std::collections::BTreeSet;

use gilk_instruments::Native;
use object::read::{Relocation, RelocationTarget};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, SectionIndex, SectionKind,
    SymbolKind, elf,
};

use super::{NativeCode, callee};
use crate::code::FunctionId;
use crate::isa::encode::INT3;
use crate::{Addr, Image};

type File<'f> = object::File<'f>;

/// No section lies at a multiple of more bytes: more than a cache line serves nothing, and the arena has
/// better uses for the room between.
const MOST_ALIGN: u64 = 2048;

/// The linked code, with the data that the check uses.
pub(super) struct Linked {
    pub(super) code: NativeCode,
    /// Addresses of functions that a list may name, sorted.
    pub(super) functions: Vec<Addr>,
    /// Functions of the kernel that it may call.
    pub(super) called: BTreeSet<Addr>,
}

/// A section with its address.
struct Placed {
    index: SectionIndex,
    offset: usize,
    is_text: bool,
}

pub(super) fn link(
    native: &Native,
    image: &Image,
    address: Addr,
    touched: &dyn Fn(FunctionId) -> bool,
) -> Result<Linked, String> {
    let file = File::parse(&*native.object).map_err(|error| error.to_string())?;
    let (placed, mut bytes) = place(&file)?;
    let text = placed
        .iter()
        .filter(|one| one.is_text)
        .filter_map(|one| {
            let size = file.section_by_index(one.index).ok()?.size();
            (one.offset as u64).checked_add(size)
        })
        .max();
    let base = |index: SectionIndex| {
        let found = placed.iter().find(|one| one.index == index)?;
        Some(address.add(found.offset as u64))
    };
    let mut called = BTreeSet::new();
    for one in &placed {
        let section = file
            .section_by_index(one.index)
            .map_err(|error| error.to_string())?;
        for (offset, relocation) in section.relocations() {
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => file.symbol_by_index(index).ok(),
                _ => None,
            };
            let symbol = symbol.ok_or("a reference of it has no target")?;
            let name = symbol.name().map_err(unnamed)?;
            let target = match symbol.section_index().and_then(base) {
                Some(base) => base.add(symbol.address()),
                None if symbol.is_undefined() => {
                    let at = callee::find(image, name, touched)?;
                    called.insert(at);
                    at
                }
                None => {
                    return Err(format!(
                        "it refers to {name}, which is not code or a constant of its own"
                    ));
                }
            };
            let at = usize::try_from(offset).ok();
            let at = at.and_then(|at| one.offset.checked_add(at));
            at.and_then(|at| fill(&mut bytes, at, address, target, &relocation))
                .ok_or_else(|| unfit(name, &relocation))?;
        }
    }
    let mut entries = Vec::new();
    let mut functions = Vec::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
    {
        if let Some(base) = symbol.section_index().and_then(base) {
            let at = base.add(symbol.address());
            let name = symbol.name().map_err(unnamed)?;
            // Parts that the compiler makes of functions have a dot in their names. They continue other functions,
            // and are analysed with those.
            functions.extend((!name.contains('.')).then_some(at));
            entries.push((name.to_owned(), at));
        }
    }
    functions.sort_unstable();
    functions.dedup();
    let code = NativeCode {
        file: native.file.clone(),
        object: native.object.clone(),
        address,
        bytes: bytes.into(),
        text: text.unwrap_or(0),
        entries,
    };
    Ok(Linked {
        code,
        functions,
        called,
    })
}

/// Code first, then constants; what changes has no place in an arena that is only read and run.
fn place(file: &File<'_>) -> Result<(Vec<Placed>, Vec<u8>), String> {
    let (mut texts, mut constants) = (Vec::new(), Vec::new());
    for section in file.sections().filter(|section| section.size() > 0) {
        let name = section.name().map_err(unnamed)?;
        match section.kind() {
            SectionKind::Text => texts.push(section),
            SectionKind::ReadOnlyData
            | SectionKind::ReadOnlyString
            | SectionKind::ReadOnlyDataWithRel
                if name != ".gilk" && name != ".eh_frame" =>
            {
                constants.push(section);
            }
            SectionKind::Data
            | SectionKind::UninitializedData
            | SectionKind::Tls
            | SectionKind::UninitializedTls => {
                return Err(format!(
                    "it has data that changes (section {name}); count in its counter, or return what is to be sampled"
                ));
            }
            _ => {}
        }
    }
    if file.symbols().any(|symbol| symbol.is_common()) {
        return Err(
            "it has data that changes; count in its counter, or return what is to be sampled"
                .into(),
        );
    }
    let (mut placed, mut bytes) = (Vec::new(), Vec::new());
    let texts = texts.into_iter().map(|section| (section, true));
    for (section, is_text) in texts.chain(constants.into_iter().map(|section| (section, false))) {
        if section.align() > MOST_ALIGN {
            return Err(format!(
                "its section {} is to lie at a multiple of {} bytes, and {MOST_ALIGN} are the most there are",
                section.name().map_err(unnamed)?,
                section.align()
            ));
        }
        let align = usize::try_from(section.align().max(1)).map_err(|error| error.to_string())?;
        bytes.resize(bytes.len().next_multiple_of(align), INT3);
        placed.push(Placed {
            index: section.index(),
            offset: bytes.len(),
            is_text,
        });
        bytes.extend_from_slice(section.data().map_err(|error| error.to_string())?);
    }
    Ok((placed, bytes))
}

fn unnamed(error: object::Error) -> String {
    format!("a section or a symbol of it has no name that can be read ({error})")
}

/// Writes the reference at `at`; `None` if it is of another kind, or does not fit.
fn fill(
    bytes: &mut [u8],
    at: usize,
    address: Addr,
    target: Addr,
    relocation: &Relocation,
) -> Option<()> {
    let RelocationFlags::Elf { r_type } = relocation.flags() else {
        return None;
    };
    let value = target.0.wrapping_add_signed(relocation.addend());
    let from = value.wrapping_sub(address.add(at as u64).0).cast_signed();
    let near = |value: i64| i32::try_from(value).ok().map(i32::to_le_bytes);
    match r_type {
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => write(bytes, at, &near(from)?),
        elf::R_X86_64_32S => write(bytes, at, &near(value.cast_signed())?),
        elf::R_X86_64_64 => write(bytes, at, &value.to_le_bytes()),
        elf::R_X86_64_PC64 => write(bytes, at, &from.to_le_bytes()),
        _ => None,
    }
}

fn write(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    let end = at.checked_add(value.len())?;
    bytes.get_mut(at..end)?.copy_from_slice(value);
    Some(())
}

fn unfit(name: &str, relocation: &Relocation) -> String {
    let flags = relocation.flags();
    format!(
        "its reference to {name} is of a kind that is not for kernels ({flags:?}); compile it with -mcmodel=kernel -fno-pic"
    )
}
