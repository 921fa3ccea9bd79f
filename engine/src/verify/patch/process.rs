//! Reads of the running process by programs. The target's code reads it; its contract is that of `users` in `struct
//! ilk_info`: it replaces one word that the patch has pushed, adds 1 to a counter if the read fails, and leaves all else
//! as it is. Proven are the called code, the address, the part that is read, and the counter. So is the contract of the
//! code that numbers the stack of a process ([`crate::stacks`]), which is proven with the frame that it begins with.

use gilk_instruments::program::{Half, Input, UserRead, Width};

use iced_x86::{Instruction, OpKind};

use super::hit::Progress;
use super::machine::InstrumentMachine;
use super::program::user_bits;
use super::state::AbstractState;
use super::unwind::row_of;
use crate::layout::RuntimeLayout;
use crate::stacks::StackReader;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Source, SymValue};

/// Words that are pushed for the call: the address, the counter of failed reads, and the request.
const WORDS: usize = 3;

/// Bytes of the stack that the code which reads numbers uses, with the address that it returns to: 16 words of its
/// [listing](mod@crate::verify::reads).
const MEMORY_STACK: u64 = 16 * 8;
/// Those of the code that numbers stacks, by its listing: 17 words, a copy of the stack with its description, and the
/// address that a call within it returns to.
const STACKS_STACK: u64 = 17 * 8 + 1056 + 8;

/// Kinds of requests of the code that numbers stacks: a stack, and an address.
const NUMBERS_STACK: u8 = 0;
const NUMBERS_ADDRESS: u8 = 1;

/// Code of the target that reads the running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderCode {
    /// It reads memory, and in a kernel stacks and names, too.
    Memory,
    /// It numbers stacks and addresses of a process.
    Stacks,
}

impl ReaderCode {
    /// Returns the code that an instruction calls, if it is such code.
    pub(super) fn called(layout: &RuntimeLayout, instruction: &Instruction) -> Option<Self> {
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return None;
        }
        let to = instruction.near_branch_target();
        if layout.readers().any(|reader| reader.0 == to) {
            return Some(Self::Memory);
        }
        let numbers = layout.sequences().is_some() && layout.stack_tables.is_some();
        let mut stacks = layout.readers().filter(|_| numbers);
        stacks
            .any(|reader| reader.0.wrapping_add(StackReader::OFFSET) == to)
            .then_some(Self::Stacks)
    }
}

/// The part of a process that a request is for.
enum Requested {
    Memory(UserRead),
    Stack(u8),
}

/// Decodes a request: a kind in its lowest byte, and a size, a half or a depth in the next. A kernel has the first four kinds,
/// a process the first one and the last two.
fn requested(request: u64) -> Option<Requested> {
    let part = u8::try_from(request >> 8).ok()?;
    Some(match (request & 0xff, part) {
        (0, bytes) => Requested::Memory(UserRead::Bytes(Width::of(bytes.into())?)),
        (1, 0) => Requested::Memory(UserRead::Text(Half::First)),
        (1, 1) => Requested::Memory(UserRead::Text(Half::Second)),
        (2, 0) => Requested::Memory(UserRead::Name),
        (3, depth) => Requested::Stack(depth),
        (4, 0) => Requested::Memory(UserRead::Process),
        (5, 0) => Requested::Memory(UserRead::Comm(Half::First)),
        (5, 1) => Requested::Memory(UserRead::Comm(Half::Second)),
        _ => return None,
    })
}

impl InstrumentMachine<'_> {
    /// Executes a call of the code of a process that numbers its stack, or an address. The stack is that of the frame of
    /// the original instruction: that of the unwind row, which [`unwind::check`](super::unwind::check) proves of the
    /// instruction that calls.
    pub(super) fn number_stack(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        self.reader_stack = self.reader_stack.max(STACKS_STACK);
        let (slot, [address, counter, request]) = self.pushed(state)?;
        self.counts_failures(counter)?;
        let request = self.values.as_constant(request);
        let request = request.ok_or(Reason::OtherUserRead)?;
        let [low, high, depth, kind] = match u32::try_from(request) {
            Ok(request) => request.to_le_bytes(),
            Err(_) => return Err(Reason::OtherUserRead),
        };
        let source = match kind {
            NUMBERS_STACK => {
                let row = row_of(self.unwind_rows, instruction.ip()).ok_or(Reason::NoRow)?;
                let words = WORDS as u64 * 8;
                let frame = u64::from(u16::from_le_bytes([low, high]));
                let is_frame = u64::from(row.pushed).checked_sub(words) == Some(frame);
                if self.values.as_constant(address) != Some(row.original.0) || !is_frame {
                    return Err(Reason::OtherFrame);
                }
                Source::Input(Input::UserStack(depth))
            }
            NUMBERS_ADDRESS if [low, high, depth] == [0, 0, 1] => {
                let read = UserRead::Name;
                Source::User { address, read }
            }
            _ => return Err(Reason::OtherUserRead),
        };
        self.answered((slot, source, 64), state, progress)
    }

    /// The words that are pushed for a call, and where they are on the stack.
    fn pushed(&self, state: &AbstractState) -> Result<(usize, [SymValue; WORDS]), Reason> {
        let slot = state.stack.len().checked_sub(WORDS);
        let slot = slot.ok_or(Reason::OtherUserRead)?;
        match state.stack.get(slot..) {
            Some(&[address, counter, request]) => Ok((slot, [address, counter, request])),
            _ => Err(Reason::OtherUserRead),
        }
    }

    /// Checks that failed reads are counted by the counter of the instrument.
    fn counts_failures(&mut self, counter: SymValue) -> Result<(), Reason> {
        let expected = self.program().ok_or(Reason::UnplannedCall)?;
        let word = self.values.as_constant(counter);
        let word = word.ok_or(Reason::OtherUserRead)?;
        match self.hit(expected).failures() == Some(word) {
            true => Ok(()),
            false => Err(Reason::CountsForeign { word }),
        }
    }

    /// Replaces the pushed address by what the program reads, if it does.
    fn answered(
        &mut self,
        (slot, source, bits): (usize, Source, u8),
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        let expected = self.program().ok_or(Reason::UnplannedCall)?;
        let mut hit = self.hit(expected);
        let is_read = match source {
            Source::Input(input) => hit.inputs(progress, state).contains(&input),
            source => hit.user_reads(progress, state).contains(&source),
        };
        if !is_read {
            return Err(Reason::OtherUserRead);
        }
        let value = self.once(source, bits, state, progress)?;
        let missing = "a pushed word";
        let word = state.stack.get_mut(slot);
        *word.ok_or(Reason::Internal { missing })? = value;
        Ok(())
    }

    /// Executes a call of the target's code that reads processes.
    pub(super) fn read_process(
        &mut self,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        self.reader_stack = self.reader_stack.max(MEMORY_STACK);
        let other = || Reason::OtherUserRead;
        let (slot, [address, counter, request]) = self.pushed(state)?;
        self.counts_failures(counter)?;
        let request = self.values.as_constant(request).ok_or_else(other)?;
        let (source, bits) = match requested(request).ok_or_else(other)? {
            Requested::Memory(read) => (Source::User { address, read }, user_bits(read)),
            Requested::Stack(depth) => (Source::Input(Input::UserStack(depth)), 64),
        };
        // The code of a process reads numbers in memory, and what a kernel's programs find in words.
        let is_served = match (self.layout.sequences(), source) {
            (Some(_), Source::User { read, .. }) => matches!(
                read,
                UserRead::Bytes(_) | UserRead::Process | UserRead::Comm(_)
            ),
            (Some(_), _) => false,
            (None, Source::User { read, .. }) => {
                !matches!(read, UserRead::Process | UserRead::Comm(_))
            }
            (None, _) => true,
        };
        if !is_served {
            return Err(other());
        }
        self.answered((slot, source, bits), state, progress)
    }
}
