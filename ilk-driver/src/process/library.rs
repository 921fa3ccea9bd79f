//! The C library of a process, or the runtime in its place, as its files show it.

use std::fs::{self, File};

use object::{Object as _, ObjectSymbol as _, ReadCache};

use super::{proc, refused};
use crate::Result;

/// The section of each program of Go (`debug/buildinfo` reads it).
const GO_SECTION: &str = ".go.buildinfo";

/// Reads the file of a process's program.
pub(super) fn program_file(pid: u32) -> Result<Vec<u8>> {
    fs::read(proc(pid, "exe"))
        .map_err(|error| refused(pid, format!("its program cannot be read ({error})")))
}

/// Returns whether a C library has the word that says where it registers areas.
pub(super) fn names_area(file: &[u8]) -> bool {
    object::File::parse(file).is_ok_and(|elf| {
        let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
        symbols.any(|symbol| symbol.name() == Ok("__rseq_offset"))
    })
}

/// Returns whether an object calls a function of another one by a name, or takes its address.
pub(super) fn imports(file: &[u8], name: &str) -> bool {
    object::File::parse(file).is_ok_and(|elf| {
        let mut symbols = elf.dynamic_symbols();
        symbols.any(|symbol| symbol.is_undefined() && symbol.name() == Ok(name))
    })
}

/// Returns whether a process's program is written in Go.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_of_go(pid: u32) -> Result<bool> {
    let program = File::open(proc(pid, "exe"))
        .map_err(|error| refused(pid, format!("its program cannot be read ({error})")))?;
    let read = ReadCache::new(program);
    let elf = object::File::parse(&read);
    Ok(elf.is_ok_and(|elf| elf.section_by_name(GO_SECTION).is_some()))
}
