//! Samples in the ring that all threads of a process share, where none has an area for restartable sequences.
//!
//! The head is loaded, compared with the limit, and moved on by a locked `cmpxchg`, which fails if another thread, or a
//! handler of a signal, has moved it since. The clock is read in between, together with the number of the CPU, so samples
//! are in order of time. The mark is stored last and names the sample, so the reader does not take a slot that is not
//! written yet. A slot has the words of a whole line, one after the other, which its mark makes a sample.

use iced_x86::{Code, Instruction, Register};

use super::Hooked;
use super::emit::Emitter;
use super::instrument::{
    Lost, SLOT_MARK, SamplePart, SampleValue, fill_unmarked, fill_word, read_clock,
};
use super::restartable::{WordUpdate, shared_row};
use crate::isa::encode::at;
use crate::layout::{CPU_BITS, RuntimeLayout, SLOT_LOG2, Sequences};

/// Reserves the next slot of the shared ring, fills it with a value, or with the words of a line, and marks it. The
/// register is for the head, then for the slot's place; rax, rdx and rcx are used, too.
pub(super) fn sample_shared(
    e: &mut Emitter,
    hooked: &Hooked<'_>,
    (layout, sequences): (&RuntimeLayout, Sequences),
    values: &[SampleValue],
    slot: Register,
) -> Lost {
    use Register::{EAX, ECX, RAX, RCX};
    let rings = &layout.rings;
    let word = |word| shared_row(word, sequences);
    let (head, limit) = (word(rings.head), word(rings.limit));
    let short = slot.full_register32();
    let retry = e.here();
    e.op(Instruction::with2(Code::Mov_r64_rm64, slot, head));
    e.op(Instruction::with2(Code::Cmp_r64_rm64, slot, limit));
    let full = e.branch_forward(Code::Je_rel32_64);
    read_clock(e, Code::Rdtscp);
    e.op(Instruction::with2(Code::Mov_r64_rm64, RAX, slot));
    e.op(Instruction::with1(Code::Inc_rm64, slot));
    let exchange = Instruction::with2(Code::Cmpxchg_rm64_r64, head, slot);
    e.op(exchange.map(|mut exchange| {
        exchange.set_has_lock_prefix(true);
        exchange
    }));
    e.branch_back(Code::Jne_rel8_64, retry);
    let slots = (1_u32 << rings.slots_log2.min(31)).wrapping_sub(1);
    e.op(Instruction::with2(Code::Mov_r32_rm32, short, EAX));
    e.op(Instruction::with2(Code::And_rm32_imm32, short, slots));
    let slot_log2 = rings.slot_log2();
    e.op(Instruction::with2(Code::Shl_rm64_imm8, slot, slot_log2));
    let part = |number: u32, offset: i64| {
        let word = i64::from(number) << SLOT_LOG2;
        at(slot, rings.base.0.cast_signed().wrapping_add(word + offset))
    };
    let mark = |e: &mut Emitter| {
        let cpus = (1_u32 << CPU_BITS) - 1;
        e.op(Instruction::with2(Code::Shl_rm64_imm8, RAX, CPU_BITS));
        e.op(Instruction::with2(Code::And_rm32_imm32, ECX, cpus));
        e.op(Instruction::with2(Code::Or_r64_rm64, RAX, RCX));
    };
    if let [value] = values {
        fill_unmarked(e, hooked, value, |offset| part(0, offset));
        mark(e);
    } else {
        // The time stays in rdx, and rcx is free once the mark has the number of the CPU.
        mark(e);
        for (number, value) in (0..).zip(values) {
            let word = (value, SamplePart::of(number));
            fill_word(e, hooked, word, |offset| part(number, offset), RCX);
        }
    }
    let first = part(0, SLOT_MARK);
    e.op(Instruction::with2(Code::Mov_rm64_r64, first, RAX));
    Lost::Shared {
        from: full,
        word: word(rings.lost_full),
        update: WordUpdate::Increment,
    }
}
