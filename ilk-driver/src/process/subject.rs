//! Objects of a process, read for planning.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use gilk_engine::elf::{DebugSymbols, ElfParts};
use gilk_engine::{Addr, Image, Span};
use object::Endianness;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use super::objects::{Object, ObjectChoice, chosen, file_of, linker, objects, slide};
use super::registered::{Registered, registered, registration};
use super::removal::memory;
use super::stopped::{is_filtered, threads, traced};
use super::{refused, root_of, text};
use crate::{Error, Result, debug_symbols};

/// Bytes from the first to the last of objects that share an arena, at most.
const GROUP: u64 = 1 << 30;
/// Bit of `DT_FLAGS` (the ABI's chapter 5): relocations are in segments that are not writable.
const DF_TEXTREL: u64 = 4;
/// Bit of `DT_FLAGS_1`: an executable whose addresses are relative.
const DF_1_PIE: u64 = 0x0800_0000;

/// Objects of a process, and all that is known of it for the layout of what will be mapped there.
#[derive(Debug)]
pub struct Subject {
    pub(super) pid: u32,
    /// The memory of the process; of this program alone, should the process execute another.
    pub(super) memory: File,
    pub(super) image: Image,
    /// The objects of the image, by address.
    pub(super) objects: Vec<Object>,
    /// The objects of the image that share an arena: from the first to the last address, and the bytes of code.
    pub(super) groups: Vec<(Span, u64)>,
    pub(super) registered: Registered,
    pub(super) cpus: u32,
    pub(super) shadow_stack: bool,
}

impl Subject {
    /// Reads objects of a process as they are now.
    ///
    /// # Errors
    /// [`Error::Process`] with the reason, if there is no such process or object, or the process cannot be
    /// instrumented.
    pub fn read(pid: u32, choice: &ObjectChoice) -> Result<Self> {
        let shadow_stack = instrumentable(pid)?;
        let chosen = chosen(pid, &objects(pid)?, choice)?;
        Self::of_objects(pid, &chosen, shadow_stack, None)
    }

    /// Reads objects of a process for the code cache, which counts blocks whether threads register for restartable
    /// sequences or not. Returns the reason why instruments are refused there, too, if so.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_for_cache(
        pid: u32,
        choice: &ObjectChoice,
    ) -> Result<(Self, Option<String>)> {
        let shadow_stack = instrumentable(pid)?;
        let chosen = chosen(pid, &objects(pid)?, choice)?;
        let (registered, why) = match traced(pid, || registration(pid))? {
            Ok(registered) => (registered, None),
            Err(why) => (Registered::NONE, Some(refused(pid, why).to_string())),
        };
        let subject = Self::of_objects(pid, &chosen, shadow_stack, Some(registered))?;
        Ok((subject, why))
    }

    /// Reads the chosen objects that a process has mapped, or its dynamic linker alone if it has mapped none. Returns
    /// the patterns of libraries, too, of which none is mapped.
    ///
    /// # Errors
    /// As [`Self::read`], except that objects may be absent.
    pub fn read_mapped(pid: u32, choice: &ObjectChoice) -> Result<(Self, Vec<String>)> {
        let shadow_stack = instrumentable(pid)?;
        let all = objects(pid)?;
        let (mapped, awaited) = choice.mapped(&all);
        let chosen = match mapped == ObjectChoice::default() {
            true => vec![(linker(pid)?, false)],
            false => chosen(pid, &all, &mapped)?,
        };
        let subject = Self::of_objects(pid, &chosen, shadow_stack, None)?;
        Ok((subject, awaited))
    }

    /// Reads an object that the dynamic linker has mapped, and none of whose code was executed.
    ///
    /// # Errors
    /// As [`Self::read`]; and if the dynamic linker has yet to write addresses into its code.
    pub(super) fn of_new_object(pid: u32, object: &Object, registered: Registered) -> Result<Self> {
        let file = file_of(pid, object)?;
        if relocates_code(&file) {
            let path = &object.path;
            let why =
                format!("{path} has relocations in its code, which the dynamic linker writes");
            return Err(refused(pid, why));
        }
        let shadow_stack = instrumentable(pid)?;
        let objects = [(object.clone(), false)];
        Self::of_objects(pid, &objects, shadow_stack, Some(registered))
    }

    pub(super) fn of_objects(
        pid: u32,
        objects: &[(Object, bool)],
        shadow_stack: bool,
        known: Option<Registered>,
    ) -> Result<Self> {
        let files = files_of(pid, objects)?;
        let registered = match known {
            Some(registered) => registered,
            None => traced(pid, || registered(pid))?,
        };
        let memory = memory(pid)?;
        Ok(Self {
            pid,
            image: named_image_of(pid, &memory, objects, &files)?,
            memory,
            objects: objects.iter().map(|(object, _)| object.clone()).collect(),
            groups: groups(objects.iter().map(|(object, _)| object)),
            registered,
            cpus: cpus()?,
            shadow_stack,
        })
    }

    /// Checks that the process has not executed another program since it was read.
    pub(super) fn is_still_mapped(&self) -> Result<()> {
        let text = self.image.text().start;
        let read = self.memory.read_exact_at(&mut [0], text.0);
        read.map_err(|_| refused(self.pid, "it has ended, or executed another program"))
    }

    /// Gives away the objects, with the number of the process.
    pub(super) fn into_image(self) -> (u32, Image) {
        (self.pid, self.image)
    }

    /// The objects, with their bytes in the process.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The names of its objects that are chosen as libraries.
    pub fn libraries<'s>(&'s self, choice: &'s ObjectChoice) -> impl Iterator<Item = &'s str> {
        let names = self.objects.iter().map(Object::name);
        names.filter(|name| choice.takes_library(name))
    }

    /// The number of CPUs that the machine may have.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }
}

/// Checks that a process may be instrumented; returns whether it has a shadow stack.
fn instrumentable(pid: u32) -> Result<bool> {
    let status = text(pid, "status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", str::trim)
    };
    if field("State:").starts_with('Z') {
        return Err(refused(
            pid,
            "it has ended, and its parent has not waited for it",
        ));
    }
    if field("VmSize:").is_empty() {
        return Err(refused(
            pid,
            "it is a thread of the kernel, which `ilk -e` and `ilk run` instrument",
        ));
    }
    if threads(pid)?.into_iter().any(|tid| is_filtered(pid, tid)) {
        return Err(refused(
            pid,
            "its system calls are filtered (seccomp), and those that map the counters and the arena may \
             be forbidden to it",
        ));
    }
    Ok(field("x86_Thread_features:").contains("shstk"))
}

/// Returns whether code of an object has bytes of a kind.
pub(super) fn has_code(
    pid: u32,
    memory: &File,
    object: &Object,
    is_of_kind: impl Fn(&[u8]) -> bool,
) -> Result<bool> {
    let live = live_code(pid, memory, object)?;
    Ok(live.iter().any(|(_, bytes)| is_of_kind(bytes)))
}

/// Reads the files of objects of a process.
pub(super) fn files_of(pid: u32, objects: &[(Object, bool)]) -> Result<Vec<Vec<u8>>> {
    let files = objects.iter().map(|(object, _)| file_of(pid, object));
    files.collect()
}

/// An object of a process with its file.
struct ObjectWithFile<'f> {
    object: &'f Object,
    is_program: bool,
    file: &'f [u8],
    debug: Option<DebugSymbols>,
}

/// Returns objects with their files, without the symbols of debug files.
fn with_files<'f>(
    objects: &'f [(Object, bool)],
    files: &'f [Vec<u8>],
) -> impl Iterator<Item = ObjectWithFile<'f>> {
    let read = objects.iter().zip(files);
    read.map(|((object, is_program), file)| ObjectWithFile {
        object,
        is_program: *is_program,
        file,
        debug: None,
    })
}

/// Reads objects of a process, each with whether it is the program, and with the symbols of their separate debug files.
fn named_image_of(
    pid: u32,
    memory: &File,
    objects: &[(Object, bool)],
    files: &[Vec<u8>],
) -> Result<Image> {
    let root = root_of(pid);
    let named = with_files(objects, files).map(|object| {
        let path = Path::new(&object.object.path);
        Ok(ObjectWithFile {
            debug: debug_symbols::of_file(object.file, path, &root)?,
            ..object
        })
    });
    let objects: Vec<ObjectWithFile<'_>> = named.collect::<Result<_>>()?;
    image_with(pid, memory, &objects, true)
}

/// Reads objects of a process, each with whether it is the program, without their debug files: for what is exported.
pub(super) fn image_of(
    pid: u32,
    memory: &File,
    objects: &[(Object, bool)],
    files: &[Vec<u8>],
) -> Result<Image> {
    let objects: Vec<ObjectWithFile<'_>> = with_files(objects, files).collect();
    image_with(pid, memory, &objects, true)
}

/// The same, without the tables of jumps: functions with such jumps are refused.
pub(super) fn image_without_tables(
    pid: u32,
    memory: &File,
    objects: &[(Object, bool)],
    files: &[Vec<u8>],
) -> Result<Image> {
    let objects: Vec<ObjectWithFile<'_>> = with_files(objects, files).collect();
    image_with(pid, memory, &objects, false)
}

/// The image of objects, with or without tables of jumps.
fn image_with(
    pid: u32,
    memory: &File,
    objects: &[ObjectWithFile<'_>],
    tables: bool,
) -> Result<Image> {
    let parts = objects.iter().map(|read| {
        let live = live_code(pid, memory, read.object)?;
        Ok(ElfParts {
            is_library: !read.is_program,
            debug: read.debug.as_ref(),
            tables,
            ..parts(pid, read.object, read.file, live)?
        })
    });
    Ok(Image::from_elf_objects(
        &parts.collect::<Result<Vec<_>>>()?,
    )?)
}

/// Returns whether the dynamic linker writes into the code of an object.
pub(super) fn relocates_code(file: &[u8]) -> bool {
    dynamic(file)
        .into_iter()
        .flatten()
        .any(|(tag, value)| match tag {
            object::elf::DT_TEXTREL => true,
            object::elf::DT_FLAGS => value & DF_TEXTREL != 0,
            _ => false,
        })
}

/// Returns whether a file is a program and not a library that programs load.
pub(super) fn is_of_program(file: &[u8]) -> bool {
    let header = object::elf::FileHeader64::<Endianness>::parse(file);
    let is_fixed = header.is_ok_and(|header| {
        let endian = header.endian();
        endian.is_ok_and(|endian| header.e_type(endian) == object::elf::ET_EXEC)
    });
    let is_marked = |(tag, value)| tag == object::elf::DT_FLAGS_1 && value & DF_1_PIE != 0;
    is_fixed || dynamic(file).into_iter().flatten().any(is_marked)
}

/// Returns the entries of the dynamic section: tags and values.
fn dynamic(file: &[u8]) -> Option<Vec<(object::elf::DynamicTag, u64)>> {
    let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, file).ok()?.iter();
    let entries = segments.find_map(|segment| segment.dynamic(endian, file).ok()?)?;
    let words = entries.iter();
    Some(
        words
            .map(|entry| (entry.d_tag(endian), entry.d_val(endian)))
            .collect(),
    )
}

/// Returns the spans of objects that share an arena, by address, with the bytes of code in each.
pub(super) fn groups<'o>(objects: impl Iterator<Item = &'o Object>) -> Vec<(Span, u64)> {
    let mut groups: Vec<(Span, u64)> = Vec::new();
    let mut spans: Vec<(Span, u64)> = objects
        .map(|object| {
            let code = object.code.iter().map(|code| code.span.len());
            (object.span, code.sum())
        })
        .collect();
    spans.sort_unstable();
    for (span, code) in spans {
        match groups.last_mut() {
            Some((group, all)) if span.end.0 - group.start.0 <= GROUP => {
                group.end = group.end.max(span.end);
                *all += code;
            }
            _ => groups.push((span, code)),
        }
    }
    groups
}

/// Reads an object's code in the process.
pub(super) fn live_code(pid: u32, memory: &File, object: &Object) -> Result<Vec<(Addr, Vec<u8>)>> {
    let mut live = Vec::new();
    for code in &object.code {
        let mut bytes = vec![0; usize::try_from(code.span.len()).unwrap_or(0)];
        let read = memory.read_exact_at(&mut bytes, code.span.start.0);
        read.map_err(|error| refused(pid, format!("its text cannot be read ({error})")))?;
        live.push((code.span.start, bytes));
    }
    Ok(live)
}

/// The image of an object with this code, whose functions are named as those of a library.
pub(super) fn image_of_code(
    pid: u32,
    object: &Object,
    file: &[u8],
    live: Vec<(Addr, Vec<u8>)>,
) -> Result<Image> {
    let parts = ElfParts {
        is_library: true,
        ..parts(pid, object, file, live)?
    };
    Ok(Image::from_elf(&parts)?)
}

fn parts<'f>(
    pid: u32,
    object: &Object,
    file: &'f [u8],
    live: Vec<(Addr, Vec<u8>)>,
) -> Result<ElfParts<'f>> {
    Ok(ElfParts {
        slide: slide(pid, file, object)?,
        live,
        ..ElfParts::of_file(object.name(), file)
    })
}

/// Returns the name of the machine.
pub(super) fn host() -> Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let host = fs::read_to_string(path).map_err(Error::io(path, "Is /proc mounted?"))?;
    Ok(host.trim().to_owned())
}

/// Returns the number of CPUs that the machine may have.
pub(super) fn cpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let list = fs::read_to_string(path).map_err(Error::io(path, "Is /sys mounted?"))?;
    let last = list.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u32 = last
        .parse()
        .map_err(|_| Error::Target(format!("{path} has {list:?}, which is not a list of CPUs.")))?;
    Ok(last + 1)
}
