//! Restartable sequences: increments of a word of the CPU in user space (`rseq(2)`, kernel/rseq.c of Linux).
//!
//! A thread that loses its CPU inside a sequence, or is given a signal there, continues at the sequence's address of
//! restart, with its registers as they are. So from each instruction of a sequence there is a way to that address,
//! with no part of the hit done: it is walked like any other, and its states are joined. In a sequence control only
//! falls through, or leaves it where the thread is found unregistered; nothing is stored, and the last instruction is
//! the one increment of the CPU's word, which makes the hit complete. All other writes of memory are forbidden, except
//! those of the patch's own words on the stack.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::descriptor::{Sequence, SequenceStep};
use super::hit::{Expected, HitStage, Progress};
use super::location;
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::state::{AbstractState, Compare};
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Atom, SymValue};

impl Progress {
    /// Returns the address where the kernel restarts the thread if it loses its CPU now, and the progress there.
    pub(crate) fn restart(self) -> Option<(u64, Self)> {
        let HitStage::Sequence { sequence, .. } = self.stage else {
            return None;
        };
        let stage = HitStage::Nothing;
        Some((sequence.abort, Self { stage, ..self }))
    }
}

impl<'a> InstrumentMachine<'a> {
    /// Executes an instruction of a target whose counters are reached by restartable sequences; `None` if it is like
    /// that of any target.
    pub(super) fn restartable(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let Some(sequences) = self.layout.sequences() else {
            return Ok(None);
        };
        match progress.stage {
            HitStage::Sequence { sequence, done } => {
                self.inside_sequence(instruction, state, (sequence, done), progress)
            }
            HitStage::Unregistered => {
                let word = self.counted(progress, state);
                let word = word.map(|word| word.wrapping_add(sequences.unregistered()));
                let address = self.incremented(instruction, state, true)?;
                if word.is_none() || self.values.as_constant(address) != word {
                    return Err(Reason::OtherCounter);
                }
                self.counts(instruction, state, progress)
            }
            _ => {
                let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
                let stores = instruction.op0_kind() == OpKind::Memory
                    && !compares
                    && instruction.mnemonic() != Mnemonic::Nop
                    && instruction.memory_base() != Register::RSP;
                if stores && self.is_at(instruction, sequences.armed().0, 8)? {
                    let flow = self.arm(instruction, state, expected, progress)?;
                    return Ok(Some(flow));
                }
                if stores || instruction.mnemonic() == Mnemonic::Call {
                    return Err(Reason::OutsideSequence);
                }
                Ok(None)
            }
        }
    }

    /// Executes the store of a descriptor's address.
    fn arm(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<MachineFlow, Reason> {
        let plain = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register().is_gpr64()
            && progress.stage == HitStage::Nothing;
        if !plain || expected.is_none() || self.counted(progress, state).is_none() {
            return Err(Reason::OutsideSequence);
        }
        let stored = self.operand(instruction, 1, state, progress)?;
        let stored = self.values.as_constant(stored);
        let next = instruction.next_ip();
        let mut descriptors = self.descriptors.iter_mut();
        let descriptor = descriptors.find(|one| stored == Some(one.at));
        let descriptor = descriptor.ok_or(Reason::NoDescriptor)?;
        if descriptor.sequence.start != next {
            return Err(Reason::NoDescriptor);
        }
        descriptor.armed = true;
        let stage = HitStage::Sequence {
            sequence: descriptor.sequence,
            done: SequenceStep::Armed,
        };
        Ok(MachineFlow::On(Some(Progress { stage, ..progress })))
    }

    /// Executes an instruction of a sequence.
    fn inside_sequence(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        (sequence, done): (Sequence, SequenceStep),
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let next = instruction.next_ip();
        let wrong = || Reason::InSequence {
            instruction: instruction.to_string(),
        };
        let sequences = self.layout.sequences().ok_or_else(wrong)?;
        let mnemonic = instruction.mnemonic();
        let stage = |done| HitStage::Sequence { sequence, done };
        let after = |done| {
            let stage = stage(done);
            Ok(Some(MachineFlow::On(Some(Progress { stage, ..progress }))))
        };
        if next == sequence.commit {
            let SequenceStep::Registered(cpu) = done else {
                return Err(wrong());
            };
            let word = self.counted(progress, state).ok_or_else(wrong)?;
            let word = self.values.constant(word);
            let row = self.values.scale(cpu, 1 << sequences.stride_log2.min(63));
            let meant = self.values.add(word, row);
            let address = self.incremented(instruction, state, false)?;
            if meant.is_unknown() || address != meant {
                return Err(Reason::OtherCounter);
            }
            return self.counts(instruction, state, progress);
        }
        match done {
            SequenceStep::Armed => {
                let reads = mnemonic == Mnemonic::Mov
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register().is_gpr32()
                    && instruction.op1_kind() == OpKind::Memory
                    && self.is_at(instruction, sequences.cpu_id().0, 4)?;
                if !reads {
                    return Err(wrong());
                }
                let cpu = self.read(Atom::CpuOf(instruction.ip()), state, progress)?;
                let cpu = self.values.mask(cpu, 0xffff_ffff);
                self.set(instruction, cpu, state)?;
                after(SequenceStep::Read(cpu))
            }
            SequenceStep::Read(cpu) => {
                let bound = instruction.op0_kind() == OpKind::Register
                    && mnemonic == Mnemonic::Cmp
                    && instruction.op0_register().is_gpr32()
                    && instruction.try_immediate(1).ok() == Some(sequences.cpus.into())
                    && self.operand(instruction, 0, state, progress)? == cpu;
                if !bound {
                    return Err(wrong());
                }
                state.compare = Compare::Unknown;
                state.flags &= !instruction.rflags_modified();
                after(SequenceStep::Compared(cpu))
            }
            SequenceStep::Compared(cpu) => {
                let to = instruction.near_branch_target();
                let leaves = !(sequence.start..sequence.commit).contains(&to);
                if mnemonic != Mnemonic::Jae || !leaves {
                    return Err(wrong());
                }
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
                    taken: way(HitStage::Unregistered),
                    falls: way(stage(SequenceStep::Registered(cpu))),
                }))
            }
            SequenceStep::Registered(_) => {
                // In registers alone, and control falls through.
                let computes = matches!(
                    mnemonic,
                    Mnemonic::Mov | Mnemonic::Shl | Mnemonic::Add | Mnemonic::Lea
                );
                let loads = (0..instruction.op_count())
                    .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
                let register = instruction.op0_register();
                let alone = instruction.op0_kind() == OpKind::Register
                    && register.is_gpr()
                    && register.full_register() != Register::RSP
                    && (mnemonic == Mnemonic::Lea || !loads);
                if computes && alone && next < sequence.commit {
                    Ok(None)
                } else {
                    Err(wrong())
                }
            }
        }
    }

    /// The word, on CPU 0, of the counter that the hit increments next.
    fn counted(&mut self, progress: Progress, state: &AbstractState) -> Option<u64> {
        let one = self.program()?;
        self.hit(one).hit_counter(progress, state)
    }

    /// Returns the address that an `inc` of 64 bits increments.
    fn incremented(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        locked: bool,
    ) -> Result<SymValue, Reason> {
        let plain = instruction.mnemonic() == Mnemonic::Inc
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_size().size() == 8
            && instruction.has_lock_prefix() == locked
            && instruction.memory_base() != Register::RSP
            && !location::is_word(&self.layout.abi, instruction)?;
        if plain {
            location::address(&mut self.values, instruction, state)
        } else {
            Err(Reason::InSequence {
                instruction: instruction.to_string(),
            })
        }
    }

    /// Completes the count of a hit.
    fn counts(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let one = self.program().ok_or(Reason::UnhookedCount)?;
        state.compare = Compare::Unknown;
        state.flags &= !instruction.rflags_modified();
        Ok(Some(MachineFlow::On(self.hit(one).next(progress))))
    }

    /// Returns whether the operand in memory is of so many bytes at an offset of the segment.
    fn is_at(
        &mut self,
        instruction: &Instruction,
        offset: u64,
        bytes: usize,
    ) -> Result<bool, Reason> {
        let alone = instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
            && instruction.memory_size().size() == bytes;
        let word = location::is_word(&self.layout.abi, instruction)?;
        Ok(word && alone && instruction.memory_displacement64() == offset)
    }
}
