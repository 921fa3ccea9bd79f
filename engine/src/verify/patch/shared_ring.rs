//! Samples in the ring that all threads of a process share, where none has an area for restartable sequences.
//!
//! The words of the ring are those of threads without an area. The proof is that of a kernel's ring (`hit`): the head is
//! read, compared with the limit, and moved on by one with `cmpxchg` if it is still the same; the clock is read in
//! between; the three words of the head's slot are stored, each with its value, then the mark. A line has three such words
//! for each of its own, one after the other in the same slot, and one mark. Other CPUs write these
//! words, too: `cmpxchg` and the count of losses have a lock prefix. The mark has the number of the CPU, as the same
//! instruction has read it that has read the sample's time.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::hit::Progress;
use super::location;
use super::machine::{InstrumentMachine, MachineFlow};
use super::state::{AbstractState, Compare, Since};
use crate::layout::SegmentOffset;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Atom, SymValue};

impl InstrumentMachine<'_> {
    /// Returns whether the step samples into the ring of all threads.
    pub(super) fn shares_ring(&mut self, progress: Progress) -> bool {
        let sequences = self.layout.sequences();
        sequences.is_some_and(|sequences| sequences.area.is_none()) && self.samples(progress)
    }

    /// Returns the word of the ring at an address, as the layout has it of CPU 0, if the step samples into that ring.
    pub(super) fn shared_ring_word(
        &mut self,
        address: SymValue,
        progress: Progress,
    ) -> Option<SegmentOffset> {
        if !self.shares_ring(progress) {
            return None;
        }
        let row = self.layout.sequences()?.unregistered();
        let rings = &self.layout.rings;
        let word = self.values.as_constant(address)?.checked_sub(row)?;
        let mut words = [rings.head, rings.limit, rings.lost_full].into_iter();
        words.find(|one| one.0 == word)
    }

    /// Executes the load of a word of the ring.
    pub(super) fn load_shared(
        &mut self,
        word: SegmentOffset,
        at: u64,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<SymValue, Reason> {
        if word == self.layout.rings.head {
            let head = self.read(Atom::Head(at), state, progress)?;
            state.since_head = Since::default();
            Ok(head)
        } else if word == self.layout.rings.limit {
            let limit = self.read(Atom::Limit(at), state, progress)?;
            state.since_head.limit = Some(limit);
            Ok(limit)
        } else {
            Err(Reason::ForeignMemory)
        }
    }

    /// Executes a write of memory by a step that samples into the ring: a reservation and the words of a slot are as in a
    /// kernel, and a lost sample is counted.
    pub(super) fn writes_shared_ring(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        match instruction.mnemonic() {
            Mnemonic::Cmpxchg | Mnemonic::Mov => Ok(None),
            Mnemonic::Inc => {
                let whole = instruction.op0_kind() == OpKind::Memory
                    && instruction.memory_size().size() == 8
                    && !location::is_word(&self.layout.abi, instruction)?;
                let address = location::address(&mut self.values, instruction, state)?;
                let word = self.shared_ring_word(address, progress);
                let lost = self.layout.rings.lost_full;
                if !whole || word != Some(lost) {
                    return Err(Reason::OtherRingWord);
                }
                if !instruction.has_lock_prefix() {
                    return Err(Reason::UnlockedRing);
                }
                let one = self.program().ok_or(Reason::UnhookedCount)?;
                let next = self.hit(one).count(progress, (lost.0, 1), state)?;
                state.compare = Compare::Unknown;
                state.flags &= !instruction.rflags_modified();
                Ok(Some(MachineFlow::On(next)))
            }
            _ => Err(Reason::OutsideSample),
        }
    }
}
