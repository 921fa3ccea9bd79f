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

use iced_x86::Code;
use thiserror::Error;

use super::listing::{ListingViolation, compare};
use super::text::callee::Callees;
use super::text::liveness::{LiveSets, SampledAt};
use super::text::originals::OriginalCode;
use super::text::padding::is_never_run;
use super::text::routine::Routine;
use super::waiting::{SPLICE, WAIT, are_low, branches_to, decoded, numbers};
use crate::rendezvous::{Rendezvous, RendezvousWords};
use crate::{Addr, Image, Span};

/// The instructions up to the request; words in capitals stand for the addresses of the shared words.
const START: [&str; 14] = [
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
    "je near @ANSWER",
    // The number of this request is in r8.
    "mov r8d,1",
    "lock xadd [REQUESTED],r8d",
];

/// The instructions after [`WAIT`]: the thread leaves.
const END: [&str; 11] = [
    "popf", "pop r11", "pop r10", "pop r9", "pop r8", "pop rdi", "pop rsi", "pop rdx", "pop rcx",
    "pop rax", "ret",
];

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
    if !are_low(start, RendezvousWords::LEN_BYTES) {
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
    match branches_to(&rendezvous.splice, at, rendezvous.start) {
        true => Ok(()),
        false => Err(RendezvousViolation::Splice(at)),
    }
}

/// Compares the code with its listing.
fn code(rendezvous: &Rendezvous) -> Result<(), RendezvousViolation> {
    let listing = [&START[..], &WAIT, &END].concat();
    let (start, code) = (rendezvous.start, &rendezvous.code);
    let all = decoded(code, start);
    let numbers = numbers(rendezvous.words, rendezvous.patience, (&all, START.len()));
    Ok(compare(start, code, &listing, &numbers)?)
}
