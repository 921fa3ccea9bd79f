//! Symbols that the objects of a process export.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::Addr;
use object::read::elf::{ElfFile64, Rela as _, SectionHeader as _, Sym as _};
use object::{Endianness, SymbolIndex, elf};

use crate::Error;
use crate::process::objects::{Object, file_of, objects, program_of, slide};

/// The objects of a process, the program first.
pub(in crate::process) struct ProcessSymbols {
    memory: File,
    objects: Vec<Exports>,
}

/// An object with its file.
struct Exports {
    object: Object,
    file: Vec<u8>,
    /// Distance from the addresses in the file to those in the process.
    slide: u64,
}

/// A symbol as its object defines it.
struct Defined {
    at: u64,
    kind: elf::SymbolType,
}

impl ProcessSymbols {
    /// Reads the files of all objects of a process.
    ///
    /// # Errors
    /// [`Error::Process`] if one is not as it is mapped.
    pub(in crate::process) fn read(pid: u32, memory: &File) -> crate::Result<Self> {
        let program = program_of(pid)?;
        let mut all = objects(pid)?;
        all.sort_by_key(|object| !object.is_program(&program));
        let read = all.into_iter().map(|object| {
            let file = file_of(pid, &object)?;
            let slide = slide(pid, &file, &object)?;
            Ok(Exports {
                object,
                file,
                slide,
            })
        });
        let memory = memory.try_clone();
        Ok(Self {
            memory: memory.map_err(Error::io("/proc/PID/mem", "Has the process ended?"))?,
            objects: read.collect::<crate::Result<_>>()?,
        })
    }

    /// Returns the address of a symbol, which is that of the program, or of the only library that defines it; `None` if
    /// none does.
    ///
    /// # Errors
    /// Several libraries define it, or what it stands for is not known.
    pub(in crate::process) fn find(&self, name: &str) -> Result<Option<Addr>, String> {
        let mut found: Option<(&Exports, Defined)> = None;
        for (number, exports) in self.objects.iter().enumerate() {
            let defined = exports.find(name);
            let defined = defined.map_err(|error| format!("{} ({error})", exports.object.path))?;
            let Some(defined) = defined else {
                continue;
            };
            if let Some((other, _)) = &found {
                return Err(format!(
                    "{name} is defined by {} and by {}",
                    other.object.name(),
                    exports.object.name()
                ));
            }
            found = Some((exports, defined));
            if number == 0 {
                break;
            }
        }
        let Some((exports, defined)) = found else {
            return Ok(None);
        };
        match defined.kind {
            elf::STT_TLS => Err(format!("{name} is a variable of threads")),
            elf::STT_GNU_IFUNC => self.chosen(name, exports, defined.at).map(Some),
            _ => Ok(Some(Addr(exports.slide.wrapping_add(defined.at)))),
        }
    }

    /// Returns the function that a resolver has chosen when the process began (`STT_GNU_IFUNC`), by the references to it
    /// that are bound.
    fn chosen(&self, name: &str, exports: &Exports, resolver: u64) -> Result<Addr, String> {
        let is_code = |at: Addr| {
            let mut code = exports.object.code.iter();
            code.any(|code| code.span.contains(at))
        };
        for referring in &self.objects {
            let is_own = std::ptr::eq(referring, exports);
            let slots = referring.slots(name, is_own.then_some(resolver));
            for slot in slots.map_err(|error| format!("{} ({error})", referring.object.path))? {
                let mut word = [0; 8];
                let at = referring.slide.wrapping_add(slot);
                let read = self.memory.read_exact_at(&mut word, at);
                let bound = Addr(u64::from_le_bytes(word));
                if read.is_ok() && is_code(bound) {
                    return Ok(bound);
                }
            }
        }
        Err(format!(
            "{name} is one of several functions that {} chooses from (IFUNC), and the process has not chosen yet",
            exports.object.name()
        ))
    }
}

impl Exports {
    /// Returns the default version of a symbol that the object defines.
    fn find(&self, name: &str) -> object::Result<Option<Defined>> {
        let file = ElfFile64::<Endianness>::parse(&*self.file)?;
        let (endian, sections) = (file.endian(), file.elf_section_table());
        let symbols = file.elf_dynamic_symbol_table();
        let versions = sections.versions(endian, &*self.file)?;
        for (number, symbol) in symbols.symbols().iter().enumerate() {
            let is_other = symbol.is_undefined(endian)
                || symbol.is_local()
                || symbols.symbol_name(endian, symbol)? != name.as_bytes();
            if is_other {
                continue;
            }
            let index = SymbolIndex(number);
            let hidden = versions
                .as_ref()
                .is_some_and(|versions| versions.version_index(endian, index).is_hidden());
            if !hidden {
                return Ok(Some(Defined {
                    at: symbol.st_value(endian),
                    kind: symbol.st_type(),
                }));
            }
        }
        Ok(None)
    }

    /// Returns the addresses in the file of references to a symbol that the dynamic linker binds; of those of the object
    /// itself, too, by its resolver.
    fn slots(&self, name: &str, resolver: Option<u64>) -> object::Result<Vec<u64>> {
        let file = ElfFile64::<Endianness>::parse(&*self.file)?;
        let (endian, sections) = (file.endian(), file.elf_section_table());
        let symbols = file.elf_dynamic_symbol_table();
        let mut slots = Vec::new();
        for section in sections.iter() {
            let Some((relocations, _)) = section.rela(endian, &*self.file)? else {
                continue;
            };
            for one in relocations {
                let is_bound = match one.r_type(endian, false) {
                    elf::R_X86_64_IRELATIVE => {
                        resolver == Some(one.r_addend(endian).cast_unsigned())
                    }
                    // One of its own that is not bound yet has the address of its own stub.
                    elf::R_X86_64_JUMP_SLOT if resolver.is_some() => false,
                    elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                        let symbol = one.symbol(endian, false);
                        let symbol = symbol.map(|index| symbols.symbol(index)).transpose()?;
                        symbol.is_some_and(|symbol| {
                            symbols.symbol_name(endian, symbol) == Ok(name.as_bytes())
                        })
                    }
                    _ => false,
                };
                slots.extend(is_bound.then(|| one.r_offset(endian)));
            }
        }
        Ok(slots)
    }
}
