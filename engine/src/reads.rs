//! Code of a process that reads a number in the memory of the process for an instrument.
//!
//! An address that a program of an instrument computes may be any: a load there would end the process. The kernel reads
//! it instead, by `process_vm_readv(2)` of the process itself, which reports what is not mapped and takes no lock of the
//! process. Patches call the code with three words pushed, as that of a kernel is called (`users` of `struct ilk_info`):
//! the address, the counter of failed reads, and the number of bytes times 256.

use crate::Addr;
use crate::layout::{RuntimeLayout, Sequences};

/// Number of `getpid(2)`: a forked child reads its own memory.
const GETPID: u8 = 39;
/// Number of `process_vm_readv(2)`.
const READ: u16 = 310;

/// The code before an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReader {
    /// Its first instruction.
    pub start: Addr,
    /// Its bytes.
    pub code: Vec<u8>,
    /// Bytes from a word of CPU 0 to the one of threads without an area, in which failed reads are counted.
    pub row: u64,
}

impl MemoryReader {
    /// Bytes that are reserved for it before each arena.
    pub const BYTES: u64 = 256;

    /// Assembles the code for each arena of a layout; none for a layout without [`Sequences`].
    #[must_use]
    pub fn all(layout: &RuntimeLayout) -> Vec<Self> {
        let Some(row) = layout.sequences().map(Sequences::unregistered) else {
            return Vec::new();
        };
        let reader = |start| Self {
            start,
            code: code(row),
            row,
        };
        layout.readers().map(reader).collect()
    }
}

/// Assembles the code, which is at any address.
fn code(row: u64) -> Vec<u8> {
    let mut code = Vec::new();
    let mut push = |bytes: &[u8]| code.extend_from_slice(bytes);
    push(&[0x9c, 0x50, 0x51, 0x52, 0x56, 0x57]); // pushfq; push rax, rcx, rdx, rsi, rdi
    push(&[0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53]); // push r8, r9, r10, r11
    push(&[0x0f, 0xb6, 0x4c, 0x24, 89]); // movzx ecx, byte [rsp+89]: the number of bytes
    push(&[0x48, 0x8b, 0x44, 0x24, 104]); // mov rax, [rsp+104]: the address
    push(&[0x6a, 0]); // push 0: the value
    push(&[0x51, 0x50]); // push rcx, rax: an iovec
    push(&[0x48, 0x8d, 0x44, 0x24, 16]); // lea rax, [rsp+16]
    push(&[0x51, 0x50]); // push rcx, rax: the iovec of the value
    push(&[0xb8, GETPID, 0, 0, 0]); // mov eax, getpid
    push(&[0x0f, 0x05]); // syscall
    push(&[0x89, 0xc7]); // mov edi, eax
    push(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    push(&[0xba, 1, 0, 0, 0]); // mov edx, 1
    push(&[0x4c, 0x8d, 0x54, 0x24, 16]); // lea r10, [rsp+16]
    push(&[0x41, 0xb8, 1, 0, 0, 0]); // mov r8d, 1
    push(&[0x41, 0xb9, 0, 0, 0, 0]); // mov r9d, 0
    let [low, high] = READ.to_le_bytes();
    push(&[0xb8, low, high, 0, 0]); // mov eax, process_vm_readv
    push(&[0x0f, 0x05]); // syscall
    push(&[0x48, 0x3b, 0x44, 0x24, 8]); // cmp rax, [rsp+8]
    push(&[0x74, 9 + 8 + 8]); // je done
    push(&[0x48, 0xc7, 0x44, 0x24, 32, 0, 0, 0, 0]); // mov qword [rsp+32], 0
    push(&[0x48, 0x8b, 0x84, 0x24, 136, 0, 0, 0]); // mov rax, [rsp+136]: the counter
    push(&[0xf0, 0x48, 0xff, 0x80]); // lock inc qword [rax+row]
    let [a, b, c, d, ..] = row.to_le_bytes();
    push(&[a, b, c, d]);
    push(&[0x48, 0x8b, 0x44, 0x24, 32]); // done: mov rax, [rsp+32]
    push(&[0x48, 0x89, 0x84, 0x24, 144, 0, 0, 0]); // mov [rsp+144], rax: in place of the address
    push(&[0x48, 0x8d, 0x64, 0x24, 40]); // lea rsp, [rsp+40]
    push(&[0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]); // pop r11, r10, r9, r8
    push(&[0x5f, 0x5e, 0x5a, 0x59, 0x58, 0x9d, 0xc3]); // pop rdi, rsi, rdx, rcx, rax; popfq; ret
    code
}
