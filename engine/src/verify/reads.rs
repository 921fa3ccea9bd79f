//! The independent verifier of the code by which instruments in a process read its memory.
//!
//! The code must be, instruction by instruction, the listing below: by the kind of the request it reads memory, the number
//! of the process, or half of the name of the thread. It saves the flags and all registers that a system call changes,
//! writes no memory but its own stack, the pushed word of the result, the counter of failed reads and the number of reads
//! under way, and returns. Calls of it are proven with the patches. So is the code that ends reads, which closes them and
//! waits, unless the number at the address of its call is another system call's.
//!
//! # Not verified
//! - That the code is where it is stated.
//! - That the number of a system call can be read where a guard has it: [`crate::filters`] takes only addresses that the
//!   guarded block itself reads, whenever it executes.

use thiserror::Error;

use super::listing::{ListingViolation, compare};
use super::stacks;
use crate::Addr;
use crate::layout::{ReadGate, RuntimeLayout, StackTables};
use crate::reads::{MemoryReader, ReadsEnd};
use crate::stacks::StackReader;

/// The end of the addresses that instructions reach without a register.
const LOW_END: u64 = 1 << 31;

/// The instructions of a reader: `ROW` stands for the bytes from a word of CPU 0 to the one in which failed reads are
/// counted, `CLOSED` and `UNDER_WAY` for the words of the gate.
const LISTING: [&str; 65] = [
    "pushf",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    // The pushed words: the return address, the request, the counter, the address.
    "movzx ecx,byte [rsp+59h]",
    "mov rax,[rsp+68h]",
    // Below, the value and two iovecs.
    "push 0",
    "push rcx",
    "push rax",
    "lea rax,[rsp+10h]",
    "push rcx",
    "push rax",
    // Counted before the look, so that a thread that closes the gate either sees it or is seen.
    "lock inc dword [UNDER_WAY]",
    "cmp dword [CLOSED],0",
    "jne short @37",
    // The kind of the request.
    "cmp byte [rsp+80h],5",
    "je short @41",
    // getpid()
    "mov eax,27h",
    "syscall",
    "cmp byte [rsp+80h],4",
    "je short @49",
    // process_vm_readv(pid, rsp, 1, rsp+16, 1, 0)
    "mov edi,eax",
    "mov rsi,rsp",
    "mov edx,1",
    "lea r10,[rsp+10h]",
    "mov r8d,1",
    "mov r9d,0",
    "mov eax,136h",
    "syscall",
    // All bytes, or it failed.
    "cmp rax,[rsp+8]",
    "je short @50",
    "mov qword [rsp+20h],0",
    "mov rax,[rsp+88h]",
    "lock inc qword [rax+ROW]",
    "jmp short @50",
    // prctl(PR_GET_NAME, rsp) writes 16 bytes over the iovec of the value, and the half is 0 or 1 in each proven call.
    "mov edi,10h",
    "mov rsi,rsp",
    "mov eax,9Dh",
    "syscall",
    "test eax,eax",
    "jne short @37",
    "movzx eax,byte [rsp+81h]",
    "mov rax,[rsp+rax*8]",
    "mov [rsp+20h],rax",
    // Here it has not.
    "lock dec dword [UNDER_WAY]",
    "mov rax,[rsp+20h]",
    "mov [rsp+90h],rax",
    "lea rsp,[rsp+28h]",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popf",
    "ret",
];

/// The instructions of the code that ends reads; `PATIENCE` stands for its longest wait.
const CLOSING: [&str; 33] = [
    "pushf",
    "push rax",
    "push rcx",
    "push rdx",
    // The address: 8, or where the number of the system call is.
    "mov rax,[rsp+38h]",
    "cmp rax,8",
    "je short @12",
    "mov eax,[rax]",
    // seccomp(2), prctl(2)
    "cmp eax,13Dh",
    "je short @12",
    "cmp eax,9Dh",
    "jne short @27",
    // An exchange is a full barrier.
    "mov eax,1",
    "xchg eax,[CLOSED]",
    // The end of the patience is in rcx.
    "rdtsc",
    "shl rdx,20h",
    "lea rcx,[rax+rdx]",
    "mov rax,PATIENCE",
    "add rcx,rax",
    // Again:
    "cmp dword [UNDER_WAY],0",
    "je short @27",
    "pause",
    "rdtsc",
    "shl rdx,20h",
    "or rax,rdx",
    "cmp rax,rcx",
    "jb short @19",
    // The value.
    "mov qword [rsp+38h],0",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "popf",
    "ret",
];

/// Readers that were proven: the only ones that are written to a process.
#[derive(Clone, Debug)]
pub struct VerifiedReaders(Vec<MemoryReader>);

impl VerifiedReaders {
    /// Returns the readers that were proven.
    #[must_use]
    pub fn readers(&self) -> &[MemoryReader] {
        &self.0
    }
}

/// The rule that a reader breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReaderViolation {
    /// Patches call code where there is none, or the code is where the layout has none.
    #[error("the code that reads memory is not where the layout has it")]
    Place,
    /// The word that counts failed reads is not the layout's.
    #[error("failed reads are counted {0} bytes after the counter of CPU 0")]
    Row(u64),
    /// The words that end reads are not those of the layout, not aligned, or not in the lower 2 GiB.
    #[error("the words at {0} do not end the reads")]
    Gate(Addr),
    /// The code is not that of the listing.
    #[error(transparent)]
    Listing(#[from] ListingViolation),
    /// Code that numbers stacks is where the layout has none, is absent, or has other tables than the layout.
    #[error("the code that numbers stacks, or its tables, are not those of the layout")]
    Stacks,
    /// The tables of stacks are not aligned, or not in the lower 2 GiB.
    #[error("the tables of stacks at {0} are out of reach")]
    Tables(Addr),
    /// The code is longer than its place before the arena.
    #[error("the code at {0} is longer than its place")]
    Longer(Addr),
}

/// Ends of reads that were proven: the only ones that are written to a process.
#[derive(Clone, Debug)]
pub struct VerifiedEnds(Vec<ReadsEnd>);

impl VerifiedEnds {
    /// Returns the code that was proven.
    #[must_use]
    pub fn ends(&self) -> &[ReadsEnd] {
        &self.0
    }
}

/// Proves the code of all arenas of a layout, which a gate ends.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(
    layout: &RuntimeLayout,
    gate: ReadGate,
    readers: Vec<MemoryReader>,
) -> Result<VerifiedReaders, ReaderViolation> {
    let starts = readers.iter().map(|reader| reader.start);
    if !starts.eq(layout.readers()) {
        return Err(ReaderViolation::Place);
    }
    for reader in &readers {
        let row = layout.sequences().map(|sequences| sequences.unregistered());
        if row != Some(reader.row) {
            return Err(ReaderViolation::Row(reader.row));
        }
        is_gate(gate, reader.gate)?;
        let row = ("ROW", reader.row);
        is_listed(reader.start, &reader.code, &LISTING, (gate, row))?;
        let at = reader.start.add(StackReader::OFFSET);
        let end = reader.start.0.checked_add(reader.code.len() as u64);
        if end.is_none_or(|end| end > at.0) {
            return Err(ReaderViolation::Longer(reader.start));
        }
        match (&reader.stacks, layout.stack_tables) {
            (None, None) => {}
            (Some(stacks), Some(tables)) if stacks.tables == tables => {
                is_table(tables)?;
                if stacks.code.len() as u64 > StackReader::BYTES {
                    return Err(ReaderViolation::Longer(at));
                }
                stacks::is_listed(at, stacks, (gate, reader.row))?;
            }
            _ => return Err(ReaderViolation::Stacks),
        }
    }
    Ok(VerifiedReaders(readers))
}

/// Proves the code that ends the reads of a gate, in the place of the readers of a layout.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify_ends(
    layout: &RuntimeLayout,
    gate: ReadGate,
    ends: Vec<ReadsEnd>,
) -> Result<VerifiedEnds, ReaderViolation> {
    let starts = ends.iter().map(|end| end.start);
    if !starts.eq(layout.readers()) {
        return Err(ReaderViolation::Place);
    }
    for end in &ends {
        is_gate(gate, end.gate)?;
        let patience = ("PATIENCE", end.patience);
        is_listed(end.start, &end.code, &CLOSING, (gate, patience))?;
    }
    Ok(VerifiedEnds(ends))
}

fn is_gate(gate: ReadGate, found: ReadGate) -> Result<(), ReaderViolation> {
    let at = found.closed;
    let end = at.0.checked_add(ReadGate::LEN_BYTES);
    match found == gate && at.0.is_multiple_of(8) && end.is_some_and(|end| end <= LOW_END) {
        true => Ok(()),
        false => Err(ReaderViolation::Gate(at)),
    }
}

/// Checks that all tables but the rows, whose number is not known here, are reached.
fn is_table(tables: StackTables) -> Result<(), ReaderViolation> {
    let at = tables.start;
    let end = at.0.checked_add(StackTables::ROWS);
    match at.0.is_multiple_of(64) && end.is_some_and(|end| end < LOW_END) {
        true => Ok(()),
        false => Err(ReaderViolation::Tables(at)),
    }
}

/// Compares code with its listing, and its length with its place.
fn is_listed(
    start: Addr,
    code: &[u8],
    listing: &[&str],
    (gate, other): (ReadGate, (&str, u64)),
) -> Result<(), ReaderViolation> {
    if code.len() as u64 > MemoryReader::BYTES {
        return Err(ReaderViolation::Longer(start));
    }
    let numbers = [
        ("CLOSED", gate.closed.0),
        ("UNDER_WAY", gate.under_way().0),
        other,
    ];
    Ok(compare(start, code, listing, &numbers)?)
}
