//! The run-time layout: addresses of the words and tables of generated code in a target, as `ilk.ko` reports them
//! (`struct ilk_info` in `ilk-driver/kmod/ilk_abi.h`, which explains each).

use gilk_instruments::program::Event;
use serde::{Deserialize, Serialize};

use crate::{Addr, Error, Result, Span};

/// A per-CPU offset, used as `gs:[offset]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gs(pub u64);

impl Gs {
    /// The offset as a sign-extended 32-bit displacement, if it is one.
    #[must_use]
    pub fn near(self) -> Option<i32> {
        i32::try_from(self.0.cast_signed()).ok()
    }
}

/// Bytes of a slot, as a power of two (`struct ilk_slot`).
pub const SLOT_LOG2: u32 = 5;

/// The upper bound of addresses that programs read; the lower one is the upper half of the address space.
/// Between them are the kernel's own memory and unmapped addresses. Above is the page that processes may
/// call into (`VSYSCALL_ADDR` of arch/x86/include/uapi/asm/vsyscall.h): a fault of the kernel there, or in
/// memory of a process, does not reach a fixup (`copy_from_kernel_nofault_allowed` of arch/x86/mm/maccess.c).
pub const READABLE_BELOW: Addr = Addr(0xffff_ffff_ff60_0000 - 8);

/// The run-time layout of a target, which generated code depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLayout {
    /// Executable memory for patches.
    pub arena: Span,
    /// True if the target unwinds stacks through the arena by [rows](crate::unwind::Row).
    pub unwinds: bool,
    /// The most instructions of the arena that may fault (loads from the target's memory), in all patches
    /// together. 0 if none may.
    pub faults: u32,
    /// The first byte of the ring of CPU 0.
    pub ring_base: Addr,
    /// The ring of CPU `n` begins at `ring_base + (n << stride_log2)`: slots of 32 bytes, one ring
    /// after the other.
    pub stride_log2: u32,
    /// Slots of a ring, as a power of two.
    pub slots_log2: u32,
    /// `serial number of the next sample << (32 - slots_log2) | cpu`.
    pub head: Gs,
    /// The value of `head` at which the ring is full.
    pub limit: Gs,
    /// Counts hits not sampled because the ring was full.
    pub lost_full: Gs,
    /// Pointer to the running task.
    pub current: Gs,
    /// Arrays of per-CPU counters, `u64` each.
    pub counters: Vec<CounterBank>,
    /// Storage of threads and calls: entries of two words, the key of the owner, or 0, and a value that is
    /// not 0. A thread's key is its task | number.
    pub timers: Addr,
    /// Entries of that table, as a power of two.
    pub timers_log2: u32,
    /// Inputs of programs: the CPU, the thread and the clock.
    pub surroundings: Surroundings,
    /// The processor's counters of events.
    pub events: Events,
}

/// The processor's counters of events, as programs of instruments may read them by `rdpmc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The counters that exist.
    pub counters: Box<[EventCounter]>,
    /// Events without a counter, with the reason; those in neither list were not probed.
    pub refused: Box<[(Event, String)]>,
}

/// A counter that counts an event, the same one on every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounter {
    /// The event that it counts.
    pub event: Event,
    /// Its number for `rdpmc`, in ecx.
    pub index: u32,
    /// Bits that the counter has.
    pub width: u8,
}

impl Events {
    /// The counter of an event.
    ///
    /// # Errors
    /// The reason, as a sentence, if there is none.
    pub fn counter(&self, event: Event) -> std::result::Result<EventCounter, String> {
        let found = self.counters.iter().find(|one| one.event == event);
        found.copied().ok_or_else(|| {
            let known = self.refused.iter().find(|(refused, _)| *refused == event);
            let why = known.map_or("it was not probed", |(_, why)| why);
            format!("there is no counter of {} here: {why}", event.word())
        })
    }
}

/// Inputs of programs: the CPU, the thread and the clock; and the words that all CPUs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The number of the CPU: 32 bits.
    pub cpu: Gs,
    /// Offset of the thread's number in a task, in bytes: 32 bits.
    pub thread: u32,
    /// Offset of the process's number in a task, in bytes: 32 bits.
    pub process: u32,
    /// Offset of the name in a task, in bytes: 16 bytes.
    pub comm: u32,
    /// TSC ticks a millisecond; 0 if the kernel does not know.
    pub tsc_khz: u32,
    /// Addresses of the first counter of each bank on CPU 0: the counters of CPU 0, addressed as
    /// memory, are the words that all CPUs share.
    pub shared: Vec<Addr>,
}

impl Surroundings {
    /// Values as of a stock kernel, for plans that are never sent to one.
    #[must_use]
    pub fn supposed(banks: u64) -> Self {
        let first = Addr(0xffff_8880_7dc0_0000);
        Self {
            cpu: Gs(0x1_fb8c),
            thread: 0x990,
            process: 0x994,
            comm: 0xbb8,
            tsc_khz: 2_400_000,
            shared: (0..banks).map(|bank| first.add(bank << 20)).collect(),
        }
    }
}

impl RuntimeLayout {
    /// The layout of an imaginary target with this arena: the default number of counters of `ilk.ko`, and
    /// addresses as of a stock kernel. A plan made with it is never sent to a target.
    #[must_use]
    pub fn supposed(arena: Addr) -> Self {
        let near = CounterBank {
            base: Gs(0x3_1000),
            slots: 512,
        };
        let far = (0..16).map(|bank| CounterBank {
            base: Gs(0xffff_8880_0010_0000 + (bank << 16)),
            slots: 4096,
        });
        let counters: Vec<CounterBank> = std::iter::once(near).chain(far).collect();
        Self {
            arena: Span::new(arena, 1 << 20),
            unwinds: true,
            faults: 1 << 16,
            ring_base: Addr(0xffff_c900_1000_0000),
            stride_log2: 21,
            slots_log2: 16,
            head: Gs(0x3_0000),
            limit: Gs(0x3_0008),
            lost_full: Gs(0x3_0010),
            current: Gs(0x3_0020),
            timers: Addr(0xffff_c900_2000_0000),
            timers_log2: 12,
            surroundings: Surroundings::supposed(counters.len() as u64),
            events: Events::default(),
            counters,
        }
    }

    /// The offset of a counter, if its bank has it.
    #[must_use]
    pub fn counter(&self, slot: CounterSlot) -> Option<Gs> {
        let bank = self.counters.get(slot.bank as usize)?;
        (slot.slot < bank.slots).then(|| Gs(bank.base.0.wrapping_add(u64::from(slot.slot) * 8)))
    }

    /// The address of a word that all CPUs share: the counter of CPU 0.
    #[must_use]
    pub fn shared(&self, slot: CounterSlot) -> Option<Addr> {
        self.counter(slot)?;
        let first = self.surroundings.shared.get(slot.bank as usize)?;
        Some(first.add(u64::from(slot.slot) * 8))
    }

    /// The factor from TSC ticks to nanoseconds: bits 32 to 95 of the product of 128 bits are the
    /// nanoseconds.
    #[must_use]
    pub fn nsecs_factor(&self) -> Option<u64> {
        (1_000_000_u64 << 32).checked_div(self.surroundings.tsc_khz.into())
    }

    /// The number of counters in all banks.
    #[must_use]
    pub fn counter_count(&self) -> u64 {
        self.counters.iter().map(|bank| u64::from(bank.slots)).sum()
    }

    /// The counter of that number, counted through all banks.
    #[must_use]
    pub fn nth_counter(&self, number: u64) -> Option<CounterSlot> {
        let mut rest_of_number = number;
        for (bank, slots) in (0..).zip(self.counters.iter().map(|bank| u64::from(bank.slots))) {
            if rest_of_number < slots {
                return Some(CounterSlot {
                    bank,
                    slot: u32::try_from(rest_of_number).ok()?,
                });
            }
            rest_of_number -= slots;
        }
        None
    }

    /// Checks that generated code can work with the layout.
    ///
    /// # Errors
    /// [`Error::Layout`], naming the field.
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Layout { reason });
        for (name, gs) in [
            ("head", self.head),
            ("limit", self.limit),
            ("lost_full", self.lost_full),
            ("current", self.current),
            ("cpu", self.surroundings.cpu),
        ] {
            if gs.near().is_none() {
                return wrong(format!(
                    "the per-CPU word {name} is at gs:{:#x}, out of reach of a displacement",
                    gs.0
                ));
            }
        }
        // Slot and CPU share the lower half of a head; one more slot is added as an immediate.
        if !(2..=24).contains(&self.slots_log2) {
            return wrong(format!(
                "a ring has 2^{} slots, and must have 2^2 to 2^24",
                self.slots_log2
            ));
        }
        if self.stride_log2 != self.slots_log2 + SLOT_LOG2 {
            return wrong(format!(
                "rings of 2^{} slots of 32 bytes are 2^{} bytes apart",
                self.slots_log2, self.stride_log2
            ));
        }
        if !(1..=31).contains(&self.timers_log2) {
            return wrong(format!(
                "the table of timers has 2^{} entries, and must have 2^1 to 2^31",
                self.timers_log2
            ));
        }
        for (number, one) in self.events.counters.iter().enumerate() {
            let rest = self.events.counters.get(number + 1..).unwrap_or_default();
            let twice = |other: &EventCounter| other.event == one.event || other.index == one.index;
            if !(1..=64).contains(&one.width) || rest.iter().any(twice) {
                return wrong(format!(
                    "the counter of {} has {} bits and number {:#x}, and counters have 1 to 64 bits and \
                     a number of their own",
                    one.event.word(),
                    one.width,
                    one.index
                ));
            }
        }
        Ok(())
    }
}

/// An array of per-CPU counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterBank {
    /// Offset of its first counter.
    pub base: Gs,
    /// Counters in it.
    pub slots: u32,
}

/// One counter of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CounterSlot {
    /// Index in [`RuntimeLayout::counters`].
    pub bank: u32,
    /// Index in the bank.
    pub slot: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(event: Event, index: u32, width: u8) -> EventCounter {
        EventCounter {
            event,
            index,
            width,
        }
    }

    fn good() -> RuntimeLayout {
        RuntimeLayout {
            events: Events {
                counters: [counter(Event::Cycles, 1 << 30, 48)].into(),
                refused: [(Event::Branches, "none is free".to_owned())].into(),
            },
            slots_log2: 16,
            stride_log2: 21,
            timers_log2: 10,
            counters: vec![
                CounterBank {
                    base: Gs(0x1000),
                    slots: 2,
                },
                CounterBank {
                    base: Gs(0),
                    slots: 0,
                },
                CounterBank {
                    base: Gs(1 << 40),
                    slots: 3,
                },
            ],
            ..RuntimeLayout::default()
        }
    }

    #[test]
    fn counters_are_numbered_through_all_banks() {
        let layout = good();
        assert_eq!(layout.counter_count(), 5);
        let offsets: Vec<_> = (0..6)
            .map(|n| layout.nth_counter(n).and_then(|slot| layout.counter(slot)))
            .collect();
        let far = |n: u64| Some(Gs((1 << 40) + n));
        assert_eq!(
            offsets,
            [
                Some(Gs(0x1000)),
                Some(Gs(0x1008)),
                far(0),
                far(8),
                far(16),
                None
            ]
        );
        assert_eq!(layout.counter(CounterSlot { bank: 0, slot: 2 }), None);
        assert_eq!(layout.counter(CounterSlot { bank: 3, slot: 0 }), None);
    }

    #[test]
    fn counters_of_events_are_there_or_refused_with_the_reason() {
        let events = good().events;
        assert_eq!(events.counter(Event::Cycles).unwrap().index, 1 << 30);
        for (event, says) in [
            (
                Event::Branches,
                "there is no counter of branches here: none is free",
            ),
            (
                Event::CacheMisses,
                "there is no counter of cache_misses here: it was not probed",
            ),
        ] {
            assert_eq!(events.counter(event).unwrap_err(), says);
        }
    }

    #[test]
    fn displacements_are_sign_extended() {
        assert_eq!(Gs(0x7fff_ffff).near(), Some(0x7fff_ffff));
        assert_eq!(Gs(0x8000_0000).near(), None);
        assert_eq!(Gs(0xffff_ffff_ffff_ff00).near(), Some(-0x100));
    }

    #[test]
    fn a_layout_that_code_cannot_work_with_is_named() {
        assert_eq!(good().check(), Ok(()));
        let supposed = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
        assert_eq!(supposed.check(), Ok(()));
        // Each bank has words that all CPUs share.
        for (bank, of) in (0..).zip(&supposed.counters) {
            let slot = of.slots - 1;
            assert!(supposed.shared(CounterSlot { bank, slot }).is_some());
        }
        type Change = fn(&mut RuntimeLayout);
        let changes: [(&str, Change); 12] = [
            ("of cycles has 0 bits", |l| {
                l.events.counters[0].width = 0;
            }),
            ("number 0x40000000", |l| {
                let same = [Event::Cycles, Event::Branches];
                l.events.counters = same.map(|event| counter(event, 1 << 30, 48)).into();
            }),
            ("number 0x40000000", |l| {
                let same = [1 << 30, 1].map(|index| counter(Event::Cycles, index, 48));
                l.events.counters = same.into();
            }),
            ("head", |l| l.head = Gs(1 << 31)),
            ("limit", |l| l.limit = Gs(1 << 31)),
            ("lost_full", |l| l.lost_full = Gs(1 << 31)),
            ("current", |l| l.current = Gs(1 << 31)),
            ("cpu", |l| l.surroundings.cpu = Gs(1 << 31)),
            ("slots", |l| l.slots_log2 = 1),
            ("2^25 slots", |l| l.slots_log2 = 25),
            ("32 bytes", |l| l.stride_log2 = 22),
            ("entries", |l| l.timers_log2 = 0),
        ];
        for (named, change) in changes {
            let mut layout = good();
            change(&mut layout);
            let error = layout.check().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
