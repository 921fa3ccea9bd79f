//! Samples taken by interrupts in the middle of samples, and by threads that migrate there: signals
//! stand for interrupts, another base of gs for another CPU.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "relocation/native.rs"]
mod native;
#[path = "patches/sources.rs"]
#[allow(dead_code, reason = "two of its instruments are used here")]
mod sources;
#[path = "support/text.rs"]
mod text;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gilk_engine::layout::{
    CounterBank, CounterSlot, Inputs, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset,
};
use gilk_engine::liveness::Live;
use gilk_engine::patch::{Assembler, Hooked};
use gilk_engine::placement::{Point, Site, Splice};
use gilk_engine::{Addr, HookType, InstrumentId, Span};
use native::{GS, Machine, ORIGINAL, PATCH, TABLES};
use sources::Kind;
use text::Text;

const SLOTS_LOG2: u32 = 6;
const STRIDE_LOG2: u32 = 11;
const HEAD: u64 = 0x100;
const LIMIT: u64 = 0x108;
const LOST_FULL: u64 = 0x110;
const COUNTER: u64 = 0x200;
/// From one CPU's words to the next one's.
const CPU_WORDS: u64 = 0x400;

/// The head of a CPU at which a serial number is reserved.
fn head_of(cpu: u64, serial: u64) -> u64 {
    serial << (32 - SLOTS_LOG2) | cpu
}

/// The patch, as a function that changes nothing a caller could see.
static CODE: AtomicU64 = AtomicU64::new(0);
/// The words of CPU 0.
static WORDS: AtomicU64 = AtomicU64::new(0);
/// Number of times the handler ran the patch.
static NESTED: AtomicU64 = AtomicU64::new(0);
static ROUND: AtomicU64 = AtomicU64::new(0);

fn migrate_to(cpu: u64) {
    native::set_gs(WORDS.load(Ordering::Relaxed) + cpu * CPU_WORDS);
}

#[allow(unsafe_code, reason = "runs generated code")]
fn hit() {
    // SAFETY: the patch saves all it uses (everything is live), returns to its caller, and writes
    // only the ring, the words and its own stack. The test has put it there before.
    unsafe {
        let code: extern "C" fn() = std::mem::transmute(CODE.load(Ordering::Relaxed) as *const ());
        code();
    }
}

/// An interrupt: samples, and now and then the thread migrates.
extern "C" fn interrupt(_signal: libc::c_int) {
    NESTED.fetch_add(1, Ordering::Relaxed);
    hit();
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    if round.is_multiple_of(3) {
        migrate_to(round / 3 % 2);
    }
}

/// Takes whole samples off both rings, as a reader does: those of a hit follow each other, with one time.
fn drain(machine: &mut Machine, ids: &[u64], tails: &mut [u64; 2], last: &mut [u64; 2]) -> u64 {
    let mut taken = 0;
    let first = 1 << SLOTS_LOG2;
    for cpu in 0..2u64 {
        let words = GS + cpu * CPU_WORDS;
        let head = machine.word(words + HEAD);
        assert_eq!(head % (1 << (30 - SLOTS_LOG2)), cpu);
        let tail = &mut tails[cpu as usize];
        while *tail < head >> (32 - SLOTS_LOG2) {
            let at = TABLES + (cpu << STRIDE_LOG2) + *tail % (1 << SLOTS_LOG2) * 32;
            let number = ((*tail - first) % ids.len() as u64) as usize;
            assert_eq!(
                (machine.word(at), machine.word(at + 24)),
                (head_of(cpu, *tail), ids[number]),
                "sample {tail} of CPU {cpu}"
            );
            let (value, tsc) = (machine.word(at + 8), machine.word(at + 16));
            assert_eq!(value, tsc, "the sample is of one writer");
            assert!(
                last[cpu as usize] < tsc || number > 0 && last[cpu as usize] == tsc,
                "samples of a CPU are in order of time, and those of a hit have one"
            );
            last[cpu as usize] = tsc;
            *tail += 1;
            taken += 1;
        }
        machine.set_word(words + LIMIT, head_of(cpu, *tail + (1 << SLOTS_LOG2)));
    }
    taken
}

/// In one test: signals and their counts are the process's.
#[test]
fn every_hit_is_delivered_or_counted_whatever_comes_between() {
    for samples in 1..=3 {
        NESTED.store(0, Ordering::Relaxed);
        interrupted(samples);
    }
}

/// So many samples a hit, in one reservation, and a count.
fn interrupted(samples: u8) {
    let mut machine = Machine::new();
    let layout = RuntimeLayout {
        arena: Span::new(Addr(machine.address(PATCH)), 0x1000),
        unwinds: true,
        faults: 1 << 16,
        rings: Rings {
            per: RingOwner::Cpu,
            base: Addr(machine.address(TABLES)),
            stride_log2: STRIDE_LOG2,
            slots_log2: SLOTS_LOG2,
            head: SegmentOffset(HEAD),
            limit: SegmentOffset(LIMIT),
            lost_full: SegmentOffset(LOST_FULL),
        },
        owner: Owner::kernel(SegmentOffset(0x120)),
        inputs: Inputs::supposed(SegmentOffset(0x120)),
        counters: vec![CounterBank {
            base: SegmentOffset(COUNTER),
            slots: 1,
        }],
        timers: Addr(machine.address(TABLES + 0x8000)),
        timers_log2: 4,
        ..RuntimeLayout::supposed(Addr(machine.address(PATCH)))
    };
    layout.check().unwrap();
    let hooked = |order, kind: Kind| {
        let id = InstrumentId::new(1, HookType::Pre, 2, order).unwrap();
        Hooked {
            id,
            program: kind.program(),
            counter: Some(CounterSlot { bank: 0, slot: 0 }),
        }
    };
    let mut instruments: Vec<_> = (0..samples)
        .map(|order| hooked(order, Kind::Time))
        .collect();
    instruments.push(hooked(samples, Kind::Count));
    let ids: Vec<u64> = { instruments.iter().take(samples.into()) }
        .map(|one| one.id.pack())
        .collect();
    let displaced = Span::new(Addr(machine.address(ORIGINAL)), 5);
    let site = Site {
        splice: Splice::Jump,
        displaced,
        overwritten: 1,
        filled: 0,
        continuations: Box::default(),
    };
    let nop_and_return = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];
    let original = Text {
        at: displaced.start,
        bytes: &nop_and_return,
        decided: Vec::new(),
    };
    let at = Addr(machine.address(PATCH));
    let hooks = [(Point::Entry, &instruments[..])];
    let code = Assembler::new(&original, &layout)
        .assemble(at, &site, &hooks, &|_| Live::ALL)
        .unwrap();
    machine.write(ORIGINAL, &nop_and_return);
    machine.write(PATCH, &code.bytes);
    let first = 1 << SLOTS_LOG2;
    // A ring's last slots are too few for a hit of three.
    for cpu in 0..2 {
        machine.set_word(GS + cpu * CPU_WORDS + HEAD, head_of(cpu, first));
        machine.set_word(GS + cpu * CPU_WORDS + LIMIT, head_of(cpu, 2 * first));
    }
    CODE.store(at.0, Ordering::Relaxed);
    WORDS.store(machine.address(GS), Ordering::Relaxed);
    migrate_to(0);

    #[allow(unsafe_code, reason = "sets a signal handler")]
    // SAFETY: the handler calls only what may be called in a handler: atomics, a system call, the patch.
    let myself = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupt as extern "C" fn(libc::c_int) as usize;
        // Interrupts nest.
        action.sa_flags = libc::SA_NODEFER | libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
        libc::pthread_self()
    };

    let done = AtomicBool::new(false);
    let (mut tails, mut last) = ([first; 2], [0; 2]);
    let (mut hits, mut delivered) = (0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                #[allow(unsafe_code, reason = "sends a signal to one thread")]
                // SAFETY: the scope keeps that thread alive until this one has ended.
                unsafe {
                    libc::pthread_kill(myself, libc::SIGUSR1);
                }
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let end = std::time::Instant::now() + std::time::Duration::from_secs(1);
        while std::time::Instant::now() < end || NESTED.load(Ordering::Relaxed) < 500 {
            // Sometimes more than the ring holds.
            for _ in 0..40 + hits % 50 {
                hit();
                hits += 1;
            }
            delivered += drain(&mut machine, &ids, &mut tails, &mut last);
        }
        done.store(true, Ordering::Relaxed);
    });
    delivered += drain(&mut machine, &ids, &mut tails, &mut last);
    let mut sum = |word: u64| machine.word(GS + word) + machine.word(GS + CPU_WORDS + word);
    let (lost, counted) = (sum(LOST_FULL), sum(COUNTER));
    let nested = NESTED.load(Ordering::Relaxed);
    assert_eq!(counted, hits + nested, "every hit is counted");
    assert_eq!(
        delivered + lost,
        u64::from(samples) * (hits + nested),
        "every sample of a hit is delivered or counted as lost"
    );
    assert!(
        nested > 0 && lost > 0 && tails.iter().all(|&tail| tail > first),
        "{nested} nested, {lost} lost, {tails:?}"
    );
    eprintln!("{hits} hits and {nested} in signals; {delivered} delivered, {lost} lost");
}
