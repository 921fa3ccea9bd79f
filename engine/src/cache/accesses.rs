//! Accesses of memory that blocks record: the area of a thread, what a block writes to it, and how a reader gets the
//! accesses back.
//!
//! A block that accesses memory reserves a *group* of words in its thread's area as it begins: its number, and a *slot*
//! for each address that follows from no other one. A slot has the value of a base register, or the sum of a base and a
//! scaled index; displacements, and addresses that are the same registers with others, are given back by the reader. So
//! are constant addresses. While the block executes, two registers that none of its instructions names hold the group's
//! offset and what is stored; the area keeps their values.

use iced_x86::{Instruction, InstructionInfoFactory, Register};

use super::blocks::DecodedInstruction;
use super::holders::holders;
use crate::Addr;
use crate::isa::RegisterSet;
use crate::isa::memory::{self, MemoryPlace, OperandBase};
use crate::isa::stack::stack_shift;

/// The area of a thread, whose base of `gs` it is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessArea;

impl AccessArea {
    /// Bytes of groups.
    pub const GROUPS: u64 = 1 << 20;
    /// The end of the groups; the last one may exceed it by less than [`SLACK`](Self::SLACK). An offset below it has no
    /// bit from 24 on, which is how blocks see that the area is full.
    pub const END: u64 = 1 << 24;
    /// The first group.
    pub const START: u64 = Self::END - Self::GROUPS;
    /// Bytes after the end, more than those of a group.
    pub const SLACK: u64 = 4096;
    /// The offset of the next group, a word.
    pub const POSITION: u64 = Self::END + Self::SLACK;
    /// Values of the two registers that hold the recorder's.
    pub const KEPT: [u64; 2] = [Self::POSITION + 8, Self::POSITION + 16];
    /// Bytes from the first group to the end of the words.
    pub const BYTES: u64 = Self::GROUPS + Self::SLACK + 4096;
    /// The byte of the position that is 0 while the area is not full.
    pub(crate) const FULL: u64 = Self::POSITION + 3;
}

/// The address of a recorded access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPlace {
    /// This address.
    Constant {
        /// The address.
        at: u64,
        /// The thread's base of `fs` is added.
        thread: bool,
    },
    /// The value of a slot, and a displacement.
    Slot {
        /// Its number in the group.
        slot: u32,
        /// Added to its value.
        displacement: i64,
        /// The thread's base of `fs` is added, too.
        thread: bool,
    },
    /// Repetitions from the value of a slot on, each `size` bytes further, to that of another slot.
    Repeated {
        /// The slot of the first address.
        first: u32,
        /// The slot of the address after the last one.
        after: u32,
        /// The number of the register that has the address.
        register: u8,
        /// The place of the instruction in the cache.
        copied: Addr,
    },
    /// Not recorded.
    Unknown,
}

/// An access that a block records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAccess {
    /// The number of its instruction in the block.
    pub instruction: u32,
    /// It reads.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
    /// Bytes; 0 if unknown.
    pub size: u32,
    /// Its address.
    pub place: AccessPlace,
}

/// A block that records its accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Its number, from 1: the first word of its groups.
    pub number: u32,
    /// The addresses of its original instructions.
    pub instructions: Vec<Addr>,
    /// Slots of a group.
    pub slots: u32,
    /// Its accesses, in the order of execution.
    pub accesses: Vec<RecordedAccess>,
    /// The place in the cache from which on its group is reserved.
    pub from: Addr,
    /// The end of its place in the cache.
    pub end: Addr,
    /// Numbers of the registers that hold the group's offset and what is stored.
    pub holders: [u8; 2],
}

impl RecordedBlock {
    /// Bytes of a group.
    #[must_use]
    pub fn group(&self) -> u64 {
        8 * (1 + u64::from(self.slots))
    }
}

/// An address that a block stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotStore {
    /// The number of its instruction in the block.
    pub(super) instruction: usize,
    pub(super) slot: u32,
    pub(super) value: SlotValue,
    /// After the instruction.
    pub(super) after: bool,
}

/// A register, or the sum of an operand's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotValue {
    Register(Register),
    Sum(OperandBase),
}

/// Recording of a block, before its code is emitted.
#[derive(Debug)]
pub(super) struct RecordPlan {
    pub(super) pointer: Register,
    pub(super) holder: Register,
    pub(super) slots: u32,
    pub(super) stores: Vec<SlotStore>,
    pub(super) accesses: Vec<RecordedAccess>,
}

/// An address that is in a slot.
struct KnownBase {
    base: OperandBase,
    slot: u32,
    /// Bytes that were added to the stack pointer, its base, since.
    moved: i64,
}

impl RecordPlan {
    /// Plans the recording of a block; `None` if it does not access memory.
    pub(super) fn new(
        factory: &mut InstructionInfoFactory,
        instructions: &[DecodedInstruction],
    ) -> Option<Self> {
        let mut plan = Self {
            pointer: Register::None,
            holder: Register::None,
            slots: 0,
            stores: Vec::new(),
            accesses: Vec::new(),
        };
        let mut known: Vec<KnownBase> = Vec::new();
        let mut named = RegisterSet::EMPTY;
        for (number, decoded) in instructions.iter().enumerate() {
            let instruction = &decoded.instruction;
            for access in memory::accesses(factory, instruction) {
                let place = plan.place(number, access.place, &mut known);
                plan.accesses.push(RecordedAccess {
                    instruction: u32::try_from(number).unwrap_or(u32::MAX),
                    reads: access.reads,
                    writes: access.writes,
                    size: access.size,
                    place,
                });
            }
            named = named.union(memory::named(factory, instruction));
            after(factory, instruction, &mut known);
        }
        let mut holders = holders(named);
        (plan.pointer, plan.holder) = (holders.next()?, holders.next()?);
        (!plan.accesses.is_empty()).then_some(plan)
    }

    fn store(&mut self, instruction: usize, value: SlotValue, after: bool) -> u32 {
        let slot = self.slots;
        self.slots += 1;
        self.stores.push(SlotStore {
            instruction,
            slot,
            value,
            after,
        });
        slot
    }

    fn place(
        &mut self,
        number: usize,
        place: MemoryPlace,
        known: &mut Vec<KnownBase>,
    ) -> AccessPlace {
        match place {
            MemoryPlace::Constant { at, thread } => AccessPlace::Constant { at, thread },
            MemoryPlace::Unknown => AccessPlace::Unknown,
            MemoryPlace::Repeated(register) => AccessPlace::Repeated {
                first: self.store(number, SlotValue::Register(register), false),
                after: self.store(number, SlotValue::Register(register), true),
                register: u8::try_from(register.number()).unwrap_or_default(),
                copied: Addr(0),
            },
            MemoryPlace::Operand(base, displacement) => {
                // Where the base of `fs` is added, the slot is the same.
                let same = |one: &&KnownBase| {
                    OperandBase {
                        thread: base.thread,
                        ..one.base
                    } == base
                };
                let (slot, moved) = match known.iter().find(same) {
                    Some(one) => (one.slot, one.moved),
                    None => {
                        let value = match base.index {
                            Register::None => SlotValue::Register(base.base),
                            _ => SlotValue::Sum(base),
                        };
                        let slot = self.store(number, value, false);
                        known.push(KnownBase {
                            base,
                            slot,
                            moved: 0,
                        });
                        (slot, 0)
                    }
                };
                AccessPlace::Slot {
                    slot,
                    displacement: displacement.wrapping_add(moved),
                    thread: base.thread,
                }
            }
        }
    }
}

/// Keeps the bases that an instruction does not change.
fn after(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    known: &mut Vec<KnownBase>,
) {
    let mut written = memory::written(factory, instruction);
    if let Some(shift) = stack_shift(factory, instruction)
        && written.contains(Register::RSP)
    {
        written.remove(Register::RSP);
        for one in known.iter_mut() {
            if one.base.base == Register::RSP {
                one.moved = one.moved.wrapping_add(shift);
            }
        }
    }
    known.retain(|one| !written.contains(one.base.base) && !written.contains(one.base.index));
}
