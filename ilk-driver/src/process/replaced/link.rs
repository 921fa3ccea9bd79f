//! The linker of an object file for a process: code, then constants and addresses of the process's symbols, then data
//! that changes, each on pages of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gilk_engine::Addr;
use gilk_engine::isa::jump;
use gilk_engine::layout::Replacement;
use gilk_instruments::Native;
use object::read::elf::{ElfFile64, ElfSymbol64, FileHeader as _};
use object::read::{Relocation, RelocationTarget};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, SectionFlags,
    SectionIndex, elf,
};

use super::linked::{JUMP_BYTES, LinkedObject, LinkedPart, Stub};
use super::symbols::ProcessSymbols;
use crate::process::maps::PAGE;

/// An instruction that is not executed.
const INT3: u8 = 0xcc;
/// `jmp [rip+…]`.
const JUMP_THROUGH: [u8; 2] = [0xff, 0x25];
/// Bytes of a stub, with what makes the next one begin at a multiple of it.
const STUB_BYTES: u64 = 8;
/// Bytes of an address.
const WORD: u64 = 8;
/// Sections of addresses of functions that the dynamic linker calls.
const BEGINS_OR_ENDS: [&str; 5] = [
    ".init_array",
    ".fini_array",
    ".preinit_array",
    ".ctors",
    ".dtors",
];

/// Code or data of an object file, as a mapping has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Code,
    Constants,
    Data,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Code, Self::Constants, Self::Data];

    fn protection(self) -> i32 {
        match self {
            Self::Code => libc::PROT_READ | libc::PROT_EXEC,
            Self::Constants => libc::PROT_READ,
            Self::Data => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// An object file with the places of its sections.
pub(super) struct LinkableFile<'f> {
    file: ElfFile64<'f>,
    /// Sections by offset from the address that it will have.
    sections: HashMap<SectionIndex, u64>,
    /// Offsets from the start: where each kind ends, before the next page.
    ends: [u64; 3],
    starts: [u64; 3],
    /// Symbols of other objects, by name, with the offsets of their jump and of their address.
    imports: BTreeMap<&'f str, Import>,
    /// Replacements and the functions that they replace.
    functions: &'f [(Arc<Native>, Vec<Addr>)],
}

/// A symbol that the object file does not define.
#[derive(Clone, Copy, Debug)]
struct Import {
    /// Offset of a jump to it.
    stub: u64,
    /// Offset of its address.
    address: u64,
    is_weak: bool,
}

/// The function that a symbol of an object file stands for.
enum Original<'f> {
    /// The function that is replaced by this one, at its address.
    Of(&'f Arc<Native>, Addr),
    /// That of a function which replaces none in this session.
    OfNone,
    /// No original of a replacement.
    NotOne,
}

impl<'f> LinkableFile<'f> {
    /// Reads an object file and decides where its parts will be.
    ///
    /// # Errors
    /// What it has that cannot be loaded.
    pub(super) fn read(
        bytes: &'f [u8],
        functions: &'f [(Arc<Native>, Vec<Addr>)],
    ) -> Result<Self, String> {
        let file = ElfFile64::parse(bytes).map_err(|error| error.to_string())?;
        if file.elf_header().e_type(file.endian()) != elf::ET_REL {
            return Err("it is not what a compiler makes of one file (cc -c)".to_owned());
        }
        let mut names = BTreeMap::new();
        for section in file.sections() {
            if kind_of(&section)?.is_none() {
                continue;
            }
            for (_, relocation) in section.relocations() {
                let symbol = target(&file, &relocation)?;
                let name = symbol.name().map_err(unnamed)?;
                if symbol.is_common() {
                    return Err(format!(
                        "{name} has no section of its own; compile it with -fno-common"
                    ));
                }
                if symbol.is_undefined() {
                    names.insert(name, symbol.is_weak());
                }
            }
        }
        let mut placed = Self {
            file,
            sections: HashMap::new(),
            ends: [0; 3],
            starts: [0; 3],
            imports: BTreeMap::new(),
            functions,
        };
        let mut end = 0_u64;
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            let start = end.next_multiple_of(PAGE);
            end = placed.place(kind, start)?;
            match kind {
                Kind::Code => {
                    end = end.next_multiple_of(STUB_BYTES);
                    for (&name, &is_weak) in &names {
                        let import = Import {
                            stub: end,
                            address: 0,
                            is_weak,
                        };
                        placed.imports.insert(name, import);
                        end += STUB_BYTES;
                    }
                }
                Kind::Constants => {
                    end = end.next_multiple_of(WORD);
                    for import in placed.imports.values_mut() {
                        import.address = end;
                        end += WORD;
                    }
                }
                Kind::Data => {}
            }
            if let (Some(first), Some(last)) =
                (placed.starts.get_mut(number), placed.ends.get_mut(number))
            {
                (*first, *last) = (start, end);
            }
        }
        Ok(placed)
    }

    /// Places the sections of a kind; returns the end of the last.
    fn place(&mut self, kind: Kind, start: u64) -> Result<u64, String> {
        let mut end = start;
        for section in self.file.sections() {
            if kind_of(&section)? != Some(kind) {
                continue;
            }
            if section.align() > PAGE {
                return Err(format!(
                    "its section {} is to lie at a multiple of {} bytes, and {PAGE} are the most there are",
                    section.name().map_err(unnamed)?,
                    section.align()
                ));
            }
            end = end.next_multiple_of(section.align().max(1));
            self.sections.insert(section.index(), end);
            end += section.size();
        }
        Ok(end)
    }

    /// Bytes of all parts: pages.
    pub(super) fn len_bytes(&self) -> u64 {
        let [.., end] = self.ends;
        end.next_multiple_of(PAGE)
    }

    /// Links it for an address. Returns the addresses of its replacements, too.
    ///
    /// # Errors
    /// The symbol that neither it nor the process has, or the reference that cannot be made.
    pub(super) fn link(
        &self,
        name: &Arc<str>,
        start: Addr,
        symbols: &ProcessSymbols,
    ) -> Result<(LinkedObject, Vec<Replacement>), String> {
        let mut bytes = vec![INT3; usize::try_from(self.len_bytes()).unwrap_or(0)];
        for (&index, &offset) in &self.sections {
            let section = self.file.section_by_index(index);
            let section = section.map_err(|error| error.to_string())?;
            let data = section.data().map_err(|error| error.to_string())?;
            // Zeroes are not in the file.
            let zeroes = vec![0; usize::try_from(section.size()).unwrap_or(0)];
            let data = if data.is_empty() { &zeroes } else { data };
            put(&mut bytes, offset, data)?;
        }
        let mut stubs = Vec::new();
        let mut addresses = BTreeMap::new();
        for (&symbol, import) in &self.imports {
            let at = start.add(import.stub);
            let to = match self.original(symbol)? {
                Original::Of(native, original) => {
                    let code = jump(at, original);
                    let code = code.ok_or_else(|| format!("{symbol} is out of its reach"))?;
                    put(&mut bytes, import.stub, &code)?;
                    stubs.push(Stub {
                        replacement: Arc::clone(native),
                        at,
                        original,
                    });
                    at
                }
                // Its stub is a trap: the replacement is called by nothing, unless by the object file itself.
                Original::OfNone => at,
                Original::NotOne => {
                    let from = import.stub + JUMP_THROUGH.len() as u64 + 4;
                    let distance = near(import.address.wrapping_sub(from).cast_signed());
                    let distance = distance.ok_or("it is larger than 2 GiB")?;
                    put(&mut bytes, import.stub, &JUMP_THROUGH)?;
                    put(&mut bytes, from - 4, &distance)?;
                    match symbols.find(symbol)? {
                        Some(to) => to,
                        None if import.is_weak => Addr(0),
                        None => {
                            return Err(format!(
                                "it refers to {symbol}, which neither it nor an object of the process defines"
                            ));
                        }
                    }
                }
            };
            put(&mut bytes, import.address, &to.0.to_le_bytes())?;
            addresses.insert(symbol, to);
        }
        for (&index, &offset) in &self.sections {
            let section = self.file.section_by_index(index);
            let section = section.map_err(|error| error.to_string())?;
            for (at, relocation) in section.relocations() {
                let at = offset + at;
                self.relocate(&mut bytes, (start, at), &relocation, &addresses)?;
            }
        }
        let entries = self.functions.iter().map(|(native, _)| {
            let symbol = self.file.symbol_by_name(&native.function);
            let at = symbol.and_then(|symbol| Some((symbol.section_index()?, symbol.address())));
            let at = at.and_then(|(index, at)| Some(self.sections.get(&index)? + at));
            let at = at.ok_or_else(|| format!("{} is not code of its own", native.function))?;
            Ok::<_, String>(Replacement {
                native: Arc::clone(native),
                entry: start.add(at),
            })
        });
        let entries = entries.collect::<Result<Vec<Replacement>, String>>()?;
        let spans = Kind::ALL.into_iter().zip(self.starts).zip(self.ends);
        let parts = spans.filter(|((_, from), to)| from < to);
        let parts = parts.map(|((kind, from), to)| LinkedPart {
            start: start.add(from),
            bytes: slice(&bytes, from, to).to_vec(),
            protection: kind.protection(),
        });
        let linked = LinkedObject {
            file: Arc::clone(name),
            parts: parts.collect(),
            stubs,
        };
        Ok((linked, entries))
    }

    /// Returns the function that a symbol stands for, if it is one that is replaced.
    fn original(&self, symbol: &str) -> Result<Original<'_>, String> {
        let function = symbol.strip_suffix(Native::ORIGINAL);
        let own = function.and_then(|function| self.file.symbol_by_name(function));
        let Some(function) = function.filter(|_| own.is_some_and(|own| !own.is_undefined())) else {
            return Ok(Original::NotOne);
        };
        let mut functions = self.functions.iter();
        match functions.find(|(native, _)| native.function == function) {
            None => Ok(Original::OfNone),
            Some((native, replaced)) => match replaced.as_slice() {
                [original] => Ok(Original::Of(native, *original)),
                _ => Err(format!(
                    "{function} calls the function that it replaces, and replaces {}; place it at one",
                    replaced.len()
                )),
            },
        }
    }

    /// Writes a reference (x86-64 psABI, 4.4.1).
    fn relocate(
        &self,
        bytes: &mut [u8],
        (start, at): (Addr, u64),
        relocation: &Relocation,
        addresses: &BTreeMap<&str, Addr>,
    ) -> Result<(), String> {
        let symbol = target(&self.file, relocation)?;
        let mut name = symbol.name().map_err(unnamed)?;
        let section = symbol.section_index();
        if let Some(index) = section.filter(|_| name.is_empty()) {
            let section = self.file.section_by_index(index);
            name = section
                .and_then(|section| section.name())
                .map_err(unnamed)?;
        }
        let import = self.imports.get(name).filter(|_| symbol.is_undefined());
        let own = section.and_then(|index| Some(self.sections.get(&index)? + symbol.address()));
        let target = match (own, addresses.get(name).filter(|_| import.is_some())) {
            (Some(own), _) => start.add(own),
            (None, Some(&to)) => to,
            (None, None) => {
                return Err(format!(
                    "it refers to {name}, which is no code or data of its own"
                ));
            }
        };
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err("it is no ELF file".to_owned());
        };
        let place = start.add(at);
        let addend = relocation.addend();
        let distance = |to: Addr| place.to(to).wrapping_add(addend);
        let absolute = target.0.wrapping_add_signed(addend);
        let written = match r_type {
            elf::R_X86_64_64 => Some(absolute.to_le_bytes().to_vec()),
            elf::R_X86_64_PC64 => Some(distance(target).to_le_bytes().to_vec()),
            elf::R_X86_64_32 => u32::try_from(absolute)
                .ok()
                .map(|low| low.to_le_bytes().to_vec()),
            elf::R_X86_64_32S => near(absolute.cast_signed()).map(|low| low.to_vec()),
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
                let through = import.filter(|_| r_type == elf::R_X86_64_PLT32);
                let to = through.map_or(target, |import| start.add(import.stub));
                near(distance(to)).map(|low| low.to_vec())
            }
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
                let import = import.ok_or_else(|| unfit(name, relocation))?;
                near(distance(start.add(import.address))).map(|low| low.to_vec())
            }
            _ => None,
        };
        let written = written.ok_or_else(|| unfit(name, relocation))?;
        put(bytes, at, &written)
    }
}

/// Returns how a section is mapped; `None` if it is not.
///
/// # Errors
/// It cannot be: a process would have to do something for it.
fn kind_of<'d>(section: &impl object::ObjectSection<'d>) -> Result<Option<Kind>, String> {
    let name = section.name().map_err(unnamed)?;
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
        return Ok(None);
    };
    let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
    let is_note = name == ".gilk" || name == ".eh_frame" || name.starts_with(".note");
    if !has(elf::SHF_ALLOC) || is_note || section.size() == 0 {
        return Ok(None);
    }
    if has(elf::SHF_TLS) {
        return Err(format!("it has variables of threads (section {name})"));
    }
    if BEGINS_OR_ENDS.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(format!(
            "it has code that is to be executed at the start or at the end of a program (section {name})"
        ));
    }
    Ok(Some(match (has(elf::SHF_EXECINSTR), has(elf::SHF_WRITE)) {
        (true, _) => Kind::Code,
        (false, true) => Kind::Data,
        (false, false) => Kind::Constants,
    }))
}

/// Returns the symbol that a reference is to.
fn target<'d, 'f>(
    file: &'f ElfFile64<'d>,
    relocation: &Relocation,
) -> Result<ElfSymbol64<'d, 'f>, String> {
    let RelocationTarget::Symbol(index) = relocation.target() else {
        return Err("a reference of it has no target".to_owned());
    };
    file.symbol_by_index(index)
        .map_err(|error| error.to_string())
}

fn near(distance: i64) -> Option<[u8; 4]> {
    i32::try_from(distance).ok().map(i32::to_le_bytes)
}

fn slice(bytes: &[u8], from: u64, to: u64) -> &[u8] {
    let [from, to] = [from, to].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
    bytes.get(from..to).unwrap_or_default()
}

fn put(bytes: &mut [u8], at: u64, some: &[u8]) -> Result<(), String> {
    let from = usize::try_from(at).ok();
    let to = from.and_then(|from| from.checked_add(some.len()));
    let place = from.zip(to).and_then(|(from, to)| bytes.get_mut(from..to));
    let place = place.ok_or("a section or a reference of it is outside of it")?;
    place.copy_from_slice(some);
    Ok(())
}

fn unnamed(error: object::Error) -> String {
    format!("a section or a symbol of it has no name that can be read ({error})")
}

fn unfit(name: &str, relocation: &Relocation) -> String {
    let flags = relocation.flags();
    format!("its reference to {name} cannot be made ({flags:?}); compile it with -fPIC")
}

const _: () = assert!(JUMP_BYTES <= STUB_BYTES && STUB_BYTES >= JUMP_THROUGH.len() as u64 + 4);
