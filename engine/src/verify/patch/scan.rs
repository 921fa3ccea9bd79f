//! The bytes of a patch, decoded one instruction behind the other.
//!
//! Bytes of which control comes to some, at instructions that do not overlap, and of which the others are
//! `int3`, decode to just these instructions. So whatever control comes to must be one of them.

use crate::verify::reason::Reason;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use super::phase::Wrong;
use crate::{Addr, Span};

/// The instructions of one patch. One is used for patch after patch, so that its room is.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    span: Span,
    instructions: Vec<Seen>,
    /// By offset: the number of the instruction that begins there, from 1.
    starts: Vec<u32>,
    /// How far the bytes are instructions.
    end: u64,
}

#[derive(Debug)]
struct Seen {
    instruction: Instruction,
    /// Whether a branch of the patch leads here.
    landing: bool,
    /// Whether control comes here.
    walked: bool,
}

impl Scan {
    /// Decodes another patch.
    pub(crate) fn read(&mut self, code: &[u8], at: Addr) {
        self.span = Span::new(at, code.len() as u64);
        self.end = at.0;
        self.instructions.clear();
        self.starts.clear();
        self.starts.resize(code.len(), 0);
        let mut decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            let (position, instruction) = (decoder.position(), decoder.decode());
            if instruction.is_invalid() {
                break;
            }
            self.instructions.push(Seen {
                instruction,
                landing: false,
                walked: false,
            });
            if let Some(start) = self.starts.get_mut(position) {
                *start = u32::try_from(self.instructions.len()).unwrap_or(0);
            }
            self.end = instruction.next_ip();
        }
        for number in 0..self.instructions.len() {
            let seen = self.instructions.get(number);
            let target = seen.map_or(0, |seen| seen.instruction.near_branch_target());
            if self.span.contains(Addr(target))
                && let Some(seen) = self.seen(target)
            {
                seen.landing = true;
            }
        }
    }

    fn seen(&mut self, at: u64) -> Option<&mut Seen> {
        let offset = usize::try_from(at.wrapping_sub(self.span.start.0)).ok()?;
        let number = self.starts.get(offset)?.checked_sub(1)?;
        self.instructions.get_mut(number as usize)
    }

    /// Whether control may come to `at` by a branch of the patch.
    pub(crate) fn is_landing(&mut self, at: u64) -> bool {
        self.seen(at).is_none_or(|seen| seen.landing)
    }

    /// The instruction that control comes to.
    ///
    /// # Errors
    /// If none begins there.
    pub(crate) fn walk(&mut self, at: u64) -> Result<Instruction, Wrong> {
        if let Some(seen) = self.seen(at) {
            seen.walked = true;
            return Ok(seen.instruction);
        }
        let why = if at < self.end {
            Reason::InsideInstruction
        } else {
            Reason::NoInstruction
        };
        Err((Addr(at), why))
    }

    /// Whatever control does not come to is `int3`.
    ///
    /// # Errors
    /// The first byte where it is not so.
    pub(crate) fn all_walked(&self) -> Result<(), Wrong> {
        // A prefix makes it longer, and no int3 of what control comes to in its middle.
        let int3 = |one: &Instruction| one.code() == Code::Int3 && one.len() == 1;
        let left =
            { self.instructions.iter() }.find(|seen| !seen.walked && !int3(&seen.instruction));
        let left = left.map(|seen| seen.instruction.ip());
        match left.or_else(|| (self.end != self.span.end.0).then_some(self.end)) {
            Some(at) => Err((Addr(at), Reason::Unreached)),
            None => Ok(()),
        }
    }
}
