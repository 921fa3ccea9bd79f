//! An object of a process, read for planning.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use gilk_engine::elf::ElfParts;
use gilk_engine::layout::{
    Abi, CounterBank, Events, Guard, InputLocation, Inputs, Owner, Rings, RuntimeLayout, SLOT_LOG2,
    SegmentOffset, Sequences,
};
use gilk_engine::{Addr, Image, Span};
use gilk_instruments::program::Input;
use object::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};

use super::launched::{CLASS, CLASS_64};
use super::maps::{self, MappedSpan};
use super::record::{MOST_PER_WRITE, is_ours};
use super::removal::memory;
use super::stopped::{Stopped, traced};
use super::{proc, refused, text};
use crate::{Error, Result};

/// Addresses that a 32-bit displacement reaches.
const LOW: u64 = 1 << 31;
/// Bytes of the arena for each counter: several times a patch's.
const ARENA_PER_COUNTER: u64 = 1 << 10;
/// Bytes of the words of a ring, in each row.
const RING_WORDS: u64 = 24;
/// Slots of a ring, as powers of two: at most, and at least.
const SLOTS_LOG2: [u32; 2] = [18, 8];
/// Bytes of all rings, at most, if they have more than the fewest slots.
const MOST_RINGS: u64 = 1 << 28;
/// Bytes of the smallest arena.
const SMALLEST_ARENA: u64 = 1 << 16;

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
    code: Vec<MappedSpan>,
    /// Its first mapping.
    first: MappedSpan,
}

impl Object {
    /// The name of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
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

/// An object of a process, with the layout of what will be mapped there.
#[derive(Debug)]
pub struct Subject {
    pub(super) pid: u32,
    /// The memory of the process; of this program alone, should the process execute another.
    pub(super) memory: File,
    pub(super) image: Image,
    pub(super) layout: RuntimeLayout,
    pub(super) sequences: Sequences,
    /// The words of all CPUs, and their rings.
    pub(super) words: Span,
    /// Free addresses for the arena and its record.
    pub(super) reserved: Span,
}

impl Subject {
    /// Reads an object of a process as it is now, for plans of so many counters at most: the program, or the library
    /// with a name.
    ///
    /// # Errors
    /// [`Error::Process`] with the reason, if there is no such process or object, or the process cannot be
    /// instrumented.
    pub fn read(pid: u32, name: Option<&str>, counters: u32) -> Result<Self> {
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
        if field("Seccomp:") != "0" {
            return Err(refused(
                pid,
                "its system calls are filtered (seccomp), and those that map the counters and the arena may \
                 be forbidden to it",
            ));
        }
        let shadow_stack = field("x86_Thread_features:").contains("shstk");
        let object = object(pid, name)?;
        let file = file_of(pid, &object)?;
        if file.get(CLASS).is_some_and(|class| *class != CLASS_64) {
            return Err(refused(
                pid,
                format!(
                    "{} is not an object of 64 bits, and only these are instrumented",
                    object.path
                ),
            ));
        }
        let slide = slide(&file, &object)
            .ok_or_else(|| refused(pid, format!("{} is not mapped as its file is", object.path)))?;
        let memory = memory(pid)?;
        let sequences = traced(pid, || sequences(pid, counters))?;
        let mut live = Vec::new();
        for code in &object.code {
            let mut bytes = vec![0; usize::try_from(code.span.len()).unwrap_or(0)];
            let read = memory.read_exact_at(&mut bytes, code.span.start.0);
            read.map_err(|error| refused(pid, format!("its text cannot be read ({error})")))?;
            live.push((code.span.start, bytes));
        }
        let parts = ElfParts {
            name: object.name().to_owned(),
            file: &file,
            slide,
            live,
        };
        let image = Image::from_elf(&parts)?;
        let maps = maps::read(pid)?;
        let slots_log2 = slots_log2(sequences.cpus);
        let rings = u64::from(sequences.cpus) << (slots_log2 + SLOT_LOG2);
        let bytes = rows(sequences) + rings;
        let words = maps::free_below(&maps, bytes, LOW);
        let words = words.ok_or_else(|| {
            refused(
                pid,
                format!("its lower 2 GiB have no {bytes} free bytes for counters and rings"),
            )
        })?;
        let arena = (u64::from(counters) * ARENA_PER_COUNTER).max(SMALLEST_ARENA);
        let arena = arena.next_multiple_of(maps::PAGE);
        let record = (u64::from(counters) * MOST_PER_WRITE).next_multiple_of(maps::PAGE);
        let bytes = arena + record;
        let reserved = maps::free_near(&maps, bytes, object.span).ok_or_else(|| {
            refused(
                pid,
                format!("no {bytes} bytes are free within reach of {}", object.path),
            )
        })?;
        let arena = Span::new(reserved.start, arena);
        let rings = Rings::of_sequences(
            sequences,
            (words.start.add(rows(sequences)), slots_log2),
            words.start.0 + u64::from(counters) * 8,
        );
        let layout = layout((arena, words), (sequences, rings), counters, shadow_stack);
        layout.check()?;
        Ok(Self {
            pid,
            memory,
            image,
            layout,
            sequences,
            words,
            reserved,
        })
    }

    /// The object, with its bytes in the process.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The number of CPUs that the machine may have.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.sequences.cpus
    }

    /// The layout that its plans have.
    #[must_use]
    pub fn layout(&self) -> &RuntimeLayout {
        &self.layout
    }
}

/// Returns the program of a process, or its object with a name.
fn object(pid: u32, name: Option<&str>) -> Result<Object> {
    let all = objects(pid)?;
    let names: Vec<&str> = all.iter().map(Object::name).collect();
    let names = names.join(", ");
    if all.is_empty() {
        let cause =
            "none of its objects is mapped: it is about to execute a program, or to end; try again";
        return Err(refused(pid, cause));
    }
    let found = match name {
        Some(name) => all
            .into_iter()
            .find(|one| one.name() == name || one.path == name),
        None => {
            let program = fs::read_link(proc(pid, "exe"));
            let program = program
                .map_err(|error| refused(pid, format!("its program is not known ({error})")))?;
            all.into_iter()
                .find(|one| program.as_os_str() == one.path.as_str())
        }
    };
    found.ok_or_else(|| {
        let what = name.unwrap_or("program");
        refused(pid, format!("it has not mapped {what}; it has {names}"))
    })
}

/// Reads the file of an object, as the process sees it.
fn file_of(pid: u32, object: &Object) -> Result<Vec<u8>> {
    let path = proc(pid, "root").join(object.path.trim_start_matches('/'));
    let other = |why: &str| {
        let hint = "the process has mapped an older file of that name; start it again";
        refused(pid, format!("{} {why}: {hint}", object.path))
    };
    let found = fs::metadata(&path).map_err(|_| other("is gone"))?;
    if found.ino() != object.inode {
        return Err(other("is another file now"));
    }
    fs::read(&path).map_err(Error::io(
        path,
        "The process's program and libraries must be readable.",
    ))
}

/// Returns the distance from the addresses in a file to those in the process.
fn slide(file: &[u8], object: &Object) -> Option<u64> {
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
}

/// Returns how the threads of a process are registered for restartable sequences.
fn sequences(pid: u32, counters: u32) -> Result<Sequences> {
    let stopped = Stopped::stop(pid)?;
    let registered = stopped
        .threads
        .iter()
        .filter(|thread| thread.rseq.area != 0);
    let mut known = registered.map(|thread| {
        let area = thread.rseq.area.wrapping_sub(thread.registers.fs_base);
        (SegmentOffset(area), thread.rseq.signature)
    });
    let (area, signature) = known.next().ok_or_else(|| {
        refused(
            pid,
            "no thread has registered for restartable sequences (rseq), by which hits are counted: glibc \
             does so from version 2.35 on, and other C libraries do not (rule no-runtime)",
        )
    })?;
    if known.any(|other| other != (area, signature)) {
        return Err(refused(
            pid,
            "its threads have registered for restartable sequences in different ways (rule no-runtime)",
        ));
    }
    let bytes = (u64::from(counters) * 8 + RING_WORDS)
        .max(maps::PAGE)
        .next_power_of_two();
    Ok(Sequences {
        area,
        signature,
        cpus: cpus()?,
        stride_log2: bytes.ilog2(),
    })
}

/// Returns the number of CPUs that the machine may have.
fn cpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let list = fs::read_to_string(path).map_err(Error::io(path, "Is /sys mounted?"))?;
    let last = list.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u32 = last
        .parse()
        .map_err(|_| Error::Target(format!("{path} has {list:?}, which is not a list of CPUs.")))?;
    Ok(last + 1)
}

/// Returns the slots of each ring, as a power of two.
fn slots_log2(cpus: u32) -> u32 {
    let [mut slots_log2, least] = SLOTS_LOG2;
    while slots_log2 > least && u64::from(cpus) << (slots_log2 + SLOT_LOG2) > MOST_RINGS {
        slots_log2 -= 1;
    }
    slots_log2
}

/// Bytes of the words of all CPUs, and of threads without an area.
pub(super) fn rows(sequences: Sequences) -> u64 {
    (u64::from(sequences.cpus) + 1) << sequences.stride_log2
}

fn layout(
    (arena, words): (Span, Span),
    (sequences, rings): (Sequences, Rings),
    counters: u32,
    shadow_stack: bool,
) -> RuntimeLayout {
    let mut inputs = Inputs::default();
    inputs.set(Input::Cpu, Some(InputLocation::Segment(sequences.cpu_id())));
    RuntimeLayout {
        arena,
        unwinds: true,
        faults: 0,
        abi: Abi {
            shadow_stack,
            ..Abi::PROCESS
        },
        rings,
        counters: vec![CounterBank {
            base: SegmentOffset(words.start.0),
            slots: counters,
        }],
        shared: vec![words.start.add(sequences.unregistered())],
        // No variables of threads and calls are kept: these are refused.
        timers: Addr(0),
        timers_log2: 1,
        owner: Owner {
            word: SegmentOffset(0),
            free_bits: 0,
            busy_bit: 48,
        },
        inputs,
        guard: Guard::Missing,
        clock: None,
        events: Events::default(),
    }
}
