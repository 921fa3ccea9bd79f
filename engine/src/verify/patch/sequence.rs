//! Restartable sequences: updates of a word of the CPU in user space (`rseq(2)`, kernel/rseq.c of Linux).
//!
//! A thread that loses its CPU inside a sequence, or is given a signal there, continues at the sequence's address of
//! restart, with its registers as they are. So from each instruction of a sequence there is a way to that address,
//! with nothing of the update done: it is walked like any other, and its states are joined. In a sequence control only
//! falls through, or leaves it where the thread is found unregistered; nothing is stored, and the last instruction is
//! the one update of the CPU's word: an addition to it, or a store. A step of a program with several words has a
//! sequence for each, and a thread is set back to the one that it was in. All other writes of memory are forbidden,
//! except those of the patch's own words on the stack, and of words that all CPUs share.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::action::WordWrite;
use super::descriptor::{Sequence, SequenceStep};
use super::hit::{Expected, HitStage, Progress, WholeStage};
use super::location;
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::operands::not_allowed;
use super::process::ReaderCode;
use super::state::{AbstractState, Compare, Since};
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::{Atom, SymValue};

impl Progress {
    /// Returns the address where the kernel restarts the thread if it loses its CPU now, and the progress there.
    pub(crate) fn restart(self) -> Option<(u64, Self)> {
        let HitStage::Sequence {
            sequence, before, ..
        } = self.stage
        else {
            return None;
        };
        let stage = before.stage();
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
            HitStage::Sequence {
                sequence,
                done,
                before,
            } => self.inside_sequence(instruction, state, (sequence, done, before), progress),
            HitStage::Lost { row } => self.loses(instruction, state, row, progress).map(Some),
            HitStage::Unregistered { before } => {
                let row = self.values.constant(sequences.unregistered());
                self.updates(instruction, state, (row, true, before), progress)
            }
            _ => {
                let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
                let stores = instruction.op0_kind() == OpKind::Memory
                    && !compares
                    && instruction.mnemonic() != Mnemonic::Nop
                    && instruction.memory_base() != Register::RSP;
                let shares = self.shares_ring(progress);
                if stores
                    && let Some(armed) = sequences.armed()
                    && self.is_at(instruction, armed.0, 8)?
                {
                    let flow = self.arm(instruction, state, expected, progress)?;
                    return Ok(Some(flow));
                }
                if instruction.mnemonic() == Mnemonic::Call
                    && ReaderCode::called(self.layout, instruction).is_none()
                {
                    return Err(Reason::OutsideSequence);
                }
                if shares {
                    return match stores {
                        true => self.writes_shared_ring(instruction, state, progress),
                        false => Ok(None),
                    };
                }
                if stores && !self.is_shared_write(instruction, state, progress)? {
                    // Without areas there are no sequences: all threads update the words that CPUs share. Those that are
                    // seldom updated need none either.
                    let before = WholeStage::of(progress.stage);
                    let shares = sequences.area.is_none() || before == Some(WholeStage::Full);
                    let before = before.filter(|_| shares && expected.is_some());
                    let before = before.ok_or(Reason::OutsideSequence)?;
                    let row = self.values.constant(sequences.unregistered());
                    return self.updates(instruction, state, (row, true, before), progress);
                }
                if instruction.mnemonic() == Mnemonic::Mov
                    && instruction.op1_kind() == OpKind::Memory
                    && let Some(cpu) = sequences.cpu_id_start()
                    && self.is_at(instruction, cpu.0, 4)?
                {
                    self.reads_cpu(instruction, state, progress)?;
                    return Ok(Some(MachineFlow::On(Some(progress))));
                }
                Ok(None)
            }
        }
    }

    /// Returns whether an instruction writes to memory that all CPUs share, which the rules of the step decide on.
    fn is_shared_write(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        progress: Progress,
    ) -> Result<bool, Reason> {
        let Some(one) = self.program() else {
            return Ok(false);
        };
        let whole = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Mov;
        let memory = !location::is_word(&self.layout.abi, instruction)?;
        Ok(whole && memory && self.hit(one).writes_shared(progress, state))
    }

    /// Executes a load of the number of a CPU that the thread has executed on.
    fn reads_cpu(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        if self.program().is_none() || !instruction.op0_register().is_gpr32() {
            return Err(not_allowed(instruction));
        }
        let atom = Atom::CpuOf(instruction.ip());
        let cpu = self.read(atom, state, progress)?;
        let cpu = self.values.mask(cpu, 0xffff_ffff);
        self.rows.retain(|known| *known != cpu);
        self.rows.push(cpu);
        self.set(instruction, cpu, state)
    }

    /// Returns the word, on CPU 0, whose row of one of the thread's CPUs has this address.
    pub(super) fn word_of_row(&mut self, address: SymValue) -> Option<u64> {
        let sequences = self.layout.sequences()?;
        let values = &mut self.values;
        self.rows.iter().find_map(|cpu| {
            let row = values.scale(*cpu, 1 << sequences.stride_log2.min(63));
            let word = values.sub(address, row);
            values.as_constant(word)
        })
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
            && instruction.op1_register().is_gpr64();
        let before = WholeStage::of(progress.stage);
        let before = before.filter(|_| plain && expected.is_some() && self.program().is_some());
        let before = before.ok_or(Reason::OutsideSequence)?;
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
            before,
        };
        Ok(MachineFlow::On(Some(Progress { stage, ..progress })))
    }

    /// Executes an instruction of a sequence.
    fn inside_sequence(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        (sequence, done, before): (Sequence, SequenceStep, WholeStage),
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let next = instruction.next_ip();
        let wrong = || Reason::InSequence {
            instruction: instruction.to_string(),
        };
        let sequences = self.layout.sequences().ok_or_else(wrong)?;
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
        if self.samples(progress)
            && let SequenceStep::Registered(_)
            | SequenceStep::Headed { .. }
            | SequenceStep::Limited { .. }
            | SequenceStep::Filling { .. } = done
        {
            return self.inside_sample(instruction, state, (sequence, done, before), progress);
        }
        if next == sequence.commit {
            let SequenceStep::Registered(cpu) = done else {
                return Err(wrong());
            };
            let row = self.values.scale(cpu, 1 << sequences.stride_log2.min(63));
            return self.updates(instruction, state, (row, false, before), progress);
        }
        match done {
            SequenceStep::Armed => {
                let cpu_id = sequences.cpu_id().ok_or_else(wrong)?;
                let reads = mnemonic == Mnemonic::Mov
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register().is_gpr32()
                    && instruction.op1_kind() == OpKind::Memory
                    && self.is_at(instruction, cpu_id.0, 4)?;
                if !reads {
                    return Err(wrong());
                }
                let cpu = self.read(Atom::CpuOf(instruction.ip()), state, progress)?;
                let cpu = self.values.mask(cpu, 0xffff_ffff);
                // A sample has a time from within its sequence.
                state.since_head = Since::default();
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
                let without = if self.samples(progress) {
                    let row = self.values.constant(sequences.unregistered());
                    HitStage::Lost { row }
                } else {
                    HitStage::Unregistered { before }
                };
                Ok(Some(MachineFlow::Branch {
                    to,
                    taken: way(without),
                    falls: way(stage(SequenceStep::Registered(cpu))),
                }))
            }
            SequenceStep::Registered(_)
            | SequenceStep::Headed { .. }
            | SequenceStep::Limited { .. }
            | SequenceStep::Filling { .. } => {
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

    /// Executes the one update of a word: of a row of words, whose writers may be several at a time.
    fn updates(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        (row, shared, before): (SymValue, bool, WholeStage),
        progress: Progress,
    ) -> Result<Option<MachineFlow>, Reason> {
        let wrong = || Reason::InSequence {
            instruction: instruction.to_string(),
        };
        let adds = match instruction.mnemonic() {
            Mnemonic::Inc | Mnemonic::Add => true,
            Mnemonic::Mov => false,
            _ => return Err(wrong()),
        };
        let plain = instruction.op0_kind() == OpKind::Memory
            && instruction.memory_size().size() == 8
            && instruction.has_lock_prefix() == (shared && adds)
            && instruction.memory_base() != Register::RSP
            && !location::is_word(&self.layout.abi, instruction)?;
        if !plain {
            return Err(wrong());
        }
        let expected = self.program().ok_or(Reason::UnhookedCount)?;
        let value = match instruction.mnemonic() {
            Mnemonic::Inc => self.values.constant(1),
            _ => self.operand(instruction, 1, state, progress)?,
        };
        let address = location::address(&mut self.values, instruction, state)?;
        // The word, on CPU 0.
        let address = self.values.sub(address, row);
        let write = WordWrite {
            by_word: true,
            address,
            value,
            adds,
            locked: false,
        };
        if adds {
            state.compare = Compare::Unknown;
            state.flags &= !instruction.rflags_modified();
        }
        let stage = before.stage();
        let progress = Progress { stage, ..progress };
        let next = self.hit(expected).write(progress, write, state)?;
        Ok(Some(MachineFlow::On(next)))
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
