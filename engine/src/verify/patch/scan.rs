//! Linear decoding of the bytes of a patch.
//!
//! If control reaches some instructions that do not overlap, and all other bytes are `int3`, the
//! bytes decode linearly to just these instructions. So control may reach only instructions of this
//! decoding.

use crate::verify::reason::Reason;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use super::phase::BrokenRule;
use crate::{Addr, Span};

/// The instructions of one patch. The allocations are reused from patch to patch.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    span: Span,
    instructions: Vec<Seen>,
    /// By offset: the number of the instruction that begins there, from 1; 0 for none.
    starts: Vec<u32>,
    /// End of the decodable bytes.
    end: u64,
}

#[derive(Debug)]
struct Seen {
    instruction: Instruction,
    /// A branch of the patch targets it, or the kernel restarts a sequence there.
    landing: bool,
    /// Control reaches it.
    walked: bool,
}

impl Scan {
    /// Decodes the code of another patch, which is restarted at some addresses.
    pub(crate) fn read(&mut self, code: &[u8], at: Addr, restarts: impl Iterator<Item = u64>) {
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
        for restart in restarts {
            if let Some(seen) = self.seen(restart) {
                seen.landing = true;
            }
        }
    }

    fn seen(&mut self, at: u64) -> Option<&mut Seen> {
        let offset = usize::try_from(at.wrapping_sub(self.span.start.0)).ok()?;
        let number = self.starts.get(offset)?.checked_sub(1)?;
        self.instructions.get_mut(number as usize)
    }

    /// Returns whether a branch of the patch may target `at`.
    pub(crate) fn is_landing(&mut self, at: u64) -> bool {
        self.seen(at).is_none_or(|seen| seen.landing)
    }

    /// Returns the instruction at `at` and marks it as reached.
    ///
    /// # Errors
    /// No instruction begins there.
    pub(crate) fn walk(&mut self, at: u64) -> Result<Instruction, BrokenRule> {
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

    /// Checks that all unreached bytes are `int3`.
    ///
    /// # Errors
    /// The first byte that is neither.
    pub(crate) fn all_walked(&self) -> Result<(), BrokenRule> {
        // With a prefix it is longer, and not an int3 for control that enters its middle.
        let int3 = |one: &Instruction| one.code() == Code::Int3 && one.len() == 1;
        let left = self
            .instructions
            .iter()
            .find(|seen| !seen.walked && !int3(&seen.instruction));
        let left = left.map(|seen| seen.instruction.ip());
        match left.or_else(|| (self.end != self.span.end.0).then_some(self.end)) {
            Some(at) => Err((Addr(at), Reason::Unreached)),
            None => Ok(()),
        }
    }
}
