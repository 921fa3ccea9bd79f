//! Code of a fixed form in which a thread of a process waits for the agent: the words, the branch to it, and its listing.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use crate::Addr;
use crate::rendezvous::RendezvousWords;

/// Bytes of a splice.
pub(super) const SPLICE: usize = 5;
/// The end of the addresses that instructions reach without a register.
const LOW_END: u64 = 1 << 31;

/// The instructions of a request, whose number less 1 is in r8, and of the wait for its answer. What follows is `@ANSWER`.
pub(super) const WAIT: [&str; 29] = [
    "inc r8d",
    // futex(requested, FUTEX_WAKE, 1)
    "mov edi,REQUESTED",
    "mov esi,1",
    "mov edx,1",
    "mov eax,0CAh",
    "syscall",
    // The end of the patience is in r9.
    "rdtsc",
    "shl rdx,20h",
    "lea r9,[rax+rdx]",
    "mov rax,PATIENCE",
    "add r9,rax",
    // Again:
    "rdtsc",
    "shl rdx,20h",
    "or rax,rdx",
    "cmp rax,r9",
    "jae near @LATE",
    "mov edx,[ANSWERED]",
    "mov eax,edx",
    "sub eax,r8d",
    "jns near @ANSWER",
    "cmp dword [OPEN],0",
    "je near @ANSWER",
    // futex(answered, FUTEX_WAIT, edx, interval)
    "mov edi,ANSWERED",
    "mov esi,0",
    "mov r10d,INTERVAL",
    "mov eax,0CAh",
    "syscall",
    "jmp @AGAIN",
    // Late: nothing will wait any more.
    "mov dword [OPEN],0",
];

/// Instructions of [`WAIT`] that its branches target.
const AGAIN: usize = 11;
const LATE: usize = 28;

/// Returns the numbers of the listing of a wait, whose first instruction is `first` of all.
pub(super) fn numbers(
    words: RendezvousWords,
    patience: u64,
    (all, first): (&[Instruction], usize),
) -> [(&'static str, u64); 8] {
    let word = |name, offset| (name, words.at(offset).0);
    let target = |name, index: usize| (name, address(all, first + index));
    [
        word("REQUESTED", RendezvousWords::REQUESTED),
        word("ANSWERED", RendezvousWords::ANSWERED),
        word("OPEN", RendezvousWords::OPEN),
        word("INTERVAL", RendezvousWords::INTERVAL),
        ("PATIENCE", patience),
        target("AGAIN", AGAIN),
        target("LATE", LATE),
        target("ANSWER", WAIT.len()),
    ]
}

/// Decodes code of a fixed form.
pub(super) fn decoded(code: &[u8], start: Addr) -> Vec<Instruction> {
    let decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    decoder.into_iter().collect()
}

/// Returns the address of an instruction. One that the code does not have is no target of its branches.
pub(super) fn address(all: &[Instruction], index: usize) -> u64 {
    all.get(index).map_or(0, Instruction::ip)
}

/// Returns whether words are aligned, and in the lower 2 GiB.
pub(super) fn are_low(start: Addr, len_bytes: u64) -> bool {
    let end = start.0.checked_add(len_bytes);
    start.0.is_multiple_of(8) && end.is_some_and(|end| end <= LOW_END)
}

/// Returns whether a splice is a branch to the code.
pub(super) fn branches_to(splice: &[u8], at: Addr, code: Addr) -> bool {
    let branch = Decoder::with_ip(64, splice, at.0, DecoderOptions::NONE).decode();
    splice.len() == SPLICE
        && branch.code() == Code::Jmp_rel32_64
        && branch.near_branch_target() == code.0
}
