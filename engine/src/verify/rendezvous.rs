//! The independent verifier of the code at which threads wait while objects are loaded.
//!
//! The splice must be a branch to the code, over a return and padding that nothing enters. The code must be, instruction
//! by instruction, the listing below, with the addresses and the patience that are stated: it saves the flags and all
//! registers that a system call changes, writes no memory but the shared words and its own stack, and returns.
//!
//! It shares with the maker of the code the decoder and the type of the result.
//!
//! # Not verified
//! - That the words and the code are where they are stated, and that the agent answers.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use thiserror::Error;

use super::text::callee::Callees;
use super::text::liveness::{LiveSets, SampledAt};
use super::text::originals::OriginalCode;
use super::text::padding::is_never_run;
use super::text::routine::Routine;
use crate::rendezvous::{Rendezvous, RendezvousWords};
use crate::{Addr, Image, Span};

/// The instructions before those with addresses.
const LISTING_START: [&str; 10] = [
    "push rax", "push rcx", "push rdx", "push rsi", "push rdi", "push r8", "push r9", "push r10",
    "push r11", "pushf",
];
/// The instructions after them.
const LISTING_END: [&str; 11] = [
    "popf", "pop r11", "pop r10", "pop r9", "pop r8", "pop rdi", "pop rsi", "pop rdx", "pop rcx",
    "pop rax", "ret",
];
/// Numbers of the instructions at which a wait begins again, no thread will wait any more, and the thread leaves.
const AGAIN: usize = 25;
const LATE: usize = 42;
const LEAVE: usize = 43;

/// Bytes of a splice.
const SPLICE: usize = 5;
/// The end of the addresses that instructions reach without a register.
const LOW_END: u64 = 1 << 31;

/// A rendezvous that was proven: the only one that is written to a process.
#[derive(Clone, Debug)]
pub struct VerifiedRendezvous(Rendezvous);

impl VerifiedRendezvous {
    /// Returns the rendezvous that was proven.
    #[must_use]
    pub fn rendezvous(&self) -> &Rendezvous {
        &self.0
    }
}

/// The rule that a rendezvous breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RendezvousViolation {
    /// The words are not in the lower 2 GiB, or not aligned.
    #[error("its words at {0} are not aligned, or not in the lower 2 GiB")]
    Words(Addr),
    /// The function is not one that only returns.
    #[error("no function that only returns begins at {0}")]
    Function(Addr),
    /// The displaced bytes are not those of the image.
    #[error("the bytes at {0} are not those that are displaced")]
    Original(Addr),
    /// The bytes after the return may execute.
    #[error("the bytes at {at} may execute: {why}")]
    Executes {
        /// The first of them.
        at: Addr,
        /// The reason.
        why: String,
    },
    /// The splice does not branch to the code.
    #[error("the splice at {0} does not branch to the code")]
    Splice(Addr),
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
    /// Bytes follow the code.
    #[error("the code at {0} is longer than its listing")]
    Longer(Addr),
}

/// Proves a rendezvous.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(
    image: &Image,
    rendezvous: Rendezvous,
) -> Result<VerifiedRendezvous, RendezvousViolation> {
    let start = rendezvous.words.start;
    let end = start.0.checked_add(RendezvousWords::LEN_BYTES);
    if !start.0.is_multiple_of(8) || end.is_none_or(|end| end > LOW_END) {
        return Err(RendezvousViolation::Words(start));
    }
    splice(image, &rendezvous)?;
    code(&rendezvous)?;
    Ok(VerifiedRendezvous(rendezvous))
}

/// Proves that the displaced bytes are a return and padding, and that the splice branches to the code.
fn splice(image: &Image, rendezvous: &Rendezvous) -> Result<(), RendezvousViolation> {
    let at = rendezvous.at;
    let displaced = Span::new(at, SPLICE as u64);
    if rendezvous.original.len() != SPLICE
        || image.bytes(displaced) != Some(rendezvous.original.as_slice())
    {
        return Err(RendezvousViolation::Original(at));
    }
    let function = image.function_at(at);
    let function = function.filter(|function| function.span.start == at);
    let function = function.ok_or(RendezvousViolation::Function(at))?;
    let callees = Callees::new(image);
    let routine = Routine::read(&callees, function);
    let routine = routine.map_err(|_| RendezvousViolation::Function(at))?;
    let code = |index: usize| {
        let decoded = routine.instructions.get(index);
        decoded.map(|decoded| (decoded.instruction.code(), decoded.end()))
    };
    let end = match (code(0), code(1)) {
        (Some((Code::Retnq, end)), _) => end,
        (Some((Code::Endbr64, _)), Some((Code::Retnq, end))) => end,
        _ => return Err(RendezvousViolation::Function(at)),
    };
    let padding = Span {
        start: Addr(end),
        end: displaced.end,
    };
    if !padding.is_empty() {
        let live = LiveSets::of(&routine, &SampledAt::default());
        let originals = OriginalCode::new(image, vec![(routine, live)]);
        is_never_run(&originals, padding).map_err(|why| RendezvousViolation::Executes {
            at: padding.start,
            why: why.to_string(),
        })?;
    }
    let decode = || Decoder::with_ip(64, &rendezvous.splice, at.0, DecoderOptions::NONE).decode();
    let jumps = rendezvous.splice.len() == SPLICE
        && decode().code() == Code::Jmp_rel32_64
        && decode().near_branch_target() == rendezvous.start.0;
    match jumps {
        true => Ok(()),
        false => Err(RendezvousViolation::Splice(at)),
    }
}

/// Compares the code with its listing.
fn code(rendezvous: &Rendezvous) -> Result<(), RendezvousViolation> {
    let bytes = rendezvous.code.as_slice();
    let decoder = Decoder::with_ip(64, bytes, rendezvous.start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let address = |index: usize| {
        let instruction = all.get(index);
        let after = all.last().map_or(rendezvous.start.0, Instruction::next_ip);
        Addr(instruction.map_or(after, Instruction::ip))
    };
    let listing = listing(rendezvous, address);
    for (index, expected) in listing.iter().enumerate() {
        let found = all.get(index).map(Instruction::to_string);
        let found = found.unwrap_or_default();
        if found != *expected {
            return Err(RendezvousViolation::Instruction {
                at: address(index),
                found,
                expected: expected.clone(),
            });
        }
    }
    match all.len() == listing.len() {
        true => Ok(()),
        false => Err(RendezvousViolation::Longer(rendezvous.start)),
    }
}

/// The instructions that the code must have; `address` is that of the instruction of a number.
fn listing(rendezvous: &Rendezvous, address: impl Fn(usize) -> Addr) -> Vec<String> {
    let word = |offset| number(rendezvous.words.at(offset).0);
    let requested = word(RendezvousWords::REQUESTED);
    let answered = word(RendezvousWords::ANSWERED);
    let open = word(RendezvousWords::OPEN);
    let interval = word(RendezvousWords::INTERVAL);
    let patience = number(rendezvous.patience);
    let target = |index| format!("{:016X}h", address(index).0);
    let [again, late, leave] = [AGAIN, LATE, LEAVE].map(target);
    let begin = LISTING_START.map(str::to_owned);
    let lines = [
        // Nothing waits without an agent.
        format!("cmp dword [{open}],0"),
        format!("je near {leave}"),
        // The number of this request is in r8.
        "mov r8d,1".to_owned(),
        format!("lock xadd [{requested}],r8d"),
        "inc r8d".to_owned(),
        // futex(requested, FUTEX_WAKE, 1)
        format!("mov edi,{requested}"),
        "mov esi,1".to_owned(),
        "mov edx,1".to_owned(),
        "mov eax,0CAh".to_owned(),
        "syscall".to_owned(),
        // The end of the patience is in r9.
        "rdtsc".to_owned(),
        "shl rdx,20h".to_owned(),
        "lea r9,[rax+rdx]".to_owned(),
        format!("mov rax,{patience}"),
        "add r9,rax".to_owned(),
        // Again:
        "rdtsc".to_owned(),
        "shl rdx,20h".to_owned(),
        "or rax,rdx".to_owned(),
        "cmp rax,r9".to_owned(),
        format!("jae near {late}"),
        format!("mov edx,[{answered}]"),
        "mov eax,edx".to_owned(),
        "sub eax,r8d".to_owned(),
        format!("jns near {leave}"),
        format!("cmp dword [{open}],0"),
        format!("je near {leave}"),
        // futex(answered, FUTEX_WAIT, edx, interval)
        format!("mov edi,{answered}"),
        "mov esi,0".to_owned(),
        format!("mov r10d,{interval}"),
        "mov eax,0CAh".to_owned(),
        "syscall".to_owned(),
        format!("jmp {again}"),
        // Late:
        format!("mov dword [{open}],0"),
    ];
    let end = LISTING_END.map(str::to_owned);
    begin.into_iter().chain(lines).chain(end).collect()
}

/// A number as instructions are written with it.
fn number(number: u64) -> String {
    match format!("{number:X}") {
        digits if number < 10 => digits,
        digits if digits.starts_with(|digit: char| digit.is_ascii_digit()) => format!("{digits}h"),
        digits => format!("0{digits}h"),
    }
}
