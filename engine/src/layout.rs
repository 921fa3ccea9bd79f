//! The run-time layout: addresses of the words and tables of generated code in a target, as `ilk.ko` reports them
//! (`struct ilk_info` in `ilk-driver/kmod/ilk_abi.h`, which explains each).

mod abi;
mod guard;
mod inputs;
mod rings;
mod shared;

use std::sync::Arc;

use gilk_instruments::Native;
use gilk_instruments::program::Event;
use serde::{Deserialize, Serialize};

use crate::ids::id;
use crate::{Addr, Error, Result, Span};

pub use abi::{Abi, ReturnPush, SegmentOffset, WordSegment};
pub use guard::Guard;
pub use inputs::{InputLocation, Inputs, KernelInputs, Owner};
pub use rings::{CPU_BITS, LINE_LOG2, RingOwner, Rings, SLOT_LOG2, Sequences};
pub use shared::{ReadGate, StackTables};

/// Alignment of patches in bytes: processors fetch instructions in blocks of it.
pub(crate) const PATCH_ALIGN: u64 = 16;

/// The run-time layout of a target, which generated code depends on: addresses, and conventions as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLayout {
    /// Executable memory for patches.
    pub arena: Span,
    /// More of it, for text that `arena` is out of reach of: the patches of a site are in the arena that is nearest to
    /// it. Of a process, for its libraries; a kernel has none.
    pub further_arenas: Vec<Span>,
    /// True if the target unwinds stacks through the arena by [rows](crate::unwind::Row).
    pub unwinds: bool,
    /// The most instructions of the arena that may fault (loads from the target's memory), in all patches
    /// together. 0 if none may.
    pub faults: u32,
    /// Conventions of the target.
    pub abi: Abi,
    /// Rings of samples.
    pub rings: Rings,
    /// Arrays of counters at the segment, `u64` each; with [`Sequences`], at addresses.
    pub counters: Vec<CounterBank>,
    /// Addresses of the first word of each bank that all CPUs share: the counters of CPU 0, addressed as memory;
    /// with [`Sequences`], the counters of threads without an area.
    pub shared: Vec<Addr>,
    /// Storage of threads and calls: entries of two words, the key of the owner, or 0, and a value that is
    /// not 0. A thread's key is its owner's address | number. With [`Sequences`], 0 if there is none.
    pub timers: Addr,
    /// Entries of that table, as a power of two.
    pub timers_log2: u32,
    /// The owner of the thread's entries.
    pub owner: Owner,
    /// Inputs of programs that are words of the target.
    pub inputs: Inputs,
    /// Memory that programs may read.
    pub guard: Guard,
    /// The target's monotonic clock; `None` if the target does not know the rate of the TSC.
    pub clock: Option<MonotonicClock>,
    /// The processor's counters of events.
    pub events: Events,
    /// Address of the target's code that reads the kernel's stack (`stacks` of `struct ilk_info`, which states its
    /// contract); `None` if it has none.
    pub stacks: Option<Addr>,
    /// Address of the target's code that reads the running process (`users` of `struct ilk_info`, which states its
    /// contract); `None` if it has none. With [`Sequences`], the code is before each arena
    /// ([`RuntimeLayout::readers`]), and reads numbers in memory ([`crate::reads`]).
    pub users: Option<Addr>,
    /// Tables of the code of a process that numbers its stacks, which is after the code at `users`
    /// ([`crate::stacks`]); `None` if stacks and addresses have no numbers.
    #[serde(skip)]
    pub stack_tables: Option<StackTables>,
    /// Functions of object files that are loaded into a process, and replace functions there.
    #[serde(skip)]
    pub replacements: Vec<Replacement>,
}

/// A function of an object file that replaces one of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The function and its object file.
    pub native: Arc<Native>,
    /// Its address in the process.
    pub entry: Addr,
}

id!(
    /// Number of an arena among [`RuntimeLayout::arenas`].
    pub ArenaIndex(pub)
);

/// The target's monotonic clock, by the TSC: bits 32 to 95 of the product of 128 bits of ticks and factor, plus the
/// word at `offset`, modulo 2^64. The target keeps that word (`struct ilk_info` has how well).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonotonicClock {
    /// Nanoseconds per tick, times 2^32.
    pub factor: u64,
    /// Address of the word, 64 bits.
    pub offset: Addr,
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

impl RuntimeLayout {
    /// The layout of an imaginary target with this arena: the default number of counters of `ilk.ko`, and
    /// addresses as of a stock kernel. A plan made with it is never sent to a target.
    #[must_use]
    pub fn supposed(arena: Addr) -> Self {
        let near = CounterBank {
            base: SegmentOffset(0x3_1000),
            slots: 512,
        };
        let far = (0..16).map(|bank| CounterBank {
            base: SegmentOffset(0xffff_8880_0010_0000 + (bank << 16)),
            slots: 4096,
        });
        let counters: Vec<CounterBank> = std::iter::once(near).chain(far).collect();
        let current = SegmentOffset(0x3_0020);
        Self {
            arena: Span::new(arena, 1 << 20),
            further_arenas: Vec::new(),
            unwinds: true,
            faults: 1 << 16,
            abi: Abi::KERNEL,
            rings: Rings {
                per: RingOwner::Cpu,
                base: Addr(0xffff_c900_1000_0000),
                stride_log2: 21,
                slots_log2: 16,
                head: SegmentOffset(0x3_0000),
                limit: SegmentOffset(0x3_0008),
                lost_full: SegmentOffset(0x3_0010),
            },
            shared: Self::supposed_shared(counters.len()),
            counters,
            timers: Addr(0xffff_c900_2000_0000),
            timers_log2: 12,
            owner: Owner::kernel(current),
            inputs: Inputs::supposed(current),
            guard: Guard::KERNEL,
            clock: Some(MonotonicClock {
                factor: (5 << 32) / 12,
                offset: Addr(0xffff_ffff_c0a0_0000),
            }),
            events: Events::default(),
            stacks: Some(Addr(arena.0.wrapping_sub(0x1000))),
            users: Some(Addr(arena.0.wrapping_sub(0x800))),
            stack_tables: None,
            replacements: Vec::new(),
        }
    }

    /// Addresses as of a stock kernel for the shared words of so many banks, for plans that are never sent to one.
    #[must_use]
    pub fn supposed_shared(banks: usize) -> Vec<Addr> {
        let first = Addr(0xffff_8880_7dc0_0000);
        (0..banks as u64)
            .map(|bank| first.add(bank << 20))
            .collect()
    }

    /// The restartable sequences by which the target's counters are reached, if they are.
    #[must_use]
    pub const fn sequences(&self) -> Option<Sequences> {
        match self.rings.per {
            RingOwner::Rseq(sequences) => Some(sequences),
            RingOwner::Cpu | RingOwner::Thread => None,
        }
    }

    /// Returns whether the target has a table for variables of threads and calls: every kernel has one.
    #[must_use]
    pub const fn has_storage(&self) -> bool {
        self.sequences().is_none() || self.timers.0 != 0
    }

    /// All executable memory for patches.
    pub fn arenas(&self) -> impl Iterator<Item = Span> {
        std::iter::once(self.arena).chain(self.further_arenas.iter().copied())
    }

    /// The arena for patches of a site: the nearest.
    #[must_use]
    pub fn nearest_arena(&self, site: Addr) -> ArenaIndex {
        let distance = |arena: Span| {
            let below = arena.start.0.saturating_sub(site.0);
            below.max(site.0.saturating_sub(arena.end.0))
        };
        let numbered = (0..).zip(self.arenas());
        let nearest = numbered.min_by_key(|&(number, arena)| (distance(arena), number));
        ArenaIndex(nearest.map_or(0, |(number, _)| number))
    }

    /// Addresses of the code that reads the running process: with [`Sequences`], one before each arena.
    pub fn readers(&self) -> impl Iterator<Item = Addr> {
        let before = |users: Addr| self.arena.start.0.wrapping_sub(users.0);
        let further = self.users.zip(self.sequences()).map(|(users, _)| {
            let arenas = self.further_arenas.iter();
            arenas.map(move |arena| Addr(arena.start.0.wrapping_sub(before(users))))
        });
        self.users.into_iter().chain(further.into_iter().flatten())
    }

    /// The code that reads the running process, for patches near an address.
    #[must_use]
    pub fn reader_near(&self, at: Addr) -> Option<Addr> {
        let ArenaIndex(number) = self.nearest_arena(at);
        match self.sequences() {
            Some(_) => self.readers().nth(number as usize),
            None => self.users,
        }
    }

    /// The code that numbers stacks of the running process, for patches near an address; `None` if it has none.
    #[must_use]
    pub fn stack_reader_near(&self, at: Addr) -> Option<Addr> {
        let reader = self.reader_near(at).filter(|_| self.stack_tables.is_some());
        reader.map(|reader| reader.add(StackTables::CODE_OFFSET))
    }

    /// The address of a function that replaces others, if its object file is loaded.
    #[must_use]
    pub fn replacement(&self, native: &Native) -> Option<Addr> {
        let mut loaded = self.replacements.iter();
        loaded
            .find(|one| *one.native == *native)
            .map(|one| one.entry)
    }

    /// The alignment of patches in bytes.
    #[must_use]
    pub const fn patch_align(&self) -> u64 {
        match self.sequences() {
            Some(_) => Sequences::DESCRIPTOR_BYTES,
            None => PATCH_ALIGN,
        }
    }

    /// The offset of a counter, if its bank has it: with [`Sequences`], its address on CPU 0.
    #[must_use]
    pub fn counter(&self, slot: CounterSlot) -> Option<SegmentOffset> {
        let bank = self.counters.get(slot.bank as usize)?;
        (slot.slot < bank.slots)
            .then(|| SegmentOffset(bank.base.0.wrapping_add(u64::from(slot.slot) * 8)))
    }

    /// The address of a word that all CPUs share.
    #[must_use]
    pub fn shared(&self, slot: CounterSlot) -> Option<Addr> {
        self.counter(slot)?;
        let first = self.shared.get(slot.bank as usize)?;
        Some(first.add(u64::from(slot.slot) * 8))
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
        let near = |name: &str, word: SegmentOffset| match word.near() {
            Some(_) => Ok(()),
            None => wrong(format!(
                "the word {name} is at offset {:#x} of its segment, out of reach of a displacement",
                word.0
            )),
        };
        for (name, word) in [
            ("head", self.rings.head),
            ("limit", self.rings.limit),
            ("lost_full", self.rings.lost_full),
            ("owner", self.owner.word),
        ] {
            near(name, word)?;
        }
        for (input, location) in self.inputs.iter() {
            match location {
                InputLocation::Segment(word) => near(&format!("{input:?}"), word)?,
                InputLocation::Owner(offset) if i32::try_from(offset).is_err() => {
                    return wrong(format!("{input:?} is {offset:#x} bytes into a task"));
                }
                InputLocation::Owner(_) => {}
            }
        }
        let Owner {
            free_bits,
            busy_bit,
            ..
        } = self.owner;
        if free_bits > 7 || !(48..64).contains(&busy_bit) {
            return wrong(format!(
                "keys of storage have {free_bits} free low bits and are busy by bit {busy_bit}"
            ));
        }
        if let Guard::Below(bound) = self.guard
            && i32::try_from(bound.0.cast_signed()).is_err()
        {
            return wrong(format!(
                "{bound}, the bound of memory that may be read, is not a sign-extended 32-bit number"
            ));
        }
        if let Some(sequences) = self.sequences() {
            self.check_sequences(sequences)?;
        }
        if self.abi.red_zone > 128 || !self.abi.red_zone.is_multiple_of(8) {
            return wrong(format!("the red zone has {} bytes", self.abi.red_zone));
        }
        let Rings {
            slots_log2,
            stride_log2,
            ..
        } = self.rings;
        // Slot and CPU share the lower half of a head; one more slot is added as an immediate.
        if !(2..=24).contains(&slots_log2) {
            return wrong(format!(
                "a ring has 2^{slots_log2} slots, and must have 2^2 to 2^24"
            ));
        }
        let slot_log2 = self.rings.slot_log2();
        if stride_log2 != slots_log2 + slot_log2 {
            return wrong(format!(
                "rings of 2^{slots_log2} slots of 32 bytes are 2^{stride_log2} bytes apart"
            ));
        }
        if !(SLOT_LOG2..=SLOT_LOG2 + LINE_LOG2).contains(&slot_log2) {
            return wrong(format!(
                "a slot of the ring that all threads share has 2^{slot_log2} bytes, and must have 2^5 to 2^8"
            ));
        }
        if !(1..=31).contains(&self.timers_log2) {
            return wrong(format!(
                "the table of timers has 2^{} entries, and must have 2^1 to 2^31",
                self.timers_log2
            ));
        }
        for (number, one) in self.events.counters.iter().enumerate() {
            let mut rest = self.events.counters.iter().skip(number + 1);
            let twice = |other: &EventCounter| other.event == one.event || other.index == one.index;
            if !(1..=64).contains(&one.width) || rest.any(twice) {
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

/// Checks of restartable sequences.
impl RuntimeLayout {
    /// Addresses and lengths of the words of CPU 0, with [`Sequences`].
    fn rows(&self) -> impl Iterator<Item = (u64, u64)> {
        let banks = self.counters.iter();
        let banks = banks.map(|bank| (bank.base.0, u64::from(bank.slots) * 8));
        let rings = &self.rings;
        let words = [rings.head, rings.limit, rings.lost_full];
        let words = words.into_iter().filter(|_| rings.exist());
        banks.chain(words.map(|word| (word.0, 8)))
    }

    fn check_sequences(&self, sequences: Sequences) -> Result<()> {
        let wrong = |reason: String| Err(Error::Layout { reason });
        let Sequences {
            cpus, stride_log2, ..
        } = sequences;
        for word in [sequences.area, sequences.armed()].into_iter().flatten() {
            if word.near().is_none() {
                return wrong(format!("the rseq area has a word at offset {:#x}", word.0));
            }
        }
        if cpus == 0 || stride_log2 > 30 {
            return wrong(format!(
                "{cpus} CPUs have their counters 2^{stride_log2} bytes apart"
            ));
        }
        let ends = self
            .rows()
            .map(|(base, bytes)| (base, base.saturating_add(bytes)));
        let row = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (start, end) = row.unwrap_or_default();
        if end - start > 1 << stride_log2 {
            return wrong(format!(
                "the counters of a CPU have {} bytes, and are 2^{stride_log2} bytes from the next CPU's",
                end - start
            ));
        }
        if end.saturating_add(sequences.unregistered()) > 1 << 31 {
            return wrong(format!(
                "counters at {start:#x} of {cpus} CPUs are out of reach of a displacement"
            ));
        }
        let ring = 1 << self.rings.stride_log2.min(32);
        let rings = sequences.rings();
        let last = self.rings.base.0.saturating_add(u64::from(rings) * ring);
        if self.rings.exist() && last > 1 << 31 {
            return wrong(format!(
                "{rings} rings at {} are out of reach of a displacement",
                self.rings.base
            ));
        }
        let mut starts = self.arenas().map(|arena| arena.start);
        if let Some(start) =
            starts.find(|start| !start.0.is_multiple_of(Sequences::DESCRIPTOR_BYTES))
        {
            return wrong(format!("an arena begins at {start}"));
        }
        if let Some(users) = self.users
            && self
                .arena
                .start
                .0
                .checked_sub(crate::reads::MemoryReader::BYTES)
                != Some(users.0)
        {
            return wrong(format!(
                "the code at {users}, which reads memory, is not before the arena"
            ));
        }
        let row = sequences.unregistered();
        let mut shared = self.counters.iter().zip(&self.shared);
        if let Some((_, shared)) =
            shared.find(|(bank, shared)| bank.base.0.checked_add(row) != Some(shared.0))
        {
            return wrong(format!(
                "the words at {shared}, which all CPUs share, are not those after the last CPU's"
            ));
        }
        Ok(())
    }
}

/// An array of per-CPU counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterBank {
    /// Offset of its first counter.
    pub base: SegmentOffset,
    /// Number of counters in it, eight bytes each.
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
    use gilk_instruments::program::Input;

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
            timers_log2: 10,
            counters: vec![
                CounterBank {
                    base: SegmentOffset(0x1000),
                    slots: 2,
                },
                CounterBank {
                    base: SegmentOffset(0),
                    slots: 0,
                },
                CounterBank {
                    base: SegmentOffset(1 << 40),
                    slots: 3,
                },
            ],
            ..RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000))
        }
    }

    #[test]
    fn counters_are_numbered_through_all_banks() {
        let layout = good();
        assert_eq!(layout.counter_count(), 5);
        let offsets: Vec<_> = (0..6)
            .map(|n| layout.nth_counter(n).and_then(|slot| layout.counter(slot)))
            .collect();
        let far = |n: u64| Some(SegmentOffset((1 << 40) + n));
        assert_eq!(
            offsets,
            [
                Some(SegmentOffset(0x1000)),
                Some(SegmentOffset(0x1008)),
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
        let changes: [(&str, Change); 18] = [
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
            ("head", |l| l.rings.head = SegmentOffset(1 << 31)),
            ("limit", |l| l.rings.limit = SegmentOffset(1 << 31)),
            ("lost_full", |l| l.rings.lost_full = SegmentOffset(1 << 31)),
            ("owner", |l| l.owner.word = SegmentOffset(1 << 31)),
            ("Cpu", |l| {
                let far = InputLocation::Segment(SegmentOffset(1 << 31));
                l.inputs.set(Input::Cpu, Some(far));
            }),
            ("Pid is 0x80000000", |l| {
                l.inputs
                    .set(Input::Pid, Some(InputLocation::Owner(1 << 31)));
            }),
            ("8 free low bits", |l| l.owner.free_bits = 8),
            ("busy by bit 47", |l| l.owner.busy_bit = 47),
            ("bound of memory", |l| l.guard = Guard::Below(Addr(1 << 31))),
            ("red zone has 136", |l| l.abi.red_zone = 136),
            ("red zone has 12", |l| l.abi.red_zone = 12),
            ("slots", |l| l.rings.slots_log2 = 1),
            ("2^25 slots", |l| l.rings.slots_log2 = 25),
            ("32 bytes", |l| l.rings.stride_log2 = 22),
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
