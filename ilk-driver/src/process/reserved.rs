//! The addresses of what will be mapped into a process: words, rings, tables and arenas.

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::layout::{
    Abi, CounterBank, Events, Guard, InputLocation, Inputs, MonotonicClock, Owner, ReadGate, Rings,
    RuntimeLayout, SLOT_LOG2, SegmentOffset, Sequences, StackTables,
};
use gilk_engine::patch::{Home, TIMER_BYTES};
use gilk_engine::plan::PlannedInstrument;
use gilk_engine::reads::MemoryReader;
use gilk_engine::{Addr, Image, Plan, Session, Span};
use gilk_instruments::program::Input;
use gilk_instruments::{Library, Source};

use super::record::MOST_PER_WRITE;
use super::replaced::linked::{LinkedObject, LinkedPart};
use super::stacks::{Callers, numbers_stacks};
use super::subject::{Subject, host};
use super::{maps, monotonic, refused};
use crate::client::{TargetInfo, samples};
use crate::processor::has_rdtscp;
use crate::{Error, Result};

/// Addresses that a 32-bit displacement reaches.
const LOW: u64 = 1 << 31;
/// Bytes of the arena for each counter: several times a patch's.
const ARENA_PER_COUNTER: u64 = 1 << 10;
/// Bytes of the arena for each byte of code, at most: patches of every block take up less.
const ARENA_PER_BYTE: u64 = 64;
/// Bytes of a record without writes, at most.
pub(super) const SMALLEST_RECORD: u64 = 1 << 12;
/// Bytes of the words of a ring, in each row.
const RING_WORDS: u64 = 24;
/// Bytes of the words in each row after those of the ring: of the gate of reads, and of its guards.
const GATE_WORDS: u64 = ReadGate::LEN_BYTES + 8 * GUARD_WORDS as u64;
/// Bytes of the word after those in the first row that keeps the monotonic clock.
const CLOCK_WORD: u64 = 8;
/// Words of the guards of reads: each has a sum, and a counter of reads that fail.
pub(super) const GUARD_WORDS: u32 = 3 << 7;
/// Slots of a ring, as powers of two: at most, and at least.
const SLOTS_LOG2: [u32; 2] = [18, 8];
/// Bytes of all rings, at most, if they have more than the fewest slots.
const MOST_RINGS: u64 = 1 << 28;
/// Entries of the table for variables of threads and calls, as a power of two.
const STORAGE_LOG2: u32 = 16;
/// Bytes of that table, which is after the words that CPUs share. A forked child has a copy of its own: its threads and
/// calls have the addresses of its parent's.
pub(super) const STORAGE: u64 = TIMER_BYTES << STORAGE_LOG2;
/// Bytes of the smallest arena.
pub(super) const SMALLEST_ARENA: u64 = 1 << 16;

/// Addresses of what will be mapped into a process.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// The layout that plans have.
    pub layout: RuntimeLayout,
    pub(super) sequences: Sequences,
    /// True if variables of threads can be found.
    has_thread_pointers: bool,
    /// The words of all CPUs, their rings, and the table for variables of threads and calls.
    pub(super) words: Span,
    /// Free addresses for each arena; for the record too, after the last.
    pub(super) arenas: Vec<Span>,
    /// Ways to find callers, if stacks are numbered.
    pub(super) callers: Option<Arc<Callers>>,
    /// True if the static probes that instruments stand on are switched on.
    pub(super) switches_on: bool,
    /// Object files whose functions replace functions of the process.
    pub(super) objects: Vec<LinkedObject>,
}

impl Reserved {
    /// The words that end reads of memory: in the first row, after those of the ring.
    pub(super) fn gate(&self) -> ReadGate {
        ReadGate {
            closed: Addr(self.layout.rings.lost_full.0).add(8),
        }
    }

    /// The first of the words of the guards that end reads.
    pub(super) fn guard_words(&self) -> Addr {
        self.gate().closed.add(ReadGate::LEN_BYTES)
    }

    /// Checks that a plan was made for these addresses, and for the image of the same process.
    ///
    /// # Errors
    /// [`Error::Plan`].
    pub(super) fn check(&self, plan: &Plan, image: &Image) -> Result<()> {
        if plan.layout != self.layout || plan.release != image.release() {
            return Err(Error::Plan {
                reason: "it is of another process".to_owned(),
            });
        }
        if numbers_stacks(plan) && self.callers.is_none() {
            return Err(Error::Plan {
                reason: "it numbers stacks, and has no tables for them: this is an error of ilk"
                    .to_owned(),
            });
        }
        if !self.has_thread_pointers && plan.instruments.iter().any(keeps_of_threads) {
            let why = "The session keeps variables of threads, and a thread of the process has no control block at the \
                       base of fs with its own address (the psABI's), by which they are found. A program that is linked \
                       statically makes it as it begins: attach to it with -p. Variables of calls work.";
            return Err(Error::Target(why.to_owned()));
        }
        let shares_ring = self.sequences.area.is_none() && plan.instruments.iter().any(samples);
        if shares_ring && !has_rdtscp() {
            let why = "this processor has no instruction that reads the time with the number of the CPU (rdtscp among the \
                       flags of /proc/cpuinfo), by which threads sample that register no area for restartable sequences";
            return Err(Error::Plan {
                reason: why.to_owned(),
            });
        }
        Ok(())
    }

    /// The addresses of everything that will be mapped.
    pub(super) fn spans(&self) -> Vec<Span> {
        let objects = self.objects.iter().flat_map(|object| &object.parts);
        let arenas = self.arenas.iter().copied();
        std::iter::once(self.words)
            .chain(arenas)
            .chain(objects.map(LinkedPart::span))
            .collect()
    }

    /// Returns them for a session, which may switch static probes on ([`Session::tracepoints`]), and may have lines: where all
    /// threads share a ring, its slots have as many words as these.
    #[must_use]
    pub fn for_session(mut self, session: &Session, library: &Library) -> Self {
        self.switches_on = session.tracepoints;
        if any_source(session, library, Source::may_have_lines) {
            self.layout.rings = self.layout.rings.with_lines();
        }
        self
    }
}

impl Subject {
    /// Finds addresses for words and patches, for plans of so many counters at most.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has not enough free addresses where they are reached.
    pub fn reserve(&self, counters: u32) -> Result<Reserved> {
        self.reserve_with(counters, None)
    }

    /// The same, for plans that number stacks by a table.
    pub(super) fn reserve_with(
        &self,
        counters: u32,
        callers: Option<Arc<Callers>>,
    ) -> Result<Reserved> {
        let pid = self.pid;
        let sequences = self.sequences(counters);
        let mut maps = maps::read(pid)?;
        let slots_log2 = slots_log2(sequences);
        let rings = u64::from(sequences.rings()) << (slots_log2 + SLOT_LOG2);
        let stacks = Callers::table_bytes(callers.as_deref());
        let bytes = rows(sequences) + rings + stacks + STORAGE;
        let words = maps::free_below(&maps, bytes, LOW);
        let words = words.ok_or_else(|| {
            refused(
                pid,
                format!("its lower 2 GiB have no {bytes} free bytes for counters and rings"),
            )
        })?;
        maps::insert(&mut maps, words);
        let mut arenas = Vec::with_capacity(self.groups.len());
        let mut reserved = Vec::with_capacity(self.groups.len());
        for (number, &(group, code)) in self.groups.iter().enumerate() {
            let most = code.saturating_mul(ARENA_PER_BYTE);
            let arena = (u64::from(counters) * ARENA_PER_COUNTER).min(most);
            let arena = arena.max(SMALLEST_ARENA).next_multiple_of(maps::PAGE);
            let record = match number + 1 == self.groups.len() {
                true => SMALLEST_RECORD + u64::from(counters) * MOST_PER_WRITE,
                false => 0,
            };
            let bytes = arena + record.next_multiple_of(maps::PAGE);
            debug_assert!(arena > MemoryReader::BYTES, "an arena has patches, too");
            let span = maps::free_near(&maps, bytes, group).ok_or_else(|| {
                let Span { start, end } = group;
                let why = format!("no {bytes} bytes are free within reach of {start} to {end}");
                refused(pid, why)
            })?;
            maps::insert(&mut maps, span);
            let patches = Span {
                start: span.start.add(MemoryReader::BYTES),
                end: span.start.add(arena),
            };
            arenas.push(patches);
            reserved.push(span);
        }
        let rings = Rings::of_sequences(
            sequences,
            (words.start.add(rows(sequences)), slots_log2),
            words.start.0 + u64::from(counters) * 8,
        );
        let layout = layout(
            (arenas, words, words.end.0 - STORAGE - stacks),
            (sequences, rings),
            counters,
            (self.shadow_stack, self.registered.tid),
        );
        layout.check()?;
        Ok(Reserved {
            layout,
            sequences,
            callers,
            has_thread_pointers: self.registered.has_thread_pointers,
            words,
            arenas: reserved,
            switches_on: false,
            objects: Vec::new(),
        })
    }

    /// Returns the machine and the process, as recordings describe them.
    ///
    /// # Errors
    /// [`Error::Io`] if the machine has no name.
    pub fn info(&self, reserved: &Reserved) -> Result<TargetInfo> {
        Ok(TargetInfo {
            host: host()?,
            release: format!("{} of process {}", self.image.title(), self.pid),
            cpus: self.cpus,
            tsc_hz: super::clock().tsc_hz,
            runs_programs: false,
            boot: crate::workload::boot(),
            layout: reserved.layout.clone(),
        })
    }

    fn sequences(&self, counters: u32) -> Sequences {
        let bytes = (u64::from(counters) * 8 + RING_WORDS + GATE_WORDS + CLOCK_WORD)
            .max(maps::PAGE)
            .next_power_of_two();
        Sequences {
            area: self.registered.area,
            signature: self.registered.signature,
            cpus: self.cpus,
            stride_log2: bytes.ilog2(),
        }
    }
}

/// Returns whether something is true of the source of an instrument of a session.
pub(super) fn any_source(
    session: &Session,
    library: &Library,
    holds: impl Fn(&Source) -> bool,
) -> bool {
    let placements = session.placements.iter();
    let names: BTreeSet<&str> = placements.map(|placement| &*placement.instrument).collect();
    names.into_iter().any(|name| {
        // The planner refuses sources that are wrong, and names that neither has.
        match session.sources.get(name) {
            Some(text) => Source::parse(text).is_ok_and(|source| holds(&source)),
            None => {
                let definition = library.get(name).ok();
                let source = definition.and_then(|definition| definition.source());
                source.is_some_and(|source| holds(source))
            }
        }
    })
}

/// Returns whether an instrument has variables of threads.
fn keeps_of_threads(one: &PlannedInstrument) -> bool {
    let probe = one.probe.as_deref();
    probe.is_some_and(|probe| {
        let mut homes = probe.homes.variables.iter();
        homes.any(|(_, home)| matches!(home, Home::Thread(_)))
    })
}

/// Returns the slots of each ring, as a power of two. One that all threads share has those of all CPUs.
fn slots_log2(sequences: Sequences) -> u32 {
    let cpus = sequences.cpus;
    let [mut slots_log2, least] = SLOTS_LOG2;
    while slots_log2 > least && u64::from(cpus) << (slots_log2 + SLOT_LOG2) > MOST_RINGS {
        slots_log2 -= 1;
    }
    match sequences.area {
        Some(_) => slots_log2,
        None => slots_log2 + cpus.next_power_of_two().ilog2(),
    }
}

/// Bytes of the words of all CPUs, and of threads without an area.
pub(super) fn rows(sequences: Sequences) -> u64 {
    (u64::from(sequences.cpus) + 1) << sequences.stride_log2
}

fn layout(
    (arenas, words, stacks): (Vec<Span>, Span, u64),
    (sequences, rings): (Sequences, Rings),
    counters: u32,
    (shadow_stack, tid): (bool, Option<SegmentOffset>),
) -> RuntimeLayout {
    let mut inputs = Inputs::default();
    inputs.set(Input::Cpu, sequences.cpu_id().map(InputLocation::Segment));
    inputs.set(Input::Tid, tid.map(InputLocation::Segment));
    let mut arenas = arenas.into_iter();
    // Without code there is none, and nothing is planned.
    let first = arenas.next();
    RuntimeLayout {
        arena: first.unwrap_or_default(),
        further_arenas: arenas.collect(),
        unwinds: true,
        faults: 0,
        abi: Abi {
            shadow_stack,
            ..Abi::PROCESS
        },
        rings,
        counters: vec![CounterBank {
            base: SegmentOffset(words.start.0),
            slots: counters,
        }],
        shared: vec![words.start.add(sequences.unregistered())],
        timers: Addr(words.end.0 - STORAGE),
        timers_log2: STORAGE_LOG2,
        owner: Owner::process(),
        inputs,
        guard: Guard::Missing,
        clock: Some(MonotonicClock {
            factor: monotonic::factor(),
            offset: Addr(words.start.0 + u64::from(counters) * 8 + RING_WORDS + GATE_WORDS),
        }),
        events: Events::default(),
        stacks: None,
        users: first.map(|arena| Addr(arena.start.0 - MemoryReader::BYTES)),
        stack_tables: Some(StackTables {
            start: Addr(stacks),
        }),
        replacements: Vec::new(),
    }
}
