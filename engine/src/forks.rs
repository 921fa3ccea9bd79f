//! Code in which a forked child waits for the agent before it executes an instruction of its own.
//!
//! A splice displaces the instruction that loads the number of `fork` or `clone` right before a `syscall`
//! (arch/x86/entry/syscalls/syscall_64.tbl), as compilers write it for glibc's `_Fork`. It branches to this code, which
//! blocks all signals, so that no handler is executed in the child, and executes the system call. The parent has its
//! signals back and continues after the original `syscall`. The child announces itself by its number, wakes the agent, and
//! waits until the agent has removed the instruments from its memory and moved it to the original code, or has
//! answered; then it continues as its parent does. All registers and flags are kept but those that a system call changes.
//!
//! A child that shares its parent's memory (`CLONE_VM`), or has a stack of its own, is forked by the original `syscall`,
//! and does not wait.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

use crate::code::Function;
use crate::isa::encode::{jump, rel32};
use crate::rendezvous::{Assembled, RendezvousWords};
use crate::{Addr, Error, Image, Refusal, Result, Rule, Span};

/// `clone` and `fork` of arch/x86/entry/syscalls/syscall_64.tbl.
const CLONE: u32 = 56;
const FORK: u32 = 57;
/// `rt_sigprocmask` and `getpid` of the same table.
const SIGPROCMASK: u32 = 14;
const GETPID: u32 = 39;
/// `SIG_BLOCK` and `SIG_SETMASK` of include/uapi/asm-generic/signal-defs.h.
const BLOCK: u32 = 0;
const SETMASK: u32 = 2;
/// Bytes of a set of signals.
const SET: u32 = 8;
/// `CLONE_VM` of include/uapi/linux/sched.h.
const CLONE_VM: u32 = 0x100;

/// Words that the process, its children and the agent share, in the lower 2 GiB: those of requests, and the numbers of the
/// children that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkWords {
    /// Address of the first.
    pub start: Addr,
}

impl ForkWords {
    /// Bytes of all words.
    pub const LEN_BYTES: u64 = Self::CHILDREN + 4 * Self::MOST_CHILDREN as u64;
    /// Offset of the children's numbers, four bytes each. The child with the request of number `n`, from 0 on, has word
    /// `n` modulo [`Self::MOST_CHILDREN`].
    pub const CHILDREN: u64 = 2048;
    /// The number of these words: a power of two.
    pub const MOST_CHILDREN: u32 = 512;

    /// The words of requests and answers.
    #[must_use]
    pub fn requests(self) -> RendezvousWords {
        RendezvousWords { start: self.start }
    }
}

/// The state of a thread before it forked, on its stack while its child waits: distances from the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFrame;

impl WaitingFrame {
    /// The signals that were blocked.
    pub const BLOCKED: u64 = 0;
    /// The registers r10, r9, r8, rdx, rsi and rdi, in this order.
    pub const REGISTERS: u64 = 8;
    /// The word that `pushfq` stores.
    pub const FLAGS: u64 = 56;
    /// From the stack pointer to the one before: the words, and the red zone.
    pub const LEN_BYTES: u64 = 64 + 128;
}

/// A splice before a system call that forks, and the code that it branches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkWait {
    /// Address of the splice: of the instruction that loads the number of the system call.
    pub at: Addr,
    /// That instruction.
    pub original: Vec<u8>,
    /// The branch to the code.
    pub splice: Vec<u8>,
    /// Address of the code.
    pub start: Addr,
    /// Forks, and waits in the child.
    pub code: Vec<u8>,
    /// The instructions at which a child waits, whose stack has a [`WaitingFrame`].
    pub waiting: Span,
    /// The words that it shares with the agent.
    pub words: ForkWords,
    /// The longest time of all waits for an answer, in ticks of the time-stamp counter.
    pub patience: u64,
}

impl ForkWait {
    /// Bytes of the code, at most.
    pub const MOST_BYTES: u64 = 512;

    /// Finds the places of an image where it forks, in order of address. A place is the address of the instruction that
    /// loads the number of the system call.
    #[must_use]
    pub fn places(image: &Image) -> Vec<Addr> {
        let functions = image.functions().iter();
        let mut places: Vec<Addr> = functions
            .flat_map(|function| places_in(image, function))
            .map(|(place, _)| place)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Returns whether code may have such a place. Other bytes may look like one, too.
    #[must_use]
    pub fn may_fork(code: &[u8]) -> bool {
        let mut all = code.array_windows::<7>();
        all.any(|bytes| matches!(bytes, [0xb8, 56 | 57, 0, 0, 0, 0x0f, 0x05]))
    }

    /// Makes the splice at a place, and the code at `start`.
    ///
    /// # Errors
    /// [`Error::Unplanned`] if the place is in a function that is refused, may be entered in its middle, or is out of the
    /// code's reach.
    pub fn new(
        image: &Image,
        at: Addr,
        start: Addr,
        words: ForkWords,
        patience: u64,
    ) -> Result<Self> {
        let target = || image.named(at).unwrap_or_else(|| at.to_string());
        let refused = |rule, why: &str| Error::Unplanned {
            target: target(),
            refusal: Refusal::new(rule, at, why),
        };
        let function = image.function_at(at);
        let number = function.and_then(|function| {
            let mut places = places_in(image, function).into_iter();
            let place = places.find(|(place, _)| *place == at);
            place.map(|(_, number)| number)
        });
        let (Some(function), Some(number)) = (function, number) else {
            let why = "no instruction there loads the number of a system call that forks";
            return Err(refused(Rule::NothingToDisplace, why));
        };
        if let Some(refusal) = image.refused(function.id) {
            return Err(Error::Unplanned {
                target: target(),
                refusal: refusal.clone(),
            });
        }
        let splice = jump(at, start)
            .ok_or_else(|| refused(Rule::OutOfReach, "the code is out of its reach"))?;
        let displaced = Span::new(at, splice.len() as u64);
        let middle = Span {
            start: at.add(1),
            end: displaced.end,
        };
        // A table of the whole function may have addresses in a part.
        if function.is_part() || !image.entered(middle).is_empty() {
            let why = "the instruction before the system call may be entered in its middle";
            return Err(refused(Rule::NothingToDisplace, why));
        }
        let original = image.bytes(displaced).unwrap_or_default();
        let made = code(number, displaced.end, start, (words, patience));
        let (code, waiting) =
            made.ok_or_else(|| refused(Rule::OutOfReach, "the code is out of its reach"))?;
        Ok(Self {
            at,
            original: original.to_vec(),
            splice: splice.to_vec(),
            start,
            code,
            waiting,
            words,
            patience,
        })
    }
}

/// The places of a function, each with the number that is loaded there.
fn places_in(image: &Image, function: &Function) -> Vec<(Addr, u32)> {
    let bytes = image.bytes(function.span).unwrap_or_default();
    if !ForkWait::may_fork(bytes) {
        return Vec::new();
    }
    let decoder = Decoder::with_ip(64, bytes, function.span.start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let pairs = all.array_windows::<2>();
    let places = pairs.filter_map(|[load, call]| {
        let number = number(load).filter(|_| call.code() == Code::Syscall);
        number.map(|number| (Addr(load.ip()), number))
    });
    places.collect()
}

/// The number of a system call that forks, which an instruction of five bytes loads.
fn number(load: &Instruction) -> Option<u32> {
    let loads = load.code() == Code::Mov_r32_imm32
        && load.op0_register() == Register::EAX
        && load.len() == 5;
    let number = loads.then(|| load.immediate32())?;
    matches!(number, CLONE | FORK).then_some(number)
}

/// Assembles the code for the `syscall` at an address; returns it, and the instructions at which a child waits.
fn code(
    number: u32,
    syscall: Addr,
    start: Addr,
    (words, patience): (ForkWords, u64),
) -> Option<(Vec<u8>, Span)> {
    let requests = words.requests();
    let mut code = Assembled::default();
    code.push(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp-128]
    // pushfq; push rdi, rsi, rdx, r8, r9, r10
    code.push(&[0x9c, 0x57, 0x56, 0x52]);
    code.push(&[0x41, 0x50, 0x41, 0x51, 0x41, 0x52]);
    let mut plain = vec![code.if_closed(requests)];
    if number == CLONE {
        code.number(&[0xf7, 0xc7], CLONE_VM); // test edi, CLONE_VM
        plain.push(code.branch(&[0x0f, 0x85])); // jne
        code.push(&[0x48, 0x85, 0xf6]); // test rsi, rsi
        plain.push(code.branch(&[0x0f, 0x85])); // jne
    }
    code.push(&[0x6a, 0xff]); // push -1
    code.number(&[0xbf], BLOCK); // mov edi, SIG_BLOCK
    code.push(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    code.push(&[0x48, 0x89, 0xe2]); // mov rdx, rsp
    code.number(&[0x41, 0xba], SET); // mov r10d, 8
    code.number(&[0xb8], SIGPROCMASK); // mov eax, rt_sigprocmask
    code.push(&[0x0f, 0x05]); // syscall
    code.push(&[0x4c, 0x8b, 0x54, 0x24, 0x08]); // mov r10, [rsp+8]
    code.push(&[0x48, 0x8b, 0x54, 0x24, 0x20]); // mov rdx, [rsp+32]
    code.push(&[0x48, 0x8b, 0x74, 0x24, 0x28]); // mov rsi, [rsp+40]
    code.push(&[0x48, 0x8b, 0x7c, 0x24, 0x30]); // mov rdi, [rsp+48]
    code.number(&[0xb8], number); // mov eax, number
    code.push(&[0x0f, 0x05]); // syscall
    code.push(&[0x48, 0x85, 0xc0]); // test rax, rax
    let is_parent = code.branch(&[0x0f, 0x85]); // jne
    let waiting_start = start.add(code.bytes.len() as u64);
    code.number(&[0xb8], GETPID); // mov eax, getpid
    code.push(&[0x0f, 0x05]); // syscall
    code.push(&[0x41, 0xb8, 1, 0, 0, 0]); // mov r8d, 1
    code.push(&[0xf0, 0x44, 0x0f, 0xc1, 0x04, 0x25]); // lock xadd [requested], r8d
    code.address(requests.at(RendezvousWords::REQUESTED));
    code.push(&[0x44, 0x89, 0xc1]); // mov ecx, r8d
    code.number(&[0x81, 0xe1], ForkWords::MOST_CHILDREN - 1); // and ecx, 511
    code.push(&[0x89, 0x04, 0x8d]); // mov [rcx*4+children], eax
    code.address(words.start.add(ForkWords::CHILDREN));
    code.push(&[0x41, 0xff, 0xc0]); // inc r8d
    for branch in code.wake_and_wait(requests, patience) {
        code.resolve(branch, code.bytes.len());
    }
    code.number(&[0xb8], 0); // mov eax, 0
    code.resolve(is_parent, code.bytes.len());
    let waiting_end = start.add(code.bytes.len() as u64);
    code.push(&[0x50]); // push rax
    code.number(&[0xbf], SETMASK); // mov edi, SIG_SETMASK
    code.push(&[0x48, 0x8d, 0x74, 0x24, 0x08]); // lea rsi, [rsp+8]
    code.number(&[0xba], 0); // mov edx, 0
    code.number(&[0x41, 0xba], SET); // mov r10d, 8
    code.number(&[0xb8], SIGPROCMASK); // mov eax, rt_sigprocmask
    code.push(&[0x0f, 0x05]); // syscall
    code.push(&[0x58]); // pop rax
    code.push(&[0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
    restore(&mut code);
    branch_to(&mut code, start, syscall.add(2))?;
    for branch in plain {
        code.resolve(branch, code.bytes.len());
    }
    restore(&mut code);
    code.number(&[0xb8], number); // mov eax, number
    branch_to(&mut code, start, syscall)?;
    let waiting = Span {
        start: waiting_start,
        end: waiting_end,
    };
    debug_assert!(
        code.bytes.len() as u64 <= ForkWait::MOST_BYTES,
        "the code is longer than its space"
    );
    Some((code.bytes, waiting))
}

/// Restores the registers and flags.
fn restore(code: &mut Assembled) {
    // pop r10, r9, r8, rdx, rsi, rdi; popfq
    code.push(&[0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]);
    code.push(&[0x5a, 0x5e, 0x5f, 0x9d]);
    code.push(&[0x48, 0x8d, 0xa4, 0x24, 128, 0, 0, 0]); // lea rsp, [rsp+128]
}

/// A `jmp` to an address outside of the code at `start`; `None` if that is out of reach.
fn branch_to(code: &mut Assembled, start: Addr, target: Addr) -> Option<()> {
    code.push(&[0xe9]);
    let end = start.add(code.bytes.len() as u64 + 4);
    code.push(&rel32(end, target)?);
    Some(())
}
