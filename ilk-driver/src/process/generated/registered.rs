//! Names of generated code from the objects that its compiler registers for debuggers ("JIT Compilation Interface" of
//! GDB's manual; LLVM's compilers do so): files of ELF in the memory of the process, in a list.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use gilk_engine::Addr;
use memchr::memmem;
use object::elf::SHT_STRTAB;
use object::read::elf::SectionHeader as _;
use object::{Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _};
use object::{ReadCache, ReadRef, SymbolKind};

use super::super::maps::{self, MappedSpan};
use super::functions::GeneratedFunctions;

/// The variable of the process with its list, `struct jit_descriptor`.
const DESCRIPTOR: &str = "__jit_debug_descriptor";
/// The version of its form.
const VERSION: u64 = 1;
/// Its last action: an object was registered (`JIT_REGISTER_FN`).
const REGISTERED: u64 = 1;
/// Limits on what a process may register: objects, bytes of one, and bytes of all that are new.
const MAX_OBJECTS: usize = 1 << 16;
const MAX_BYTES: u64 = 16 << 20;
const MAX_NEW_BYTES: u64 = 64 << 20;

/// An entry of the list: its address, and those of the object's first byte and of its end.
type ListedObject = (u64, u64, u64);

/// The objects that a process has registered.
#[derive(Debug, Default)]
pub(in super::super) struct RegisteredObjects {
    /// Offsets of the variable in files, by inode and name.
    variables: HashMap<(u64, String), Vec<u64>>,
    /// The variables of the process, as they were last read.
    lists: HashMap<u64, [u64; 3]>,
    entries: HashSet<ListedObject>,
    functions: GeneratedFunctions,
}

impl RegisteredObjects {
    /// Finds the variables of a process in the files that it has mapped.
    pub(in super::super) fn find(&mut self, pid: u32, mapped: &[MappedSpan]) {
        let mut found = HashMap::new();
        for code in mapped.iter().filter(|one| one.executable && one.inode != 0) {
            let file = (code.inode, code.name.clone());
            let offsets = self.variables.entry(file).or_insert_with(|| {
                // What cannot be opened, or is no file of ELF, has none.
                maps::open(pid, code).map_or_else(
                    |_| Vec::new(),
                    |(file, _)| offsets_in(file).unwrap_or_default(),
                )
            });
            let is_data = |one: &&MappedSpan| {
                one.writable && (one.inode, &one.name) == (code.inode, &code.name)
            };
            for data in mapped.iter().filter(is_data) {
                let inside = offsets.iter().filter_map(|at| at.checked_sub(data.offset));
                for inside in inside.filter(|inside| *inside < data.span.len()) {
                    let at = data.span.start.add(inside).0;
                    found.insert(at, self.lists.get(&at).copied().unwrap_or_default());
                }
            }
        }
        self.lists = found;
    }

    /// Reads the objects that were registered since the last reading, at the front of the lists, as compilers do. Names of
    /// others stay until their memory is used again. What cannot be read has no names.
    pub(in super::super) fn read(&mut self, memory: &File) {
        let mut new = Vec::new();
        for (&at, before) in &mut self.lists {
            let Some(now) = words(memory, at) else {
                continue;
            };
            let [head, relevant, first] = now;
            if now == *before || head & u64::from(u32::MAX) != VERSION {
                continue;
            }
            *before = now;
            // It may have the numbers of one that was unregistered since.
            if head >> 32 == REGISTERED {
                new.extend(entry(memory, relevant).map(|(_, entry)| entry));
            }
            let mut next = first;
            while next != 0
                && new.len() < MAX_OBJECTS
                && let Some((after, entry)) = entry(memory, next)
                && self.entries.insert(entry)
            {
                new.push(entry);
                next = after;
            }
        }
        let mut bytes_left = MAX_NEW_BYTES;
        for (_, start, end) in new {
            let length = end - start;
            if length <= MAX_BYTES.min(bytes_left) {
                bytes_left -= length;
                self.add(memory, start, length);
            }
        }
    }

    /// Returns the function that has the byte `back` bytes before an address, and the address's offset in it.
    pub(super) fn function(&self, at: u64, back: u64) -> Option<(&str, u64)> {
        self.functions.function(at, back)
    }

    fn add(&mut self, memory: &File, start: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        // It may be unregistered meanwhile, or be no object.
        if memory.read_exact_at(&mut bytes, start).is_err() {
            return;
        }
        let Ok(elf) = object::File::parse(&*bytes) else {
            return;
        };
        for symbol in elf.symbols() {
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
                continue;
            }
            let base = match (elf.kind(), symbol.section_index()) {
                // Its sections have the addresses that they were loaded at.
                (ObjectKind::Relocatable, Some(section)) => {
                    elf.section_by_index(section).map_or(0, |one| one.address())
                }
                _ => 0,
            };
            let start = symbol.address().wrapping_add(base);
            let end = start.saturating_add(symbol.size());
            let name = symbol.name().unwrap_or_default();
            if start < end && !name.is_empty() && !self.functions.is_full() {
                self.functions.add(start, end, name);
            }
        }
    }
}

/// The offsets in a file of the bytes that the variable has at first.
fn offsets_in(file: File) -> object::Result<Vec<u64>> {
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache)?;
    // Few files have it, and the names of a table are searched faster than the table.
    if !has_name(&elf, &cache, DESCRIPTOR) {
        return Ok(Vec::new());
    }
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let variables = symbols.filter(|symbol| {
        symbol.is_definition() && symbol.name().is_ok_and(|name| name == DESCRIPTOR)
    });
    let addresses: HashSet<u64> = variables.map(|symbol| symbol.address()).collect();
    let offset = |address| maps::offset_in_file(&elf, address);
    Ok(addresses.into_iter().filter_map(offset).collect())
}

/// Returns whether a table of names of a file has one, alone or within another.
fn has_name<'d, R: ReadRef<'d>>(elf: &object::File<'d, R>, file: R, name: &str) -> bool {
    // Processes of 32 bits are refused.
    let object::File::Elf64(elf) = elf else {
        return false;
    };
    let endian = elf.endian();
    let sections = elf.elf_section_table().iter();
    let tables = sections.filter(|one| one.sh_type(endian) == SHT_STRTAB);
    let mut tables = tables.filter_map(|one| one.data(endian, file).ok());
    tables.any(|names| memmem::find(names, name.as_bytes()).is_some())
}

/// Reads an entry of a list, `struct jit_code_entry`; returns the address of the next one with it.
fn entry(memory: &File, at: u64) -> Option<(u64, ListedObject)> {
    let [next, _, start, length] = words(memory, at)?;
    Some((next, (at, start, start.checked_add(length)?)))
}

/// Reads words of the process.
fn words<const N: usize>(memory: &File, at: u64) -> Option<[u64; N]> {
    let mut words = [0; N];
    for (word, distance) in words.iter_mut().zip((0..).step_by(8)) {
        let mut bytes = [0; 8];
        memory
            .read_exact_at(&mut bytes, Addr(at).add(distance).0)
            .ok()?;
        *word = u64::from_le_bytes(bytes);
    }
    Some(words)
}
