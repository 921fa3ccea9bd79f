//! The code of a block that records its accesses. It consists of moves, `lea` and, where flags are dead, a comparison, and
//! writes to the thread's area alone.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::accesses::{
    AccessArea, AccessPlace, RecordPlan, RecordedBlock, RecordedExit, SlotStore, group, note,
};
use super::blocks::DecodedInstruction;
use super::pending::{FullArea, PendingExit};
use super::rows::RowState;
use super::translate::{TranslationWork, conditional};
use crate::ids::to_u32;
use crate::isa::number_of;
use crate::{Addr, Refusal};

/// A block that is being recorded.
pub(super) struct Recording {
    plan: RecordPlan,
    block: RecordedBlock,
    /// The pointer has the value of the original code again.
    is_over: bool,
}

fn to_i64(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A word of the thread's area.
fn word(offset: u64) -> MemoryOperand {
    at(Register::None, to_i64(offset))
}

/// A word of the thread's area, at a distance from an offset.
fn at(pointer: Register, displacement: i64) -> MemoryOperand {
    let size = if pointer == Register::None { 8 } else { 1 };
    MemoryOperand::new(
        pointer,
        Register::None,
        1,
        displacement,
        size,
        false,
        Register::GS,
    )
}

impl Recording {
    /// The target of a conditional branch after which the block continues.
    fn exit(&self, number: usize, decoded: &DecodedInstruction) -> Option<Addr> {
        let is_last = number + 1 == self.block.instructions.len();
        decoded.flow.exit().filter(|_| !is_last)
    }
}

impl TranslationWork<'_> {
    /// Reserves the group of a block.
    pub(super) fn begin_recording(
        &mut self,
        plan: RecordPlan,
        instructions: &[DecodedInstruction],
    ) -> Result<Recording, Refusal> {
        let original = instructions.first().map_or(Addr(0), DecodedInstruction::at);
        let pointer = plan.pointer;
        let mut block = RecordedBlock {
            number: self.next_number() + 1,
            instructions: instructions.iter().map(DecodedInstruction::at).collect(),
            slots: plan.slots,
            accesses: plan.accesses.clone(),
            exits: Vec::new(),
            from: Addr(0),
            end: Addr(0),
            pointer: number_of(pointer),
        };
        self.out.row(original, RowState::Exact);
        self.store(word(AccessArea::KEPT), pointer, original)?;
        let compares = self.status_is_dead(instructions);
        let moves = !compares && pointer != Register::RCX;
        if moves {
            self.copy(pointer, Register::RCX, original)?;
        }
        self.out.row(original, RowState::Busy);
        let full = word(AccessArea::FULL);
        let field = if compares {
            // cmp byte gs:[full], 0; jne to the agent
            let full = Instruction::with2(Code::Cmp_rm8_imm8, full, 0);
            self.out.encoded(full, original)?;
            self.out.later(&[0x0f, 0x85])
        } else {
            // movzx ecx, byte gs:[full]; jrcxz over the branch
            let full = Instruction::with2(Code::Movzx_r32_rm8, Register::ECX, full);
            self.out.encoded(full, original)?;
            self.out.push(&[0xe3, 5]);
            self.out.later(&[0xe9])
        };
        self.full.push(FullArea {
            field,
            original,
            pointer,
            moved: moves,
        });
        if moves {
            self.copy(Register::RCX, pointer, original)?;
        }
        self.fetch(pointer, word(AccessArea::POSITION), original)?;
        let number = i32::try_from(block.number).unwrap_or(i32::MAX);
        let named = Instruction::with2(Code::Mov_rm64_imm32, at(pointer, 0), number);
        self.out.encoded(named, original)?;
        let next = MemoryOperand::with_base_displ(pointer, to_i64(block.group()));
        self.out
            .encoded(Instruction::with2(Code::Lea_r64_m, pointer, next), original)?;
        self.store(word(AccessArea::POSITION), pointer, original)?;
        block.from = self.out.here();
        self.state = RowState::Recording(block.pointer);
        self.out.row(original, self.state);
        Ok(Recording {
            plan,
            block,
            is_over: false,
        })
    }

    /// Stores the slots of an instruction. The pointer is restored before one after which the block does not continue.
    pub(super) fn record_before(
        &mut self,
        recording: &mut Recording,
        number: usize,
        decoded: &DecodedInstruction,
    ) -> Result<(), Refusal> {
        self.out.row(decoded.at(), self.state);
        self.slots(&recording.plan, (number, false), decoded.at())?;
        if !decoded.flow.is_sequential() && recording.exit(number, decoded).is_none() {
            self.restore(recording, decoded.at())?;
        }
        let here = self.out.here();
        for access in &mut recording.block.accesses {
            if let AccessPlace::Repeated { copied, .. } = &mut access.place
                && usize::try_from(access.instruction) == Ok(number)
            {
                *copied = here;
            }
        }
        Ok(())
    }

    /// Emits a conditional branch after which the block continues. Returns false if the instruction is none.
    pub(super) fn record_exit(
        &mut self,
        recording: &mut Recording,
        number: usize,
        decoded: &DecodedInstruction,
    ) -> bool {
        let Some(target) = recording.exit(number, decoded) else {
            return false;
        };
        self.out.row(decoded.at(), self.state);
        let field = self.out.later(&conditional(&decoded.instruction));
        let executed = to_u32(number + 1);
        self.exits.push(PendingExit {
            field,
            target,
            pointer: recording.plan.pointer,
            group: recording.block.group(),
            executed,
            stated: (self.done.recorded.len(), recording.block.exits.len()),
        });
        // Its place is known at the end.
        recording.block.exits.push(RecordedExit {
            at: Addr(0),
            executed,
        });
        true
    }

    /// Emits the ways of conditional branches that are taken: the group notes how many instructions were executed, and
    /// the pointer is restored.
    pub(super) fn exit_stubs(&mut self) -> Result<(), Refusal> {
        for exit in std::mem::take(&mut self.exits) {
            let here = self.out.here();
            self.out.resolve(exit.field, here)?;
            let number = number_of(exit.pointer);
            self.out.row(exit.target, RowState::Recording(number));
            let noted = at(exit.pointer, 4 - to_i64(exit.group));
            let executed = note(exit.executed).cast_signed();
            let noted = Instruction::with2(Code::Mov_rm32_imm32, noted, executed);
            self.out.encoded(noted, exit.target)?;
            self.fetch(exit.pointer, word(AccessArea::KEPT), exit.target)?;
            self.out.row(exit.target, RowState::Exact);
            self.branch(&[0xe9], exit.target);
            let (block, index) = exit.stated;
            let block = self.done.recorded.get_mut(block);
            let stated = block.and_then(|block| block.exits.get_mut(index));
            debug_assert!(stated.is_some(), "an exit of a block is not stated");
            if let Some(stated) = stated {
                stated.at = here;
            }
        }
        Ok(())
    }

    /// Stores the slots that follow an instruction.
    pub(super) fn record_after(
        &mut self,
        recording: &Recording,
        number: usize,
        decoded: &DecodedInstruction,
    ) -> Result<(), Refusal> {
        if recording.is_over {
            return Ok(());
        }
        self.out.row(decoded.next(), self.state);
        self.slots(&recording.plan, (number, true), decoded.next())
    }

    /// Ends a block that falls through at an address.
    pub(super) fn end_recording(
        &mut self,
        mut recording: Recording,
        end: Addr,
    ) -> Result<(), Refusal> {
        if !recording.is_over {
            self.restore(&mut recording, end)?;
        }
        recording.block.end = self.out.here();
        self.done.recorded.push(recording.block);
        Ok(())
    }

    /// Emits the ways from a full area: the pointer is restored, and the agent is stopped for as if the block was in no
    /// table.
    pub(super) fn full_stubs(&mut self) -> Result<(), Refusal> {
        for full in std::mem::take(&mut self.full) {
            let (original, pointer) = (full.original, full.pointer);
            let here = self.out.here();
            self.out.resolve(full.field, here)?;
            self.out.row(original, RowState::Busy);
            if full.moved {
                self.copy(Register::RCX, pointer, original)?;
            }
            self.fetch(pointer, word(AccessArea::KEPT), original)?;
            self.load(original)?;
            self.out
                .reach(&[0xe9], self.translator.resident().dropped)?;
        }
        Ok(())
    }

    /// Restores the pointer.
    fn restore(&mut self, recording: &mut Recording, original: Addr) -> Result<(), Refusal> {
        self.out.row(original, self.state);
        self.fetch(recording.plan.pointer, word(AccessArea::KEPT), original)?;
        self.state = RowState::Exact;
        recording.is_over = true;
        Ok(())
    }

    /// Stores the slots before or after an instruction.
    fn slots(
        &mut self,
        plan: &RecordPlan,
        (number, after): (usize, bool),
        original: Addr,
    ) -> Result<(), Refusal> {
        let stores = plan.stores.iter();
        let wanted = stores.filter(|one| one.instruction == number && one.after == after);
        for &SlotStore { slot, register, .. } in wanted {
            let place = to_i64(group(slot)) - to_i64(group(plan.slots));
            self.store(at(plan.pointer, place), register, original)?;
        }
        Ok(())
    }

    fn store(&mut self, to: MemoryOperand, from: Register, original: Addr) -> Result<(), Refusal> {
        self.out
            .encoded(Instruction::with2(Code::Mov_rm64_r64, to, from), original)
    }

    fn fetch(&mut self, to: Register, from: MemoryOperand, original: Addr) -> Result<(), Refusal> {
        self.out
            .encoded(Instruction::with2(Code::Mov_r64_rm64, to, from), original)
    }

    fn copy(&mut self, to: Register, from: Register, original: Addr) -> Result<(), Refusal> {
        self.out
            .encoded(Instruction::with2(Code::Mov_r64_rm64, to, from), original)
    }
}
