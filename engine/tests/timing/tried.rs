//! Variants that might make a sample cost less: its code written by hand, with one part changed.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, eax, ecx, ptr, qword_ptr, r8, r9, rax, rcx, rdx};

use super::target::{HEAD, LIMIT, LOST_FULL, RING_STEP, RINGS, SLOTS_LOG2};

/// A sample with its time, in a patch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// As the engine's.
    Same,
    /// Without a reading of the clock: what a lane that only counts order would need.
    NoClock,
    /// The clock is read after the reservation instead of before: the order of time is lost.
    ClockAfter,
    /// The slot is reserved by `xadd`, without a retry: the order of time is lost, and so is the limit.
    Added,
    /// The head is stored without a reservation, as if a batch of slots were this CPU's: an interrupt would take the
    /// same slot.
    Unreserved,
    /// As the engine's where three registers are live: they are pushed.
    Pushed,
    /// The same, in words of the CPU: an interrupt would overwrite them.
    InWords,
}

/// Words of the CPU for saved registers.
const SPARE_WORDS: u64 = 0x400;

impl Tried {
    /// Writes the patch, which returns to an address of this process.
    pub(crate) fn write(self, a: &mut CodeAssembler, back: u64) -> Result<(), IcedError> {
        let (mut again, mut full) = (a.create_label(), a.create_label());
        let saved = [rcx, rdx, r8];
        match self {
            Self::Pushed => saved
                .into_iter()
                .try_for_each(|register| a.push(register))?,
            Self::InWords => {
                for (register, word) in saved.into_iter().zip(0..) {
                    a.mov(qword_ptr(SPARE_WORDS + 8 * word).gs(), register)?;
                }
            }
            _ => {}
        }
        a.set_label(&mut again)?;
        a.mov(rcx, qword_ptr(HEAD).gs())?;
        a.cmp(rcx, qword_ptr(LIMIT).gs())?;
        a.je(full)?;
        if ![Self::NoClock, Self::ClockAfter].contains(&self) {
            read_clock(a)?;
        }
        match self {
            Self::Added => {
                a.mov(eax, RING_STEP as i32)?;
                a.xadd(qword_ptr(HEAD).gs(), rax)?;
            }
            _ => {
                a.mov(rax, rcx)?;
                a.add(rcx, RING_STEP as i32)?;
                if self == Self::Unreserved {
                    a.mov(qword_ptr(HEAD).gs(), rcx)?;
                } else {
                    a.cmpxchg(qword_ptr(HEAD).gs(), rcx)?;
                    a.jne(again)?;
                }
            }
        }
        if self == Self::ClockAfter {
            a.mov(r9, rax)?;
            read_clock(a)?;
            a.mov(rax, r9)?;
        }
        a.mov(ecx, eax)?;
        a.rol(ecx, SLOTS_LOG2 + 2)?;
        a.mov(r8, RINGS)?;
        a.mov(ptr(r8 + rcx * 8 + 16), rdx)?;
        a.mov(ptr(r8 + rcx * 8 + 8), rdx)?;
        a.mov(rdx, 0x1234_5678_9abc_u64)?;
        a.mov(ptr(r8 + rcx * 8 + 24), rdx)?;
        a.mov(ptr(r8 + rcx * 8), rax)?;
        match self {
            Self::Pushed => {
                let mut reverse = saved.into_iter().rev();
                reverse.try_for_each(|register| a.pop(register))?;
            }
            Self::InWords => {
                for (register, word) in saved.into_iter().zip(0..) {
                    a.mov(register, qword_ptr(SPARE_WORDS + 8 * word).gs())?;
                }
            }
            _ => {}
        }
        a.jmp(back)?;
        a.set_label(&mut full)?;
        a.inc(qword_ptr(LOST_FULL).gs())?;
        a.jmp(back)
    }
}

fn read_clock(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.rdtsc()?;
    a.shl(rdx, 32)?;
    a.or(rdx, rax)
}
