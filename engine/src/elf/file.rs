//! Sections, symbols and relocations of an ELF file (System V ABI, chapters 4 and 5, and its AMD64
//! supplement).

use object::LittleEndian;
use object::StringTable;
use object::elf::{
    DT_FINI, DT_INIT, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_LOAD, R_X86_64_64,
    R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE,
    R_X86_64_RELATIVE64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_ABS, SHN_UNDEF, SHT_DYNSYM,
    SHT_NOBITS, SHT_SYMTAB, STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STV_DEFAULT,
    STV_PROTECTED, Sym64,
};
use object::read::ReadRef;
use object::read::elf::{
    Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable,
};

use super::probes::{self, NoteAddress};
use crate::code::StaticProbe;
use crate::{Addr, Error, Result, Span};

pub(super) const ENDIAN: LittleEndian = LittleEndian;

/// The first bytes of ELF files.
const MAGIC: &[u8] = b"\x7fELF";

/// The error of a file that cannot be used.
pub(super) fn bad(reason: impl Into<String>) -> Error {
    Error::Elf {
        reason: reason.into(),
    }
}

/// A section that the process has in memory (`SHF_ALLOC`).
#[derive(Clone, Debug)]
pub(super) struct LoadedSection {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) executable: bool,
    pub(super) writable: bool,
    /// True if the file has its bytes; not of `.bss`.
    pub(super) held: bool,
}

/// A symbol of a function, from `.symtab`, of the object or its separate debug file, or from `.dynsym`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeSymbol {
    pub(super) at: Addr,
    /// Bytes; 0 if the file does not say.
    pub(super) size: u64,
    pub(super) name: String,
    /// True if other objects may call it by its name.
    pub(super) exported: bool,
    pub(super) local: bool,
    pub(super) weak: bool,
    /// True if it chooses an implementation when the object is loaded (`STT_GNU_IFUNC`).
    pub(super) resolver: bool,
}

/// A word that the dynamic linker fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) at: Addr,
    /// The address that it receives, if it is in this object.
    pub(super) value: Option<Addr>,
    /// The symbol that it is looked up by.
    pub(super) symbol: Option<String>,
    /// True if the value is the function that returns the word (`R_X86_64_IRELATIVE`).
    pub(super) resolver: bool,
}

/// The contents of a program or shared library, all addresses where it is loaded.
#[derive(Debug)]
pub(super) struct Contents<'f> {
    /// True if its addresses are fixed (`ET_EXEC`), so that any word of its data may be one of them.
    pub(super) fixed_addresses: bool,
    /// Bytes of the file by the address at which they are loaded.
    pub(super) memory: Vec<(Addr, &'f [u8])>,
    pub(super) extent: Span,
    /// By address.
    pub(super) sections: Vec<LoadedSection>,
    /// The [`code_spans`] of the file.
    pub(super) linked_code: Vec<(u64, u64)>,
    pub(super) symbols: Vec<CodeSymbol>,
    /// By address.
    pub(super) words: Vec<Word>,
    /// Functions that are called without a symbol: the entry point, initialisers.
    pub(super) roots: Vec<Addr>,
    pub(super) build_id: Option<Vec<u8>>,
    /// By address.
    pub(super) probes: Vec<StaticProbe>,
}

/// Returns whether the bytes are a program or a shared library in the lower half of memory; kernels are
/// in the upper half.
pub fn is_program(file: &[u8]) -> bool {
    let Ok(header) = FileHeader64::<LittleEndian>::parse(file) else {
        return false;
    };
    let loaded = header
        .program_headers(ENDIAN, file)
        .unwrap_or_default()
        .iter()
        .filter(|program| program.p_type(ENDIAN) == PT_LOAD);
    file.starts_with(MAGIC)
        && header.e_machine(ENDIAN) == EM_X86_64
        && matches!(header.e_type(ENDIAN), ET_EXEC | ET_DYN)
        && loaded.clone().count() > 0
        && loaded
            .filter(|program| program.p_flags(ENDIAN).contains(PF_X))
            .all(|program| program.p_vaddr(ENDIAN) < 1 << 63)
}

/// Returns the probes whose nops are in code, and whose semaphores are in data.
fn static_probes_of(
    table: &Sections<'_>,
    file: &[u8],
    slide: u64,
    sections: &[LoadedSection],
) -> Vec<StaticProbe> {
    probes::probes(table, file, slide, &|at, wanted| {
        let mut sections = sections.iter().map(|section| (section, section.span));
        sections.any(|(section, span)| match wanted {
            NoteAddress::Nop => section.executable && span.contains(at),
            NoteAddress::Semaphore => {
                section.writable && span.contains(at) && span.contains(at.add(1))
            }
        })
    })
}

/// Returns the static probes of a program or a library in a file, at the addresses that it has there.
///
/// # Errors
/// [`Error::Elf`] if it is damaged.
pub fn static_probes(file: &[u8]) -> Result<Vec<StaticProbe>> {
    let damaged = |error: object::read::Error| bad(format!("its headers are damaged: {error}"));
    let header = FileHeader64::<LittleEndian>::parse(file).map_err(damaged)?;
    let (_, extent) = segments(header, file, 0)?;
    let table: Sections<'_> = header.sections(ENDIAN, file).map_err(damaged)?;
    let sections = sections(&table, 0, extent)?;
    Ok(static_probes_of(&table, file, 0, &sections))
}

type Sections<'f> = SectionTable<'f, FileHeader64<LittleEndian>>;
type ElfSymbols<'f> = SymbolTable<'f, FileHeader64<LittleEndian>>;

impl<'f> Contents<'f> {
    /// Reads the file of an object that is loaded `slide` bytes above the addresses in it.
    ///
    /// # Errors
    /// [`Error::Elf`] if it is not a program or a library for x86-64, damaged, or without section
    /// headers.
    pub(super) fn read(file: &'f [u8], slide: u64) -> Result<Self> {
        if !file.starts_with(MAGIC) || !matches!(file.get(4..6), Some([2, 1])) {
            return Err(bad("it is not an ELF file of 64 bits, little-endian"));
        }
        let header = FileHeader64::<LittleEndian>::parse(file)
            .map_err(|error| bad(format!("its header is damaged: {error}")))?;
        if header.e_machine(ENDIAN) != EM_X86_64 {
            return Err(bad("it is for another processor than x86-64"));
        }
        let fixed_addresses = match header.e_type(ENDIAN) {
            ET_EXEC => true,
            ET_DYN => false,
            _ => {
                return Err(bad(
                    "it is neither a program nor a shared library; link object files first",
                ));
            }
        };
        let (memory, extent) = segments(header, file, slide)?;
        let damaged = |what: &str, error: object::read::Error| {
            bad(format!("its {what} are damaged: {error}"))
        };
        let table: Sections<'f> = header
            .sections(ENDIAN, file)
            .map_err(|error| damaged("section headers", error))?;
        let sections = sections(&table, slide, extent)?;
        if !sections.iter().any(|section| section.executable) {
            return Err(bad(
                "it has no section of code; without section headers an object cannot be read",
            ));
        }
        let symbols_of = |kind| {
            table
                .symbols(ENDIAN, file, kind)
                .map_err(|error| damaged("symbols", error))
        };
        let (all, dynamic) = (symbols_of(SHT_SYMTAB)?, symbols_of(SHT_DYNSYM)?);
        let mut symbols = code_symbols(dynamic.symbols(), dynamic.strings(), slide, true);
        symbols.extend(code_symbols(all.symbols(), all.strings(), slide, false));
        symbols.retain(|symbol| is_code(&sections, symbol.at));
        let words = words(&table, file, &dynamic, slide)?;
        let mut roots = dynamic_entries(&table, file, slide)?;
        if header.e_entry(ENDIAN) != 0 {
            roots.push(Addr(header.e_entry(ENDIAN)).add(slide));
        }
        let probes = static_probes_of(&table, file, slide, &sections);
        Ok(Self {
            fixed_addresses,
            memory,
            extent,
            sections,
            linked_code: code_spans(&table),
            symbols,
            words,
            roots,
            build_id: build_id(&table, file),
            probes,
        })
    }

    /// Adds symbols of functions from another file, as far as they are in its code.
    pub(super) fn add_symbols(&mut self, symbols: impl Iterator<Item = CodeSymbol>) {
        let sections = &self.sections;
        self.symbols
            .extend(symbols.filter(|symbol| is_code(sections, symbol.at)));
    }

    /// The loaded section of a name.
    pub(super) fn section(&self, name: &str) -> Option<&LoadedSection> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The sections of code, by address.
    pub(super) fn code(&self) -> impl Iterator<Item = &LoadedSection> {
        self.sections.iter().filter(|section| section.executable)
    }

    /// The section of code that `at` lies in.
    pub(super) fn code_at(&self, at: Addr) -> Option<&LoadedSection> {
        let after = self
            .sections
            .partition_point(|section| section.span.start <= at);
        let section = self.sections.get(after.checked_sub(1)?)?;
        (section.executable && section.span.contains(at)).then_some(section)
    }
}

/// Returns whether one of these sections has code at an address.
fn is_code(sections: &[LoadedSection], at: Addr) -> bool {
    let mut sections = sections.iter();
    sections.any(|section| section.executable && section.span.contains(at))
}

/// Bytes of a file at the address at which they are loaded.
type Loaded<'f> = (Addr, &'f [u8]);

/// The loaded bytes, and the addresses from the first to the last.
fn segments<'f>(
    header: &FileHeader64<LittleEndian>,
    file: &'f [u8],
    slide: u64,
) -> Result<(Vec<Loaded<'f>>, Span)> {
    let programs = header
        .program_headers(ENDIAN, file)
        .map_err(|error| bad(format!("its program headers are damaged: {error}")))?;
    let mut memory = Vec::new();
    let mut extent: Option<Span> = None;
    let mut held = 0_usize;
    for program in programs {
        if program.p_type(ENDIAN) != PT_LOAD {
            continue;
        }
        let bytes = program.data(ENDIAN, file).map_err(|()| {
            bad(format!(
                "it is cut off: its memory at {:#x} lies after its {} bytes",
                program.p_vaddr(ENDIAN),
                file.len()
            ))
        })?;
        held = held.saturating_add(bytes.len());
        let len = program.p_memsz(ENDIAN).max(bytes.len() as u64);
        let at = program.p_vaddr(ENDIAN);
        let end = at.checked_add(len).and_then(|end| end.checked_add(slide));
        // Pages at the ends of segments may be loaded twice.
        if held > file.len().saturating_mul(2) || end.is_none() {
            return Err(bad("its program headers are damaged: they overlap"));
        }
        let span = Span::new(Addr(at).add(slide), len);
        memory.push((span.start, bytes));
        let joined = extent.unwrap_or(span);
        extent = Some(Span {
            start: joined.start.min(span.start),
            end: joined.end.max(span.end),
        });
    }
    let extent = extent.ok_or_else(|| bad("no part of it is loaded"))?;
    Ok((memory, extent))
}

fn sections(table: &Sections<'_>, slide: u64, extent: Span) -> Result<Vec<LoadedSection>> {
    let mut sections = Vec::new();
    for header in table.iter() {
        let flags = header.sh_flags(ENDIAN);
        let size = header.sh_size(ENDIAN);
        if !flags.contains(SHF_ALLOC) || size == 0 {
            continue;
        }
        let name = table
            .section_name(ENDIAN, header)
            .map_err(|error| bad(format!("its section names are damaged: {error}")))?;
        let name = String::from_utf8_lossy(name).into_owned();
        let held = header.sh_type(ENDIAN) != SHT_NOBITS;
        let at = Addr(header.sh_addr(ENDIAN)).add(slide);
        let end = at.0.checked_add(size);
        // `.tbss` is at addresses of others.
        if held && end.is_none_or(|end| at < extent.start || end > extent.end.0) {
            return Err(bad(format!(
                "its section headers are damaged: {name} is not loaded"
            )));
        }
        sections.push(LoadedSection {
            name,
            span: Span::new(at, size),
            executable: held && flags.contains(SHF_EXECINSTR),
            writable: flags.contains(SHF_WRITE),
            held,
        });
    }
    sections.retain(|section| section.held);
    sections.sort_by_key(|section| section.span);
    let overlap = sections
        .iter()
        .zip(sections.iter().skip(1))
        .find(|(section, next)| section.span.overlaps(next.span));
    if let Some((section, next)) = overlap {
        return Err(bad(format!(
            "its section headers are damaged: {} and {} overlap",
            section.name, next.name
        )));
    }
    Ok(sections)
}

/// Returns the addresses and bytes of the sections of code, in the order of their headers; those of a debug file have
/// no contents.
pub(super) fn code_spans<'d, R: ReadRef<'d>>(
    table: &SectionTable<'d, FileHeader64<LittleEndian>, R>,
) -> Vec<(u64, u64)> {
    let code = table.iter().filter(|section| {
        let flags = section.sh_flags(ENDIAN);
        flags.contains(SHF_ALLOC) && flags.contains(SHF_EXECINSTR)
    });
    code.map(|section| (section.sh_addr(ENDIAN), section.sh_size(ENDIAN)))
        .collect()
}

/// Returns the symbols of functions of a table.
pub(super) fn code_symbols(
    symbols: &[Sym64<LittleEndian>],
    names: StringTable<'_>,
    slide: u64,
    dynamic: bool,
) -> Vec<CodeSymbol> {
    let code = symbols.iter().filter(|symbol| {
        matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
            && !matches!(symbol.st_shndx(ENDIAN), SHN_UNDEF | SHN_ABS)
    });
    code.filter_map(|symbol| {
        // A name that cannot be read names nothing; the function keeps its frame entry.
        let name = symbol.name(ENDIAN, names).ok()?;
        let visible = matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED);
        let local = symbol.st_bind() == STB_LOCAL;
        Some(CodeSymbol {
            at: Addr(symbol.st_value(ENDIAN)).add(slide),
            size: symbol.st_size(ENDIAN),
            name: String::from_utf8_lossy(name).into_owned(),
            exported: dynamic && visible && !local,
            local,
            weak: symbol.st_bind() == STB_WEAK,
            resolver: symbol.st_type() == STT_GNU_IFUNC,
        })
    })
    .filter(|symbol| !symbol.name.is_empty())
    .collect()
}

fn words(
    table: &Sections<'_>,
    file: &[u8],
    dynamic: &ElfSymbols<'_>,
    slide: u64,
) -> Result<Vec<Word>> {
    let damaged = |error: object::read::Error| bad(format!("its relocations are damaged: {error}"));
    let mut words = Vec::new();
    for section in table.iter() {
        // Those of object files that a linker kept (`--emit-relocs`) are about sections.
        if !section.sh_flags(ENDIAN).contains(SHF_ALLOC) {
            continue;
        }
        if let Some((entries, _)) = section.rela(ENDIAN, file).map_err(damaged)? {
            for rela in entries {
                let addend = rela.r_addend(ENDIAN).cast_unsigned();
                let mut word = Word {
                    at: Addr(rela.r_offset(ENDIAN)).add(slide),
                    value: None,
                    symbol: None,
                    resolver: false,
                };
                match rela.r_type(ENDIAN, false) {
                    R_X86_64_RELATIVE | R_X86_64_RELATIVE64 => {
                        word.value = Some(Addr(addend).add(slide));
                    }
                    R_X86_64_IRELATIVE => {
                        word.value = Some(Addr(addend).add(slide));
                        word.resolver = true;
                    }
                    R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => {
                        // Without a symbol, the word is a number.
                        let Some(index) = rela.symbol(ENDIAN, false) else {
                            continue;
                        };
                        let symbol = dynamic.symbol(index).map_err(damaged)?;
                        let name = dynamic.symbol_name(ENDIAN, symbol).map_err(damaged)?;
                        word.symbol = Some(String::from_utf8_lossy(name).into_owned());
                        let addend = match rela.r_type(ENDIAN, false) {
                            R_X86_64_64 => addend,
                            _ => 0,
                        };
                        let value = Addr(symbol.st_value(ENDIAN)).add(addend).add(slide);
                        word.value = (symbol.st_shndx(ENDIAN) != SHN_UNDEF).then_some(value);
                        word.resolver = symbol.st_type() == STT_GNU_IFUNC;
                    }
                    _ => continue,
                }
                words.push(word);
            }
        }
        if let Some(entries) = section.relr(ENDIAN, file).map_err(damaged)? {
            // The addend is what the file has at the place.
            let place = |at: u64| {
                let holder = table.iter().find(|holder| {
                    let offset = at.checked_sub(holder.sh_addr(ENDIAN));
                    // `.tbss` is at addresses of others.
                    holder.sh_type(ENDIAN) != SHT_NOBITS
                        && holder.sh_flags(ENDIAN).contains(SHF_ALLOC)
                        && offset.is_some_and(|offset| offset < holder.sh_size(ENDIAN))
                })?;
                let bytes = holder.data(ENDIAN, file).ok()?;
                let offset = usize::try_from(at - holder.sh_addr(ENDIAN)).ok()?;
                Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
            };
            for at in entries {
                let value = place(at).ok_or_else(|| {
                    let at = Addr(at);
                    bad(format!(
                        "its relocations are damaged: no section holds the word at {at}"
                    ))
                })?;
                words.push(Word {
                    at: Addr(at).add(slide),
                    value: Some(Addr(value).add(slide)),
                    symbol: None,
                    resolver: false,
                });
            }
        }
    }
    words.sort_by_key(|word| word.at);
    Ok(words)
}

/// The functions that the dynamic section names.
fn dynamic_entries(table: &Sections<'_>, file: &[u8], slide: u64) -> Result<Vec<Addr>> {
    let damaged =
        |error: object::read::Error| bad(format!("its dynamic section is damaged: {error}"));
    let mut roots = Vec::new();
    for section in table.iter() {
        let Some((entries, _)) = section.dynamic(ENDIAN, file).map_err(damaged)? else {
            continue;
        };
        let functions = entries
            .iter()
            .filter(|entry| matches!(entry.d_tag(ENDIAN), DT_INIT | DT_FINI));
        roots.extend(functions.map(|entry| Addr(entry.d_val(ENDIAN)).add(slide)));
    }
    Ok(roots)
}

/// The identifier in the note of GNU ld's `--build-id`; a file may do without.
pub(super) fn build_id<'d, R: ReadRef<'d>>(
    table: &SectionTable<'d, FileHeader64<LittleEndian>, R>,
    file: R,
) -> Option<Vec<u8>> {
    table.iter().find_map(|section| {
        let mut notes = section.notes(ENDIAN, file).ok()??;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(ENDIAN) == object::elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
        None
    })
}
