//! Samples by restartable sequences: the next slot of the CPU's ring is filled, and the increment of the ring's head,
//! which is the commit, makes it a sample.
//!
//! What is stored before the commit is not seen: the reader takes slots below the head, and a thread that fills the same
//! slot on this CPU later has set this one back to the beginning first.
//!
//! A line has a slot for each word. The head with the further slots added is compared with the limit, the slots are
//! filled one after the other, each with the mark of its word and all with one time, and the commit adds their number.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::descriptor::{Sequence, SequenceStep};
use super::hit::{HitStage, Progress, WholeStage};
use super::location;
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::slot::SlotWords;
use super::state::{AbstractState, Compare};
use crate::layout::SegmentOffset;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Atom, SymValue};

impl InstrumentMachine<'_> {
    /// Returns whether the step of the program samples into a ring.
    pub(super) fn samples(&mut self, progress: Progress) -> bool {
        let rings = self.layout.rings.base != crate::Addr(0);
        match self.program() {
            Some(one) => rings && self.hit(one).is_sampling(progress),
            None => false,
        }
    }

    /// Executes an instruction of a sequence that samples, after the number of the CPU is known.
    pub(super) fn inside_sample(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        (sequence, done, before): (Sequence, SequenceStep, WholeStage),
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let wrong = || Reason::InSequence {
            instruction: instruction.to_string(),
        };
        let rings = &self.layout.rings;
        let (head_word, limit_word) = (rings.head, rings.limit);
        let mnemonic = instruction.mnemonic();
        let stage = |done| HitStage::Sequence {
            sequence,
            done,
            before,
        };
        let after = |done| {
            let stage = stage(done);
            Ok(Some(MachineFlow::On(Some(Progress { stage, ..progress }))))
        };
        let commits = instruction.next_ip() == sequence.commit;
        let begun = Progress {
            stage: before.stage(),
            ..progress
        };
        let expected = self.program().ok_or_else(wrong)?;
        let words = self.hit(expected).words(begun);
        match done {
            SequenceStep::Registered(cpu)
                if mnemonic == Mnemonic::Mov
                    && !commits
                    && instruction.op0_register().is_gpr64()
                    && self.is_in_row(instruction, state, cpu, head_word)? =>
            {
                let head = self.read(Atom::Head(instruction.ip()), state, progress)?;
                self.set(instruction, head, state)?;
                after(SequenceStep::Headed { cpu, head })
            }
            SequenceStep::Headed { cpu, head }
                if mnemonic == Mnemonic::Cmp
                    && !commits
                    && instruction.op0_register().is_gpr64()
                    && self.is_in_row(instruction, state, cpu, limit_word)? =>
            {
                // The limit is never less than the head.
                let last = self.values.constant(u64::from(words) - 1);
                let last = self.values.add(head, last);
                if last.is_unknown() || self.operand(instruction, 0, state, progress)? != last {
                    return Err(Reason::RingFull);
                }
                state.compare = Compare::Unknown;
                state.flags &= !instruction.rflags_modified();
                after(SequenceStep::Limited { cpu, head })
            }
            SequenceStep::Limited { cpu, head } => {
                let to = instruction.near_branch_target();
                let leaves = !(sequence.start..sequence.commit).contains(&to);
                if mnemonic != Mnemonic::Jae || !leaves || commits {
                    return Err(wrong());
                }
                let tsc = state.since_head.tsc.ok_or(Reason::StaleClock)?;
                let row = self.row(cpu);
                let filling = SequenceStep::Filling {
                    cpu,
                    head,
                    tsc,
                    written: SlotWords::default(),
                    word: 0,
                };
                let way = |stage| {
                    Box::new(BranchWay {
                        state: state.clone(),
                        progress: Some(Progress { stage, ..progress }),
                        failed: false,
                        never: false,
                    })
                };
                Ok(Some(MachineFlow::Branch {
                    to,
                    taken: way(HitStage::Lost { row }),
                    falls: way(stage(filling)),
                }))
            }
            SequenceStep::Filling {
                cpu, written, word, ..
            } if commits => {
                if written != SlotWords::ALL || u16::from(word) + 1 != u16::from(words) {
                    return Err(Reason::EarlyMark);
                }
                let row = self.row(cpu);
                let added = (row, head_word, u64::from(words));
                self.adds(instruction, state, (added, false), progress)
                    .map(Some)
            }
            SequenceStep::Filling {
                cpu,
                head,
                tsc,
                written,
                word,
            } if mnemonic == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() != Register::RSP =>
            {
                let whole = instruction.memory_size().size() == 8
                    && !location::is_word(&self.layout.abi, instruction)?;
                let expected = self.program().filter(|_| whole).ok_or_else(wrong)?;
                let (written, word) =
                    match written == SlotWords::ALL && word.saturating_add(1) < words {
                        true => (SlotWords::default(), word + 1),
                        false => (written, word),
                    };
                let stored = self.operand(instruction, 1, state, progress)?;
                let address = location::address(&mut self.values, instruction, state)?;
                let further = self.values.constant(word.into());
                let serial = self.values.add(head, further);
                let slot = self.slot_of(cpu, serial);
                let offset = self.values.sub(address, slot);
                let offset = self.values.as_constant(offset);
                let mut hit = self.hit(expected);
                let written = hit.fill(begun, (written, word), offset, (stored, tsc), state)?;
                after(SequenceStep::Filling {
                    cpu,
                    head,
                    tsc,
                    written,
                    word,
                })
            }
            _ => {
                let clock = mnemonic == Mnemonic::Rdtsc
                    && matches!(
                        done,
                        SequenceStep::Registered(_) | SequenceStep::Headed { .. }
                    );
                if !commits && (clock || is_of_registers(instruction)) {
                    Ok(None)
                } else {
                    Err(wrong())
                }
            }
        }
    }

    /// Executes the count of a lost sample.
    pub(super) fn loses(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        row: SymValue,
        progress: Progress,
    ) -> Result<MachineFlow, Reason> {
        let word = self.layout.rings.lost_full;
        self.adds(instruction, state, ((row, word, 1), true), progress)
    }

    /// Executes the addition of a number to a word of a ring, which completes the step.
    fn adds(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        ((row, word, number), locked): ((SymValue, SegmentOffset, u64), bool),
        progress: Progress,
    ) -> Result<MachineFlow, Reason> {
        let added = match instruction.mnemonic() {
            Mnemonic::Inc => Some(1),
            Mnemonic::Add => instruction.try_immediate(1).ok(),
            _ => None,
        };
        let plain = added == Some(number)
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_size().size() == 8
            && instruction.has_lock_prefix() == locked
            && instruction.memory_base() != Register::RSP
            && !location::is_word(&self.layout.abi, instruction)?;
        if !plain {
            return Err(Reason::InSequence {
                instruction: instruction.to_string(),
            });
        }
        let address = location::address(&mut self.values, instruction, state)?;
        let word = self.values.constant(word.0);
        let meant = self.values.add(row, word);
        if meant.is_unknown() || meant != address {
            return Err(Reason::OtherRingWord);
        }
        let one = self.program().ok_or(Reason::UnhookedCount)?;
        state.compare = Compare::Unknown;
        state.flags &= !instruction.rflags_modified();
        Ok(MachineFlow::On(self.hit(one).next(progress)))
    }

    /// The address of a CPU's row of words, less that of CPU 0.
    fn row(&mut self, cpu: SymValue) -> SymValue {
        let sequences = self.layout.sequences();
        let stride_log2 = sequences.map_or(0, |sequences| sequences.stride_log2);
        self.values.scale(cpu, 1 << stride_log2.min(63))
    }

    /// The address of the slot of a head in the ring of a CPU.
    fn slot_of(&mut self, cpu: SymValue, head: SymValue) -> SymValue {
        let rings = &self.layout.rings;
        let slots = (1_u64 << rings.slots_log2.min(31)) - 1;
        let ring = self.values.scale(cpu, 1 << rings.stride_log2.min(63));
        let base = self.values.constant(rings.base.0);
        let slot = self.values.mask(head, slots);
        let slot = self.values.scale(slot, 32);
        let ring = self.values.add(ring, base);
        self.values.add(ring, slot)
    }

    /// Returns whether the operand in memory is a word of eight bytes in the row of a CPU.
    fn is_in_row(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        cpu: SymValue,
        word: SegmentOffset,
    ) -> Result<bool, Reason> {
        let whole = instruction.op1_kind() == OpKind::Memory
            && instruction.memory_size().size() == 8
            && instruction.memory_base() != Register::RSP
            && !location::is_word(&self.layout.abi, instruction)?;
        if !whole {
            return Ok(false);
        }
        let address = location::address(&mut self.values, instruction, state)?;
        let row = self.row(cpu);
        let word = self.values.constant(word.0);
        let meant = self.values.add(row, word);
        Ok(!meant.is_unknown() && meant == address)
    }
}

/// Returns whether an instruction computes in registers, or reads a saved one; control falls through.
fn is_of_registers(instruction: &Instruction) -> bool {
    let register = instruction.op0_register();
    let loads =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let saved =
        instruction.mnemonic() == Mnemonic::Mov && instruction.memory_base() == Register::RSP;
    let address = instruction.mnemonic() == Mnemonic::Lea;
    let computes = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Shl
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Lea
    );
    computes
        && instruction.op0_kind() == OpKind::Register
        && register.is_gpr()
        && register.full_register() != Register::RSP
        && (!loads || saved || address)
}
