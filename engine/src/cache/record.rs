//! The code of a block that records its accesses. It consists of moves and `lea`, so no flag changes, and writes to the
//! thread's area alone.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::accesses::{AccessArea, AccessPlace, RecordPlan, RecordedBlock, SlotStore, group};
use super::blocks::DecodedInstruction;
use super::rows::RowState;
use super::translate::TranslationWork;
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

impl TranslationWork<'_> {
    /// Reserves the group of a block.
    pub(super) fn begin_recording(
        &mut self,
        plan: RecordPlan,
        instructions: &[DecodedInstruction],
    ) -> Result<Recording, Refusal> {
        let original = instructions.first().map_or(Addr(0), DecodedInstruction::at);
        let pointer = plan.pointer;
        self.counters += 1;
        let mut block = RecordedBlock {
            number: self.counters,
            instructions: instructions.iter().map(DecodedInstruction::at).collect(),
            slots: plan.slots,
            accesses: plan.accesses.clone(),
            from: Addr(0),
            end: Addr(0),
            pointer: u8::try_from(pointer.number()).unwrap_or_default(),
        };
        self.out.row(original, RowState::Exact);
        self.store(word(AccessArea::KEPT), pointer, original)?;
        if pointer != Register::RCX {
            self.copy(pointer, Register::RCX, original)?;
        }
        self.out.row(original, RowState::Busy);
        // movzx ecx, byte gs:[full]; jrcxz over the branch
        let full = Instruction::with2(Code::Movzx_r32_rm8, Register::ECX, word(AccessArea::FULL));
        self.out.encoded(full, original)?;
        self.out.push(&[0xe3, 5]);
        let field = self.out.later(&[0xe9]);
        self.full.push((field, original, pointer));
        if pointer != Register::RCX {
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

    /// Stores the slots of an instruction. The pointer is restored before one that may not fall through.
    pub(super) fn record_before(
        &mut self,
        recording: &mut Recording,
        number: usize,
        decoded: &DecodedInstruction,
    ) -> Result<(), Refusal> {
        self.out.row(decoded.at(), self.state);
        self.slots(&recording.plan, (number, false), decoded.at())?;
        if !decoded.flow.is_sequential() {
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
        for (field, original, pointer) in std::mem::take(&mut self.full) {
            let here = self.out.here();
            self.out.resolve(field, here)?;
            self.out.row(original, RowState::Busy);
            if pointer != Register::RCX {
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
