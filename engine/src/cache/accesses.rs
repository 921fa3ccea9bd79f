//! Accesses of memory that blocks record: the area of a thread, what a block writes to it, and how a reader gets the
//! accesses back.
//!
//! A block that accesses memory reserves a *group* of words in its thread's area as it begins: its number, and a *slot*
//! for each register that an address has and no earlier slot has unchanged. Sums of registers, displacements and constant
//! addresses are given back by the reader. While the block executes, a register that none of its instructions names holds
//! the end of the group; the area keeps its value.

use iced_x86::{Instruction, InstructionInfoFactory, Register};

use super::blocks::DecodedInstruction;
use super::holders::holders;
use crate::Addr;
use crate::isa::memory::{self, MemoryPlace};
use crate::isa::stack::stack_shift;
use crate::isa::{RegisterSet, number_of};

/// The area of a thread, whose base of `gs` it is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessArea;

impl AccessArea {
    /// Bytes of groups.
    pub const GROUPS: u64 = 1 << 22;
    /// The end of the groups; the last one may exceed it by less than [`SLACK`](Self::SLACK). An offset below it has no
    /// bit from 24 on, which is how blocks see that the area is full.
    pub const END: u64 = 1 << 24;
    /// The first group.
    pub const START: u64 = Self::END - Self::GROUPS;
    /// Bytes after the end, more than those of a group.
    pub const SLACK: u64 = 4096;
    /// The offset of the next group, a word.
    pub const POSITION: u64 = Self::END + Self::SLACK;
    /// The value of the register that holds the recorder's.
    pub const KEPT: u64 = Self::POSITION + 8;
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
    /// The sum of slots and a displacement.
    Sum {
        /// A slot of the group.
        base: Option<u32>,
        /// Another slot, or the same one, and its factor.
        index: Option<(u32, u32)>,
        /// Added to them.
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

/// A conditional branch after which a block that records its accesses continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedExit {
    /// The place in the cache that it branches to, where the group has no note of that yet.
    pub at: Addr,
    /// Instructions of the block that were executed then, this one included.
    pub executed: u32,
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
    /// Conditional branches in it, in order: where they are taken, the rest of its group stays as it was.
    pub exits: Vec<RecordedExit>,
    /// The place in the cache from which on its group is reserved.
    pub from: Addr,
    /// The end of its place in the cache.
    pub end: Addr,
    /// The number of the register that holds the offset of the group's end.
    pub pointer: u8,
}

impl RecordedBlock {
    /// Bytes of a group.
    #[must_use]
    pub fn group(&self) -> u64 {
        group(self.slots)
    }
}

/// Bytes of a group with some slots.
pub(super) fn group(slots: u32) -> u64 {
    8 * (1 + u64::from(slots))
}

/// The upper half of the first word of a group of which some instructions were executed.
pub(crate) fn note(executed: u32) -> u32 {
    executed.saturating_add(1)
}

/// A register that a block stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotStore {
    /// The number of its instruction in the block.
    pub(super) instruction: usize,
    pub(super) slot: u32,
    pub(super) register: Register,
    /// After the instruction.
    pub(super) after: bool,
}

/// Recording of a block, before its code is emitted.
#[derive(Debug)]
pub(super) struct RecordPlan {
    pub(super) pointer: Register,
    pub(super) slots: u32,
    pub(super) stores: Vec<SlotStore>,
    pub(super) accesses: Vec<RecordedAccess>,
}

/// A register that is in a slot.
struct KnownRegister {
    register: Register,
    slot: u32,
    /// Bytes that were added to the stack pointer since.
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
            slots: 0,
            stores: Vec::new(),
            accesses: Vec::new(),
        };
        let mut known: Vec<KnownRegister> = Vec::new();
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
        plan.pointer = holders(named).next()?;
        (!plan.accesses.is_empty()).then_some(plan)
    }

    fn store(&mut self, instruction: usize, register: Register, after: bool) -> u32 {
        let slot = self.slots;
        self.slots += 1;
        self.stores.push(SlotStore {
            instruction,
            slot,
            register,
            after,
        });
        slot
    }

    /// The slot that has a register before an instruction, and the bytes that were added to the register since.
    fn known(
        &mut self,
        instruction: usize,
        register: Register,
        known: &mut Vec<KnownRegister>,
    ) -> (u32, i64) {
        let same = known.iter().find(|one| one.register == register);
        if let Some(one) = same {
            return (one.slot, one.moved);
        }
        let slot = self.store(instruction, register, false);
        known.push(KnownRegister {
            register,
            slot,
            moved: 0,
        });
        (slot, 0)
    }

    fn place(
        &mut self,
        number: usize,
        place: MemoryPlace,
        known: &mut Vec<KnownRegister>,
    ) -> AccessPlace {
        match place {
            MemoryPlace::Constant { at, thread } => AccessPlace::Constant { at, thread },
            MemoryPlace::Unknown => AccessPlace::Unknown,
            MemoryPlace::Repeated(register) => AccessPlace::Repeated {
                first: self.store(number, register, false),
                after: self.store(number, register, true),
                register: number_of(register),
                copied: Addr(0),
            },
            MemoryPlace::Operand(operand, displacement) => {
                let mut slot = |register| match register {
                    Register::None => None,
                    _ => Some(self.known(number, register, known)),
                };
                let (base, index) = (slot(operand.base), slot(operand.index));
                let moved = base.map_or(0, |(_, moved)| moved);
                AccessPlace::Sum {
                    base: base.map(|(slot, _)| slot),
                    // The stack pointer, which alone may have moved, is no index.
                    index: index.map(|(slot, _)| (slot, operand.scale)),
                    displacement: displacement.wrapping_add(moved),
                    thread: operand.thread,
                }
            }
        }
    }
}

/// Keeps the registers that an instruction does not change.
fn after(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    known: &mut Vec<KnownRegister>,
) {
    let mut written = memory::written(factory, instruction);
    if let Some(shift) = stack_shift(factory, instruction)
        && written.contains(Register::RSP)
    {
        written.remove(Register::RSP);
        for one in known.iter_mut() {
            if one.register == Register::RSP {
                one.moved = one.moved.wrapping_add(shift);
            }
        }
    }
    known.retain(|one| !written.contains(one.register));
}
