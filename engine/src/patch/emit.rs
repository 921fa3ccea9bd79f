//! The emitter: appends instructions, records pieces, rows and faults, and resolves forward branches.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

use super::registers::SavedFlags;
use super::{Fault, Piece, PieceKind, Recovery};
use crate::ids::{Ids, id, to_u32};
use crate::isa::encode::{INT3, at, jump, rel32};
use crate::isa::relocate::Relocated;
use crate::layout::{RuntimeLayout, SegmentOffset, Sequences};
use crate::unwind::Row;
use crate::{Addr, Refusal, Rule};

/// Length of a `jcc rel32`.
const JCC_BYTES: usize = 6;

/// A forward branch whose target is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward {
    /// Offset of the end of its displacement.
    end: usize,
}

id!(
    /// An instruction that may fault, with its recovery address to be set: its index among those of its patch.
    pub(super) Faulting
);

/// A restartable sequence, by addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restartable {
    /// The instruction that loads the address of its descriptor.
    pub(super) loads: Forward,
    /// Its first instruction.
    pub(super) start: Addr,
    /// The end of its last instruction.
    pub(super) commit: Addr,
    /// The instruction from which the kernel restarts it.
    pub(super) abort: Addr,
}

/// A patch in the making. The first failure is kept and comes out of [`Emitter::finish`], so that
/// the code that emits reads like the code that is emitted.
pub(super) struct Emitter {
    at: Addr,
    encoder: Encoder,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// True if rows are recorded.
    unwinds: bool,
    /// The segment of the target's words.
    segment: Register,
    rows: Vec<Row>,
    faults: Ids<Faulting, Fault>,
    sequences: Vec<Restartable>,
    original: Addr,
    pushed: u32,
    started: usize,
    executed: u32,
    usual: bool,
    falls_through: bool,
    failure: Option<Refusal>,
}

impl Emitter {
    pub(super) fn new(layout: &RuntimeLayout) -> Self {
        Self {
            at: Addr(0),
            encoder: Encoder::new(64),
            bytes: Vec::with_capacity(1024),
            pieces: Vec::with_capacity(64),
            unwinds: layout.unwinds,
            segment: layout.abi.segment.register(),
            rows: Vec::new(),
            faults: Ids::new(),
            sequences: Vec::new(),
            original: Addr(0),
            pushed: 0,
            started: 0,
            executed: 0,
            usual: true,
            falls_through: true,
            failure: None,
        }
    }

    /// Begins a patch at `at`, which is entered with so many bytes pushed, whatever became of the one before.
    pub(super) fn begin(&mut self, at: Addr, pushed: u32) {
        self.at = at;
        self.bytes.clear();
        self.pieces.clear();
        self.rows.clear();
        self.faults.clear();
        self.sequences.clear();
        self.pushed = pushed;
        self.started = 0;
        self.executed = 0;
        self.usual = true;
        self.falls_through = true;
        self.failure = None;
    }

    /// Marks the following code as rare: it does not count as executed.
    pub(super) fn unusual(&mut self) {
        self.usual = false;
    }

    /// The address of the next byte.
    pub(super) fn here(&self) -> Addr {
        self.at.add(self.bytes.len() as u64)
    }

    /// Sets the original instruction that the following code replaces or precedes.
    pub(super) fn stands_for(&mut self, original: Addr) {
        self.original = original;
    }

    /// Returns the frame of the current position: the original instruction, and bytes pushed.
    pub(super) fn frame(&self) -> (Addr, u32) {
        (self.original, self.pushed)
    }

    /// Sets the frame for code elsewhere in the patch.
    pub(super) fn set_frame(&mut self, frame: (Addr, u32)) {
        (self.original, self.pushed) = frame;
    }

    /// Code comes next: has its row begin, unless that before says the same.
    fn row(&mut self, at: usize, original: Addr, pushed: u32) {
        let same = |row: &Row| (row.original, row.pushed) == (original, pushed);
        if self.unwinds && !self.rows.last().is_some_and(same) {
            let at = to_u32(at);
            self.rows.push(Row {
                at,
                pushed,
                original,
            });
        }
    }

    /// The word at an offset of the segment. Layouts are checked: every offset used here fits a displacement.
    pub(super) fn word(&self, offset: SegmentOffset) -> MemoryOperand {
        MemoryOperand::new(
            Register::None,
            Register::None,
            1,
            offset.0.cast_signed(),
            8,
            false,
            self.segment,
        )
    }

    /// The word of the segment at the offset in a register.
    pub(super) fn word_by(&self, offset: Register) -> MemoryOperand {
        MemoryOperand::new(offset, Register::None, 1, 0, 0, false, self.segment)
    }

    /// The segment of the target's words.
    pub(super) fn segment(&self) -> Register {
        self.segment
    }

    /// Moves the stack pointer over so many bytes below it, or back, without a change of flags or memory.
    pub(super) fn step_over(&mut self, bytes: u8, back: bool) {
        if bytes == 0 {
            return;
        }
        let offset = if back {
            i64::from(bytes)
        } else {
            -i64::from(bytes)
        };
        let place = at(Register::RSP, offset);
        self.op(Instruction::with2(Code::Lea_r64_m, Register::RSP, place));
        self.pushed = if back {
            self.pushed.saturating_sub(bytes.into())
        } else {
            self.pushed.saturating_add(bytes.into())
        };
    }

    /// Emits a push and records its row.
    pub(super) fn push(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        self.op(instruction);
        self.pushed += 8;
    }

    /// Emits a pop and records its row.
    pub(super) fn pop(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        self.op(instruction);
        self.pushed = self.pushed.saturating_sub(8);
    }

    /// Emits the save of the flags.
    pub(super) fn save_flags(&mut self, to: SavedFlags) {
        if to == SavedFlags::Dead {
            return;
        }
        self.op(Ok(Instruction::with(Code::Lahf)));
        self.op(Instruction::with1(Code::Seto_rm8, Register::AL));
        if to == SavedFlags::Pushed {
            self.push(Instruction::with1(Code::Push_r64, Register::RAX));
        }
    }

    /// Emits the restore of the flags.
    pub(super) fn restore_flags(&mut self, from: SavedFlags) {
        if from == SavedFlags::Dead {
            return;
        }
        if from == SavedFlags::Pushed {
            self.pop(Instruction::with1(Code::Pop_r64, Register::RAX));
        }
        // Overflows if al is 1.
        self.op(Instruction::with2(Code::Add_AL_imm8, Register::AL, 0x7f));
        self.op(Ok(Instruction::with(Code::Sahf)));
    }

    /// Ends the piece that began where the last one ended; an empty one is left out.
    pub(super) fn piece(&mut self, kind: PieceKind) {
        if self.bytes.len() > self.started {
            let range = to_u32(self.started)..to_u32(self.bytes.len());
            let usual = self.usual && !matches!(kind, PieceKind::Lost(_));
            self.pieces.push(Piece {
                kind,
                range,
                executed: if usual { self.executed } else { 0 },
            });
        }
        self.started = self.bytes.len();
        self.executed = 0;
    }

    /// One instruction on the usual way.
    pub(super) fn op(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        let here = self.here();
        self.row(self.bytes.len(), self.original, self.pushed);
        let written = instruction.and_then(|instruction| {
            self.encoder.set_buffer(std::mem::take(&mut self.bytes));
            let written = self.encoder.encode(&instruction, here.0);
            self.bytes = self.encoder.take_buffer();
            written
        });
        match written {
            Ok(_) => self.executed += 1,
            Err(error) => self.fail(
                Rule::Unrelocatable,
                format!("instrument code cannot be encoded: {error}"),
            ),
        }
    }

    /// Emits an instruction that may fault; [`Emitter::recover`] sets its recovery address.
    pub(super) fn faulting(
        &mut self,
        instruction: Result<Instruction, iced_x86::IcedError>,
    ) -> Faulting {
        let faulting = self.faults.push(Fault {
            at: to_u32(self.bytes.len()),
            recovery: Recovery::At(0),
        });
        self.op(instruction);
        faulting
    }

    /// Sets the recovery address of an instruction to the next byte.
    pub(super) fn recover(&mut self, faulting: Faulting) {
        let here = to_u32(self.bytes.len());
        self.faults[faulting].recovery = Recovery::At(here);
    }

    /// A conditional branch to a place that is already written.
    pub(super) fn branch_back(&mut self, code: Code, target: Addr) {
        self.op(Instruction::with_branch(code, target.0));
    }

    /// A conditional branch, always of the near form, to a place that [`Emitter::land`] will name.
    pub(super) fn branch_forward(&mut self, code: Code) -> Forward {
        let target = self.here();
        self.op(Instruction::with_branch(code, target.0));
        Forward {
            end: self.bytes.len(),
        }
    }

    /// Resolves `forward` to the next byte.
    pub(super) fn land(&mut self, forward: Forward) {
        self.land_at(forward, self.here());
    }

    /// Resolves `forward` to `target`.
    pub(super) fn land_at(&mut self, forward: Forward, target: Addr) {
        let displacement = rel32(self.at.add(forward.end as u64), target);
        let field = self
            .bytes
            .get_mut(forward.end.saturating_sub(4)..forward.end);
        match (displacement, field) {
            (Some(displacement), Some(field)) => field.copy_from_slice(&displacement),
            _ => self.fail(
                Rule::OutOfReach,
                "a branch of the patch does not reach its end".into(),
            ),
        }
    }

    /// The displacement from the next instruction with which the last one ends.
    pub(super) fn last_displacement(&self) -> Forward {
        Forward {
            end: self.bytes.len(),
        }
    }

    /// Returns the branch that has just been written, for [`Emitter::land_at`] to resolve.
    pub(super) fn last_branch(&self) -> Forward {
        // An int3 follows one that is always taken.
        Forward {
            end: self
                .bytes
                .len()
                .saturating_sub(usize::from(!self.falls_through)),
        }
    }

    /// Negates the condition of the branch that has just been written; returns false, and changes nothing, if it has none
    /// that can be: `loop` and `jrcxz` are no `jcc`.
    pub(super) fn negate_last_branch(&mut self) -> bool {
        let begin = self.bytes.len().saturating_sub(JCC_BYTES);
        match self.bytes.get_mut(begin..) {
            Some([0x0f, opcode @ 0x80..=0x8f, _, _, _, _]) => {
                *opcode ^= 1;
                true
            }
            _ => false,
        }
    }

    /// Adds a restartable sequence, whose descriptor [`Emitter::descriptors`] will write.
    pub(super) fn sequence(&mut self, sequence: Restartable) {
        self.sequences.push(sequence);
    }

    /// Ends the patch with the descriptors of its restartable sequences: `struct rseq_cs` of
    /// include/uapi/linux/rseq.h.
    pub(super) fn descriptors(&mut self) {
        let sequences = std::mem::take(&mut self.sequences);
        if sequences.is_empty() {
            return;
        }
        while !self.here().0.is_multiple_of(Sequences::DESCRIPTOR_BYTES) {
            self.stop();
        }
        for one in &sequences {
            self.land(one.loads);
            let length = one.commit.0.wrapping_sub(one.start.0);
            // Version and flags are 0.
            for word in [0, one.start.0, length, one.abort.0] {
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        self.piece(PieceKind::Descriptors);
        self.sequences = sequences;
    }

    /// Original instructions at their new place; `may_fault` knows those with an entry in the exception table.
    pub(super) fn relocated(&mut self, relocated: &Relocated, may_fault: impl Fn(Addr) -> bool) {
        for row in &relocated.rows {
            let at = self.bytes.len() + row.at as usize;
            self.row(at, row.original, row.pushed);
            if may_fault(row.original) {
                self.faults.push(Fault {
                    at: to_u32(at),
                    recovery: Recovery::Like(row.original),
                });
            }
        }
        self.bytes.extend_from_slice(&relocated.bytes);
        self.executed += relocated.executed;
        self.piece(PieceKind::Relocated);
        self.falls_through = relocated.falls_through;
    }

    /// Returns whether control falls through the end of the code that was relocated last.
    pub(super) fn falls_through(&self) -> bool {
        self.falls_through
    }

    /// `jmp rel32`.
    pub(super) fn jump(&mut self, target: Addr) {
        match jump(self.here(), target) {
            Some(bytes) => {
                self.row(self.bytes.len(), self.original, self.pushed);
                self.bytes.extend_from_slice(&bytes);
                self.executed += 1;
            }
            None => self.fail(
                Rule::OutOfReach,
                format!("{target} is more than 2 GiB from the patch"),
            ),
        }
    }

    /// Emits a byte that is never executed.
    pub(super) fn stop(&mut self) {
        self.bytes.push(INT3);
    }

    /// Notes that the plan lacks a part that its code needs, which no plan does: the patch is not made.
    pub(super) fn lacks(&mut self, part: &str) {
        debug_assert!(false, "internal error: a patch without {part}");
        self.fail(
            Rule::Unrelocatable,
            format!("internal error: the plan has no {part}"),
        );
    }

    fn fail(&mut self, rule: Rule, why: String) {
        let at = self.here();
        self.failure.get_or_insert(Refusal::new(rule, at, why));
    }

    pub(super) fn finish(&mut self) -> Result<super::Code, Refusal> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(super::Code {
                bytes: self.bytes.clone(),
                sequences: to_u32(self.sequences.len()),
                rows: self.rows.clone(),
                faults: self.faults.values().to_vec(),
                pieces: self.pieces.clone(),
            }),
        }
    }
}
