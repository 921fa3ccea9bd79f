//! Which line of which source file an address comes from, by a kernel's debug information (DWARF).
//!
//! That lies in a `vmlinux` that is no part of what boots; Debian's packages `linux-image-…-dbg` and their like
//! put it below `/usr/lib/debug`. It is this kernel's if both have one build identifier, and its
//! addresses are the link's: where the kernel runs is told by the symbol `_stext` of either.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use addr2line::Context;
use gilk_engine::code::FunctionId;
use gilk_engine::{Addr, Image};
use gimli::{EndianArcSlice, Reader as _, RunTimeEndian, SectionId};
use object::read::ReadCache;
use object::{CompressionFormat, Object, ObjectSection, ObjectSymbol};

use crate::{Error, Result};

type Reader = EndianArcSlice<RunTimeEndian>;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file in its tree: `kernel/fork.c`.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Somebody who is told how far something is, from 0 to 1, and says whether to go on.
pub type Watch<'w> = dyn Fn(f32) -> bool + 'w;

/// How far reading is when all sections are read.
const SECTIONS: f32 = 0.8;

/// Why reading ends early.
enum Halt {
    /// Nobody wants it any more.
    Unwanted,
    Failed(Error),
}

/// What tells a kernel's debug information from another's.
struct Kernel<'i> {
    release: &'i str,
    build_id: Option<&'i [u8]>,
    /// Where its text begins.
    text: Addr,
}

impl<'i> Kernel<'i> {
    fn of(image: &'i Image) -> Self {
        Self {
            release: image.release(),
            build_id: image.build_id(),
            text: image.text().start,
        }
    }
}

/// The debug information of one kernel.
pub struct Sources {
    path: PathBuf,
    context: Mutex<Context<Reader>>,
    /// From an address of the running kernel to that of the link, by wrapping addition.
    slide: u64,
    /// The folders that held the source files where the kernel was built: that of all whose paths begin
    /// at `/`, and that of all others.
    roots: Vec<String>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("path", &self.path)
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}

/// Where distributions put a kernel's debug information below `root`, which is `/` but in tests.
fn usual(root: &Path, release: &str, build_id: &[u8]) -> Vec<PathBuf> {
    let debug = root.join("usr/lib/debug");
    let mut paths = vec![
        debug.join(format!("boot/vmlinux-{release}")),
        debug.join(format!("lib/modules/{release}/vmlinux")),
        debug.join(format!("usr/lib/modules/{release}/vmlinux")),
        root.join(format!("lib/modules/{release}/build/vmlinux")),
    ];
    if let Some((first, rest)) = hex(build_id).split_at_checked(2) {
        paths.push(debug.join(format!(".build-id/{first}/{rest}.debug")));
    }
    paths
}

impl Sources {
    /// The debug information of `image`, if it lies where distributions put it; `None` if nothing does, or
    /// `watch` ended it.
    ///
    /// # Errors
    /// [`Error::Sources`] if what lies there is of another build, or damaged; [`Error::Io`].
    pub fn find(image: &Image, watch: &Watch<'_>) -> Result<Option<Self>> {
        Self::find_below(Path::new("/"), &Kernel::of(image), watch)
    }

    fn find_below(root: &Path, kernel: &Kernel<'_>, watch: &Watch<'_>) -> Result<Option<Self>> {
        let mut wrong = None;
        for path in usual(root, kernel.release, kernel.build_id.unwrap_or_default()) {
            if !path.is_file() {
                continue;
            }
            match Self::read(&path, kernel, watch) {
                Ok(found) => return Ok(found),
                // Another place may have the right one.
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// The debug information of `image` in the file at `path`; `None` if `watch` ended it.
    ///
    /// # Errors
    /// [`Error::Sources`] if it is of another build, has no debug information, or is damaged; [`Error::Io`].
    pub fn open(path: &Path, image: &Image, watch: &Watch<'_>) -> Result<Option<Self>> {
        Self::read(path, &Kernel::of(image), watch)
    }

    fn read(path: &Path, kernel: &Kernel<'_>, watch: &Watch<'_>) -> Result<Option<Self>> {
        let wrong = |reason: String| Error::Sources {
            path: path.to_path_buf(),
            reason,
        };
        let file = File::open(path).map_err(Error::io(
            path,
            "Name a vmlinux with debug information, as the kernel's debug package has it.",
        ))?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache)
            .map_err(|error| wrong(format!("It is no vmlinux: {error}.")))?;
        let Some(own) = kernel.build_id else {
            return Err(wrong(
                "This kernel does not tell its build identifier, so nothing tells whether the file is its own."
                    .to_owned(),
            ));
        };
        match object.build_id() {
            Ok(Some(id)) if id == own => {}
            Ok(Some(id)) => {
                return Err(wrong(format!(
                    "It is of another build: its identifier is {}, and that of this kernel, {}, is {}. Install the \
                     debug package of exactly this kernel.",
                    hex(id),
                    kernel.release,
                    hex(own)
                )));
            }
            _ => return Err(wrong("It has no build identifier.".to_owned())),
        }
        let linked = object
            .symbol_by_name("_stext")
            .ok_or_else(|| wrong("It has no symbol _stext.".to_owned()))?
            .address();
        let endian = if object.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let size = |id: &SectionId| {
            let section = object.section_by_name(id.name());
            section.map_or(0, |section| section.size())
        };
        let all: u64 = WANTED.iter().map(size).sum();
        let mut done = 0;
        let read = |id: SectionId| -> std::result::Result<Reader, Halt> {
            if !watch(SECTIONS * done as f32 / all.max(1) as f32) {
                return Err(Halt::Unwanted);
            }
            let bytes = if WANTED.contains(&id) {
                done += size(&id);
                section(&object, id.name()).map_err(|reason| Halt::Failed(wrong(reason)))?
            } else {
                Vec::new()
            };
            Ok(EndianArcSlice::new(Arc::from(bytes), endian))
        };
        let dwarf = match gimli::Dwarf::load(read) {
            Ok(dwarf) => dwarf,
            Err(Halt::Unwanted) => return Ok(None),
            Err(Halt::Failed(error)) => return Err(error),
        };
        let damaged =
            |error: gimli::Error| wrong(format!("Its debug information is damaged: {error}."));
        let roots = roots(&dwarf).map_err(damaged)?;
        if roots.is_empty() {
            return Err(wrong("It has no debug information.".to_owned()));
        }
        if !watch(SECTIONS) {
            return Ok(None);
        }
        let context = Context::from_dwarf(dwarf).map_err(damaged)?;
        Ok(watch(1.0).then(|| Self {
            path: path.to_path_buf(),
            context: Mutex::new(context),
            slide: linked.wrapping_sub(kernel.text.0),
            roots,
        }))
    }

    /// The file that has it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a source file is on this machine, if the kernel was built here or its sources lie where
    /// they lay then.
    #[must_use]
    pub fn local(&self, line: &SourceLine) -> Option<PathBuf> {
        self.roots
            .iter()
            .filter(|root| root.starts_with('/'))
            .map(|root| PathBuf::from(format!("{root}{}", line.file)))
            .find(|path| path.is_file())
    }

    /// The line that the instruction at an address comes from; `None` where nothing is known.
    #[must_use]
    pub fn line(&self, at: Addr) -> Option<SourceLine> {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let found = context
            .find_location(at.0.wrapping_add(self.slide))
            .ok()??;
        let file = normal(found.file?);
        Some(SourceLine {
            file: self
                .roots
                .iter()
                .find_map(|root| file.strip_prefix(root))
                .unwrap_or(&file)
                .to_owned(),
            line: found.line.filter(|&line| line > 0)?,
        })
    }

    /// The file of every function of `image`, by its number; empty where none is known. `None` if `watch`
    /// ended it.
    #[must_use]
    pub fn files(&self, image: &Image, watch: &Watch<'_>) -> Option<Vec<Arc<str>>> {
        let mut known: std::collections::HashMap<String, Arc<str>> = Default::default();
        let mut files = Vec::with_capacity(image.functions().len());
        for (number, function) in image.functions().iter().enumerate() {
            if number % 512 == 0 && !watch(number as f32 / image.functions().len() as f32) {
                return None;
            }
            debug_assert_eq!(function.id, FunctionId(u32::try_from(number).unwrap_or(0)));
            let file = self
                .line(function.span.start)
                .map(|line| line.file)
                .unwrap_or_default();
            let shared = known
                .entry(file)
                .or_insert_with_key(|file| Arc::from(file.as_str()));
            files.push(Arc::clone(shared));
        }
        Some(files)
    }
}

/// The sections that lines are found by.
const WANTED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A section's bytes; none if there is no such section.
fn section<'d, R: object::ReadRef<'d>>(
    object: &object::File<'d, R>,
    name: &str,
) -> std::result::Result<Vec<u8>, String> {
    let damaged =
        |error: &dyn std::fmt::Display| format!("Its section {name} is damaged: {error}.");
    let Some(section) = object.section_by_name(name) else {
        return Ok(Vec::new());
    };
    let packed = section.compressed_data().map_err(|error| damaged(&error))?;
    let size = usize::try_from(packed.uncompressed_size).map_err(|error| damaged(&error))?;
    let mut bytes = Vec::new();
    let read = match packed.format {
        CompressionFormat::None => return Ok(packed.data.to_vec()),
        CompressionFormat::Zlib => flate2::read::ZlibDecoder::new(packed.data)
            .take(packed.uncompressed_size)
            .read_to_end(&mut bytes),
        CompressionFormat::Zstandard => zstd::Decoder::new(packed.data).and_then(|decoder| {
            decoder
                .take(packed.uncompressed_size)
                .read_to_end(&mut bytes)
        }),
        _ => return Err(damaged(&"it is packed in a way that is not known")),
    };
    read.map_err(|error| damaged(&error))?;
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err(damaged(&"it is shorter than it says"))
    }
}

/// The folders that units' files lie in, with a `/` behind each: of those whose paths begin at `/`, and of
/// the others, as the kernel's build shortens some. None if there is no unit.
fn roots(dwarf: &gimli::Dwarf<Reader>) -> gimli::Result<Vec<String>> {
    let mut roots: [Option<String>; 2] = [None, None];
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let Some(name) = &unit.name else { continue };
        let name = name.to_string_lossy()?;
        let built = match &unit.comp_dir {
            Some(folder) => format!("{}/", folder.to_string_lossy()?),
            None => String::new(),
        };
        let path = if name.starts_with('/') {
            normal(&name)
        } else {
            normal(&format!("{built}{name}"))
        };
        let folder = path
            .rfind('/')
            .map_or("", |at| path.get(..=at).unwrap_or(""));
        // Files of one folder alone, assembly for example, do not tell where the tree begins.
        let folder = match built.starts_with('/') && path.starts_with('/') {
            true => common(folder, &built),
            false => folder,
        };
        if let Some(root) = roots.get_mut(usize::from(!path.starts_with('/'))) {
            *root = Some(match root {
                None => folder.to_owned(),
                Some(root) => common(root, folder).to_owned(),
            });
        }
    }
    Ok(roots.into_iter().flatten().collect())
}

/// The folder that two folders have in common, with the `/` behind it.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let same = one.get(..same).unwrap_or("");
    same.rfind('/').and_then(|at| same.get(..=at)).unwrap_or("")
}

/// A path without `.` and `..`, as text.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            "" if !parts.is_empty() => {}
            ".." if parts
                .last()
                .is_some_and(|last| !last.is_empty() && *last != "..") =>
            {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests;
