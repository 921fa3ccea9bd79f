//! Objects of a process, read for planning, and the addresses of what will be mapped there.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gilk_engine::elf::ElfParts;
use gilk_engine::layout::{
    Abi, CounterBank, Events, Guard, InputLocation, Inputs, MonotonicClock, Owner, ReadGate, Rings,
    RuntimeLayout, SLOT_LOG2, SegmentOffset, Sequences, StackTables,
};
use gilk_engine::patch::{Home, TIMER_BYTES};
use gilk_engine::plan::PlannedInstrument;
use gilk_engine::reads::MemoryReader;
use gilk_engine::{Addr, Image, Plan, Session, Span};
use gilk_instruments::program::Input;
use object::Endianness;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use super::maps;
use super::monotonic;
use super::objects::{Object, ObjectChoice, chosen, file_of, linker, objects, slide};
use super::record::{MOST_PER_WRITE, Written};
use super::registered::{Registered, registered, registration};
use super::removal::memory;
use super::replaced::linked::{LinkedObject, LinkedPart};
use super::stacks::Callers;
use super::stopped::{is_filtered, threads, traced};
use super::{refused, text};
use crate::client::{TargetInfo, samples};
use crate::processor::has_rdtscp;
use crate::{Error, Result};

/// Addresses that a 32-bit displacement reaches.
const LOW: u64 = 1 << 31;
/// Bytes of the arena for each counter: several times a patch's.
const ARENA_PER_COUNTER: u64 = 1 << 10;
/// Bytes of the arena for each byte of code, at most: patches of every block take up less.
const ARENA_PER_BYTE: u64 = 64;
/// Bytes from the first to the last of objects that share an arena, at most.
const GROUP: u64 = 1 << 30;
/// Bytes of a record without writes, at most.
pub(super) const SMALLEST_RECORD: u64 = 1 << 12;
/// Bytes of the words of a ring, in each row.
const RING_WORDS: u64 = 24;
/// Bytes of the words in each row after those of the ring: of the gate of reads, and of its guards.
const GATE_WORDS: u64 = ReadGate::LEN_BYTES + 8 * GUARD_WORDS as u64;
/// Bytes of the word after those in the first row that keeps the monotonic clock.
const CLOCK_WORD: u64 = 8;
/// Words of the guards of reads.
pub(super) const GUARD_WORDS: u32 = 256;
/// Slots of a ring, as powers of two: at most, and at least.
const SLOTS_LOG2: [u32; 2] = [18, 8];
/// Bytes of all rings, at most, if they have more than the fewest slots.
const MOST_RINGS: u64 = 1 << 28;
/// Entries of the table for variables of threads and calls, as a power of two.
const STORAGE_LOG2: u32 = 16;
/// Bytes of that table, which is after the words that CPUs share. A forked child has a copy of its own: its threads and
/// calls have the addresses of its parent's.
pub(super) const STORAGE: u64 = TIMER_BYTES << STORAGE_LOG2;
/// Bit of `DT_FLAGS` (the ABI's chapter 5): relocations are in segments that are not writable.
const DF_TEXTREL: u64 = 4;
/// Bytes of the smallest arena.
pub(super) const SMALLEST_ARENA: u64 = 1 << 16;

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
    cpus: u32,
    pub(super) shadow_stack: bool,
}

/// Addresses of what will be mapped into a process.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// The layout that plans have.
    pub layout: RuntimeLayout,
    pub(super) sequences: Sequences,
    /// True if variables of threads can be found.
    has_thread_pointers: bool,
    /// The words of all CPUs, their rings, and the table for variables of threads and calls.
    pub(super) words: Span,
    /// Free addresses for each arena; for the record too, after the last.
    pub(super) arenas: Vec<Span>,
    /// Ways to find callers, if stacks are numbered.
    pub(super) callers: Option<Arc<Callers>>,
    /// True if the static probes that instruments stand on are switched on.
    pub(super) switches_on: bool,
    /// Object files whose functions replace functions of the process.
    pub(super) objects: Vec<LinkedObject>,
}

impl Reserved {
    /// The words that end reads of memory: in the first row, after those of the ring.
    pub(super) fn gate(&self) -> ReadGate {
        ReadGate {
            closed: Addr(self.layout.rings.lost_full.0).add(8),
        }
    }

    /// The first of the words of the guards that end reads.
    pub(super) fn guard_words(&self) -> Addr {
        self.gate().closed.add(ReadGate::LEN_BYTES)
    }

    /// Checks that a plan was made for these addresses, and for the image of the same process.
    ///
    /// # Errors
    /// [`Error::Plan`].
    pub(super) fn check(&self, plan: &Plan, image: &Image) -> Result<()> {
        if plan.layout != self.layout || plan.release != image.release() {
            return Err(Error::Plan {
                reason: "it is of another process".to_owned(),
            });
        }
        if !self.has_thread_pointers && plan.instruments.iter().any(keeps_of_threads) {
            let why = "The session keeps variables of threads, and a thread of the process has no control block at the \
                       base of fs with its own address (the psABI's), by which they are found. A program that is linked \
                       statically makes it as it begins: attach to it with -p. Variables of calls work.";
            return Err(Error::Target(why.to_owned()));
        }
        let shares_ring = self.sequences.area.is_none() && plan.instruments.iter().any(samples);
        if shares_ring && !has_rdtscp() {
            let why = "this processor has no instruction that reads the time with the number of the CPU (rdtscp among the \
                       flags of /proc/cpuinfo), by which threads sample that register no area for restartable sequences";
            return Err(Error::Plan {
                reason: why.to_owned(),
            });
        }
        Ok(())
    }

    /// The addresses of everything that will be mapped.
    pub(super) fn spans(&self) -> Vec<Span> {
        let objects = self.objects.iter().flat_map(|object| &object.parts);
        let arenas = self.arenas.iter().copied();
        std::iter::once(self.words)
            .chain(arenas)
            .chain(objects.map(LinkedPart::span))
            .collect()
    }

    /// Returns them for a session, which may switch static probes on ([`Session::tracepoints`]).
    #[must_use]
    pub fn for_session(self, session: &Session) -> Self {
        Self {
            switches_on: session.tracepoints,
            ..self
        }
    }
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
        Self::with_originals(pid, (objects, &files), (shadow_stack, registered, &[]))
    }

    /// Reads objects of the same process, with the original bytes of splices.
    pub(super) fn without(
        other: &Self,
        objects: &[(Object, bool)],
        splices: &[Written],
    ) -> Result<Self> {
        let known = (other.shadow_stack, other.registered, splices);
        let files = files_of(other.pid, objects)?;
        Self::with_originals(other.pid, (objects, &files), known)
    }

    fn with_originals(
        pid: u32,
        (objects, files): (&[(Object, bool)], &[Vec<u8>]),
        (shadow_stack, registered, splices): (bool, Registered, &[Written]),
    ) -> Result<Self> {
        let memory = memory(pid)?;
        Ok(Self {
            pid,
            image: image_with(pid, &memory, (objects, files), (splices, true))?,
            memory,
            objects: objects.iter().map(|(object, _)| object.clone()).collect(),
            groups: groups(objects),
            registered,
            cpus: cpus()?,
            shadow_stack,
        })
    }

    /// Finds addresses for words and patches, for plans of so many counters at most.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has not enough free addresses where they are reached.
    pub fn reserve(&self, counters: u32) -> Result<Reserved> {
        self.reserve_with(counters, None)
    }

    /// The same, for plans that number stacks by a table.
    pub(super) fn reserve_with(
        &self,
        counters: u32,
        callers: Option<Arc<Callers>>,
    ) -> Result<Reserved> {
        let pid = self.pid;
        let sequences = self.sequences(counters);
        let mut maps = maps::read(pid)?;
        let slots_log2 = slots_log2(sequences);
        let rings = u64::from(sequences.rings()) << (slots_log2 + SLOT_LOG2);
        let stacks = Callers::table_bytes(callers.as_deref());
        let bytes = rows(sequences) + rings + stacks + STORAGE;
        let words = maps::free_below(&maps, bytes, LOW);
        let words = words.ok_or_else(|| {
            refused(
                pid,
                format!("its lower 2 GiB have no {bytes} free bytes for counters and rings"),
            )
        })?;
        maps::insert(&mut maps, words);
        let mut arenas = Vec::with_capacity(self.groups.len());
        let mut reserved = Vec::with_capacity(self.groups.len());
        for (number, &(group, code)) in self.groups.iter().enumerate() {
            let most = code.saturating_mul(ARENA_PER_BYTE);
            let arena = (u64::from(counters) * ARENA_PER_COUNTER).min(most);
            let arena = arena.max(SMALLEST_ARENA).next_multiple_of(maps::PAGE);
            let record = match number + 1 == self.groups.len() {
                true => SMALLEST_RECORD + u64::from(counters) * MOST_PER_WRITE,
                false => 0,
            };
            let bytes = arena + record.next_multiple_of(maps::PAGE);
            debug_assert!(arena > MemoryReader::BYTES, "an arena has patches, too");
            let span = maps::free_near(&maps, bytes, group).ok_or_else(|| {
                let Span { start, end } = group;
                let why = format!("no {bytes} bytes are free within reach of {start} to {end}");
                refused(pid, why)
            })?;
            maps::insert(&mut maps, span);
            let patches = Span {
                start: span.start.add(MemoryReader::BYTES),
                end: span.start.add(arena),
            };
            arenas.push(patches);
            reserved.push(span);
        }
        let rings = Rings::of_sequences(
            sequences,
            (words.start.add(rows(sequences)), slots_log2),
            words.start.0 + u64::from(counters) * 8,
        );
        let layout = layout(
            (arenas, words, words.end.0 - STORAGE - stacks),
            (sequences, rings),
            counters,
            (self.shadow_stack, self.registered.tid),
        );
        layout.check()?;
        Ok(Reserved {
            layout,
            sequences,
            callers,
            has_thread_pointers: self.registered.has_thread_pointers,
            words,
            arenas: reserved,
            switches_on: false,
            objects: Vec::new(),
        })
    }

    /// Returns the machine and the process, as recordings describe them.
    ///
    /// # Errors
    /// [`Error::Io`] if the machine has no name.
    pub fn info(&self, reserved: &Reserved) -> Result<TargetInfo> {
        Ok(TargetInfo {
            host: host()?,
            release: format!("{} of process {}", self.image.title(), self.pid),
            cpus: self.cpus,
            tsc_hz: super::clock().tsc_hz,
            runs_programs: false,
            boot: crate::workload::boot(),
            layout: reserved.layout.clone(),
        })
    }

    /// Checks that the process has not executed another program since it was read.
    pub(super) fn is_still_mapped(&self) -> Result<()> {
        let text = self.image.text().start;
        let read = self.memory.read_exact_at(&mut [0], text.0);
        read.map_err(|_| refused(self.pid, "it has ended, or executed another program"))
    }

    fn sequences(&self, counters: u32) -> Sequences {
        let bytes = (u64::from(counters) * 8 + RING_WORDS + GATE_WORDS + CLOCK_WORD)
            .max(maps::PAGE)
            .next_power_of_two();
        Sequences {
            area: self.registered.area,
            signature: self.registered.signature,
            cpus: self.cpus,
            stride_log2: bytes.ilog2(),
        }
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
    for code in &object.code {
        let mut bytes = vec![0; usize::try_from(code.span.len()).unwrap_or(0)];
        let read = memory.read_exact_at(&mut bytes, code.span.start.0);
        read.map_err(|error| refused(pid, format!("its text cannot be read ({error})")))?;
        if is_of_kind(&bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the files of objects of a process.
pub(super) fn files_of(pid: u32, objects: &[(Object, bool)]) -> Result<Vec<Vec<u8>>> {
    let files = objects.iter().map(|(object, _)| file_of(pid, object));
    files.collect()
}

/// Reads objects of a process, each with whether it is the program.
pub(super) fn image_of(
    pid: u32,
    memory: &File,
    objects: &[(Object, bool)],
    files: &[Vec<u8>],
) -> Result<Image> {
    image_with(pid, memory, (objects, files), (&[], true))
}

/// The same, without the tables of jumps: functions with such jumps are refused.
pub(super) fn image_without_tables(
    pid: u32,
    memory: &File,
    objects: &[(Object, bool)],
    files: &[Vec<u8>],
) -> Result<Image> {
    image_with(pid, memory, (objects, files), (&[], false))
}

/// The image of objects with the original bytes of splices, with or without tables of jumps.
fn image_with(
    pid: u32,
    memory: &File,
    (objects, files): (&[(Object, bool)], &[Vec<u8>]),
    (splices, tables): (&[Written], bool),
) -> Result<Image> {
    let read = objects.iter().zip(files);
    let read = read.map(|((object, is_program), file)| {
        let mut parts = parts(pid, memory, object, file)?;
        for (start, live) in &mut parts.live {
            for Written { at, original, .. } in splices {
                let offset = at.0.checked_sub(start.0);
                let offset = offset.and_then(|offset| usize::try_from(offset).ok());
                let place =
                    offset.and_then(|offset| live.get_mut(offset..)?.get_mut(..original.len()));
                // It is in another part.
                if let Some(place) = place {
                    place.copy_from_slice(original);
                }
            }
        }
        Ok(ElfParts {
            is_library: !is_program,
            tables,
            ..parts
        })
    });
    Ok(Image::from_elf_objects(&read.collect::<Result<Vec<_>>>()?)?)
}

/// Returns whether the dynamic linker writes into the code of an object.
fn relocates_code(file: &[u8]) -> bool {
    let relocates = || {
        let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let mut segments = header.program_headers(endian, file).ok()?.iter();
        let entries = segments.find_map(|segment| segment.dynamic(endian, file).ok()?)?;
        Some(entries.iter().any(|entry| match entry.d_tag(endian) {
            object::elf::DT_TEXTREL => true,
            object::elf::DT_FLAGS => entry.d_val(endian) & DF_TEXTREL != 0,
            _ => false,
        }))
    };
    relocates().unwrap_or(false)
}

/// Returns the spans of objects that share an arena, by address, with the bytes of code in each.
fn groups(objects: &[(Object, bool)]) -> Vec<(Span, u64)> {
    let mut groups: Vec<(Span, u64)> = Vec::new();
    let mut spans: Vec<(Span, u64)> = objects
        .iter()
        .map(|(object, _)| {
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

/// Reads an object's code.
fn parts<'f>(pid: u32, memory: &File, object: &Object, file: &'f [u8]) -> Result<ElfParts<'f>> {
    let slide = slide(pid, file, object)?;
    let mut live = Vec::new();
    for code in &object.code {
        let mut bytes = vec![0; usize::try_from(code.span.len()).unwrap_or(0)];
        let read = memory.read_exact_at(&mut bytes, code.span.start.0);
        read.map_err(|error| refused(pid, format!("its text cannot be read ({error})")))?;
        live.push((code.span.start, bytes));
    }
    Ok(ElfParts {
        slide,
        live,
        ..ElfParts::of_file(object.name(), file)
    })
}

/// Returns whether an instrument has variables of threads.
fn keeps_of_threads(one: &PlannedInstrument) -> bool {
    let probe = one.probe.as_deref();
    probe.is_some_and(|probe| {
        let mut homes = probe.homes.variables.iter();
        homes.any(|(_, home)| matches!(home, Home::Thread(_)))
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

/// Returns the slots of each ring, as a power of two. One that all threads share has those of all CPUs.
fn slots_log2(sequences: Sequences) -> u32 {
    let cpus = sequences.cpus;
    let [mut slots_log2, least] = SLOTS_LOG2;
    while slots_log2 > least && u64::from(cpus) << (slots_log2 + SLOT_LOG2) > MOST_RINGS {
        slots_log2 -= 1;
    }
    match sequences.area {
        Some(_) => slots_log2,
        None => slots_log2 + cpus.next_power_of_two().ilog2(),
    }
}

/// Bytes of the words of all CPUs, and of threads without an area.
pub(super) fn rows(sequences: Sequences) -> u64 {
    (u64::from(sequences.cpus) + 1) << sequences.stride_log2
}

fn layout(
    (arenas, words, stacks): (Vec<Span>, Span, u64),
    (sequences, rings): (Sequences, Rings),
    counters: u32,
    (shadow_stack, tid): (bool, Option<SegmentOffset>),
) -> RuntimeLayout {
    let mut inputs = Inputs::default();
    inputs.set(Input::Cpu, sequences.cpu_id().map(InputLocation::Segment));
    inputs.set(Input::Tid, tid.map(InputLocation::Segment));
    let mut arenas = arenas.into_iter();
    // Without code there is none, and nothing is planned.
    let first = arenas.next();
    RuntimeLayout {
        arena: first.unwrap_or_default(),
        further_arenas: arenas.collect(),
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
        timers: Addr(words.end.0 - STORAGE),
        timers_log2: STORAGE_LOG2,
        owner: Owner::process(),
        inputs,
        guard: Guard::Missing,
        clock: Some(MonotonicClock {
            factor: monotonic::factor(),
            offset: Addr(words.start.0 + u64::from(counters) * 8 + RING_WORDS + GATE_WORDS),
        }),
        events: Events::default(),
        stacks: None,
        users: first.map(|arena| Addr(arena.start.0 - MemoryReader::BYTES)),
        stack_tables: Some(StackTables {
            start: Addr(stacks),
        }),
        replacements: Vec::new(),
    }
}
