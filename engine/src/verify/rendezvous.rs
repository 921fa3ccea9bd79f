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

use iced_x86::{Code, Decoder, DecoderOptions};
use thiserror::Error;

use super::listing::{ListingViolation, compare};
use super::text::callee::Callees;
use super::text::liveness::{LiveSets, SampledAt};
use super::text::originals::OriginalCode;
use super::text::padding::is_never_run;
use super::text::routine::Routine;
use crate::rendezvous::{Rendezvous, RendezvousWords};
use crate::{Addr, Image, Span};

/// The instructions; words in capitals stand for the addresses of the shared words, for the interval of a wait and for the
/// patience.
const LISTING: [&str; 54] = [
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "pushf",
    // Nothing waits without an agent.
    "cmp dword [OPEN],0",
    "je near @43",
    // The number of this request is in r8.
    "mov r8d,1",
    "lock xadd [REQUESTED],r8d",
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
    "jae near @42",
    "mov edx,[ANSWERED]",
    "mov eax,edx",
    "sub eax,r8d",
    "jns near @43",
    "cmp dword [OPEN],0",
    "je near @43",
    // futex(answered, FUTEX_WAIT, edx, interval)
    "mov edi,ANSWERED",
    "mov esi,0",
    "mov r10d,INTERVAL",
    "mov eax,0CAh",
    "syscall",
    "jmp @25",
    // Late: no thread will wait any more.
    "mov dword [OPEN],0",
    // The thread leaves.
    "popf",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "ret",
];

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
    /// The code is not that of the listing.
    #[error(transparent)]
    Listing(#[from] ListingViolation),
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
    let word = |name, offset| (name, rendezvous.words.at(offset).0);
    let numbers = [
        word("REQUESTED", RendezvousWords::REQUESTED),
        word("ANSWERED", RendezvousWords::ANSWERED),
        word("OPEN", RendezvousWords::OPEN),
        word("INTERVAL", RendezvousWords::INTERVAL),
        ("PATIENCE", rendezvous.patience),
    ];
    Ok(compare(
        rendezvous.start,
        &rendezvous.code,
        &LISTING,
        &numbers,
    )?)
}
