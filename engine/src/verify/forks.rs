//! The independent verifier of the code in which forked children wait.
//!
//! The splice must be a branch to the code, over one instruction that loads the number of `fork` or `clone` before a
//! `syscall`, and that nothing enters in its middle; the function is no part of another one. The code must be, instruction by instruction, the listing below,
//! with the addresses and the patience that are stated: it saves the flags and all registers that it changes below the
//! red zone, blocks all signals, executes the system call, and continues after the original one with the signals, the
//! flags and the registers of before and the result of the system call; or with all of before at the original one. The
//! instructions at which a child waits are those between the test of the result and the restoration.
//!
//! It shares with the maker of the code the decoder and the type of the result.
//!
//! # Not verified
//! - That the words and the code are where they are stated, and that the agent answers.

use iced_x86::{Code, Register};
use thiserror::Error;

use super::listing::{ListingViolation, compare};
use super::text::callee::Callees;
use super::text::routine::Routine;
use super::waiting::{SPLICE, WAIT, address, are_low, branches_to, decoded, numbers};
use crate::forks::{ForkWait, ForkWords};
use crate::{Addr, Image, Span};

/// The instructions; words in capitals stand for the number of the system call, the addresses of the shared words and of
/// the original code, the interval of a wait and the patience.
const START: [&str; 9] = [
    "lea rsp,[rsp-80h]",
    "pushf",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    // Nothing waits without an agent.
    "cmp dword [OPEN],0",
];

/// Next, for `fork`, whose children always have memory of their own; `@PLAIN` is the end of the code.
const FORKS: [&str; 1] = ["je near @PLAIN"];

/// Next, for `clone`: not with CLONE_VM, and not with another stack.
const CLONES: [&str; 5] = [
    "je near @PLAIN",
    "test edi,100h",
    "jne near @PLAIN",
    "test rsi,rsi",
    "jne near @PLAIN",
];

/// Next, up to the request of a child.
const REQUEST: [&str; 22] = [
    // rt_sigprocmask(SIG_BLOCK, rsp, rsp, 8), with all signals in the word that then has those of before.
    "push 0FFFFFFFFFFFFFFFFh",
    "mov edi,0",
    "mov rsi,rsp",
    "mov rdx,rsp",
    "mov r10d,8",
    "mov eax,0Eh",
    "syscall",
    "mov r10,[rsp+8]",
    "mov rdx,[rsp+20h]",
    "mov rsi,[rsp+28h]",
    "mov rdi,[rsp+30h]",
    "mov eax,NUMBER",
    "syscall",
    "test rax,rax",
    "jne near @LEAVES",
    // The child: its number, and that of its request.
    "mov eax,27h",
    "syscall",
    "mov r8d,1",
    "lock xadd [REQUESTED],r8d",
    "mov ecx,r8d",
    "and ecx,1FFh",
    "mov [rcx*4+CHILDREN],eax",
];

/// The rest, after [`WAIT`]; targets of its branches are the instructions whose numbers in it stand below.
const REST: [&str; 27] = [
    // Answer: the result of the child.
    "mov eax,0",
    // Leaves: rt_sigprocmask(SIG_SETMASK, the signals of before, 0, 8)
    "push rax",
    "mov edi,2",
    "lea rsi,[rsp+8]",
    "mov edx,0",
    "mov r10d,8",
    "mov eax,0Eh",
    "syscall",
    "pop rax",
    "lea rsp,[rsp+8]",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "popf",
    "lea rsp,[rsp+80h]",
    "jmp @AFTER",
    // Plain: all is as before.
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "popf",
    "lea rsp,[rsp+80h]",
];

/// The end, after [`REST`].
const LAST: [&str; 2] = ["mov eax,NUMBER", "jmp @SYSCALL"];

/// The first instruction of a waiting child in [`REQUEST`].
const WAITS: usize = 15;
/// Instructions of [`REST`] that branches target.
const LEAVES: usize = 1;
const PLAIN: usize = 19;

/// The numbers of `clone` and `fork`.
const NUMBERS: [u32; 2] = [56, 57];

/// A place where children wait that was proven: the only one that is written to a process.
#[derive(Clone, Debug)]
pub struct VerifiedForkWait(ForkWait);

impl VerifiedForkWait {
    /// Returns the place that was proven.
    #[must_use]
    pub fn wait(&self) -> &ForkWait {
        &self.0
    }
}

/// The rule that a place where children wait breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForkViolation {
    /// The words are not in the lower 2 GiB, or not aligned.
    #[error("its words at {0} are not aligned, or not in the lower 2 GiB")]
    Words(Addr),
    /// The displaced bytes are not those of the image.
    #[error("the bytes at {0} are not those that are displaced")]
    Original(Addr),
    /// No system call that forks follows an instruction that loads its number.
    #[error("no number of a system call that forks is loaded at {0}, right before the system call")]
    Place(Addr),
    /// Control may enter the displaced instruction in its middle.
    #[error("the instruction at {0} may be entered in its middle")]
    Entered(Addr),
    /// The splice does not branch to the code.
    #[error("the splice at {0} does not branch to the code")]
    Splice(Addr),
    /// The code is not that of the listing.
    #[error(transparent)]
    Listing(#[from] ListingViolation),
    /// The instructions at which a child waits are others than stated.
    #[error("a child does not wait from {} to {}", .0.start, .0.end)]
    Waiting(Span),
}

/// Proves a place where children wait.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(image: &Image, wait: ForkWait) -> Result<VerifiedForkWait, ForkViolation> {
    let start = wait.words.start;
    if !are_low(start, ForkWords::LEN_BYTES) {
        return Err(ForkViolation::Words(start));
    }
    let number = place(image, &wait)?;
    let at = wait.at;
    if !branches_to(&wait.splice, at, wait.start) {
        return Err(ForkViolation::Splice(at));
    }
    code(&wait, number)?;
    Ok(VerifiedForkWait(wait))
}

/// Proves that the displaced instruction loads the number of a system call that forks; returns the number.
fn place(image: &Image, wait: &ForkWait) -> Result<u32, ForkViolation> {
    let at = wait.at;
    let displaced = Span::new(at, SPLICE as u64);
    if wait.original.len() != SPLICE || image.bytes(displaced) != Some(wait.original.as_slice()) {
        return Err(ForkViolation::Original(at));
    }
    let function = image.function_at(at);
    // The image may lack tables of jumps: their targets are in the function that jumps, and its parts.
    let function = function.filter(|function| !function.is_part());
    let function = function.ok_or(ForkViolation::Place(at))?;
    let callees = Callees::new(image);
    let routine = Routine::read(&callees, function).map_err(|_| ForkViolation::Place(at))?;
    let decoded = &routine.instructions;
    let index = decoded.iter().position(|one| one.at() == at.0);
    let pair = index.and_then(|index| decoded.get(index..index.checked_add(2)?));
    let Some([load, call]) = pair else {
        return Err(ForkViolation::Place(at));
    };
    let (load, call) = (&load.instruction, &call.instruction);
    let number = load.immediate32();
    let is_place = load.code() == Code::Mov_r32_imm32
        && load.op0_register() == Register::EAX
        && load.next_ip() == displaced.end.0
        && NUMBERS.contains(&number)
        && call.code() == Code::Syscall
        && call.ip() == displaced.end.0;
    if !is_place {
        return Err(ForkViolation::Place(at));
    }
    let middle = at.0 + 1..displaced.end.0;
    let mut ways = [&routine.targets, &routine.entered, &routine.returns].into_iter();
    if routine.strays || ways.any(|to| to.range(middle.clone()).next().is_some()) {
        return Err(ForkViolation::Entered(at));
    }
    Ok(number)
}

/// Compares the code with its listing, and the instructions at which a child waits with those of the listing.
fn code(wait: &ForkWait, number: u32) -> Result<(), ForkViolation> {
    let branches: &[&str] = match number {
        57 => &FORKS,
        _ => &CLONES,
    };
    let before = START.len() + branches.len();
    let listing = [&START, branches, &REQUEST, &WAIT, &REST, &LAST].concat();
    let all = decoded(&wait.code, wait.start);
    let waits = before + REQUEST.len();
    let rest = waits + WAIT.len();
    let requests = wait.words.requests();
    let after_load = wait.at.0 + SPLICE as u64;
    let own = [
        ("NUMBER", u64::from(number)),
        ("CHILDREN", requests.at(ForkWords::CHILDREN).0),
        ("SYSCALL", after_load),
        ("AFTER", after_load + 2),
        ("LEAVES", address(&all, rest + LEAVES)),
        ("PLAIN", address(&all, rest + PLAIN)),
    ];
    let shared = numbers(requests, wait.patience, (&all, waits));
    let numbers = [&own[..], &shared].concat();
    compare(wait.start, &wait.code, &listing, &numbers)?;
    let waiting = Span {
        start: Addr(address(&all, before + WAITS)),
        end: Addr(address(&all, rest + LEAVES)),
    };
    match wait.waiting == waiting {
        true => Ok(()),
        false => Err(ForkViolation::Waiting(wait.waiting)),
    }
}
