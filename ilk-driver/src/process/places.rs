//! Places that all threads of a stopped process are to have left, and the words on stacks by which they return there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::{Addr, Span};

/// Words from that of the instruction pointer to that of the segments in the frame of a signal (`struct sigcontext_64` of
/// arch/x86/include/uapi/asm/sigcontext.h).
const TO_SEGMENTS: usize = 2;
/// The lowest byte of the segment of 64-bit code: `__USER_CS`, also below Xen.
const USER_CODE: u64 = 0x33;
/// Bytes of `call rel32`, and its first.
const CALL: u64 = 5;
const CALL_OPCODE: u8 = 0xe8;

/// Places that threads are to have left.
#[derive(Debug)]
pub(super) struct Places {
    spans: Vec<Span>,
    are_arenas: bool,
}

impl Places {
    /// Text of the process, such as instructions that are to be displaced.
    pub(super) fn text(spans: &[Span]) -> Self {
        Self {
            spans: Span::merged(spans.to_vec()),
            are_arenas: false,
        }
    }

    /// Patches, with the code that they call.
    pub(super) fn arenas(spans: &[Span]) -> Self {
        Self {
            are_arenas: true,
            ..Self::text(spans)
        }
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns whether an address is in one of them.
    pub(super) fn contain(&self, at: u64) -> bool {
        let after = self.spans.partition_point(|span| span.start.0 <= at);
        let before = after
            .checked_sub(1)
            .and_then(|before| self.spans.get(before));
        before.is_some_and(|span| span.contains(Addr(at)))
    }

    /// Returns whether a thread whose instruction pointer is elsewhere may return there by one of the words above its stack
    /// pointer. All words count, so one may be found that it does not return by, with an exception: code that patches call
    /// calls only code of arenas (rule 4 of ARCHITECTURE.md). Until such a call has returned, the thread executes there, or
    /// the frame of a signal has an address there. So the return address of the call alone, outside such a frame, has
    /// remained on the stack from a call that has returned.
    pub(super) fn are_on_stack(&self, memory: &File, words: &[u64]) -> bool {
        let mut indices = 0..words.len();
        indices.any(|index| {
            words.get(index).is_some_and(|word| {
                self.contain(*word)
                    && (may_be_interrupted(words, index) || !self.is_after_call(memory, *word))
            })
        })
    }

    /// Returns whether an address follows a call within arenas.
    fn is_after_call(&self, memory: &File, at: u64) -> bool {
        let called = || {
            let mut call = [0; CALL as usize];
            memory
                .read_exact_at(&mut call, at.checked_sub(CALL)?)
                .ok()?;
            let [CALL_OPCODE, distance @ ..] = call else {
                return None;
            };
            at.checked_add_signed(i32::from_le_bytes(distance).into())
        };
        self.are_arenas && called().is_some_and(|called| self.contain(called))
    }
}

/// Returns whether a word may be the instruction pointer in the frame of a signal.
fn may_be_interrupted(words: &[u64], index: usize) -> bool {
    let segments = words.get(index + TO_SEGMENTS);
    segments.is_some_and(|segments| segments & 0xff == USER_CODE)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file in the place of memory, in which `call` at 0x1010 has this target.
    fn with_call(target: u64) -> File {
        let mut memory = tempfile::tempfile().unwrap();
        let mut bytes = vec![0x90; 0x2000];
        let distance = i32::try_from(target.cast_signed() - 0x1015).unwrap();
        bytes[0x1010] = CALL_OPCODE;
        bytes[0x1011..0x1015].copy_from_slice(&distance.to_le_bytes());
        memory.write_all(&bytes).unwrap();
        memory
    }

    #[test]
    fn the_return_address_of_a_call_within_arenas_counts_in_the_frame_of_a_signal_only() {
        let spans = [Span::new(Addr(0x1000), 0x800)];
        let (arenas, text) = (Places::arenas(&spans), Places::text(&spans));
        let within = with_call(0x1400);
        let alone = [7, 0x1015, 8, 9];
        assert!(!arenas.are_on_stack(&within, &alone));
        assert!(!arenas.are_on_stack(&within, &[0x1015]));
        // Flags and segments follow.
        let interrupted = [7, 0x1015, 0x246, 0x2b_0000_0000_0033];
        assert!(arenas.are_on_stack(&within, &interrupted));
        // Another one further up counts.
        assert!(arenas.are_on_stack(&within, &[0x1015, 0, 0, 0x1100]));
        // So do other addresses, and calls of other code, whose return the thread awaits elsewhere.
        assert!(arenas.are_on_stack(&within, &[0x1010]));
        assert!(arenas.are_on_stack(&with_call(0x1800), &alone));
        assert!(arenas.are_on_stack(&with_call(0x0fff), &alone));
        // Text calls what it likes.
        assert!(text.are_on_stack(&within, &alone));
        // Nothing is known of what cannot be read.
        assert!(arenas.are_on_stack(&tempfile::tempfile().unwrap(), &alone));
        assert!(!arenas.are_on_stack(&within, &[0x0fff, 0x1800]));
    }
}
