//! Names of addresses of processes, while the processes live: `work+0x12 (program)`.
//!
//! A process's mappings are read once for each report of stacks, and kept: a process that has ended since is named by
//! the last ones. Symbols are those of the mapped files themselves, through `/proc/pid/map_files`, which also has files
//! that were replaced or removed, and those that another mount namespace hides; those of stripped files are in their
//! separate debug files. Code that no file has is named by the
//! perf map of the process, if its compiler writes one, or by the objects that it registers for debuggers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use gilk_engine::Addr;
use gilk_engine::elf::{DebugSymbols, FunctionSymbol, preferred};
use gimli::UnwindSection as _;
use object::elf::STT_GNU_IFUNC;
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection as _, ObjectSegment, ObjectSymbol, SymbolFlags, SymbolKind};

use super::generated::{GeneratedNames, RegisteredObjects};
use super::maps::{self, MappedSpan};
use super::{proc, refused, root_of};
use crate::debug_symbols;

/// Limit on the bytes of a name of a function or a file.
const MAX_BYTES: usize = 255;
/// Limit on the files whose symbols are kept, and on processes.
const MAX_KEPT: usize = 256;
/// Limit on the processes whose generated code is kept.
const MAX_GENERATED: usize = 4;

/// A file by its device and inode.
type FileId = (u64, u64);

/// The mappings and symbols that were read.
#[derive(Debug, Default)]
pub struct ProcessNames {
    mappings: HashMap<u32, Vec<MappedSpan>>,
    /// Processes whose mappings are those of now.
    current: HashSet<u32>,
    symbols: HashMap<FileId, Arc<FileSymbols>>,
    /// Those of the mappings that are known, by process and first address: their files are opened once.
    mapped: HashMap<(u32, Addr), Arc<FileSymbols>>,
    /// Generated code, by process.
    generated: HashMap<u32, GeneratedNames>,
    /// Processes whose generated code is that of now.
    listed: HashSet<u32>,
    /// Reasons why the names of a file's functions are not all known.
    unread: BTreeSet<String>,
    /// The process whose mappings are read also while no stack of it is reported: it may end before.
    watched: Option<u32>,
}

impl ProcessNames {
    /// Begins a report: mappings may have changed.
    pub(crate) fn begin(&mut self) {
        self.current.clear();
        self.listed.clear();
        self.mapped.clear();
        if self.mappings.len() > MAX_KEPT {
            self.mappings.clear();
        }
        if self.symbols.len() > MAX_KEPT {
            self.symbols.clear();
        }
        if let Some(pid) = self.watched {
            self.refresh(pid);
        }
    }

    /// Reads the mappings of a process now, and at each report. Returns whether it has any: one that has ended has none.
    pub(crate) fn watch(&mut self, pid: u32) -> bool {
        self.watched = None;
        self.begin();
        self.watched = Some(pid);
        self.refresh(pid)
    }

    /// Reads the mappings of a process; those of one that has ended stay. Returns whether it has any.
    fn refresh(&mut self, pid: u32) -> bool {
        match maps::read(pid) {
            Ok(mappings) if !mappings.is_empty() => {
                self.keep(pid, mappings);
                true
            }
            _ => false,
        }
    }

    /// Keeps mappings that a process had, in the place of those that were read.
    pub(crate) fn keep(&mut self, pid: u32, mappings: Vec<MappedSpan>) {
        self.mapped.retain(|(process, _), _| *process != pid);
        self.mappings.insert(pid, mappings);
    }

    /// Keeps the objects of generated code that a process had registered.
    pub(super) fn keep_registered(&mut self, pid: u32, registered: RegisteredObjects) {
        self.generated.entry(pid).or_default().keep(registered);
    }

    /// Returns the reasons why the names of a file's functions are not known that a debug file has.
    #[must_use]
    pub fn unread(&self) -> &BTreeSet<String> {
        &self.unread
    }

    /// Returns the mappings of a process that are known.
    pub(super) fn mapped(&self, pid: u32) -> &[MappedSpan] {
        self.mappings.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Returns the name of an address by the mappings that are known. A function without a symbol is `sub_` and its address
    /// in the file, as elsewhere.
    pub fn known(&mut self, pid: u32, at: Addr) -> String {
        let name = self.name(pid, at.0, (0, true));
        name.unwrap_or_else(|| at.to_string())
    }

    /// Returns the names of a stack's frames: the first is the next instruction to execute, the others are return
    /// addresses.
    pub(crate) fn frames(&mut self, pid: u32, addresses: &[u64]) -> Vec<String> {
        if pid == 0 {
            return vec!["[kernel thread]".to_owned(); addresses.len()];
        }
        if self.watched != Some(pid) && self.current.insert(pid) {
            self.refresh(pid);
        }
        self.known_frames(pid, addresses)
    }

    /// Returns the names of a stack's frames by the mappings that are known.
    pub(super) fn known_frames(&mut self, pid: u32, addresses: &[u64]) -> Vec<String> {
        let places = (0_u64..).zip(addresses);
        let names = places.map(|(place, &address)| {
            // The instruction before a return address is the call.
            let name = self.name(pid, address, (u64::from(place > 0), false));
            name.unwrap_or_else(|| format!("{address:#x}"))
        });
        names.collect()
    }

    /// Returns the name of an address, which is of the function that has the byte `back` bytes before it, if its file names
    /// it or `nameless` ones are named, too.
    fn name(&mut self, pid: u32, address: u64, (back, nameless): (u64, bool)) -> Option<String> {
        let mappings = self.mappings.get(&pid)?;
        let mapping = mappings
            .iter()
            .find(|mapping| mapping.span.contains(Addr(address)))?;
        if is_generated(mapping) {
            if self.listed.insert(pid) {
                if self.generated.len() >= MAX_GENERATED && !self.generated.contains_key(&pid) {
                    self.generated.clear();
                }
                self.generated
                    .entry(pid)
                    .or_default()
                    .refresh(pid, mappings);
            }
            let (name, offset, list) = self.generated.get(&pid)?.name(address, back)?;
            return Some(format!("{}+{offset:#x} ({list})", shown(name)));
        }
        let offset = address - mapping.span.start.0 + mapping.offset;
        let path = path_of(mapping);
        let file = shown(path.rsplit('/').next().unwrap_or(path));
        if file.is_empty() {
            return None;
        }
        let place = (pid, mapping.span.start);
        let known = self.mapped.get(&place).map(Arc::clone);
        let symbols = match known {
            None if mapping.inode != 0 => {
                read(pid, mapping, &mut self.symbols, &mut self.unread).ok()
            }
            known => known,
        };
        if let Some(symbols) = &symbols {
            self.mapped.insert(place, Arc::clone(symbols));
        }
        let function = symbols.and_then(|symbols| {
            let named = symbols.function(offset, back);
            named.or_else(|| symbols.nameless(offset).filter(|_| nameless))
        });
        Some(match function {
            Some((name, offset)) => format!("{}+{offset:#x} ({file})", shown(&name)),
            None => format!("{file}+{offset:#x}"),
        })
    }
}

/// Returns whether a mapping has code that no file has.
fn is_generated(mapping: &MappedSpan) -> bool {
    mapping.executable && mapping.inode == 0 && !mapping.name.starts_with('[')
}

/// Returns the path of a mapped file, which may be deleted.
fn path_of(mapping: &MappedSpan) -> &str {
    let path = mapping.name.strip_suffix(" (deleted)");
    path.unwrap_or(&mapping.name)
}

/// Returns the symbols of a mapped file.
fn read(
    pid: u32,
    mapping: &MappedSpan,
    all: &mut HashMap<FileId, Arc<FileSymbols>>,
    unread: &mut BTreeSet<String>,
) -> io::Result<Arc<FileSymbols>> {
    let (file, about) = maps::open(pid, mapping)?;
    let id = (about.dev(), about.ino());
    if let Some(symbols) = all.get(&id) {
        return Ok(Arc::clone(symbols));
    }
    let place = (Path::new(path_of(mapping)), &*root_of(pid));
    let symbols = Arc::new(FileSymbols::read(file, place, unread).unwrap_or_default());
    all.insert(id, Arc::clone(&symbols));
    Ok(symbols)
}

/// Returns the addresses at which functions of a name begin in a process: those of its program, or of the mapped files of
/// a name.
///
/// # Errors
/// The mappings of the process, its program or a debug file cannot be read.
pub(super) fn entries(
    pid: u32,
    object: Option<&str>,
    function: &str,
) -> crate::Result<BTreeSet<Addr>> {
    let program = fs::metadata(proc(pid, "exe"));
    let program = program
        .map_err(|error| refused(pid, format!("its program cannot be read ({error})")))?
        .ino();
    let mappings = maps::read(pid)?;
    let is_wanted = |mapping: &&MappedSpan| {
        let file = mapping.name.rsplit('/').next();
        mapping.executable
            && mapping.inode != 0
            && match object {
                Some(object) => file == Some(object),
                None => mapping.inode == program,
            }
    };
    let root = root_of(pid);
    let mut found = BTreeSet::new();
    for mapping in mappings.iter().filter(is_wanted) {
        let (file, _) = maps::open(pid, mapping).map_err(|error| {
            let name = &mapping.name;
            refused(pid, format!("its file {name} cannot be read ({error})"))
        })?;
        let place = (Path::new(path_of(mapping)), &*root);
        for offset in FileSymbols::offsets(file, place, function)? {
            let at = offset.checked_sub(mapping.offset);
            let at = at.map(|distance| mapping.span.start.add(distance));
            found.extend(at.filter(|at| mapping.span.contains(*at)));
        }
    }
    Ok(found)
}

/// Returns the names of the mapped files of a process, but for its program, that define a function.
fn objects_that_define(pid: u32, function: &str) -> BTreeSet<String> {
    let program = fs::metadata(proc(pid, "exe")).map_or(0, |program| program.ino());
    // This is for hints alone.
    let mappings = maps::read(pid).unwrap_or_default();
    let mut seen = HashSet::from([0, program]);
    let files = mappings
        .iter()
        .filter(|mapping| mapping.executable && seen.insert(mapping.inode));
    let root = root_of(pid);
    let files = files.filter(|mapping| {
        let place = (Path::new(path_of(mapping)), &*root);
        let symbols =
            maps::open(pid, mapping).map(|(file, _)| FileSymbols::offsets(file, place, function));
        symbols.is_ok_and(|offsets| offsets.is_ok_and(|offsets| !offsets.is_empty()))
    });
    files.map(|mapping| mapping.file().to_owned()).collect()
}

/// Returns a sentence about the libraries of a process that have a function which its program has not; empty if none has it.
#[must_use]
pub fn hint_of_libraries(pid: u32, function: &str) -> String {
    let written = in_libraries(pid, function);
    written.map_or_else(String::new, |written| {
        format!("A library has it: write {written}.")
    })
}

/// Returns a function as scripts have it of the libraries of a process that define it.
pub(super) fn in_libraries(pid: u32, function: &str) -> Option<String> {
    let objects = objects_that_define(pid, function);
    let written: Vec<String> = objects
        .iter()
        .map(|object| format!("{object}:{function}"))
        .collect();
    (!written.is_empty()).then(|| written.join(" or "))
}

/// Returns a name without what would end it in lists and files, and of limited length.
fn shown(name: &str) -> String {
    let mut name: String = name
        .chars()
        .map(|c| if c == ';' || c.is_control() { '_' } else { c })
        .collect();
    name.truncate(name.floor_char_boundary(MAX_BYTES));
    name
}

/// The functions of an ELF file; none of another file.
#[derive(Debug, Default)]
struct FileSymbols {
    /// Offset in the file, bytes and address of what is loaded.
    segments: Vec<[u64; 3]>,
    /// Address, bytes and name of each, by address.
    functions: Vec<(u64, u64, String)>,
    /// Address and bytes of what has an unwind entry, by address; none of linkage tables, where that is of many stubs.
    unwound: Vec<(u64, u64)>,
}

/// The functions that a file defines, with their names, of which a version is not part.
fn functions<'d, 'f, R: ReadRef<'d>>(
    elf: &'f object::File<'d, R>,
) -> impl Iterator<Item = (object::Symbol<'d, 'f, R>, &'d str)> {
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let defined =
        symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    defined.filter_map(|symbol| {
        let name = symbol.name().ok()?.split('@').next()?;
        (!name.is_empty()).then_some((symbol, name))
    })
}

/// Returns whether a symbol's function chooses an implementation when its object is loaded.
fn is_resolver<'d, R: ReadRef<'d>>(symbol: &object::Symbol<'d, '_, R>) -> bool {
    matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info.st_type() == STT_GNU_IFUNC)
}

/// The code that has unwind entries (`.eh_frame`), by address; up to the first that is damaged.
fn unwound<'d, R: ReadRef<'d>>(elf: &object::File<'d, R>) -> Option<Vec<(u64, u64)>> {
    let section = elf.section_by_name(".eh_frame")?;
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let frames = gimli::EhFrame::new(section.data().ok()?, gimli::LittleEndian);
    let tables = elf.sections().filter(|section| {
        let name = section.name();
        name.is_ok_and(|name| name.starts_with(".plt"))
    });
    let tables: Vec<(u64, u64)> = tables
        .map(|section| (section.address(), section.size()))
        .collect();
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(entry) = entry else {
            continue;
        };
        let Ok(entry) = entry.parse(gimli::EhFrame::cie_from_offset) else {
            break;
        };
        let at = entry.initial_address();
        let is_table = |(start, bytes): &(u64, u64)| at.wrapping_sub(*start) < *bytes;
        if !tables.iter().any(is_table) {
            found.push((at, entry.len()));
        }
    }
    found.sort_unstable();
    Some(found)
}

impl FileSymbols {
    /// Reads a file that a process has at a path below its root folder, and its separate debug file. Adds the reason why
    /// this cannot be read, if so.
    fn read(
        file: File,
        (path, root): (&Path, &Path),
        unread: &mut BTreeSet<String>,
    ) -> object::Result<Self> {
        let cache = ReadCache::new(file);
        let elf = object::File::parse(&cache)?;
        let segments = elf.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            [offset, bytes, segment.address()]
        });
        let own = functions(&elf).map(|(symbol, name)| FunctionSymbol {
            at: Addr(symbol.address()),
            size: symbol.size(),
            name: name.to_owned(),
            lesser: symbol.is_weak() || symbol.is_local(),
            resolver: is_resolver(&symbol),
        });
        let mut symbols: Vec<FunctionSymbol> = own.collect();
        match debug_symbols::find(&elf, path, root) {
            Ok(debug) => symbols.extend(debug.iter().flat_map(DebugSymbols::symbols)),
            Err(error) => {
                unread.insert(format!("{}: {error}", path.display()));
            }
        }
        Ok(Self {
            segments: segments.collect(),
            functions: preferred(symbols)
                .into_iter()
                .map(|symbol| (symbol.at.0, symbol.size, symbol.name))
                .collect(),
            unwound: unwound(&elf).unwrap_or_default(),
        })
    }

    /// Returns the address in memory of a byte of the file.
    fn address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|[start, bytes, _]| {
            offset
                .checked_sub(*start)
                .is_some_and(|inside| inside < *bytes)
        });
        let [start, _, address] = segment?;
        (offset - start).checked_add(*address)
    }

    /// Returns a name for the function without a symbol that has the byte at an offset in the file, and the distance of the
    /// offset from its start.
    fn nameless(&self, offset: u64) -> Option<(String, u64)> {
        let at = self.address(offset)?;
        let index = self.unwound.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = self.unwound.get(index.checked_sub(1)?)?;
        (at - start < *bytes).then(|| (format!("sub_{start:x}"), at - start))
    }

    /// Returns the offsets in a file at which functions of a name begin. A file of another format than its own has none.
    ///
    /// # Errors
    /// As [`debug_symbols::find`].
    fn offsets(
        file: File,
        (path, root): (&Path, &Path),
        function: &str,
    ) -> crate::Result<Vec<u64>> {
        let cache = ReadCache::new(file);
        let Ok(elf) = object::File::parse(&cache) else {
            return Ok(Vec::new());
        };
        let own = functions(&elf).filter(|(_, name)| *name == function);
        let mut addresses: Vec<u64> = own.map(|(symbol, _)| symbol.address()).collect();
        if let Some(debug) = debug_symbols::find(&elf, path, root)? {
            let named = debug.symbols().filter(|symbol| symbol.name == function);
            addresses.extend(named.map(|symbol| symbol.at.0));
        }
        let offsets = addresses
            .into_iter()
            .filter_map(|address| maps::offset_in_file(&elf, address));
        Ok(offsets.collect())
    }

    /// Returns the function with the byte `back` bytes before an offset in the file, and the distance of the offset
    /// from its start.
    fn function(&self, offset: u64, back: u64) -> Option<(String, u64)> {
        let at = self.address(offset.checked_sub(back)?)?;
        let index = self.functions.partition_point(|(start, ..)| *start <= at);
        let (start, bytes, name) = self.functions.get(index.checked_sub(1)?)?;
        let inside = *bytes == 0 || at - start < *bytes;
        inside.then(|| (name.clone(), at - start + back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_process_have_the_names_of_its_functions() {
        let function = addresses_of_this_process_have_the_names_of_its_functions as fn();
        let address = function as usize as u64;
        let mut processes = ProcessNames::default();
        processes.begin();
        let own = std::process::id();
        let names = processes.frames(own, &[address, address + 1, 1]);
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap().to_owned();
        let part = "addresses_of_this_process";
        for (name, offset) in names.iter().zip(["+0x0", "+0x1"]) {
            assert!(name.contains(part), "{names:?}");
            assert!(
                name.ends_with(&format!("{offset} ({program})")),
                "{names:?}"
            );
        }
        assert_eq!(names[2], "0x1");
        // Kept mappings name what has ended.
        processes
            .mappings
            .insert(u32::MAX, processes.mappings[&own].clone());
        let ended = processes.frames(u32::MAX, &[address]);
        assert!(
            ended[0].ends_with(&format!(" ({program})")) || ended[0].starts_with(&program),
            "{ended:?}"
        );
        assert_eq!(processes.frames(0, &[0]), ["[kernel thread]"]);
    }

    #[test]
    fn a_return_address_at_a_functions_end_is_of_that_function() {
        let symbols = FileSymbols {
            segments: vec![[0x1000, 0x100, 0x40_1000]],
            functions: vec![
                (0x40_1000, 0x20, "first".to_owned()),
                (0x40_1020, 0x10, "second".to_owned()),
                (0x40_1080, 0, "label".to_owned()),
            ],
            unwound: vec![(0x40_1000, 0x20), (0x40_1030, 8)],
        };
        assert_eq!(symbols.nameless(0x1037), Some(("sub_401030".to_owned(), 7)));
        assert_eq!(symbols.nameless(0x1038), None);
        let function = |offset, back| symbols.function(offset, back);
        let named = |name: &str, offset| Some((name.to_owned(), offset));
        assert_eq!(function(0x1020, 0), named("second", 0));
        assert_eq!(function(0x1020, 1), named("first", 0x20));
        assert_eq!(function(0x1031, 0), None);
        assert_eq!(function(0x10ff, 0), named("label", 0x7f));
        assert_eq!(function(0x1100, 0), None);
        assert_eq!(function(0, 1), None);
    }

    #[test]
    fn names_end_no_line_and_no_frame() {
        assert_eq!(shown("a;b\n"), "a_b_");
        assert_eq!(shown(&"é".repeat(200)).len(), 254);
    }
}
