//! Symbols of functions in the separate debug files of stripped objects, and the names that functions have by symbols.

use object::elf::{EM_X86_64, FileHeader64, SHT_SYMTAB};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::read::{ReadRef, SectionIndex};
use object::{LittleEndian, StringTable};

use super::file::{CodeSymbol, ENDIAN, bad, build_id, code_spans, code_symbols};
use super::names;
use crate::{Addr, Result};

/// The symbols of functions in the separate debug file of an object, as `objcopy --only-keep-debug` and debug packages
/// have them. Only what names functions is read of it; its sections of code have no contents.
#[derive(Clone, Debug)]
pub struct DebugSymbols {
    /// The name of its file, for people.
    name: String,
    build_id: Vec<u8>,
    /// The addresses and bytes of the sections of code, in the order of their headers.
    code: Vec<(u64, u64)>,
    /// At the addresses in the object's file.
    symbols: Vec<CodeSymbol>,
}

impl DebugSymbols {
    /// Reads a debug file of an object with this build identifier; `None` if it is of another build, or names no function.
    ///
    /// # Errors
    /// [`Error::Elf`](crate::Error::Elf), naming the file, if it is damaged.
    pub fn read<'d, R: ReadRef<'d>>(
        name: impl Into<String>,
        wanted_id: &[u8],
        file: R,
    ) -> Result<Option<Self>> {
        let name = name.into();
        let damaged = |what: &str, error: &dyn std::fmt::Display| {
            bad(format!(
                "the {what} of its debug file {name} are damaged ({error}); install the debug package again, or remove the file"
            ))
        };
        let header = FileHeader64::<LittleEndian>::parse(file)
            .map_err(|error| damaged("headers", &error))?;
        // Another class or order has other offsets in its header.
        if header.endian().is_err() || header.e_machine(ENDIAN) != EM_X86_64 {
            return Err(damaged("headers", &"they are of another processor"));
        }
        let table = header
            .sections(ENDIAN, file)
            .map_err(|error| damaged("section headers", &error))?;
        if build_id(&table, file).is_none_or(|id| id != wanted_id) {
            return Ok(None);
        }
        let code = code_spans(&table);
        let all = table
            .symbols(ENDIAN, file, SHT_SYMTAB)
            .map_err(|error| damaged("symbols", &error))?;
        let names = match all.string_section() {
            SectionIndex(0) => &[],
            index => {
                let section = table.section(index);
                let bytes = section.and_then(|section| section.data(ENDIAN, file));
                bytes.map_err(|error| damaged("names", &error))?
            }
        };
        let names = StringTable::new(names, 0, names.len() as u64);
        let symbols = code_symbols(all.symbols(), names, 0, false);
        Ok((!symbols.is_empty()).then_some(Self {
            name,
            build_id: wanted_id.to_vec(),
            code,
            symbols,
        }))
    }

    /// Returns the symbols for an object that is loaded `slide` bytes above the addresses in its file.
    ///
    /// # Errors
    /// [`Error::Elf`](crate::Error::Elf) if the object is of another build, or has its code at other addresses.
    pub(super) fn of_object(
        &self,
        build_id: Option<&[u8]>,
        code: &[(u64, u64)],
        slide: u64,
    ) -> Result<impl Iterator<Item = CodeSymbol> + use<'_>> {
        let name = &self.name;
        if build_id != Some(&*self.build_id) {
            return Err(bad(format!("its debug file {name} is of another build")));
        }
        // A tool that moves functions may leave the identifier as it was.
        if code != self.code {
            return Err(bad(format!(
                "its debug file {name} has its build identifier, but other sections of code; remove the one that is wrong"
            )));
        }
        Ok(self.symbols.iter().map(move |symbol| CodeSymbol {
            at: symbol.at.add(slide),
            ..symbol.clone()
        }))
    }

    /// The symbols, at the addresses in the object's file.
    pub fn symbols(&self) -> impl Iterator<Item = FunctionSymbol> {
        self.symbols.iter().map(|symbol| FunctionSymbol {
            at: symbol.at,
            size: symbol.size,
            name: symbol.name.clone(),
            lesser: symbol.weak || symbol.local,
            resolver: symbol.resolver,
        })
    }
}

/// A symbol by which a function may be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSymbol {
    /// Address of the first instruction.
    pub at: Addr,
    /// Bytes; 0 if the file does not say.
    pub size: u64,
    /// The symbol, or the name of the function that has it.
    pub name: String,
    /// True if another definition would take its place (`STB_WEAK`), or no other object sees it (`STB_LOCAL`).
    pub lesser: bool,
    /// True if it chooses an implementation when the object is loaded (`STT_GNU_IFUNC`).
    pub resolver: bool,
}

/// Returns the symbols by which an [`Image`](crate::Image) of an object names its functions, by address, each with the
/// name of its function. Of several of one address it is the one that people are most likely to write.
#[must_use]
pub fn preferred(mut symbols: Vec<FunctionSymbol>) -> Vec<FunctionSymbol> {
    for symbol in &mut symbols {
        symbol.name = names::shown(&symbol.name, symbol.resolver).into_owned();
    }
    symbols
        .sort_by_cached_key(|symbol| (symbol.at, names::strangeness(&symbol.name, symbol.lesser)));
    symbols.dedup_by(|further, first| {
        let is_same = further.at == first.at;
        if is_same {
            first.size = first.size.max(further.size);
        }
        is_same
    });
    symbols
}
