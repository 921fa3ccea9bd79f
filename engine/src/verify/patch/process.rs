//! Reads of the running process by programs. The target's code reads it; its contract is that of `users` in `struct
//! ilk_info`: it replaces one word that the patch has pushed, adds 1 to a counter if the read fails, and leaves all else
//! as it is. Proven are the called code, the address, the part that is read, and the counter.

use gilk_instruments::program::{Half, Input, UserRead, Width};

use super::hit::Progress;
use super::machine::InstrumentMachine;
use super::program::user_bits;
use super::state::AbstractState;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::Source;

/// Words that are pushed for the call: the address, the counter of failed reads, and the request.
const WORDS: usize = 3;

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
    /// Executes a call of the target's code that reads processes.
    pub(super) fn read_process(
        &mut self,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        self.reads_process = true;
        let expected = self.program().ok_or(Reason::UnplannedCall)?;
        let other = || Reason::OtherUserRead;
        let slot = state.stack.len().checked_sub(WORDS).ok_or_else(other)?;
        let Some(&[address, counter, request]) = state.stack.get(slot..) else {
            return Err(other());
        };
        let counter = self.values.as_constant(counter).ok_or_else(other)?;
        if self.hit(expected).failures() != Some(counter) {
            return Err(Reason::CountsForeign { word: counter });
        }
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
        let mut hit = self.hit(expected);
        let is_read = match source {
            Source::Input(input) => hit.inputs(progress, state).contains(&input),
            source => hit.user_reads(progress, state).contains(&source),
        };
        if !is_read {
            return Err(other());
        }
        let value = self.once(source, bits, state, progress)?;
        let missing = "a pushed word";
        let word = state.stack.get_mut(slot);
        *word.ok_or(Reason::Internal { missing })? = value;
        Ok(())
    }
}
