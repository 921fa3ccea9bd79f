//! Source lines of addresses, by the debug information (DWARF) of a kernel or of an object of a process.
//!
//! The debug information is in a `vmlinux` that is not part of what boots; Debian's packages
//! `linux-image-…-dbg` and similar ones install it below `/usr/lib/debug`. It belongs to a kernel
//! if the build identifiers are equal. Its addresses are those of the link; the slide to the
//! running kernel follows from the symbol `_stext` of both.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use addr2line::Context;
use gilk_engine::code::FunctionId;
use gilk_engine::{Addr, Image};
use gilk_samples::input;
use gimli::{EndianArcSlice, Reader as _, RunTimeEndian, SectionId};
use object::read::{ReadCache, ReadRef};
use object::{CompressionFormat, Object, ObjectSection, ObjectSymbol};

use crate::{Error, Result};

pub(crate) type Reader = EndianArcSlice<RunTimeEndian>;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file's path in its tree: `kernel/fork.c`.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A progress callback: receives the finished share, from 0 to 1, and returns whether to continue.
pub type Watch<'w> = dyn Fn(f32) -> bool + 'w;

/// Finished share when all sections are read.
const SECTIONS: f32 = 0.8;

/// The reason why reading ends early.
enum Halt {
    /// The callback ended it.
    Cancelled,
    Failed(Error),
}

/// The identity and location of a kernel, or of an object of a process.
struct BinaryIdentity<'i> {
    /// A kernel's release, an object's path.
    release: &'i str,
    build_id: Option<&'i [u8]>,
    place: BinaryPlace,
}

/// The relation of addresses in memory to those of the link.
#[derive(Clone, Copy)]
enum BinaryPlace {
    /// The text of a kernel begins here; the symbol `_stext` says where the link has it.
    Text(Addr),
    /// An object is loaded so many bytes above its addresses in the file.
    Slide(u64),
}

impl<'i> BinaryIdentity<'i> {
    fn of(image: &'i Image) -> Self {
        Self {
            release: image.release(),
            build_id: image.build_id(),
            place: BinaryPlace::Text(image.text().start),
        }
    }
}

/// The debug information of one kernel.
pub struct Sources {
    path: PathBuf,
    context: Mutex<Context<Reader>>,
    /// Difference from an address in memory to that of the link, added with wraparound.
    slide: u64,
    /// Folders of the source files on the machine of the build: one for all paths that begin at
    /// `/`, and one for all others.
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

/// Returns the usual paths of a kernel's debug information below `root`, which is `/` except in
/// tests.
fn usual_paths(root: &Path, release: &str, build_id: &[u8]) -> Vec<PathBuf> {
    let debug = root.join("usr/lib/debug");
    let mut paths = vec![
        debug.join(format!("boot/vmlinux-{release}")),
        debug.join(format!("lib/modules/{release}/vmlinux")),
        debug.join(format!("usr/lib/modules/{release}/vmlinux")),
        root.join(format!("lib/modules/{release}/build/vmlinux")),
    ];
    paths.extend(build_id_path(&debug, build_id));
    paths
}

/// Returns the path of separate debug information below a folder.
fn build_id_path(debug: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let id = hex(build_id);
    let (first, rest) = id.split_at_checked(2)?;
    Some(debug.join(format!(".build-id/{first}/{rest}.debug")))
}

/// Paths at which the debug information of an object may be.
struct ObjectPaths {
    paths: Vec<PathBuf>,
    build_id: Option<Vec<u8>>,
}

/// Returns the first debug information of an object of a process that `read` finds, in the order of their places.
fn first_of_object<T>(
    (path, file): (&Path, &[u8]),
    root: &Path,
    slide: u64,
    read: impl Fn(&Path, &BinaryIdentity<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let paths = paths_of_object((path, file), root)?;
    let identity = BinaryIdentity {
        release: &path.display().to_string(),
        build_id: paths.build_id.as_deref(),
        place: BinaryPlace::Slide(slide),
    };
    first_of(paths.paths, |path| read(path, &identity))
}

/// Returns the paths of the debug information of an object of a process, whose root folder is `root`.
fn paths_of_object((path, file): (&Path, &[u8]), root: &Path) -> Result<ObjectPaths> {
    let object = object::File::parse(file).map_err(|error| Error::Sources {
        path: path.to_path_buf(),
        reason: format!("It is damaged: {error}."),
    })?;
    let build_id = object.build_id().ok().flatten();
    let mut paths = Vec::new();
    if has_debug_info(&object) {
        paths.push(below(root, path));
    }
    paths.extend(separate_paths(&object, path, root));
    Ok(ObjectPaths {
        paths,
        build_id: build_id.map(<[u8]>::to_vec),
    })
}

fn has_debug_info(object: &object::File<'_>) -> bool {
    object.section_by_name(".debug_info").is_some()
}

/// Returns a path of a process whose root folder is `root`, as this process sees it.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the paths at which the separate debug file of an object may be, which a process has at `path` below its root
/// folder `root`.
pub(crate) fn separate_paths<'d, R: ReadRef<'d>>(
    object: &object::File<'d, R>,
    path: &Path,
    root: &Path,
) -> Vec<PathBuf> {
    // Without an identifier no other file is known to be of the same build.
    let Ok(Some(build_id)) = object.build_id() else {
        return Vec::new();
    };
    let by_id = [root, Path::new("/")].into_iter().filter_map(|root| {
        let debug = root.join("usr/lib/debug");
        build_id_path(&debug, build_id)
    });
    let mut paths: Vec<PathBuf> = by_id.collect();
    if let Ok(Some((name, _))) = object.gnu_debuglink() {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let name = String::from_utf8_lossy(name).into_owned();
        let debug = Path::new("/usr/lib/debug");
        let folders = [
            folder.to_path_buf(),
            folder.join(".debug"),
            debug.join(folder.strip_prefix("/").unwrap_or(folder)),
        ];
        let linked = folders
            .iter()
            .map(|folder| below(root, &folder.join(&name)));
        paths.extend(linked);
    }
    paths
}

/// Returns the first file that is found and read, or the first error if none is right.
fn first_of<T>(
    paths: Vec<PathBuf>,
    read: impl Fn(&Path) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut wrong = None;
    for path in paths {
        if !path.is_file() {
            continue;
        }
        match read(&path) {
            Ok(found) => return Ok(found),
            // A later path may have the right file.
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(None), Err)
}

/// Debug information whose file is of the right build.
pub(crate) struct OpenedDebug {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its sections.
    pub(crate) dwarf: gimli::Dwarf<Reader>,
    /// Difference from an address in memory to that of the link, added with wraparound.
    pub(crate) slide: u64,
}

impl OpenedDebug {
    /// Opens the debug information of types of an object of a process, as [`Sources::of_object`] does that of its lines.
    ///
    /// # Errors
    /// As [`Sources::find`].
    pub(crate) fn of_object(
        (path, file): (&Path, &[u8]),
        root: &Path,
        slide: u64,
        watch: &Watch<'_>,
    ) -> Result<Option<Self>> {
        first_of_object((path, file), root, slide, |path, identity| {
            let mut opened = Self::read(path, identity, &[&WANTED, &WANTED_OF_TYPES], watch)?;
            if let Some(opened) = &mut opened {
                supplement(opened, root)?;
            }
            Ok(opened)
        })
    }

    /// Reads the sections of `wanted`.
    fn read(
        path: &Path,
        kernel: &BinaryIdentity<'_>,
        wanted: &[&[SectionId]],
        watch: &Watch<'_>,
    ) -> Result<Option<Self>> {
        let wrong = |reason: String| Error::Sources {
            path: path.to_path_buf(),
            reason,
        };
        input::check(path)?;
        let file = File::open(path).map_err(Error::io(
            path,
            "Name a file with debug information, as a debug package has it.",
        ))?;
        let cache = ReadCache::new(file);
        let of_kernel = matches!(kernel.place, BinaryPlace::Text(_));
        let kind = if of_kernel {
            "a vmlinux"
        } else {
            "an object file"
        };
        let object = object::File::parse(&cache)
            .map_err(|error| wrong(format!("It is not {kind}: {error}.")))?;
        match (object.build_id(), kernel.build_id) {
            (Ok(Some(id)), Some(wanted)) if id == wanted => {}
            // An object's own file.
            (Ok(None), None) if !of_kernel => {}
            (_, None) => {
                return Err(wrong(
                    "This kernel has no build identifier, so the file cannot be matched with it."
                        .to_owned(),
                ));
            }
            (Ok(Some(id)), Some(wanted)) => {
                return Err(wrong(format!(
                    "It is of another build: its identifier is {}, and that of {} is {}. Install the debug package of \
                     exactly that build.",
                    hex(id),
                    kernel.release,
                    hex(wanted)
                )));
            }
            _ => return Err(wrong("It has no build identifier.".to_owned())),
        }
        let slide = match kernel.place {
            BinaryPlace::Text(text) => {
                let linked = object.symbol_by_name("_stext");
                let linked = linked.ok_or_else(|| wrong("It has no symbol _stext.".to_owned()))?;
                linked.address().wrapping_sub(text.0)
            }
            BinaryPlace::Slide(slide) => slide.wrapping_neg(),
        };
        let endian = if object.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let size = |id: &SectionId| {
            let section = object.section_by_name(id.name());
            section.map_or(0, |section| section.size())
        };
        let is_wanted = |id: &SectionId| wanted.iter().any(|list| list.contains(id));
        let all: u64 = wanted.iter().copied().flatten().map(size).sum();
        let mut done = 0;
        let read = |id: SectionId| -> std::result::Result<Reader, Halt> {
            if !watch(SECTIONS * done as f32 / all.max(1) as f32) {
                return Err(Halt::Cancelled);
            }
            let bytes = if is_wanted(&id) {
                done += size(&id);
                section(&object, id.name()).map_err(|reason| Halt::Failed(wrong(reason)))?
            } else {
                Vec::new()
            };
            Ok(EndianArcSlice::new(Arc::from(bytes), endian))
        };
        let dwarf = match gimli::Dwarf::load(read) {
            Ok(dwarf) => dwarf,
            Err(Halt::Cancelled) => return Ok(None),
            Err(Halt::Failed(error)) => return Err(error),
        };
        Ok(Some(Self {
            path: path.to_path_buf(),
            dwarf,
            slide,
        }))
    }
}

/// Adds what several files have in common, which is in a file of its own (`.gnu_debugaltlink`, which dwz writes): next to
/// the file by its relative path, or by its build identifier, below `root` or on this machine. Types and their names are
/// there, lines are not.
///
/// # Errors
/// [`Error::Sources`] if it is not found, or damaged.
fn supplement(opened: &mut OpenedDebug, root: &Path) -> Result<()> {
    let wrong = |path: &Path, reason: String| Error::Sources {
        path: path.to_path_buf(),
        reason,
    };
    let parsed = |path: &Path, error: object::Error| {
        wrong(path, format!("It is not an object file: {error}."))
    };
    let path = &opened.path;
    let file = File::open(path).map_err(Error::io(path, "Was it replaced?"))?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| parsed(path, error))?;
    let Ok(Some((name, build_id))) = object.gnu_debugaltlink() else {
        return Ok(());
    };
    let name = String::from_utf8_lossy(name);
    let named = match name.strip_prefix('/') {
        Some(name) => root.join(name),
        None => path.parent().unwrap_or(root).join(&*name),
    };
    let roots = [root, Path::new("/")].into_iter();
    let by_id = roots.filter_map(|root| build_id_path(&root.join("usr/lib/debug"), build_id));
    for path in [named].into_iter().chain(by_id) {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        let cache = ReadCache::new(file);
        let supplement = object::File::parse(&cache).map_err(|error| parsed(&path, error))?;
        if supplement.build_id().ok().flatten() != Some(build_id) {
            continue;
        }
        let endian = gimli::Section::reader(&opened.dwarf.debug_info).endian();
        return opened.dwarf.load_sup(|id| {
            let bytes = match WANTED.contains(&id) {
                true => section(&supplement, id.name()).map_err(|why| wrong(&path, why))?,
                false => Vec::new(),
            };
            Ok(EndianArcSlice::new(Arc::from(bytes), endian))
        });
    }
    let reason = format!(
        "Its types are in a supplementary file, {name} (dwz), which was not found. Install the package that has it."
    );
    Err(wrong(path, reason))
}

impl Sources {
    /// Finds the debug information of `image` at the usual paths; returns `None` if there is none,
    /// or `watch` ended the search.
    ///
    /// # Errors
    /// [`Error::Sources`] if a file there is of another build, or damaged; [`Error::Io`].
    pub fn find(image: &Image, watch: &Watch<'_>) -> Result<Option<Self>> {
        Self::find_below(Path::new("/"), &BinaryIdentity::of(image), watch)
    }

    fn find_below(
        root: &Path,
        kernel: &BinaryIdentity<'_>,
        watch: &Watch<'_>,
    ) -> Result<Option<Self>> {
        let build_id = kernel.build_id.unwrap_or_default();
        let paths = usual_paths(root, kernel.release, build_id);
        first_of(paths, |path| Self::read(path, kernel, watch))
    }

    /// Finds the debug information of an object of a process, which is loaded `slide` bytes above the addresses in its
    /// file: in the file, or in a separate one of the same build, below `root`, the root folder of the process, or on this
    /// machine. Returns `None` if there is none, or `watch` ended the search.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn of_object(
        (path, file): (&Path, &[u8]),
        root: &Path,
        slide: u64,
        watch: &Watch<'_>,
    ) -> Result<Option<Self>> {
        first_of_object((path, file), root, slide, |path, identity| {
            Self::read(path, identity, watch)
        })
    }

    /// Returns whether the bytes of an object have debug information themselves.
    pub(crate) fn are_in(file: &[u8]) -> bool {
        object::File::parse(file).is_ok_and(|object| has_debug_info(&object))
    }

    /// Reads the debug information of `image` from the file at `path`; returns `None` if `watch`
    /// ended it.
    ///
    /// # Errors
    /// [`Error::Sources`] if the file is of another build, has no debug information, or is damaged;
    /// [`Error::Io`].
    pub fn open(path: &Path, image: &Image, watch: &Watch<'_>) -> Result<Option<Self>> {
        Self::read(path, &BinaryIdentity::of(image), watch)
    }

    fn read(path: &Path, kernel: &BinaryIdentity<'_>, watch: &Watch<'_>) -> Result<Option<Self>> {
        let Some(opened) = OpenedDebug::read(path, kernel, &[&WANTED], watch)? else {
            return Ok(None);
        };
        let OpenedDebug { dwarf, slide, .. } = opened;
        let wrong = |reason: String| Error::Sources {
            path: path.to_path_buf(),
            reason,
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
            slide,
            roots,
        }))
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a source file on this machine, if the kernel was built here or its
    /// sources are at the same path.
    #[must_use]
    pub fn local(&self, line: &SourceLine) -> Option<PathBuf> {
        self.roots
            .iter()
            .filter(|root| root.starts_with('/'))
            .map(|root| PathBuf::from(format!("{root}{}", line.file)))
            .find(|path| path.is_file())
    }

    /// Returns the source line of the instruction at an address, if known.
    #[must_use]
    pub fn line(&self, at: Addr) -> Option<SourceLine> {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = context
            .find_location(at.0.wrapping_add(self.slide))
            .ok()??;
        let file = normal(lines.file?);
        Some(SourceLine {
            file: self
                .roots
                .iter()
                .find_map(|root| file.strip_prefix(root))
                .unwrap_or(&file)
                .to_owned(),
            line: lines.line.filter(|&line| line > 0)?,
        })
    }

    /// Returns the file of every function of `image`, by the function's number; empty if unknown.
    /// Returns `None` if `watch` ended it.
    #[must_use]
    pub fn files(&self, image: &Image, watch: &Watch<'_>) -> Option<Vec<Arc<str>>> {
        let mut names: std::collections::HashMap<String, Arc<str>> = Default::default();
        let mut files = Vec::with_capacity(image.functions().len());
        for (number, function) in image.functions().iter().enumerate() {
            if number % 512 == 0 && !watch(number as f32 / image.functions().len() as f32) {
                return None;
            }
            debug_assert_eq!(function.id, FunctionId(u32::try_from(number).unwrap_or(0)));
            // A function without line information has an empty file name.
            let line = self.line(function.span.start);
            let file = line.map(|line| line.file).unwrap_or_default();
            let shared = names
                .entry(file)
                .or_insert_with_key(|file| Arc::from(file.as_str()));
            files.push(Arc::clone(shared));
        }
        Some(files)
    }
}

/// The sections needed to find lines.
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

/// The further sections needed to find arguments and types.
const WANTED_OF_TYPES: [SectionId; 3] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugTypes,
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a section's bytes; empty if there is no such section.
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
        _ => return Err(damaged(&"its compression is not supported")),
    };
    read.map_err(|error| damaged(&error))?;
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err(damaged(&"it is shorter than its header states"))
    }
}

/// Returns the common folders of the units' files, each with a trailing `/`: one of paths that
/// begin at `/`, and one of the others, which the kernel's build shortens. Empty if there is no
/// unit.
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
        // Files of a single folder, for example assembly, do not determine the start of the tree.
        let folder = match built.starts_with('/') && path.starts_with('/') {
            true => common(folder, &built),
            false => folder,
        };
        // The index is 0 or 1.
        if let Some(root) = roots.get_mut(usize::from(!path.starts_with('/'))) {
            *root = Some(match root {
                None => folder.to_owned(),
                Some(root) => common(root, folder).to_owned(),
            });
        }
    }
    Ok(roots.into_iter().flatten().collect())
}

/// Returns the common parent of two folders, with its trailing `/`.
fn common<'a>(folder: &'a str, other: &str) -> &'a str {
    let same = folder
        .bytes()
        .zip(other.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let same = folder.get(..same).unwrap_or("");
    same.rfind('/').and_then(|at| same.get(..=at)).unwrap_or("")
}

/// Returns a path without `.` and `..`, as text.
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
