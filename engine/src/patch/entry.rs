//! Entries of the table of storage for threads and calls: their addresses, and the protocol of changes.

use iced_x86::{Code, Instruction, Register};

use super::emit::{Emitter, Forward};
use crate::isa::encode::at;
use crate::layout::RuntimeLayout;

/// Bytes of an entry in the table of timers: the key of its owner, or 0; then what that keeps there.
pub const TIMER_BYTES: u64 = 16;
/// A key's entry is the top `timers_log2` bits of `key * TIMER_FACTOR`: 2^64 over the golden ratio,
/// odd, so that neighbouring tasks do not share entries (Knuth, vol. 3, 6.4).
pub const TIMER_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// `key = address of the owner | number`, `entry` the address of the key's entry in the table.
pub(super) fn find_entry(
    e: &mut Emitter,
    number: u8,
    layout: &RuntimeLayout,
    [key, entry, spare]: [Register; 3],
) {
    let owner = e.word(layout.owner.word);
    e.op(Instruction::with2(Code::Mov_r64_rm64, key, owner));
    if number != 0 {
        e.op(Instruction::with2(
            Code::Or_rm64_imm8,
            key,
            u32::from(number),
        ));
    }
    place_of(e, layout, [key, entry, spare]);
}

/// `entry = address of the key's entry`, through `spare`.
pub(super) fn place_of(
    e: &mut Emitter,
    layout: &RuntimeLayout,
    [key, entry, spare]: [Register; 3],
) {
    e.op(Instruction::with2(Code::Mov_r64_imm64, entry, TIMER_FACTOR));
    e.op(Instruction::with2(Code::Imul_r64_rm64, entry, key));
    e.op(Instruction::with2(
        Code::Shr_rm64_imm8,
        entry,
        64 - layout.timers_log2,
    ));
    e.op(Instruction::with2(
        Code::Shl_rm64_imm8,
        entry,
        TIMER_BYTES.ilog2(),
    ));
    let table = layout.timers.0;
    e.op(Instruction::with2(Code::Mov_r64_imm64, spare, table));
    e.op(Instruction::with2(Code::Add_r64_rm64, entry, spare));
}

/// The use of a value for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It takes the place of what was kept.
    Stored,
    /// It is added to that.
    Added,
}

/// Stores `value` in the key's entry or adds it there, and frees the entry if the result is 0. An entry that is free
/// or the key's own is locked first, against other CPUs and interrupts of the same thread, so that no entry of
/// another key is overwritten. An addition reads the old value only then, so that an interrupt's addition is in it
/// or was counted as lost; a free entry has 0. Uses rax and rdx; overwrites the value. Returns the branch for an
/// entry of another key, or a busy one, where the value is unchanged.
pub(super) fn keep_entry(
    e: &mut Emitter,
    layout: &RuntimeLayout,
    kept: Kept,
    [value, key, entry]: [Register; 3],
) -> Forward {
    use Register::{EAX, RAX, RDX};
    busy_key(e, layout, key);
    e.op(Instruction::with2(Code::Mov_r32_imm32, EAX, 0));
    exchange(e, entry);
    let free = e.branch_forward(Code::Je_rel32_64);
    e.op(Instruction::with2(Code::Mov_r64_rm64, RAX, key));
    exchange(e, entry);
    let full = e.branch_forward(Code::Jne_rel32_64);
    e.land(free);
    let word = at(entry, 8);
    let zero = match kept {
        Kept::Stored => Instruction::with2(Code::Test_rm64_r64, value, value),
        Kept::Added => Instruction::with2(Code::Add_r64_rm64, value, word),
    };
    e.op(zero);
    e.op(Instruction::with2(Code::Mov_rm64_r64, word, value));
    e.op(Instruction::with2(Code::Mov_r64_rm64, RDX, key));
    e.op(Instruction::with2(Code::Cmove_r64_rm64, RDX, value));
    e.op(Instruction::with2(Code::Mov_rm64_r64, at(entry, 0), RDX));
    full
}

/// Makes the key's own entry busy, through rax and rdx. Returns the way on which it is another's, or busy.
pub(super) fn own_entry(
    e: &mut Emitter,
    layout: &RuntimeLayout,
    [key, entry]: [Register; 2],
) -> Forward {
    busy_key(e, layout, key);
    e.op(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, key));
    exchange(e, entry);
    e.branch_forward(Code::Jne_rel32_64)
}

/// Frees a busy entry. Its value is cleared first, so that its next owner begins with 0.
pub(super) fn empty(e: &mut Emitter, entry: Register) {
    for word in [8, 0] {
        e.op(Instruction::with2(Code::Mov_rm64_imm32, at(entry, word), 0));
    }
}

fn busy_key(e: &mut Emitter, layout: &RuntimeLayout, key: Register) {
    let rdx = Register::RDX;
    let busy = layout.owner.busy();
    e.op(Instruction::with2(Code::Mov_r64_imm64, rdx, busy));
    e.op(Instruction::with2(Code::Xor_r64_rm64, rdx, key));
}

/// `lock cmpxchg [entry], rdx`.
fn exchange(e: &mut Emitter, entry: Register) {
    let owner = at(entry, 0);
    let exchange = Instruction::with2(Code::Cmpxchg_rm64_r64, owner, Register::RDX);
    e.op(exchange.map(|mut exchange| {
        exchange.set_has_lock_prefix(true);
        exchange
    }));
}
