//! Programs and libraries that a process has mapped, and the choice of those that are read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gilk_engine::elf::static_probes;
use gilk_engine::rendezvous::RENDEZVOUS;
use gilk_engine::{Addr, Span};
use object::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

use super::launched::{BASE, CLASS, CLASS_64, auxiliary};
use super::maps::{self, MappedSpan};
use super::record::is_ours;
use super::{proc, refused};
use crate::script::{is_pattern, matches};
use crate::{Error, Result};

/// A program or a library that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The path of its file, as the process sees it.
    pub path: String,
    /// From the first to the last of its addresses.
    pub span: Span,
    /// The number of its file.
    inode: u64,
    /// Its mappings with code.
    pub(super) code: Vec<MappedSpan>,
    /// Its first mapping.
    first: MappedSpan,
}

impl Object {
    /// The name of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns whether it is the program of this path.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        path.as_os_str() == self.path.as_str()
    }

    /// Returns whether it is the same mapping of code of the same file, which may have been deleted since.
    pub(super) fn is(&self, other: &Self) -> bool {
        let code = |object: &Self| object.code.first().map(|code| code.span.start);
        self.inode == other.inode && code(self) == code(other)
    }

    /// Returns whether it has the code of another of the same file, which may be mapped more than once.
    pub(super) fn has(&self, other: &Self) -> bool {
        let first = other.code.first();
        self.inode == other.inode && first.is_some_and(|first| self.has_code(first.span.start))
    }

    /// Returns whether its code has an address.
    pub(super) fn has_code(&self, at: Addr) -> bool {
        self.code.iter().any(|code| code.span.contains(at))
    }

    /// Returns whether its code is mapped more than once.
    pub(super) fn is_repeated(&self) -> bool {
        let mut offsets = BTreeSet::new();
        !self.code.iter().all(|code| offsets.insert(code.offset))
    }
}

/// Returns the programs and libraries that a process has mapped, by address.
///
/// # Errors
/// [`Error::Process`] if there is no such process, or it is another user's.
pub fn objects(pid: u32) -> Result<Vec<Object>> {
    let maps = maps::read(pid)?;
    let mut objects: Vec<Object> = Vec::new();
    for mapping in maps.iter().filter(|one| one.inode != 0 && !is_ours(one)) {
        let known = objects.iter_mut().find(|one| one.inode == mapping.inode);
        match known {
            Some(object) => {
                object.span.end = mapping.span.end;
                object
                    .code
                    .extend(mapping.executable.then(|| mapping.clone()));
            }
            None => objects.push(Object {
                path: mapping.name.clone(),
                span: mapping.span,
                inode: mapping.inode,
                code: mapping
                    .executable
                    .then(|| mapping.clone())
                    .into_iter()
                    .collect(),
                first: mapping.clone(),
            }),
        }
    }
    objects.retain(|object| !object.code.is_empty());
    Ok(objects)
}

/// The objects of a process that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectChoice {
    program: bool,
    /// Patterns of names of libraries.
    libraries: BTreeSet<String>,
    /// Patterns of providers and names of static probes. Objects that have one are chosen.
    probes: BTreeSet<(String, String)>,
    /// The function in which libraries are awaited that are loaded later is named itself, by no pattern.
    names_rendezvous: bool,
}

impl ObjectChoice {
    /// Returns the objects that functions are in, by their designations: `main`, `libc.so.6:malloc`, `libz*:*`.
    pub fn of<'f>(functions: impl Iterator<Item = &'f str>) -> Self {
        let mut choice = Self::default();
        for function in functions {
            match function.split_once(':') {
                Some((library, name)) => {
                    choice.libraries.insert(library.to_owned());
                    choice.names_rendezvous |= name == RENDEZVOUS;
                }
                None => choice.program = true,
            }
        }
        choice
    }

    /// Chooses the objects, too, that have static probes of these providers and names.
    #[must_use]
    pub fn with_probes<'p>(mut self, probes: impl Iterator<Item = (&'p str, &'p str)>) -> Self {
        let owned = |(provider, name): (&str, &str)| (provider.to_owned(), name.to_owned());
        self.probes.extend(probes.map(owned));
        self
    }

    /// Returns the choice without the patterns of libraries of which none is among these objects, and these patterns.
    pub(super) fn mapped(&self, all: &[Object]) -> (Self, Vec<String>) {
        let libraries = self.libraries.iter().cloned();
        let (libraries, awaited): (BTreeSet<String>, BTreeSet<String>) =
            libraries.partition(|pattern| all.iter().any(|one| matches(pattern, one.name())));
        let mapped = Self {
            libraries,
            ..self.clone()
        };
        (mapped, awaited.into_iter().collect())
    }

    /// Returns the choice without the patterns of libraries that one of some objects has the name of.
    pub(super) fn without(&self, objects: &[Object]) -> Self {
        let is_free =
            |pattern: &&String| !objects.iter().any(|object| matches(pattern, object.name()));
        Self {
            libraries: self.libraries.iter().filter(is_free).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns whether libraries are chosen, which a process may load and unload.
    #[must_use]
    pub fn has_libraries(&self) -> bool {
        !self.libraries.is_empty()
    }

    /// Returns whether the function is named in which libraries are awaited that are loaded later.
    pub(super) const fn names_rendezvous(&self) -> bool {
        self.names_rendezvous
    }

    /// Returns whether an object is chosen; `is_program` if it is the program.
    fn takes(&self, pid: u32, object: &Object, is_program: bool) -> Result<bool> {
        let is_named = match is_program {
            true => self.program,
            false => self.takes_library(object.name()),
        };
        if is_named || self.probes.is_empty() {
            return Ok(is_named);
        }
        // An object that cannot be read has none that could be used.
        let all = static_probes(&file_of(pid, object)?).unwrap_or_default();
        Ok(all.iter().any(|probe| {
            let mut wanted = self.probes.iter();
            wanted.any(|(provider, name)| {
                matches(provider, &probe.provider) && matches(name, &probe.name)
            })
        }))
    }

    /// Returns whether a library of a name is chosen.
    #[must_use]
    pub fn takes_library(&self, name: &str) -> bool {
        let mut patterns = self.libraries.iter();
        patterns.any(|pattern| matches(pattern, name))
    }
}

/// Returns those of all objects of a process that are chosen, by address, each with whether it is the program.
pub(super) fn chosen(
    pid: u32,
    all: &[Object],
    choice: &ObjectChoice,
) -> Result<Vec<(Object, bool)>> {
    if all.is_empty() {
        let cause =
            "none of its objects is mapped: it is about to execute a program, or to end; try again";
        return Err(refused(pid, cause));
    }
    let program = program_of(pid)?;
    let is_program = |object: &Object| object.is_program(&program);
    let lacks = |what: &str| {
        let libraries = all.iter().filter(|object| !is_program(object));
        let names: Vec<&str> = libraries.map(Object::name).collect();
        let names = names.join(", ");
        refused(
            pid,
            format!("it has not mapped {what}; its libraries are {names}"),
        )
    };
    if choice.program && !all.iter().any(is_program) {
        return Err(lacks("its program"));
    }
    // A pattern may match none.
    let named = choice.libraries.iter().filter(|name| !is_pattern(name));
    for name in named {
        if !all.iter().any(|object| object.name() == name) {
            return Err(lacks(name));
        }
    }
    let chosen = all.iter().map(|object| (object, is_program(object)));
    let chosen =
        chosen.filter_map(
            |(object, is_program)| match choice.takes(pid, object, is_program) {
                Ok(true) => Some(Ok((object.clone(), is_program))),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            },
        );
    let chosen: Vec<(Object, bool)> = chosen.collect::<Result<_>>()?;
    match (chosen.is_empty(), choice.probes.first()) {
        (false, _) => Ok(chosen),
        (true, None) => Err(lacks("a library of that name")),
        (true, Some((provider, name))) => Err(lacks(&format!(
            "an object with the static probe {provider}:{name}"
        ))),
    }
}

/// Returns the dynamic linker of a process.
pub(super) fn linker(pid: u32) -> Result<Object> {
    let base = auxiliary(pid, BASE)?.filter(|base| *base != 0);
    let contains = |base: &u64, object: &Object| object.span.contains(Addr(*base));
    let mut objects = objects(pid)?.into_iter();
    let linker = base.and_then(|base| objects.find(|object| contains(&base, object)));
    linker.ok_or_else(|| refused(pid, "it has no dynamic linker, which loads objects"))
}

/// Returns the path of the program of a process.
///
/// # Errors
/// [`Error::Process`] if it has ended, or may not be read.
pub fn program_of(pid: u32) -> Result<PathBuf> {
    fs::read_link(proc(pid, "exe"))
        .map_err(|error| refused(pid, format!("its program is not known ({error})")))
}

/// Returns the name of a process's program: the last part of its path.
///
/// # Errors
/// As [`program_of`].
pub(super) fn program_name(pid: u32) -> Result<String> {
    let path = program_of(pid)?;
    let name = path.file_name().map(|name| name.display().to_string());
    Ok(name.unwrap_or_default())
}

/// Reads the file of an object, as the process sees it.
pub(super) fn file_of(pid: u32, object: &Object) -> Result<Vec<u8>> {
    let path = proc(pid, "root").join(object.path.trim_start_matches('/'));
    let other = |why: &str| {
        let hint = "the process has mapped an older file of that name; start it again";
        refused(pid, format!("{} {why}: {hint}", object.path))
    };
    let found = fs::metadata(&path).map_err(|_| other("is gone"))?;
    if found.ino() != object.inode {
        return Err(other("is another file now"));
    }
    let file = fs::read(&path).map_err(Error::io(
        path,
        "The process's program and libraries must be readable.",
    ))?;
    if file.get(CLASS).is_some_and(|class| *class != CLASS_64) {
        let path = &object.path;
        let why = format!("{path} is not an object of 64 bits, and only these are instrumented");
        return Err(refused(pid, why));
    }
    Ok(file)
}

/// Returns the distance from the addresses in a file to those in the process.
pub(super) fn slide(pid: u32, file: &[u8], object: &Object) -> Result<u64> {
    let slide = || {
        let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let page = |number: u64| number & !(maps::PAGE - 1);
        let segments = header.program_headers(endian, file).ok()?;
        let first = segments.iter().find(|segment| {
            segment.p_type(endian) == object::elf::PT_LOAD
                && page(segment.p_offset(endian)) == object.first.offset
        })?;
        let start = object.first.span.start.0;
        Some(start.wrapping_sub(page(first.p_vaddr(endian))))
    };
    let path = &object.path;
    slide().ok_or_else(|| refused(pid, format!("{path} is not mapped as its file is")))
}
