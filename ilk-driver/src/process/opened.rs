//! Libraries that a process has not mapped, read from their files: their functions are shown, and instruments that are
//! placed in them wait until they are loaded.

use std::fs;
use std::path::{Path, PathBuf};

use gilk_engine::elf::{self, ElfParts};
use gilk_engine::{Addr, Image, Span};
use object::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

use super::maps;
use super::subject::{Subject, relocates_code};
use crate::{Error, Result, debug_symbols};

/// Bytes around such a library that stay free, for what is mapped near those of the process.
const APART: u64 = 64 << 20;

/// A library that is not mapped.
#[derive(Debug)]
pub(super) struct OpenedLibrary {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Addresses where it could be mapped.
    pub(super) span: Span,
    /// Its functions there.
    pub(super) image: Image,
}

impl OpenedLibrary {
    /// Reads a file for a process, at addresses that are free there and not `taken`.
    ///
    /// # Errors
    /// As [`read`]; [`Error::Process`] if no addresses are free.
    pub(super) fn of(subject: &Subject, taken: &[Span], path: &Path) -> Result<Self> {
        let file = read(path)?;
        let (start, end) = extent(&file).ok_or_else(|| no_library(path))?;
        let span = supposed(subject, taken, end - start)?;
        let name = name(path);
        let debug = debug_symbols::of_file(&file, path, Path::new("/"))?;
        let parts = ElfParts {
            is_library: true,
            debug: debug.as_ref(),
            slide: span.start.0.wrapping_sub(start),
            ..ElfParts::of_file(&name, &file)
        };
        Ok(Self {
            image: Image::from_elf(&parts)?,
            path: path.to_path_buf(),
            name,
            span,
        })
    }
}

/// The name of the file of a library, which its functions have.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn no_library(path: &Path) -> Error {
    Error::Target(format!("{} is no library of 64 bits.", path.display()))
}

/// Reads the file of a library.
///
/// # Errors
/// [`Error::Io`] if it cannot be read; [`Error::Target`] if it is none of 64 bits, or none that is instrumented when it is
/// loaded.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let file = fs::read(path).map_err(Error::io(path, "Name the file of a library."))?;
    if !elf::is_program(&file) || extent(&file).is_none() {
        return Err(no_library(path));
    }
    if relocates_code(&file) {
        let path = path.display();
        let why = format!(
            "{path} has relocations in its code, which the dynamic linker writes; it is not instrumented when it is loaded."
        );
        return Err(Error::Target(why));
    }
    Ok(file)
}

/// Returns the first and the last address of a file whose addresses are not fixed, in whole pages.
fn extent(file: &[u8]) -> Option<(u64, u64)> {
    let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    if header.e_type(endian) != object::elf::ET_DYN {
        return None;
    }
    let segments = header.program_headers(endian, file).ok()?.iter();
    let loaded = segments.filter(|one| one.p_type(endian) == object::elf::PT_LOAD);
    let ends = loaded.map(|one| {
        let start = one.p_vaddr(endian);
        (start, start.saturating_add(one.p_memsz(endian)))
    });
    let (start, end) = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
    Some((
        start & !(maps::PAGE - 1),
        end.checked_next_multiple_of(maps::PAGE)?,
    ))
}

/// Returns free addresses for so many bytes of a library, near those of the process.
fn supposed(subject: &Subject, taken: &[Span], bytes: u64) -> Result<Span> {
    let mut maps = maps::read(subject.pid)?;
    for &span in taken {
        maps::insert(&mut maps, span);
    }
    let last = subject.groups.last().map(|(group, _)| *group);
    let near = last.unwrap_or_else(|| subject.image.text());
    let found = maps::free_near(&maps, bytes + 2 * APART, near).ok_or_else(|| {
        super::refused(
            subject.pid,
            format!("no {bytes} bytes are free near its libraries"),
        )
    })?;
    Ok(Span::new(Addr(found.start.0 + APART), bytes))
}
