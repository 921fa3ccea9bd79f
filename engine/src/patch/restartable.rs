//! Restartable sequences of user space (`rseq(2)`): updates of a word of the CPU, and samples in its ring.
//!
//! Until its last instruction, the commit, a sequence stores nothing that others read, and the kernel restarts a thread
//! that has lost its CPU between, at the instruction after the signature.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::Hooked;
use super::emit::{Emitter, Forward, Restartable};
use super::instrument::{Lost, SampleValue, fill_unmarked, read_tsc};
use crate::Addr;
use crate::isa::encode::at;
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

/// Fills the next slot of the CPU's ring, and makes it a sample by the commit: an increment of the ring's head. The clock
/// is read in the sequence, so samples of a ring are in order of time.
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
    let rings = &layout.rings;
    let word_of = |word: SegmentOffset| RowWord {
        address: word.0,
        place: None,
    };
    let begun = begin(e, (sequences, &area), row);
    let mut op = |instruction| e.op(instruction);
    op(Instruction::with2(Code::Mov_r64_rm64, slot, row));
    for (register, by) in [(slot, rings.stride_log2), (row, sequences.stride_log2)] {
        op(Instruction::with2(Code::Shl_rm64_imm8, register, by));
    }
    read_tsc(e);
    let (head, limit) = (word_of(rings.head).of(row), word_of(rings.limit).of(row));
    e.op(Instruction::with2(Code::Mov_r64_rm64, RAX, head));
    e.op(Instruction::with2(Code::Cmp_r64_rm64, RAX, limit));
    let full = e.branch_forward(Code::Je_rel32_64);
    let slots = (1u32 << rings.slots_log2.min(31)).wrapping_sub(1);
    e.op(Instruction::with2(Code::And_rm32_imm32, EAX, slots));
    e.op(Instruction::with2(Code::Shl_rm64_imm8, RAX, SLOT_LOG2));
    e.op(Instruction::with2(Code::Add_r64_rm64, slot, RAX));
    let part = |offset: i64| at(slot, rings.base.0.cast_signed().wrapping_add(offset));
    fill_unmarked(e, hooked, value, part);
    e.op(Instruction::with1(Code::Inc_rm64, head));
    begun.commit(e);
    let words = [
        (full, word_of(rings.lost_full).of(row)),
        (begun.unregistered, shared_row(rings.lost_full, sequences)),
    ];
    Some(words.map(|(from, word)| Lost::Shared {
        from,
        word,
        update: WordUpdate::Increment,
    }))
}
