//! The code of each instrument. The rings, counters and timers it works on are laid out in
//! `ilk-driver/kmod/ilk_abi.h`.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::emit::{Emitter, Faulting, Forward};
use super::group::{Groups, MOST};
use super::registers::Registers;
use super::restartable::WordUpdate;
use super::{HookProgram, Hooked, compile, native};
use crate::Addr;
use crate::isa::abi::low_byte;
use crate::isa::encode::{at, indexed};
use crate::layout::{RuntimeLayout, SLOT_LOG2, SegmentOffset};
use gilk_samples::Sample;

/// Offsets of the parts of a slot (`struct ilk_slot`).
pub(super) const SLOT_MARK: i64 = 0;
const SLOT_VALUE: i64 = 8;
const SLOT_TSC: i64 = 16;
const SLOT_ID: i64 = 24;

/// A rare path: its code counts the event, and is placed after the other code of the patch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    /// So many samples are lost.
    Sample {
        from: Forward,
        counter: SegmentOffset,
        samples: u32,
    },
    /// A value is not stored: its entry in the table belongs to another key, or is busy. It is counted unless it
    /// is 0.
    Room {
        from: Forward,
        counter: RoomCounter,
        value: Register,
        through: Register,
    },
    /// The thread has not registered for restartable sequences, or the ring of its CPU is full: it updates a word that
    /// other CPUs may update, too.
    Shared {
        from: Forward,
        word: MemoryOperand,
        update: WordUpdate,
    },
    /// A load fails: its value is 0.
    Read {
        by: Failing,
        counter: SegmentOffset,
        into: Register,
    },
}

/// The counter of values that are not stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoomCounter {
    /// The CPU's.
    Own(SegmentOffset),
    /// That of threads without an area, which all may update.
    Shared(MemoryOperand),
}

/// The cause of a failed load. Each cause has code of its own, so that the proof knows the cause there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failing {
    /// The address is none of the kernel's.
    Address(Forward),
    /// The instruction has faulted.
    Fault(Faulting),
}

/// The source of the value in a sample's slot.
pub(super) enum SampleValue {
    Tsc,
    Number(u32),
    Register(Register),
    /// A saved register: bytes from the stack pointer.
    Saved(i64),
    /// Ticks since the TSC in this register.
    Since(Register),
}

impl SampleValue {
    /// Stores the value in a slot. The time is in rdx, and is not needed any more.
    pub(super) fn store(&self, e: &mut Emitter, to: MemoryOperand, spare: Register) {
        use Register::RDX;
        match *self {
            Self::Tsc => e.op(Instruction::with2(Code::Mov_rm64_r64, to, RDX)),
            Self::Number(number) => e.op(Instruction::with2(Code::Mov_rm64_imm32, to, number)),
            Self::Register(from) => e.op(Instruction::with2(Code::Mov_rm64_r64, to, from)),
            Self::Saved(offset) => {
                let saved = at(Register::RSP, offset);
                e.op(Instruction::with2(Code::Mov_r64_rm64, spare, saved));
                e.op(Instruction::with2(Code::Mov_rm64_r64, to, spare));
            }
            Self::Since(start) => {
                e.op(Instruction::with2(Code::Sub_r64_rm64, RDX, start));
                e.op(Instruction::with2(Code::Mov_rm64_r64, to, RDX));
            }
        }
    }
}

/// The part of a sample that is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SamplePart {
    /// The sample, or the first word of a line.
    Head,
    /// The second word of a line.
    Word,
    /// A word after that: the identifier is in the register already.
    NextWord,
}

impl SamplePart {
    /// The part that is the word of that number.
    pub(super) const fn of(number: u32) -> Self {
        match number {
            0 => Self::Head,
            1 => Self::Word,
            _ => Self::NextWord,
        }
    }
}

/// Emits the code of one instrument; the caller saves, restores, and emits the rare paths, which are returned with
/// the address where each continues.
pub(super) fn emit(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    registers: &Registers,
    layout: &RuntimeLayout,
    groups: &mut Groups,
) -> Vec<(Lost, Addr)> {
    match hooked.program {
        HookProgram::Probe(probed) => compile::emit(e, (hooked, probed), registers, layout, groups),
        HookProgram::Native(called) => {
            native::call(e, hooked, called, registers, layout);
            if !called.native.samples {
                return Vec::new();
            }
            let [value, a, b] = [0, 1, 2].map(|n| registers.work(n));
            e.op(Instruction::with2(Code::Mov_r64_rm64, value, Register::RAX));
            let lost = sample(e, hooked, layout, &SampleValue::Register(value), [a, b]);
            lost.map(|lost| (lost, e.here())).into_iter().collect()
        }
        HookProgram::Replaced(entry) => {
            e.jump(entry);
            Vec::new()
        }
    }
}

/// One instruction, so that an interrupt cannot come between reading and writing.
fn count(e: &mut Emitter, counter: SegmentOffset, a: Register) {
    if counter.near().is_some() {
        let word = e.word(counter);
        e.op(Instruction::with1(Code::Inc_rm64, word));
    } else {
        let word = e.word_by(a);
        e.op(Instruction::with2(Code::Mov_r64_imm64, a, counter.0));
        e.op(Instruction::with1(Code::Inc_rm64, word));
    }
}

/// `rdx = tsc`, through rax.
pub(super) fn read_tsc(e: &mut Emitter) {
    read_clock(e, Code::Rdtsc);
}

/// The same, by an instruction that may read more.
pub(super) fn read_clock(e: &mut Emitter, by: Code) {
    e.op(Ok(Instruction::with(by)));
    whole(e);
}

/// `rdx` = what `edx` and `eax` have together, as `rdtsc` and `rdpmc` leave it.
pub(super) fn whole(e: &mut Emitter) {
    e.op(Instruction::with2(Code::Shl_rm64_imm8, Register::RDX, 32));
    e.op(Instruction::with2(
        Code::Or_r64_rm64,
        Register::RDX,
        Register::RAX,
    ));
}

/// Reserves a slot and fills it.
pub(super) fn sample(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    layout: &RuntimeLayout,
    value: &SampleValue,
    [a, b]: [Register; 2],
) -> Option<Lost> {
    let lost = reserve(e, layout, [a, b], (1, 1));
    let part = (value, SamplePart::Head);
    fill(e, hooked, part, [a, b, Register::RDX]);
    lost.into_iter().next()
}

/// Reserves so many slots in a row, with one reading of the clock: `rax` is the first one's word, `rdx` the time, and
/// `b` the first ring. Returns the ways on which fewer are free, where so many samples are lost.
///
/// The clock is read between loading the head and reserving: an interrupt that samples in between makes the reservation
/// fail, so samples are in order of time. The limit only moves on while the head stays, so slots are compared with it
/// from the first on. After the reservation the reserved word alone identifies ring and slot, on whichever CPU the
/// thread continues. It is also the mark, which is written last and makes the slot a sample.
pub(super) fn reserve(
    e: &mut Emitter,
    layout: &RuntimeLayout,
    [a, b]: [Register; 2],
    (slots, samples): (u32, u32),
) -> Vec<Lost> {
    let rings = &layout.rings;
    let next = next_slot(layout);
    let retry = e.here();
    let (head, limit) = (e.word(rings.head), e.word(rings.limit));
    e.op(Instruction::with2(Code::Mov_r64_rm64, a, head));
    let mut lost = Vec::new();
    for number in 0..slots {
        if number > 0 {
            e.op(Instruction::with2(Code::Add_rm64_imm32, a, next));
        }
        e.op(Instruction::with2(Code::Cmp_r64_rm64, a, limit));
        lost.push(Lost::Sample {
            from: e.branch_forward(Code::Je_rel32_64),
            counter: rings.lost_full,
            samples,
        });
    }
    read_tsc(e);
    let beyond_first = i64::from(slots.saturating_sub(1)) * i64::from(next);
    e.op(if beyond_first == 0 {
        Instruction::with2(Code::Mov_r64_rm64, Register::RAX, a)
    } else {
        Instruction::with2(Code::Lea_r64_m, Register::RAX, at(a, -beyond_first))
    });
    e.op(Instruction::with2(Code::Add_rm64_imm32, a, next));
    // Local: another CPU never writes this CPU's head, so no lock prefix.
    e.op(Instruction::with2(Code::Cmpxchg_rm64_r64, head, a));
    e.branch_back(
        match slots > MOST {
            false => Code::Jne_rel8_64,
            true => Code::Jne_rel32_64,
        },
        retry,
    );
    locate(e, layout, a);
    e.op(Instruction::with2(Code::Mov_r64_imm64, b, rings.base.0));
    lost
}

/// Continues with the next slot of a reservation.
pub(super) fn advance(e: &mut Emitter, layout: &RuntimeLayout, a: Register) {
    let next = next_slot(layout);
    e.op(Instruction::with2(
        Code::Add_rm64_imm32,
        Register::RAX,
        next,
    ));
    locate(e, layout, a);
}

/// Increment of a head from one sample to the next.
fn next_slot(layout: &RuntimeLayout) -> u32 {
    1 << (32 - layout.rings.slots_log2)
}

/// `a` = the place of the slot of the reserved word in `rax`, in units of eight bytes from the first ring: the lower
/// half of a head is slot, two zeroes, CPU; rotated by slot and zeroes it is CPU, slot, two zeroes.
fn locate(e: &mut Emitter, layout: &RuntimeLayout, a: Register) {
    let a32 = a.full_register32();
    let by = layout.rings.slots_log2 + SLOT_LOG2 - 3;
    e.op(Instruction::with2(Code::Mov_r32_rm32, a32, Register::EAX));
    e.op(Instruction::with2(Code::Rol_rm32_imm8, a32, by));
}

/// Fills the slot at `b + 8 * a`, through `spare`: `rdx`, which is the time no more then, or another register.
pub(super) fn fill(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    part_of: (&SampleValue, SamplePart),
    [a, b, spare]: [Register; 3],
) {
    use Register::RAX;
    let part = |displacement| indexed(b, a, 8, displacement);
    fill_word(e, hooked, part_of, part, spare);
    e.op(Instruction::with2(Code::Mov_rm64_r64, part(SLOT_MARK), RAX));
}

/// Stores time, value and identifier in a slot, through `spare`; the time is in rdx.
pub(super) fn fill_word(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    (value, part_of): (&SampleValue, SamplePart),
    part: impl Fn(i64) -> MemoryOperand,
    spare: Register,
) {
    use Register::RDX;
    e.op(Instruction::with2(Code::Mov_rm64_r64, part(SLOT_TSC), RDX));
    value.store(e, part(SLOT_VALUE), spare);
    let id = match part_of {
        SamplePart::Head => Some(hooked.id.pack()),
        SamplePart::Word => Some(hooked.id.pack() | Sample::WORD),
        SamplePart::NextWord => {
            debug_assert!(
                !matches!(value, SampleValue::Saved(_)),
                "a line's words are in registers of their own"
            );
            None
        }
    };
    if let Some(id) = id {
        e.op(Instruction::with2(Code::Mov_r64_imm64, spare, id));
    }
    e.op(Instruction::with2(Code::Mov_rm64_r64, part(SLOT_ID), spare));
}

/// Stores time, value and identifier of a process's sample, whose time is in rdx; rdx is used.
pub(super) fn fill_unmarked(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    value: &SampleValue,
    part: impl Fn(i64) -> MemoryOperand,
) {
    fill_word(e, hooked, (value, SamplePart::Head), part, Register::RDX);
}

/// Emits a rare path: counts the event and branches back to `end`.
pub(super) fn emit_lost(e: &mut Emitter, lost: Lost, end: Addr) {
    match lost {
        Lost::Sample {
            from,
            counter,
            samples,
        } => {
            e.land(from);
            let word = e.word(counter);
            e.op(match samples {
                1 => Instruction::with1(Code::Inc_rm64, word),
                _ => Instruction::with2(Code::Add_rm64_imm8, word, samples),
            });
        }
        Lost::Room {
            from,
            counter,
            value,
            through,
        } => {
            e.land(from);
            let short = through.full_register32();
            e.op(Instruction::with2(Code::Mov_r32_imm32, short, 0));
            e.op(Instruction::with2(Code::Test_rm64_r64, value, value));
            e.op(Instruction::with1(Code::Setne_rm8, low_byte(through)));
            let adds = WordUpdate::Add(through);
            let update = match counter {
                RoomCounter::Own(counter) if counter.near().is_some() => adds.of(e.word(counter)),
                RoomCounter::Own(counter) => {
                    let rax = Register::RAX;
                    e.op(Instruction::with2(Code::Mov_r64_imm64, rax, counter.0));
                    adds.of(e.word_by(rax))
                }
                RoomCounter::Shared(word) => adds.of_shared(word),
            };
            e.op(update);
        }
        Lost::Shared { from, word, update } => {
            e.land(from);
            e.op(update.of_shared(word));
        }
        Lost::Read { by, counter, into } => {
            match by {
                Failing::Address(from) => e.land(from),
                Failing::Fault(load) => e.recover(load),
            }
            count_failed(e, counter, into);
        }
    }
    e.jump(end);
}

/// Counts a failed load and yields 0.
pub(super) fn count_failed(e: &mut Emitter, counter: SegmentOffset, into: Register) {
    count(e, counter, into);
    let short = into.full_register32();
    e.op(Instruction::with2(Code::Mov_r32_imm32, short, 0));
}
