//! Restartable sequences of user space (`rseq(2)`): updates of a word of the CPU, and samples in its ring.
//!
//! Until its last instruction, the commit, a sequence stores nothing that others read, and the kernel restarts a thread
//! that has lost its CPU between, at the instruction after the signature.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::Hooked;
use super::emit::{Emitter, Forward, Restartable};
use super::instrument::{Lost, SamplePart, SampleValue, fill_unmarked, fill_word, read_tsc};
use crate::Addr;
use crate::ids::to_u32;
use crate::isa::encode::{at, indexed};
use crate::layout::{RuntimeLayout, SLOT_LOG2, SegmentOffset, Sequences};

/// An update of a word in memory, by one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum WordUpdate {
    Increment,
    Add(Register),
    AddNumber(i32),
    Store(Register),
    StoreNumber(i32),
}

impl WordUpdate {
    /// Returns the instruction that updates a word.
    pub(super) fn of(self, word: MemoryOperand) -> Result<Instruction, iced_x86::IcedError> {
        match self {
            Self::Increment => Instruction::with1(Code::Inc_rm64, word),
            Self::Add(from) => Instruction::with2(Code::Add_rm64_r64, word, from),
            Self::AddNumber(number) => Instruction::with2(Code::Add_rm64_imm32, word, number),
            Self::Store(from) => Instruction::with2(Code::Mov_rm64_r64, word, from),
            Self::StoreNumber(number) => Instruction::with2(Code::Mov_rm64_imm32, word, number),
        }
    }

    /// Returns the instruction that updates a word of several CPUs.
    pub(super) fn of_shared(self, word: MemoryOperand) -> Result<Instruction, iced_x86::IcedError> {
        // A store is whole by itself.
        let adds = !matches!(self, Self::Store(_) | Self::StoreNumber(_));
        self.of(word).map(|mut instruction| {
            instruction.set_has_lock_prefix(adds);
            instruction
        })
    }
}

/// A word of the CPU in memory: its address on CPU 0, and a register with the number of eight bytes to add.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowWord {
    pub(super) address: u64,
    pub(super) place: Option<Register>,
}

impl RowWord {
    /// The word in the row that begins at the address in a register, or at 0.
    pub(super) fn of(self, row: Register) -> MemoryOperand {
        let (place, scale) = match self.place {
            Some(place) => (place, 8),
            None => (Register::None, 1),
        };
        MemoryOperand::new(
            row,
            place,
            scale,
            self.address.cast_signed(),
            8,
            false,
            Register::None,
        )
    }
}

/// The word of threads without an area, by that of CPU 0. All threads may update it, with a lock prefix.
pub(super) fn shared_row(word: SegmentOffset, sequences: Sequences) -> MemoryOperand {
    let address = word.0.wrapping_add(sequences.unregistered());
    let place = None;
    RowWord { address, place }.of(Register::None)
}

/// A sequence that has begun.
struct Begun {
    loads: Forward,
    abort: Addr,
    start: Addr,
    /// The branch of a thread without an area.
    unregistered: Forward,
}

/// The words of a thread's area that a sequence uses.
struct AreaWords {
    armed: SegmentOffset,
    cpu_id: SegmentOffset,
}

impl AreaWords {
    /// The words, if threads have an area.
    fn of(sequences: Sequences) -> Option<Self> {
        Some(Self {
            armed: sequences.armed()?,
            cpu_id: sequences.cpu_id()?,
        })
    }
}

/// Arms a sequence, and reads the number of the CPU into a register.
fn begin(e: &mut Emitter, (sequences, area): (Sequences, &AreaWords), through: Register) -> Begun {
    let short = through.full_register32();
    let relative =
        |address: u64| MemoryOperand::with_base_displ(Register::RIP, address.cast_signed());
    // A nop whose displacement is the signature.
    let signature = i64::from(sequences.signature.cast_signed());
    let nop = relative(e.here().0.wrapping_add(7).wrapping_add_signed(signature));
    e.op(Instruction::with1(Code::Nop_rm32, nop));
    let abort = e.here();
    let descriptor = relative(abort.0);
    e.op(Instruction::with2(Code::Lea_r64_m, through, descriptor));
    let loads = e.last_displacement();
    let armed = e.word(area.armed);
    e.op(Instruction::with2(Code::Mov_rm64_r64, armed, through));
    let start = e.here();
    let cpu = e.word(area.cpu_id);
    e.op(Instruction::with2(Code::Mov_r32_rm32, short, cpu));
    // Without an area the number is negative.
    e.op(Instruction::with2(
        Code::Cmp_rm32_imm32,
        short,
        sequences.cpus,
    ));
    let unregistered = e.branch_forward(Code::Jae_rel32_64);
    Begun {
        loads,
        abort,
        start,
        unregistered,
    }
}

impl Begun {
    /// Ends the sequence after its commit.
    fn commit(&self, e: &mut Emitter) {
        let commit = e.here();
        e.sequence(Restartable {
            loads: self.loads,
            start: self.start,
            commit,
            abort: self.abort,
        });
    }
}

/// Updates a word of the CPU, through a register. Where threads have no area, all update the word that CPUs share, and
/// the register is not used.
pub(super) fn update_restartably(
    e: &mut Emitter,
    word: RowWord,
    update: WordUpdate,
    sequences: Sequences,
    through: Register,
) -> Option<Lost> {
    let address = word.address.wrapping_add(sequences.unregistered());
    let shared = RowWord { address, ..word }.of(Register::None);
    let Some(area) = AreaWords::of(sequences) else {
        e.op(update.of_shared(shared));
        return None;
    };
    let begun = begin(e, (sequences, &area), through);
    e.op(Instruction::with2(
        Code::Shl_rm64_imm8,
        through,
        sequences.stride_log2,
    ));
    e.op(update.of(word.of(through)));
    begun.commit(e);
    Some(Lost::Shared {
        from: begun.unregistered,
        word: shared,
        update,
    })
}

/// A sequence that has found free slots in the ring of its CPU.
struct FreeSlots {
    begun: Begun,
    /// The branch that is taken where there are too few.
    full: Forward,
    /// The word of the ring's head.
    head: MemoryOperand,
    /// Bit mask of the number of a slot.
    mask: u32,
}

/// Begins a sequence that fills the next slots of the CPU's ring: rdx is the time, rax the ring's head, and the registers
/// have the CPU's row and the place of its ring. The clock is read in the sequence, so samples of a ring are in order of
/// time. The third register is used where there are several.
fn begin_slots(
    e: &mut Emitter,
    (layout, sequences, area): (&RuntimeLayout, Sequences, &AreaWords),
    slots: u32,
    [row, ring, last]: [Register; 3],
) -> FreeSlots {
    use Register::RAX;
    let rings = &layout.rings;
    let begun = begin(e, (sequences, area), row);
    e.op(Instruction::with2(Code::Mov_r64_rm64, ring, row));
    for (register, by) in [(ring, rings.stride_log2), (row, sequences.stride_log2)] {
        e.op(Instruction::with2(Code::Shl_rm64_imm8, register, by));
    }
    read_tsc(e);
    let (head, limit) = (ring_word(rings.head, row), ring_word(rings.limit, row));
    e.op(Instruction::with2(Code::Mov_r64_rm64, RAX, head));
    let further = slots.saturating_sub(1);
    let compared = match further {
        0 => RAX,
        _ => {
            let place = at(RAX, further.into());
            e.op(Instruction::with2(Code::Lea_r64_m, last, place));
            last
        }
    };
    e.op(Instruction::with2(Code::Cmp_r64_rm64, compared, limit));
    FreeSlots {
        begun,
        full: e.branch_forward(Code::Jae_rel32_64),
        head,
        mask: (1u32 << rings.slots_log2.min(31)).wrapping_sub(1),
    }
}

impl FreeSlots {
    /// Makes so many slots samples by the commit, an addition to the ring's head. Returns the ways on which they are lost.
    fn commit(
        self,
        e: &mut Emitter,
        (layout, sequences): (&RuntimeLayout, Sequences),
        slots: u32,
        row: Register,
    ) -> [Lost; 2] {
        e.op(match slots {
            1 => Instruction::with1(Code::Inc_rm64, self.head),
            _ => Instruction::with2(Code::Add_rm64_imm8, self.head, slots),
        });
        self.begun.commit(e);
        let lost = layout.rings.lost_full;
        let words = [
            (self.full, ring_word(lost, row)),
            (self.begun.unregistered, shared_row(lost, sequences)),
        ];
        words.map(|(from, word)| Lost::Shared {
            from,
            word,
            update: WordUpdate::Increment,
        })
    }
}

/// A word of the ring of the CPU whose row begins at the address in a register.
fn ring_word(word: SegmentOffset, row: Register) -> MemoryOperand {
    let address = word.0;
    let place = None;
    RowWord { address, place }.of(row)
}

/// Fills the next slot of the CPU's ring, and makes it a sample by the commit.
pub(super) fn sample_restartably(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    (layout, sequences): (&RuntimeLayout, Sequences),
    value: &SampleValue,
    [row, slot]: [Register; 2],
) -> Option<[Lost; 2]> {
    use Register::{EAX, RAX};
    let Some(area) = AreaWords::of(sequences) else {
        e.lacks("rseq area for a sample");
        return None;
    };
    let target = (layout, sequences, &area);
    let slots = begin_slots(e, target, 1, [row, slot, RAX]);
    e.op(Instruction::with2(Code::And_rm32_imm32, EAX, slots.mask));
    e.op(Instruction::with2(Code::Shl_rm64_imm8, RAX, SLOT_LOG2));
    e.op(Instruction::with2(Code::Add_r64_rm64, slot, RAX));
    let part = |offset: i64| at(slot, layout.rings.base.0.cast_signed().wrapping_add(offset));
    fill_unmarked(e, hooked, value, part);
    Some(slots.commit(e, (layout, sequences), 1, row))
}

/// Fills a slot of the CPU's ring for each word of a line, and makes all of them its samples by the commit.
pub(super) fn line_restartably(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    (layout, sequences): (&RuntimeLayout, Sequences),
    values: &[SampleValue],
    [row, ring, place, spare]: [Register; 4],
) -> Option<[Lost; 2]> {
    use Register::RAX;
    let Some(area) = AreaWords::of(sequences) else {
        e.lacks("rseq area for a line");
        return None;
    };
    let target = (layout, sequences, &area);
    let count = to_u32(values.len());
    let slots = begin_slots(e, target, count, [row, ring, place]);
    let short = place.full_register32();
    let base = layout.rings.base.0.cast_signed();
    let part = |offset: i64| indexed(ring, place, 1, base.wrapping_add(offset));
    for (number, value) in (0_u32..).zip(values) {
        e.op(Instruction::with2(
            Code::Lea_r64_m,
            place,
            at(RAX, number.into()),
        ));
        e.op(Instruction::with2(Code::And_rm32_imm32, short, slots.mask));
        e.op(Instruction::with2(Code::Shl_rm64_imm8, place, SLOT_LOG2));
        fill_word(e, hooked, (value, SamplePart::of(number)), part, spare);
    }
    Some(slots.commit(e, (layout, sequences), count, row))
}
