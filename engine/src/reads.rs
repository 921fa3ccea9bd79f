//! Code of a process that reads a number in the memory of the process for an instrument, and requests from the kernel
//! what a kernel's instruments find in its memory: the number of the process, and the name of the thread.
//!
//! An address that a program of an instrument computes may be any: a load there would end the process. The kernel reads
//! it instead, by `process_vm_readv(2)` of the process itself, which reports what is not mapped and takes no lock of the
//! process. Patches call the code with three words pushed, as that of a kernel is called (`users` of `struct ilk_info`):
//! the address, the counter of failed reads, and the request. Its lowest byte is the kind: 0 for memory, then the next one
//! is the number of bytes; [`PROCESS`] for the number of the process; [`COMM`] for the name, then the next one is 0 for the
//! first eight bytes, and 1 for the others.
//!
//! A filter of system calls (seccomp(2)) may end the process for such a read. So reads end before a thread installs one
//! ([`crate::filters`]): it closes the [`ReadGate`], after which each read fails, and waits for those that are under way.

use crate::Addr;
use crate::filters::{PRCTL, SECCOMP};
use crate::layout::{ReadGate, RuntimeLayout, Sequences};
use crate::stacks::StackReader;

/// Number of `getpid(2)`: a forked child reads its own memory.
const GETPID: u8 = 39;
/// Number of `process_vm_readv(2)`.
const READ: u16 = 310;
/// The operation of `prctl(2)` that reads the name of the thread, 16 bytes with zeroes after its end: `PR_GET_NAME`.
const GET_NAME: u8 = 16;
/// Kinds of requests.
const PROCESS: u8 = 4;
const COMM: u8 = 5;

/// The code before an arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReader {
    /// Its first instruction.
    pub start: Addr,
    /// Its bytes.
    pub code: Vec<u8>,
    /// Bytes from a word of CPU 0 to the one of threads without an area, in which failed reads are counted.
    pub row: u64,
    /// Words that end all reads.
    pub gate: ReadGate,
    /// Code [`StackReader::OFFSET`] bytes after `start` that numbers stacks and addresses.
    pub stacks: Option<StackReader>,
}

impl MemoryReader {
    /// Bytes that are reserved for both before each arena.
    pub const BYTES: u64 = StackReader::OFFSET + StackReader::BYTES;

    /// Assembles the code for each arena of a layout; none for a layout without [`Sequences`].
    #[must_use]
    pub fn all(layout: &RuntimeLayout, gate: ReadGate) -> Vec<Self> {
        let Some(row) = layout.sequences().map(Sequences::unregistered) else {
            return Vec::new();
        };
        let tables = layout.stack_tables;
        let stacks = tables.map(|tables| StackReader::new(tables, row, gate));
        let reader = |start| Self {
            start,
            code: code(row, gate),
            row,
            gate,
            stacks: stacks.clone(),
        };
        layout.readers().map(reader).collect()
    }

    /// Returns the code and its addresses: that which reads numbers, and that which numbers stacks.
    pub fn parts(&self) -> impl Iterator<Item = (Addr, &[u8])> {
        let stacks = self.stacks.iter();
        let stacks = stacks.map(|stacks| (self.start.add(StackReader::OFFSET), &*stacks.code));
        std::iter::once((self.start, &*self.code)).chain(stacks)
    }
}

/// The code that ends all reads, in the place of a reader: the guards of system calls that may install a filter call it as
/// one. The address is [`ReadsEnd::ALWAYS`], or that of the four bytes that have the number of the system call; then it ends
/// them if the number is one that may install a filter. The value that it returns is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadsEnd {
    /// Its first instruction.
    pub start: Addr,
    /// Its bytes.
    pub code: Vec<u8>,
    /// Words that it closes.
    pub gate: ReadGate,
    /// The longest wait for reads that are under way, in ticks of the time-stamp counter.
    pub patience: u64,
}

impl ReadsEnd {
    /// The address that ends the reads whatever the system call is.
    pub const ALWAYS: u8 = 8;

    /// Assembles the code for each arena of a layout.
    #[must_use]
    pub fn all(layout: &RuntimeLayout, gate: ReadGate, patience: u64) -> Vec<Self> {
        let end = |start| Self {
            start,
            code: closing(gate, patience),
            gate,
            patience,
        };
        layout.readers().map(end).collect()
    }
}

/// The displacement of an address in the lower 2 GiB.
fn low(at: Addr) -> [u8; 4] {
    let [a, b, c, d, ..] = at.0.to_le_bytes();
    [a, b, c, d]
}

/// Assembles the code that ends reads, which is at any address.
fn closing(gate: ReadGate, patience: u64) -> Vec<u8> {
    let mut code = Vec::new();
    let mut push = |bytes: &[u8]| code.extend_from_slice(bytes);
    push(&[0x9c, 0x50, 0x51, 0x52]); // pushfq; push rax, rcx, rdx
    push(&[0x48, 0x8b, 0x44, 0x24, 56]); // mov rax, [rsp+56]: the address
    push(&[0x48, 0x83, 0xf8, ReadsEnd::ALWAYS]); // cmp rax, ALWAYS
    push(&[0x74, 16]); // je close
    push(&[0x8b, 0x00]); // mov eax, [rax]
    push(&[0x3d]); // cmp eax, seccomp
    push(&SECCOMP.to_le_bytes());
    push(&[0x74, 7]); // je close
    push(&[0x3d]); // cmp eax, prctl
    push(&PRCTL.to_le_bytes());
    push(&[0x75, 61]); // jne done
    push(&[0xb8, 1, 0, 0, 0]); // close: mov eax, 1
    push(&[0x87, 0x04, 0x25]); // xchg [closed], eax
    push(&low(gate.closed));
    push(&[0x0f, 0x31]); // rdtsc
    push(&[0x48, 0xc1, 0xe2, 32]); // shl rdx, 32
    push(&[0x48, 0x8d, 0x0c, 0x10]); // lea rcx, [rax+rdx]
    push(&[0x48, 0xb8]); // mov rax, patience
    push(&patience.to_le_bytes());
    push(&[0x48, 0x01, 0xc1]); // add rcx, rax
    push(&[0x83, 0x3c, 0x25]); // again: cmp dword [under_way], 0
    push(&low(gate.under_way()));
    push(&[0]);
    push(&[0x74, 16]); // je done
    push(&[0xf3, 0x90]); // pause
    push(&[0x0f, 0x31]); // rdtsc
    push(&[0x48, 0xc1, 0xe2, 32]); // shl rdx, 32
    push(&[0x48, 0x09, 0xd0]); // or rax, rdx
    push(&[0x48, 0x39, 0xc8]); // cmp rax, rcx
    push(&[0x72, 0xe6]); // jb again
    push(&[0x48, 0xc7, 0x44, 0x24, 56, 0, 0, 0, 0]); // done: mov qword [rsp+56], 0: in place of the address
    push(&[0x5a, 0x59, 0x58, 0x9d, 0xc3]); // pop rdx, rcx, rax; popfq; ret
    code
}

/// Assembles the code, which is at any address.
fn code(row: u64, gate: ReadGate) -> Vec<u8> {
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
    push(&[0xf0, 0xff, 0x04, 0x25]); // lock inc dword [under_way]
    push(&low(gate.under_way()));
    push(&[0x83, 0x3c, 0x25]); // cmp dword [closed], 0
    push(&low(gate.closed));
    push(&[0]);
    push(&[0x75, 68]); // jne failed
    push(&[0x80, 0xbc, 0x24, 128, 0, 0, 0, COMM]); // cmp byte [rsp+128], COMM: the kind
    push(&[0x74, 85]); // je comm
    push(&[0xb8, GETPID, 0, 0, 0]); // mov eax, getpid
    push(&[0x0f, 0x05]); // syscall
    push(&[0x80, 0xbc, 0x24, 128, 0, 0, 0, PROCESS]); // cmp byte [rsp+128], PROCESS
    push(&[0x74, 99]); // je value
    push(&[0x89, 0xc7]); // mov edi, eax
    push(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    push(&[0xba, 1, 0, 0, 0]); // mov edx, 1
    push(&[0x4c, 0x8d, 0x54, 0x24, 16]); // lea r10, [rsp+16]
    push(&[0x41, 0xb8, 1, 0, 0, 0]); // mov r8d, 1
    push(&[0x41, 0xb9, 0, 0, 0, 0]); // mov r9d, 0
    let [first, second] = READ.to_le_bytes();
    push(&[0xb8, first, second, 0, 0]); // mov eax, process_vm_readv
    push(&[0x0f, 0x05]); // syscall
    push(&[0x48, 0x3b, 0x44, 0x24, 8]); // cmp rax, [rsp+8]
    push(&[0x74, 63]); // je done
    push(&[0x48, 0xc7, 0x44, 0x24, 32, 0, 0, 0, 0]); // failed: mov qword [rsp+32], 0
    push(&[0x48, 0x8b, 0x84, 0x24, 136, 0, 0, 0]); // mov rax, [rsp+136]: the counter
    push(&[0xf0, 0x48, 0xff, 0x80]); // lock inc qword [rax+row]
    let [a, b, c, d, ..] = row.to_le_bytes();
    push(&[a, b, c, d]);
    push(&[0xeb, 36]); // jmp done
    push(&[0xbf, GET_NAME, 0, 0, 0]); // comm: mov edi, PR_GET_NAME
    push(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    push(&[0xb8]); // mov eax, prctl
    push(&PRCTL.to_le_bytes());
    push(&[0x0f, 0x05]); // syscall
    push(&[0x85, 0xc0]); // test eax, eax
    push(&[0x75, 0u8.wrapping_sub(46)]); // jne failed
    push(&[0x0f, 0xb6, 0x84, 0x24, 129, 0, 0, 0]); // movzx eax, byte [rsp+129]: the half
    push(&[0x48, 0x8b, 0x04, 0xc4]); // mov rax, [rsp+8*rax]
    push(&[0x48, 0x89, 0x44, 0x24, 32]); // value: mov [rsp+32], rax
    push(&[0xf0, 0xff, 0x0c, 0x25]); // done: lock dec dword [under_way]
    push(&low(gate.under_way()));
    push(&[0x48, 0x8b, 0x44, 0x24, 32]); // mov rax, [rsp+32]
    push(&[0x48, 0x89, 0x84, 0x24, 144, 0, 0, 0]); // mov [rsp+144], rax: in place of the address
    push(&[0x48, 0x8d, 0x64, 0x24, 40]); // lea rsp, [rsp+40]
    push(&[0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]); // pop r11, r10, r9, r8
    push(&[0x5f, 0x5e, 0x5a, 0x59, 0x58, 0x9d, 0xc3]); // pop rdi, rsi, rdx, rcx, rax; popfq; ret
    code
}
