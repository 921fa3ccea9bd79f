//! Values of the target that programs read: where they are.

use std::collections::BTreeMap;

use gilk_instruments::program::{Half, Input};
use serde::{Deserialize, Serialize};

use super::SegmentOffset;

/// Locations of inputs that are words of the target: the CPU, and what identifies the thread. A program that reads
/// one without a location is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs(BTreeMap<Input, InputLocation>);

/// The location of an input. [`Input::Cpu`], [`Input::Tid`] and [`Input::Pid`] have 32 bits, the others 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InputLocation {
    /// A word of the segment.
    Segment(SegmentOffset),
    /// Bytes from the address in the word of the [`Owner`].
    Owner(u32),
}

impl Inputs {
    /// Those of a Linux kernel on x86-64.
    #[must_use]
    pub fn kernel(words: KernelInputs) -> Self {
        use InputLocation::{Owner, Segment};
        let KernelInputs {
            current,
            cpu,
            thread,
            process,
            comm,
        } = words;
        Self(BTreeMap::from([
            (Input::Task, Segment(current)),
            (Input::Cpu, Segment(cpu)),
            (Input::Tid, Owner(thread)),
            (Input::Pid, Owner(process)),
            (Input::Comm(Half::First), Owner(comm)),
            (Input::Comm(Half::Second), Owner(comm.saturating_add(8))),
        ]))
    }

    /// Those of a stock kernel, for plans that are never sent to one.
    #[must_use]
    pub fn supposed(current: SegmentOffset) -> Self {
        Self::kernel(KernelInputs {
            current,
            cpu: SegmentOffset(0x1_fb8c),
            thread: 0x990,
            process: 0x994,
            comm: 0xbb8,
        })
    }

    /// The location of an input, if it is known.
    #[must_use]
    pub fn get(&self, input: Input) -> Option<InputLocation> {
        self.0.get(&input).copied()
    }

    /// Sets or removes the location of an input; returns the one before.
    pub fn set(&mut self, input: Input, location: Option<InputLocation>) -> Option<InputLocation> {
        match location {
            Some(location) => self.0.insert(input, location),
            None => self.0.remove(&input),
        }
    }

    /// All inputs with a location.
    pub fn iter(&self) -> impl Iterator<Item = (Input, InputLocation)> {
        self.0.iter().map(|(&input, &location)| (input, location))
    }
}

/// Words of a kernel, and members of its `task_struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInputs {
    /// Per-CPU word: the address of the running task.
    pub current: SegmentOffset,
    /// Per-CPU word: the number of the CPU, 32 bits.
    pub cpu: SegmentOffset,
    /// Offset of the thread's number in a task, in bytes: 32 bits.
    pub thread: u32,
    /// Offset of the process's number in a task, in bytes: 32 bits.
    pub process: u32,
    /// Offset of the name in a task, in bytes: 16 bytes.
    pub comm: u32,
}

/// The owner of entries in the table of storage: the running thread. Its key is an address with free low bits, where
/// the number of a variable stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The word that holds its address.
    pub word: SegmentOffset,
    /// Low bits of the address that are always 0: so many, at most 7. A thread has at most 2 to the power of it
    /// variables.
    pub free_bits: u8,
    /// A bit that all owners' addresses and all stack pointers have alike, from 48 on. While an entry is written, its
    /// key has it the other way round; numbers of calls stay below it.
    pub busy_bit: u8,
}

impl Owner {
    /// Tasks of a Linux kernel: aligned to 64 bytes at least (`L1_CACHE_BYTES`, init_task and `task_struct_cachep` of
    /// kernel/fork.c), in the upper half, where bit 62 is set.
    #[must_use]
    pub const fn kernel(current: SegmentOffset) -> Self {
        Self {
            word: current,
            free_bits: 6,
            busy_bit: 62,
        }
    }

    /// Threads of a process: the address of a thread's control block, which the psABI has at the base of `fs` and in
    /// its first word. It is aligned to 8 bytes at least, and all addresses of a process are below 2^57.
    #[must_use]
    pub const fn process() -> Self {
        Self {
            word: SegmentOffset(0),
            free_bits: 3,
            busy_bit: 62,
        }
    }

    /// The most variables of a thread.
    #[must_use]
    pub const fn thread_variables(self) -> u8 {
        1u8.wrapping_shl(self.free_bits as u32)
    }

    /// The exclusive bound of numbers of calls' variables: their keys do not differ by the busy bit alone.
    #[must_use]
    pub const fn call_numbers(self) -> u16 {
        1u16.wrapping_shl((self.busy_bit as u32).saturating_sub(48))
    }

    /// The bit that marks a busy entry.
    #[must_use]
    pub const fn busy(self) -> u64 {
        1u64.wrapping_shl(self.busy_bit as u32)
    }
}
