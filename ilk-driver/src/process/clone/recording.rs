//! The recording of an execution in the cache: a counter at each block that was executed, and the numbers of the cache.
//!
//! The cache counts dynamic blocks: from where control entered to the next branch. Those of the recording are blocks of
//! the graphs of functions, as instruments have them, so that every reader of recordings shows both alike: one was
//! executed as often as the dynamic blocks that have its first instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use gilk_engine::cache::CachedBlock;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::FunctionId;
use gilk_engine::elf::ElfParts;
use gilk_engine::{Addr, HookType, Image, InstrumentId, Session, Span};
use gilk_instruments::{Definition, Library};
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Summary, Writer};
use gilk_samples::totals::Totals;
use gilk_samples::{Batch, Sample};
use object::Endianness;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::{CloneEnd, CloneReport};
use crate::process::maps::{self, MappedSpan};
use crate::process::{names, subject};
use crate::{Error, Result};

/// The instrument of the library that counts the executions of a block.
const COUNTER: &str = "counter";
/// Shortest length of the session of a recording, in seconds.
const SHORTEST: f64 = 1e-6;

/// A recording that was written.
#[derive(Debug)]
pub struct CacheRecording {
    /// The file.
    pub summary: Summary,
    /// Functions with executed blocks; a block without a function is one of its own.
    pub functions: usize,
    /// Reasons why the functions of objects are not known, with their names.
    pub unread: Vec<String>,
    /// Blocks that recordings have no numbers for.
    pub left_out: usize,
}

impl CloneEnd {
    /// The end, as a sentence; nothing if it was requested.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Ended(_) => "The process has ended.".to_owned(),
            Self::Executed => {
                "The process has executed another program, which is not in the cache.".to_owned()
            }
            Self::LetGo(refusal) => {
                format!("The process was let go, and continues in its original code: {refusal}.")
            }
            Self::Detached => String::new(),
        }
    }
}

impl CloneReport {
    /// Writes the executions of all blocks and the numbers of the cache as a recording, in the place of an existing one.
    ///
    /// # Errors
    /// [`Error::Recording`] if it cannot be written; [`Error::Io`] if this machine cannot be described.
    pub fn record(&mut self, path: &Path) -> Result<CacheRecording> {
        let seconds = self.clock.seconds(self.ended).max(SHORTEST);
        let library = Library::builtin().map_err(gilk_engine::Error::from)?;
        let mut described = Described {
            counter: library.get(COUNTER).map_err(gilk_engine::Error::from)?,
            seconds,
            tsc: self.ended,
            metadata: Metadata::default(),
            samples: Vec::new(),
            left_out: 0,
        };
        let executed = Executions::of(&self.blocks);
        let mut outside: BTreeMap<(Addr, Addr), u64> = BTreeMap::new();
        for (block, count) in self.blocks.iter().filter(|(_, count)| *count > 0) {
            let key = (block.original.start, block.original.end);
            *outside.entry(key).or_default() += count;
        }
        let mut unread = Vec::new();
        let mut program = String::new();
        for code in objects(self.names.mapped(self.pid)) {
            let Some(first) = code.first() else { continue };
            let is_program = first.inode == self.program;
            if is_program {
                first.file().clone_into(&mut program);
            }
            let is_inside = |at: Addr| code.iter().any(|mapping| mapping.span.contains(at));
            if !outside.keys().any(|(start, _)| is_inside(*start)) {
                continue;
            }
            let image = match image(self.pid, first, is_program) {
                Ok(image) => image,
                Err(why) => {
                    unread.push(format!("{}: {why}", first.name));
                    continue;
                }
            };
            let mut graphs: BTreeMap<FunctionId, Cfg> = BTreeMap::new();
            outside.retain(|&(start, end), _| {
                if !is_inside(start) {
                    return true;
                }
                let reached = reached(&image, Span { start, end });
                let readable = reached.iter().all(|function| {
                    let graph = graphs.entry(*function);
                    let graph = graph.or_insert_with(|| Cfg::of(&image, *function));
                    !graph.blocks.is_empty()
                });
                reached.is_empty() || !readable
            });
            for graph in graphs.values().filter(|graph| !graph.blocks.is_empty()) {
                described.function(graph, &executed)?;
            }
        }
        for (&(start, end), &count) in &outside {
            let name = self.names.known(self.pid, start);
            described.block(&name, Span { start, end }, count);
        }
        let session = session(
            match program.is_empty() {
                true => format!("process {}", self.pid),
                false => program,
            },
            seconds,
        );
        let metadata = Metadata {
            session: session.to_ron()?,
            machine: subject::host()?,
            kernel: format!("{} of process {}", session.name, self.pid),
            cpus: subject::cpus()?,
            clock: self.clock,
            ..described.metadata
        };
        let functions = metadata.functions.len();
        let written = Writer::create(path, &metadata).and_then(|mut writer| {
            writer.write(&Batch {
                cpu: ALL_CPUS,
                samples: described.samples,
            })?;
            writer.totals(Totals {
                ended: self.end.sentence(),
                cache: Some(self.numbers),
                ..Totals::default()
            });
            writer.finish()
        });
        Ok(CacheRecording {
            summary: written.map_err(|source| Error::Recording { source })?,
            functions,
            unread,
            left_out: described.left_out,
        })
    }
}

/// The session that a recording is of: without instruments of its own.
fn session(name: String, duration: f64) -> Session {
    Session {
        name,
        duration,
        ..Session::empty()
    }
}

/// The mappings with code of files, by file.
fn objects(mapped: &[MappedSpan]) -> Vec<Vec<MappedSpan>> {
    let mut objects: BTreeMap<u64, Vec<MappedSpan>> = BTreeMap::new();
    for mapping in mapped.iter().filter(|one| one.executable && one.inode != 0) {
        let code = objects.entry(mapping.inode).or_default();
        // A file that was mapped again elsewhere has its last place.
        let is_first = code
            .first()
            .is_none_or(|first| first.is_level_with(mapping));
        code.extend(is_first.then(|| mapping.clone()));
    }
    objects.into_values().collect()
}

/// Reads the object of a mapping from its file.
fn image(pid: u32, mapping: &MappedSpan, is_program: bool) -> std::result::Result<Image, String> {
    let (mut file, _) = names::open(pid, mapping).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let slide = slide(&bytes, mapping).ok_or("it is not mapped as its file is")?;
    let parts = ElfParts {
        is_library: !is_program,
        slide,
        ..ElfParts::of_file(mapping.file(), &bytes)
    };
    Image::from_elf(&parts).map_err(|error| error.to_string())
}

/// Returns the distance from the addresses in a file to those of a mapping.
fn slide(file: &[u8], mapping: &MappedSpan) -> Option<u64> {
    let header = object::elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let page = |number: u64| number & !(maps::PAGE - 1);
    let segments = header.program_headers(endian, file).ok()?;
    let segment = segments.iter().find(|segment| {
        let start = page(segment.p_offset(endian));
        let end = segment
            .p_offset(endian)
            .saturating_add(segment.p_filesz(endian));
        segment.p_type(endian) == object::elf::PT_LOAD && (start..end).contains(&mapping.offset)
    })?;
    let inside = mapping.offset - page(segment.p_offset(endian));
    let in_file = page(segment.p_vaddr(endian)).wrapping_add(inside);
    Some(mapping.span.start.0.wrapping_sub(in_file))
}

/// Returns the functions that a dynamic block is in: it may fall through from one to the next. None if a byte of it is
/// in no function.
fn reached(image: &Image, block: Span) -> BTreeSet<FunctionId> {
    let mut found = BTreeSet::new();
    let mut at = block.start;
    while at < block.end {
        let Some(function) = image.function_at(at) else {
            return BTreeSet::new();
        };
        found.insert(function.id);
        at = function.span.end;
    }
    found
}

/// Executions of instructions by address.
struct Executions {
    /// The executions from an address on, up to the next one of the list.
    from: Vec<(Addr, i128)>,
}

impl Executions {
    fn of(blocks: &[(CachedBlock, u64)]) -> Self {
        let mut changes: BTreeMap<Addr, i128> = BTreeMap::new();
        for (block, count) in blocks.iter().filter(|(_, count)| *count > 0) {
            *changes.entry(block.original.start).or_default() += i128::from(*count);
            *changes.entry(block.original.end).or_default() -= i128::from(*count);
        }
        let mut executions = 0;
        let from = changes.into_iter().map(|(at, change)| {
            executions += change;
            (at, executions)
        });
        Self {
            from: from.collect(),
        }
    }

    fn at(&self, at: Addr) -> u64 {
        let after = self.from.partition_point(|(from, _)| *from <= at);
        let last = after.checked_sub(1).and_then(|last| self.from.get(last));
        let executions = last.map_or(0, |(_, executions)| *executions);
        debug_assert!(executions >= 0, "a block ends once for each begin");
        u64::try_from(executions).unwrap_or(u64::MAX)
    }
}

/// Functions, counters and their samples.
struct Described<'l> {
    counter: &'l Definition,
    seconds: f64,
    /// The time of all samples: the end.
    tsc: u64,
    metadata: Metadata,
    samples: Vec<Sample>,
    left_out: usize,
}

impl Described<'_> {
    /// Adds a function with its executed blocks.
    fn function(&mut self, graph: &Cfg, executed: &Executions) -> Result<()> {
        let start = graph.span.start;
        let offset = |at: Addr| {
            u32::try_from(start.to(at)).map_err(|_| Error::Plan {
                reason: format!("the block at {at} is outside of {}", graph.name),
            })
        };
        let blocks = graph.blocks.iter();
        let blocks = blocks.map(|block| Ok((offset(block.span.start)?, offset(block.span.end)?)));
        let edges = graph.edges.iter();
        let major = self.add(FunctionInfo {
            major: self.next_major(),
            name: graph.name.clone(),
            address: start.0,
            blocks: blocks.collect::<Result<_>>()?,
            edges: edges.map(|edge| (edge.from.0, edge.to.0)).collect(),
        });
        for block in &graph.blocks {
            let count = executed.at(block.span.start);
            if count > 0 {
                self.count(major, &graph.name, block.index.0, count);
            }
        }
        Ok(())
    }

    /// Adds a block without a function as a function of its own.
    fn block(&mut self, name: &str, block: Span, count: u64) {
        let major = self.add(FunctionInfo {
            major: self.next_major(),
            name: name.to_owned(),
            address: block.start.0,
            blocks: vec![(0, u32::try_from(block.len()).unwrap_or(u32::MAX))],
            edges: Vec::new(),
        });
        self.count(major, name, 0, count);
    }

    fn next_major(&self) -> u32 {
        u32::try_from(self.metadata.functions.len()).unwrap_or(u32::MAX)
    }

    fn add(&mut self, function: FunctionInfo) -> u32 {
        let major = function.major;
        self.metadata.functions.push(function);
        major
    }

    fn count(&mut self, major: u32, function: &str, block: u32, count: u64) {
        let Some(id) = InstrumentId::new(major, HookType::Pre, block, 0) else {
            self.left_out += 1;
            return;
        };
        let Definition {
            name,
            meaning,
            unit,
            ..
        } = self.counter;
        self.metadata.instruments.push(InstrumentInfo {
            id: id.pack(),
            label: format!("{name} {} {function} block {block}", HookType::Pre),
            instrument: name.clone(),
            meaning: *meaning,
            unit: unit.clone(),
            launch: 0.0,
            splash: self.seconds,
            placed: None,
            delivers: Delivers::Samples,
        });
        self.samples.push(Sample {
            id: id.pack(),
            value: count,
            tsc: self.tsc,
        });
    }
}

/// Returns the clock of a recording that begins now.
pub(super) fn clock() -> Clock {
    let started = crate::process::clock();
    Clock {
        hz: started.tsc_hz,
        start: started.tsc,
        start_unix_ns: started.unix_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_was_executed_as_often_as_the_dynamic_blocks_with_its_first_instruction() {
        let block = |start, end, count| {
            let original = Span {
                start: Addr(start),
                end: Addr(end),
            };
            let block = CachedBlock {
                original,
                at: Addr(0),
                counter: None,
                instructions: 1,
            };
            (block, count)
        };
        // Control entered at 0x10 and fell through to 0x30; it branched to 0x20 also, where a loop begins.
        let executed = Executions::of(&[
            block(0x10, 0x30, 3),
            block(0x20, 0x30, 40),
            block(0x20, 0x30, 2),
            block(0x30, 0x34, 0),
        ]);
        let at = |address| executed.at(Addr(address));
        assert_eq!([at(0xf), at(0x10), at(0x1f)], [0, 3, 3]);
        assert_eq!([at(0x20), at(0x2f), at(0x30)], [45, 45, 0]);
        assert_eq!(Executions::of(&[]).at(Addr(5)), 0);
    }
}
