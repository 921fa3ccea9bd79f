//! Files of accesses of memory, as `ilk clone --accesses` writes them.
//!
//! All numbers are little-endian. The file begins with [`MAGIC`]; the rest is chunks: a kind of 4 bytes, the length of
//! what follows in bytes as 8 bytes, and that:
//!
//! | kind | what follows |
//! |---|---|
//! | 1, block | its number, slots, instructions and accesses (4 bytes each); the address of each instruction (8); each access: instruction, flags (1 reads, 2 writes, 4 relative to `fs`, and from bit 8 on the factor of the index), kind (0 constant, 1 sum, 2 repeated, 3 not recorded), bytes, two slots (4 each): 1 more than those of base and index of a sum, or 0, or the slots of the first address and of that after the last; displacement or address (8) |
//! | 2, groups | the thread, 0 (4 each), its base of `fs` (8); groups: a word with the number of the block and, in its upper half, 0 or 1 more than the instructions that were executed of it, and a word for each slot |
//! | 3, name | the number of a block (4), the name of its first instruction |
//! | 4, end | bytes of groups, bytes lost, instructions executed in the original code, threads left out, the number of the error (errno) after which groups were lost since they could not be written, or 0 (8 each; files of earlier versions end before the last) |
//! | 5, process | the number of an execution, from 1 on, and the process (4 each), the name of its program |
//! | 6, execution | the number of an execution (4) |
//!
//! Chunks of blocks, groups, names and ends are of the execution of the last chunk before them that is of kind 5 or 6: that of a
//! process in one of its programs. Each has blocks with numbers of their own, and an end. One without an end was not finished:
//! its agent was killed, has failed, or still records. Files of the version before, whose magic ends in `2`, have one execution, without its
//! process.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, Write};
use std::path::Path;

use gilk_engine::cache::{AccessPlace, RecordedAccess, RecordedBlock};

use crate::{Error, Result};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"GILKACC3";
/// Those of a file of one process, which is not named.
const UNNAMED: [u8; 8] = *b"GILKACC2";
/// The first of them, in all versions.
const ANY_VERSION: &[u8] = b"GILKACC";

const BLOCK: u32 = 1;
const GROUPS: u32 = 2;
const NAME: u32 = 3;
const END: u32 = 4;
const PROCESS: u32 = 5;
const EXECUTION: u32 = 6;

/// Bytes of a chunk, at most: those of an area of a thread are far fewer.
const MOST_IN_CHUNK: u64 = 1 << 28;
/// Repetitions of one execution of an instruction, at most: more are taken for damage of the file.
const MOST_REPEATED: u64 = 1 << 32;

/// Sizes and losses of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessTotals {
    /// Bytes of groups in the file.
    pub bytes: u64,
    /// Bytes of groups that were dropped, since the file may have no more.
    pub bytes_lost: u64,
    /// Instructions that were executed in the original code, after faults or since they have no translation: what these
    /// accessed is recorded unless they repeat.
    pub stepped: u64,
    /// Times that a thread stayed in the original code, since too many record.
    pub threads_left_out: u64,
    /// The number of the error (errno) by which groups could not be written, and were dropped.
    pub unwritten: Option<i32>,
}

impl AccessTotals {
    /// Returns the error by which records could not be written, and are lost.
    #[must_use]
    pub fn write_error(&self) -> Option<io::Error> {
        self.unwritten.map(io::Error::from_raw_os_error)
    }
}

/// Returns the function and the file of the name of code: `work+0x12 (program)`, or `program+0x12` where no function is
/// known. The name of an address alone has neither.
#[must_use]
pub fn parts_of_name(name: &str) -> (Option<&str>, Option<&str>) {
    let Some((place, offset)) = name.rsplit_once("+0x") else {
        return (None, None);
    };
    match offset.split_once(" (") {
        Some((_, file)) => (Some(place), Some(file.strip_suffix(')').unwrap_or(file))),
        None => (None, Some(place)),
    }
}

/// Writes chunks.
#[derive(Debug)]
pub(crate) struct AccessWriter<W: Write>(W);

impl<W: Write> AccessWriter<W> {
    /// Begins a file.
    pub(crate) fn new(mut file: W) -> io::Result<Self> {
        file.write_all(&MAGIC)?;
        Ok(Self(file))
    }

    /// Continues a file.
    pub(crate) fn after(file: W) -> Self {
        Self(file)
    }

    fn chunk(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.0.write_all(&kind.to_le_bytes())?;
        self.0.write_all(&(length as u64).to_le_bytes())?;
        parts.iter().try_for_each(|part| self.0.write_all(part))
    }

    /// Begins an execution: what follows is of it.
    pub(crate) fn process(&mut self, execution: u32, pid: u32, program: &str) -> io::Result<()> {
        let numbers = [execution, pid].map(u32::to_le_bytes).concat();
        self.chunk(PROCESS, &[&numbers, program.as_bytes()])
    }

    /// Continues an execution: what follows is of it.
    pub(crate) fn execution(&mut self, execution: u32) -> io::Result<()> {
        self.chunk(EXECUTION, &[&execution.to_le_bytes()])
    }

    pub(crate) fn block(&mut self, block: &RecordedBlock) -> io::Result<()> {
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        for number in [
            block.number,
            block.slots,
            length(block.instructions.len()),
            length(block.accesses.len()),
        ] {
            bytes.extend(number.to_le_bytes());
        }
        for at in &block.instructions {
            bytes.extend(at.0.to_le_bytes());
        }
        for access in &block.accesses {
            let mut factor = 0;
            let (kind, slots, thread, value) = match access.place {
                AccessPlace::Constant { at, thread } => (0, [0, 0], thread, at),
                AccessPlace::Sum {
                    base,
                    index,
                    displacement,
                    thread,
                } => {
                    let (index, scale) = index.unzip();
                    factor = scale.unwrap_or(0);
                    let slots = [base, index].map(|slot| slot.map_or(0, |slot| slot + 1));
                    (1, slots, thread, displacement.cast_unsigned())
                }
                AccessPlace::Repeated { first, after, .. } => (2, [first, after], false, 0),
                AccessPlace::Unknown => (3, [0, 0], false, 0),
            };
            let kinds = u32::from(access.reads) | u32::from(access.writes) << 1;
            let flags = kinds | u32::from(thread) << 2 | factor << 8;
            let [first, second] = slots;
            for number in [access.instruction, flags, kind, access.size, first, second] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(value.to_le_bytes());
        }
        self.chunk(BLOCK, &[&bytes])
    }

    pub(crate) fn groups(&mut self, thread: u32, fs: u64, words: &[u8]) -> io::Result<()> {
        let head = [thread.to_le_bytes(), [0; 4]].concat();
        self.chunk(GROUPS, &[&head, &fs.to_le_bytes(), words])
    }

    pub(crate) fn name(&mut self, number: u32, name: &str) -> io::Result<()> {
        self.chunk(NAME, &[&number.to_le_bytes(), name.as_bytes()])
    }

    pub(crate) fn end(&mut self, totals: &AccessTotals) -> io::Result<()> {
        let numbers = [
            totals.bytes,
            totals.bytes_lost,
            totals.stepped,
            totals.threads_left_out,
            totals
                .unwritten
                .map_or(0, |error| u64::from(error.unsigned_abs())),
        ];
        let bytes = numbers.map(u64::to_le_bytes).concat();
        self.chunk(END, &[&bytes])
    }
}

/// An access, as a program made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// The execution that it is of: an index of [`AccessFile::executions`].
    pub execution: usize,
    /// Number of the thread that made it.
    pub thread: u32,
    /// The number of the block.
    pub block: u32,
    /// The address of the instruction.
    pub instruction: u64,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub size: u32,
    /// It reads.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
}

/// Contents of a file beside its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFile {
    /// Those of each process in each of its programs, in the order of their begins.
    pub executions: Vec<RecordedExecution>,
}

/// Contents of a file that are of a process in one of its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedExecution {
    /// The number of the process; 0 if the file does not name it.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Names of the first instructions of blocks.
    pub names: HashMap<u32, String>,
    /// Sizes and losses; `None` if it has no end.
    pub totals: Option<AccessTotals>,
    /// Accesses that were executed and not recorded: masks, gathers, states of extensions, bits by a register.
    pub unrecorded: u64,
    /// The accesses of reads and of writes.
    pub accesses: u64,
}

/// Little-endian numbers of a chunk.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn short(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

/// A block, as its chunk states it.
struct FileBlock {
    slots: u32,
    instructions: Vec<u64>,
    accesses: Vec<(RecordedAccess, u64)>,
}

impl FileBlock {
    fn read(numbers: &mut Numbers<'_>) -> Option<(u32, Self)> {
        let [number, slots, instructions, accesses] = [
            numbers.short()?,
            numbers.short()?,
            numbers.short()?,
            numbers.short()?,
        ];
        let instructions: Option<Vec<u64>> = (0..instructions).map(|_| numbers.word()).collect();
        let instructions = instructions?;
        let mut all = Vec::new();
        for _ in 0..accesses {
            let [instruction, flags, kind, size, first, second] = [
                numbers.short()?,
                numbers.short()?,
                numbers.short()?,
                numbers.short()?,
                numbers.short()?,
                numbers.short()?,
            ];
            let value = numbers.word()?;
            let thread = flags & 4 != 0;
            let place = match kind {
                0 => AccessPlace::Constant { at: value, thread },
                1 => AccessPlace::Sum {
                    base: first.checked_sub(1),
                    index: second.checked_sub(1).map(|slot| (slot, flags >> 8)),
                    displacement: value.cast_signed(),
                    thread,
                },
                2 => AccessPlace::Repeated {
                    first,
                    after: second,
                    register: 0,
                    copied: gilk_engine::Addr(0),
                },
                3 => AccessPlace::Unknown,
                _ => return None,
            };
            let access = RecordedAccess {
                instruction,
                reads: flags & 1 != 0,
                writes: flags & 2 != 0,
                size,
                place,
            };
            let at = *instructions.get(usize::try_from(instruction).ok()?)?;
            all.push((access, at));
        }
        let block = Self {
            slots,
            instructions,
            accesses: all,
        };
        Some((number, block))
    }

    /// Gives the accesses of a group; `None` if it is wrong. Returns how many were not recorded.
    fn accesses(
        &self,
        (execution, block, thread, fs): (usize, u32, u32, u64),
        executed: u32,
        slots: &[u64],
        each: &mut dyn FnMut(MemoryUse),
    ) -> Option<u64> {
        let mut unrecorded = 0;
        let slot = |number: u32| slots.get(usize::try_from(number).ok()?).copied();
        let base = |is_relative| if is_relative { fs } else { 0 };
        let mut all = self.accesses.iter().peekable();
        while let Some((access, instruction)) = all.next() {
            if access.instruction >= executed {
                break;
            }
            let mut give = |access: &RecordedAccess, at: u64| {
                each(MemoryUse {
                    execution,
                    thread,
                    block,
                    instruction: *instruction,
                    at,
                    size: access.size,
                    reads: access.reads,
                    writes: access.writes,
                });
            };
            match access.place {
                AccessPlace::Unknown => unrecorded += 1,
                AccessPlace::Constant { at, thread } => give(access, at.wrapping_add(base(thread))),
                AccessPlace::Sum {
                    base: register,
                    index,
                    displacement,
                    thread,
                } => {
                    let mut at = base(thread).wrapping_add_signed(displacement);
                    if let Some(number) = register {
                        at = at.wrapping_add(slot(number)?);
                    }
                    if let Some((number, factor)) = index {
                        at = at.wrapping_add(slot(number)?.wrapping_mul(factor.into()));
                    }
                    give(access, at);
                }
                AccessPlace::Repeated { first, after, .. } => {
                    // Both addresses of an instruction move in turns.
                    let second = all.next_if(|(one, _)| one.instruction == access.instruction);
                    let second = match second {
                        Some((one, _)) => match one.place {
                            AccessPlace::Repeated { first, .. } => Some((one, slot(first)?)),
                            _ => return None,
                        },
                        None => None,
                    };
                    let (start, end) = (slot(first)?, slot(after)?);
                    let step = i64::from(access.size);
                    let moved = end.wrapping_sub(start).cast_signed();
                    if step == 0 || moved % step != 0 {
                        return None;
                    }
                    let repetitions = moved.unsigned_abs() / u64::from(access.size);
                    if repetitions > MOST_REPEATED {
                        return None;
                    }
                    let one = step * moved.signum();
                    for repetition in 0..repetitions.cast_signed() {
                        let by = one * repetition;
                        give(access, start.wrapping_add_signed(by));
                        if let Some((other, start)) = second {
                            give(other, start.wrapping_add_signed(by));
                        }
                    }
                }
            }
        }
        Some(unrecorded)
    }
}

/// A file whose chunks are read one after the other.
struct Chunks<'p> {
    path: &'p Path,
    file: BufReader<File>,
    magic: [u8; 8],
}

impl<'p> Chunks<'p> {
    fn open(path: &'p Path) -> Result<Self> {
        let mut chunks = Self {
            path,
            file: BufReader::new(whole(path).map_err(|error| unread(path, &error))?),
            magic: [0; 8],
        };
        let begun = chunks.file.read_exact(&mut chunks.magic);
        if begun.is_err() || !chunks.magic.starts_with(ANY_VERSION) {
            return Err(wrong(path, "is no file of accesses"));
        }
        if ![MAGIC, UNNAMED].contains(&chunks.magic) {
            let why = "has accesses in the form of another version of ilk: record them again";
            return Err(wrong(path, why));
        }
        Ok(chunks)
    }

    /// Returns to the first chunk.
    fn rewind(&mut self) -> Result<()> {
        let first = io::SeekFrom::Start(MAGIC.len() as u64);
        let rewound = self.file.seek(first);
        rewound.map(drop).map_err(|error| unread(self.path, &error))
    }

    fn damaged(&self) -> Error {
        wrong(self.path, "is damaged")
    }

    /// Fills a buffer; returns false at the end of the file.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool> {
        match self.file.read_exact(bytes) {
            Ok(()) => Ok(true),
            // What an agent that was killed has written last may be a part.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(unread(self.path, &error)),
        }
    }

    /// Reads the kind and the bytes of the next chunk, of one that is `wanted`; others are passed over, and have no bytes.
    fn next(&mut self, wanted: impl Fn(u32) -> bool) -> Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 12];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let mut numbers = Numbers(&head);
        let (Some(kind), Some(length)) = (numbers.short(), numbers.word()) else {
            return Err(self.damaged());
        };
        if length > MOST_IN_CHUNK {
            return Err(self.damaged());
        }
        if !wanted(kind) {
            let passed = self.file.seek_relative(length.cast_signed());
            passed.map_err(|error| unread(self.path, &error))?;
            return Ok(Some((kind, Vec::new())));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| self.damaged())?];
        Ok(self.fill(&mut bytes)?.then_some((kind, bytes)))
    }

    /// Reads the executions with the names of their blocks, which are the last chunks of each.
    fn executions(&mut self) -> Result<Vec<RecordedExecution>> {
        let mut executions = Vec::new();
        let mut execution = 0;
        if self.magic == UNNAMED {
            executions.push(RecordedExecution::default());
        }
        let is_wanted = |kind| [PROCESS, EXECUTION, NAME].contains(&kind);
        while let Some((kind, bytes)) = self.next(is_wanted)? {
            let mut numbers = Numbers(&bytes);
            match kind {
                PROCESS => {
                    let (number, pid) = (numbers.short(), numbers.short());
                    let (Some(number), Some(pid)) = (number, pid) else {
                        return Err(self.damaged());
                    };
                    execution = executions.len();
                    if number as usize != execution + 1 {
                        return Err(self.damaged());
                    }
                    executions.push(RecordedExecution {
                        pid,
                        program: String::from_utf8_lossy(numbers.0).into_owned(),
                        ..RecordedExecution::default()
                    });
                }
                EXECUTION => {
                    let number = numbers.short().ok_or_else(|| self.damaged())?;
                    execution = (number as usize)
                        .checked_sub(1)
                        .ok_or_else(|| self.damaged())?;
                }
                NAME => {
                    let number = numbers.short().ok_or_else(|| self.damaged())?;
                    let name = String::from_utf8_lossy(numbers.0).into_owned();
                    let of = executions.get_mut(execution);
                    of.ok_or_else(|| self.damaged())?.names.insert(number, name);
                }
                _ => {}
            }
        }
        Ok(executions)
    }
}

/// Opens a file that can be read twice; what is none, such as a pipe, is read to its end first.
fn whole(path: &Path) -> io::Result<File> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut file, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::Target(format!("{} {why}.", path.display()))
}

fn unread(path: &Path, error: &io::Error) -> Error {
    wrong(path, &format!("cannot be read ({error})"))
}

/// Reads a file, and gives its accesses with the execution that they are of, whose names are known: those of one thread in
/// the order of execution.
///
/// # Errors
/// It cannot be read, or is no file of accesses.
pub fn read(
    path: &Path,
    each: &mut dyn FnMut(MemoryUse, &RecordedExecution),
) -> Result<AccessFile> {
    read_if(path, |_| Ok(()), each)
}

/// Reads a file as [`read`] does, if the executions, whose names are known and nothing else, are those that are wanted.
///
/// # Errors
/// As [`read`], and the error of the check.
pub fn read_if<E: From<Error>>(
    path: &Path,
    check: impl FnOnce(&[RecordedExecution]) -> std::result::Result<(), E>,
    each: &mut dyn FnMut(MemoryUse, &RecordedExecution),
) -> std::result::Result<AccessFile, E> {
    let mut chunks = Chunks::open(path)?;
    let executions = chunks.executions()?;
    check(&executions)?;
    chunks.rewind()?;
    Ok(accesses(&mut chunks, executions, each)?)
}

/// Reads the accesses of executions whose names are known.
fn accesses(
    chunks: &mut Chunks<'_>,
    mut executions: Vec<RecordedExecution>,
    each: &mut dyn FnMut(MemoryUse, &RecordedExecution),
) -> Result<AccessFile> {
    let mut blocks: Vec<HashMap<u32, FileBlock>> = Vec::new();
    blocks.resize_with(executions.len(), HashMap::new);
    let (mut begun, mut execution) = (0, 0);
    // One that is still written may have more by now.
    while let Some((kind, bytes)) = chunks.next(|kind| kind != NAME)? {
        let mut numbers = Numbers(&bytes);
        match kind {
            PROCESS => {
                if begun == executions.len() {
                    break;
                }
                execution = begun;
                begun += 1;
                continue;
            }
            EXECUTION => {
                let number = numbers.short().ok_or_else(|| chunks.damaged())?;
                execution = (number as usize)
                    .checked_sub(1)
                    .ok_or_else(|| chunks.damaged())?;
                continue;
            }
            NAME => continue,
            _ => {}
        }
        let of = executions.get_mut(execution);
        let Some((found, blocks)) = of.zip(blocks.get_mut(execution)) else {
            return Err(chunks.damaged());
        };
        match kind {
            BLOCK => {
                let (number, block) =
                    FileBlock::read(&mut numbers).ok_or_else(|| chunks.damaged())?;
                blocks.insert(number, block);
            }
            GROUPS => {
                let given = groups(&mut numbers, execution, blocks, found, each);
                given.ok_or_else(|| chunks.damaged())?;
            }
            END => {
                let mut next = || numbers.word().ok_or_else(|| chunks.damaged());
                let [bytes, bytes_lost, stepped, threads_left_out] =
                    [next()?, next()?, next()?, next()?];
                let error = i32::try_from(numbers.word().unwrap_or(0));
                found.totals = Some(AccessTotals {
                    bytes,
                    bytes_lost,
                    stepped,
                    threads_left_out,
                    unwritten: error.ok().filter(|error| *error != 0),
                });
            }
            _ => return Err(chunks.damaged()),
        }
    }
    Ok(AccessFile { executions })
}

/// Gives the accesses of the groups of a chunk; `None` if one is wrong.
fn groups(
    numbers: &mut Numbers<'_>,
    execution: usize,
    blocks: &HashMap<u32, FileBlock>,
    found: &mut RecordedExecution,
    each: &mut dyn FnMut(MemoryUse, &RecordedExecution),
) -> Option<()> {
    let thread = numbers.short()?;
    numbers.short()?;
    let fs = numbers.word()?;
    let (words, _) = numbers.0.as_chunks::<8>();
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    let mut rest = words.as_slice();
    while let Some((header, after)) = rest.split_first() {
        let number = u32::try_from(header & 0xffff_ffff).ok()?;
        let block = blocks.get(&number)?;
        let all = u32::try_from(block.instructions.len()).ok()?;
        let executed = u32::try_from(header >> 32).ok()?.checked_sub(1);
        let (slots, next) = after.split_at_checked(usize::try_from(block.slots).ok()?)?;
        rest = next;
        let mut accesses = 0;
        let mut counted = |access: MemoryUse| {
            accesses += 1;
            each(access, found);
        };
        let place = (execution, number, thread, fs);
        let executed = executed.unwrap_or(all);
        let unrecorded = block.accesses(place, executed, slots, &mut counted)?;
        found.unrecorded += unrecorded;
        found.accesses += accesses;
    }
    Some(())
}

#[cfg(test)]
mod tests;
