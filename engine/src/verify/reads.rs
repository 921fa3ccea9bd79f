//! The independent verifier of the code by which instruments in a process read its memory.
//!
//! The code must be, instruction by instruction, the listing below: it saves the flags and all registers that a system
//! call changes, writes no memory but its own stack, the pushed word of the result and the counter of failed reads, and
//! returns. Calls of it are proven with the patches.
//!
//! # Not verified
//! - That the code is where it is stated.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use thiserror::Error;

use crate::Addr;
use crate::layout::RuntimeLayout;
use crate::reads::MemoryReader;

/// The number of the instruction that is reached when the read has not failed.
const DONE: usize = 33;

/// A branch to [`DONE`].
const BRANCH: &str = "je short";

/// The instructions: `*` stands for the bytes from a word of CPU 0 to the one in
/// which failed reads are counted.
const LISTING: [&str; 47] = [
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
    // getpid()
    "mov eax,27h",
    "syscall",
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
    BRANCH,
    "mov qword [rsp+20h],0",
    "mov rax,[rsp+88h]",
    "lock inc qword [rax+*]",
    // Here it has not.
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
    /// An instruction is not the one of the listing.
    #[error("the instruction at {at} is `{found}`, and not `{expected}`")]
    Instruction {
        /// Its address.
        at: Addr,
        /// The instruction there.
        found: String,
        /// That of the listing.
        expected: String,
    },
    /// Bytes follow the code, or it is not before the arena.
    #[error("the code at {0} is longer than its listing")]
    Longer(Addr),
}

/// Proves the code of all arenas of a layout.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(
    layout: &RuntimeLayout,
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
        code(reader)?;
    }
    Ok(VerifiedReaders(readers))
}

/// Compares the code with its listing.
fn code(reader: &MemoryReader) -> Result<(), ReaderViolation> {
    let decoder = Decoder::with_ip(64, &reader.code, reader.start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let done = all.get(DONE).map_or(0, Instruction::ip);
    let row = match format!("{:X}h", reader.row) {
        digits if digits.starts_with(|digit: char| digit.is_ascii_digit()) => digits,
        digits => format!("0{digits}"),
    };
    let mut at = reader.start;
    for (index, expected) in LISTING.iter().enumerate() {
        let expected = expected.replace('*', &row);
        let instruction = all.get(index).copied().unwrap_or_default();
        let found = instruction.to_string();
        let is_right = match expected.as_str() {
            BRANCH => {
                instruction.code() == Code::Je_rel8_64 && instruction.near_branch_target() == done
            }
            expected => found == expected,
        };
        if !is_right {
            return Err(ReaderViolation::Instruction {
                at,
                found,
                expected,
            });
        }
        at = Addr(instruction.next_ip());
    }
    let bytes = reader.code.len() as u64;
    match all.len() == LISTING.len() && bytes <= MemoryReader::BYTES {
        true => Ok(()),
        false => Err(ReaderViolation::Longer(reader.start)),
    }
}
