//! Code at which a thread of a process waits for the agent whenever the dynamic linker has changed the objects.
//!
//! The dynamic linker calls an empty function before and after it maps or unmaps objects, in which debuggers set a
//! breakpoint (`r_brk` of `struct r_debug`, glibc's elf/link.h; the *rendezvous*). A splice there branches to this code:
//! it counts a request, wakes the agent, and waits until the agent has answered, so that an object is instrumented before
//! the first of its instructions is executed. A thread waits no longer than the agent's patience, after which no other
//! thread waits. All registers and flags are kept.

use iced_x86::{Code, Decoder, DecoderOptions};

use crate::isa::encode::{jump, rel32};
use crate::{Addr, Error, Image, Refusal, Result, Rule, Span};

/// The name of the function in glibc and musl.
pub const RENDEZVOUS: &str = "_dl_debug_state";

/// `futex` of include/uapi/asm/unistd_64.h.
const FUTEX: u32 = 202;
/// `FUTEX_WAIT` and `FUTEX_WAKE` of include/uapi/linux/futex.h: of memory that processes share.
const WAIT: u32 = 0;
const WAKE: u32 = 1;

/// Bytes of the displacement of a branch.
const DISPLACEMENT: usize = 4;

/// Words that the process and the agent share, four bytes each, in the lower 2 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RendezvousWords {
    /// Address of the first.
    pub start: Addr,
}

impl RendezvousWords {
    /// Bytes of all words.
    pub const LEN_BYTES: u64 = 32;
    /// Offset of the number of requests.
    pub const REQUESTED: u64 = 0;
    /// Offset of the number of requests that are answered.
    pub const ANSWERED: u64 = 4;
    /// Offset of the word that is not 0 while the agent answers.
    pub const OPEN: u64 = 8;
    /// Offset of the longest time of one wait: seconds and nanoseconds, eight bytes each.
    pub const INTERVAL: u64 = 16;

    /// The address of a word.
    #[must_use]
    pub fn at(self, offset: u64) -> Addr {
        self.start.add(offset)
    }
}

/// A splice in the rendezvous, and the code that it branches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Address of the splice: the start of the function.
    pub at: Addr,
    /// The bytes that it displaces: a return, and padding.
    pub original: Vec<u8>,
    /// The branch to the code.
    pub splice: Vec<u8>,
    /// Address of the code.
    pub start: Addr,
    /// Saves the registers, counts a request, and waits for its answer.
    pub code: Vec<u8>,
    /// The words that it shares with the agent.
    pub words: RendezvousWords,
    /// The longest time of all waits for an answer, in ticks of the time-stamp counter.
    pub patience: u64,
}

impl Rendezvous {
    /// Makes the splice and the code, at `start`, for the dynamic linker of an image.
    ///
    /// # Errors
    /// [`Error::Unplanned`] if the function is not the empty one that glibc and musl have, or is refused.
    pub fn new(
        image: &Image,
        function: &str,
        start: Addr,
        words: RendezvousWords,
        patience: u64,
    ) -> Result<Self> {
        let function = image.function_named(function)?;
        let at = function.span.start;
        let refused = |rule, why: &str| Error::Unplanned {
            target: function.name.clone(),
            refusal: Refusal::new(rule, at, why),
        };
        if let Some(refusal) = image.refused(function.id) {
            return Err(Error::Unplanned {
                target: function.name.clone(),
                refusal: refusal.clone(),
            });
        }
        let splice = jump(at, start)
            .ok_or_else(|| refused(Rule::OutOfReach, "the code is out of its reach"))?;
        let displaced = Span::new(at, splice.len() as u64);
        let original = image.bytes(displaced).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, original, at.0, DecoderOptions::NONE);
        let mut first = decoder.decode();
        if first.code() == Code::Endbr64 {
            first = decoder.decode();
        }
        let others = image
            .functions()
            .iter()
            .any(|other| other.id != function.id && other.span.overlaps(displaced));
        if first.code() != Code::Retnq || others || !image.entered(displaced).is_empty() {
            let why =
                "it is not an empty function with padding after it, as that of glibc and musl is";
            return Err(refused(Rule::NothingToDisplace, why));
        }
        Ok(Self {
            at,
            original: original.to_vec(),
            splice: splice.to_vec(),
            start,
            code: code(words, patience),
            words,
            patience,
        })
    }
}

/// Assembles the code, which is at any address.
fn code(words: RendezvousWords, patience: u64) -> Vec<u8> {
    let mut code = Assembled::default();
    // push rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11; pushfq
    code.push(&[0x50, 0x51, 0x52, 0x56, 0x57]);
    code.push(&[0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, 0x9c]);
    let is_closed = code.if_closed(words);
    code.push(&[0x41, 0xb8, 1, 0, 0, 0]); // mov r8d, 1
    code.push(&[0xf0, 0x44, 0x0f, 0xc1, 0x04, 0x25]); // lock xadd [requested], r8d
    code.address(words.at(RendezvousWords::REQUESTED));
    code.push(&[0x41, 0xff, 0xc0]); // inc r8d
    let [is_answered, has_closed] = code.wake_and_wait(words, patience);
    for branch in [is_closed, is_answered, has_closed] {
        code.resolve(branch, code.bytes.len());
    }
    // popfq; pop r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax; ret
    code.push(&[0x9d, 0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]);
    code.push(&[0x5f, 0x5e, 0x5a, 0x59, 0x58, 0xc3]);
    code.bytes
}

/// Code in the making.
#[derive(Default)]
pub(crate) struct Assembled {
    pub(crate) bytes: Vec<u8>,
}

impl Assembled {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, opcode: &[u8], number: u32) {
        self.push(opcode);
        self.push(&number.to_le_bytes());
    }

    /// An address of the lower 2 GiB.
    pub(crate) fn address(&mut self, at: Addr) {
        let [a, b, c, d, ..] = at.0.to_le_bytes();
        self.push(&[a, b, c, d]);
    }

    /// A branch that is resolved later; returns the offset of its displacement.
    pub(crate) fn branch(&mut self, opcode: &[u8]) -> usize {
        self.push(opcode);
        self.push(&[0; DISPLACEMENT]);
        self.bytes.len() - DISPLACEMENT
    }

    /// `cmp dword [open], 0` and a branch if it is.
    pub(crate) fn if_closed(&mut self, words: RendezvousWords) -> usize {
        self.push(&[0x83, 0x3c, 0x25]);
        self.address(words.at(RendezvousWords::OPEN));
        self.push(&[0]);
        self.branch(&[0x0f, 0x84])
    }

    /// Wakes the agent for the request whose number is in r8, and waits for the answer, or until the patience is over; no
    /// thread waits any more then. Returns the two branches that are taken when a wait ends early: the request is answered,
    /// and nothing answers any more. Changes rax, rcx, rdx, rsi, rdi, r9, r10, r11 and the flags.
    pub(crate) fn wake_and_wait(&mut self, words: RendezvousWords, patience: u64) -> [usize; 2] {
        self.push(&[0xbf]); // mov edi, requested
        self.address(words.at(RendezvousWords::REQUESTED));
        self.number(&[0xbe], WAKE); // mov esi, FUTEX_WAKE
        self.number(&[0xba], 1); // mov edx, 1
        self.number(&[0xb8], FUTEX); // mov eax, futex
        self.push(&[0x0f, 0x05]); // syscall
        self.push(&[0x0f, 0x31]); // rdtsc
        self.push(&[0x48, 0xc1, 0xe2, 32]); // shl rdx, 32
        self.push(&[0x4c, 0x8d, 0x0c, 0x10]); // lea r9, [rax+rdx]
        self.push(&[0x48, 0xb8]); // mov rax, patience
        self.push(&patience.to_le_bytes());
        self.push(&[0x49, 0x01, 0xc1]); // add r9, rax
        let again = self.bytes.len();
        self.push(&[0x0f, 0x31]); // rdtsc
        self.push(&[0x48, 0xc1, 0xe2, 32]); // shl rdx, 32
        self.push(&[0x48, 0x09, 0xd0]); // or rax, rdx
        self.push(&[0x4c, 0x39, 0xc8]); // cmp rax, r9
        let is_late = self.branch(&[0x0f, 0x83]); // jae
        self.push(&[0x8b, 0x14, 0x25]); // mov edx, [answered]
        self.address(words.at(RendezvousWords::ANSWERED));
        self.push(&[0x89, 0xd0]); // mov eax, edx
        self.push(&[0x44, 0x29, 0xc0]); // sub eax, r8d
        let is_answered = self.branch(&[0x0f, 0x89]); // jns
        let has_closed = self.if_closed(words);
        self.push(&[0xbf]); // mov edi, answered
        self.address(words.at(RendezvousWords::ANSWERED));
        self.number(&[0xbe], WAIT); // mov esi, FUTEX_WAIT
        self.push(&[0x41, 0xba]); // mov r10d, interval
        self.address(words.at(RendezvousWords::INTERVAL));
        self.number(&[0xb8], FUTEX); // mov eax, futex
        self.push(&[0x0f, 0x05]); // syscall
        let back = self.branch(&[0xe9]); // jmp
        self.resolve(back, again);
        self.resolve(is_late, self.bytes.len());
        self.push(&[0xc7, 0x04, 0x25]); // mov dword [open], 0
        self.address(words.at(RendezvousWords::OPEN));
        self.push(&[0; 4]);
        [is_answered, has_closed]
    }

    pub(crate) fn resolve(&mut self, branch: usize, target: usize) {
        let end = Addr((branch + DISPLACEMENT) as u64);
        let distance = rel32(end, Addr(target as u64));
        let field = self.bytes.get_mut(branch..branch + DISPLACEMENT);
        debug_assert!(distance.is_some() && field.is_some(), "the code is short");
        if let (Some(distance), Some(field)) = (distance, field) {
            field.copy_from_slice(&distance);
        }
    }
}
