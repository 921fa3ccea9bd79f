//! Instruments in the cache: each hit is counted or sampled once, and nothing else changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gilk_engine::cfg::Cfg;
use gilk_engine::elf::ElfParts;
use gilk_engine::layout::{
    Abi, CounterBank, CounterSlot, Guard, InputLocation, Inputs, ReadGate, Rings, RuntimeLayout,
    SegmentOffset, Sequences,
};
use gilk_engine::plan::{Possible, plan_possible};
use gilk_engine::reads::MemoryReader;
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{HookType, Image, Session, VerifiedPlan};
use gilk_instruments::Library as Instruments;
use gilk_instruments::program::Input;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::*;

const FUNCTIONS: [&str; 5] = ["fibonacci", "mixed", "switched", "full", "looping"];
const CPUS: u32 = 256;
const STRIDE_LOG2: u32 = 13;
const SLOTS_LOG2: u32 = 10;
const SLOTS: u32 = 1000;

/// The layout of a process whose words begin at an address, with those of all CPUs and their rings.
pub(super) fn layout(start: Addr, area: SegmentOffset) -> RuntimeLayout {
    let sequences = Sequences {
        area: Some(area),
        signature: 0x5305_3053,
        cpus: CPUS,
        stride_log2: STRIDE_LOG2,
    };
    let rows = u64::from(CPUS + 1) << STRIDE_LOG2;
    let mut inputs = Inputs::default();
    inputs.set(Input::Cpu, sequences.cpu_id().map(InputLocation::Segment));
    let words = start.0 + u64::from(SLOTS) * 8;
    RuntimeLayout {
        abi: Abi::PROCESS,
        rings: Rings::of_sequences(sequences, (start.add(rows), SLOTS_LOG2), words),
        counters: vec![CounterBank {
            base: SegmentOffset(start.0),
            slots: SLOTS,
        }],
        shared: vec![start.add(sequences.unregistered())],
        inputs,
        guard: Guard::Missing,
        unwinds: true,
        faults: 0,
        users: None,
        ..RuntimeLayout::supposed(Addr(0x7000_0000_0000))
    }
}

/// The layout with an arena for splices, before which code reads memory.
pub(super) fn with_arena(layout: &RuntimeLayout, arena: Span) -> RuntimeLayout {
    RuntimeLayout {
        arena,
        users: Some(Addr(arena.start.0 - MemoryReader::BYTES)),
        ..layout.clone()
    }
}

/// The words that end reads, after those of the ring.
pub(super) fn gate(layout: &RuntimeLayout) -> ReadGate {
    ReadGate {
        closed: Addr(layout.rings.lost_full.0).add(8),
    }
}

/// Words and rings of the instruments, in the lower 2 GiB.
struct Words {
    memory: Mapping,
    layout: RuntimeLayout,
}

impl Words {
    fn new() -> Self {
        let rows = u64::from(CPUS + 1) << STRIDE_LOG2;
        let rings = u64::from(CPUS) << (SLOTS_LOG2 + 5);
        let memory = Mapping::low(usize::try_from(rows + rings).unwrap());
        let start = Addr(memory.start());
        #[allow(unsafe_code, reason = "finds the area for restartable sequences")]
        // SAFETY: the name ends in 0, and the symbol of glibc from 2.35 on is a number.
        let area = unsafe {
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
            assert!(!offset.is_null(), "glibc is older than 2.35");
            *offset.cast::<i64>()
        };
        let layout = layout(start, SegmentOffset(area.cast_unsigned()));
        let mut words = Self { memory, layout };
        for cpu in 0..CPUS {
            let limit = words.offset(words.layout.rings.limit.0, cpu);
            words
                .memory
                .write(limit, &(1_u64 << SLOTS_LOG2).to_le_bytes());
        }
        words
    }

    fn offset(&self, word: u64, cpu: u32) -> u64 {
        word - self.memory.start() + (u64::from(cpu) << STRIDE_LOG2)
    }

    /// The sum of a counter over all CPUs.
    fn count(&mut self, slot: CounterSlot) -> u64 {
        let first = self.layout.counter(slot).unwrap().0;
        let offsets: Vec<u64> = (0..=CPUS).map(|cpu| self.offset(first, cpu)).collect();
        offsets.into_iter().map(|at| self.memory.word(at)).sum()
    }

    /// The samples of all CPUs, by time: identifier and value.
    fn samples(&mut self) -> Vec<(u64, u64)> {
        let mut samples = Vec::new();
        for cpu in 0..CPUS {
            let head = self.offset(self.layout.rings.head.0, cpu);
            let head = self.memory.word(head);
            let ring = self.layout.rings.base.0 - self.memory.start();
            let ring = ring + (u64::from(cpu) << (SLOTS_LOG2 + 5));
            for slot in 0..head {
                let mut word = |number: u64| self.memory.word(ring + 32 * slot + 8 * number);
                samples.push((word(2), word(3), word(1)));
            }
        }
        samples.sort_unstable();
        samples
            .into_iter()
            .map(|(_, id, value)| (id, value))
            .collect()
    }
}

/// The library as this process has it.
fn image(library: &Library, code: &OwnCode) -> Image {
    let file = std::fs::read(&library.file).unwrap();
    let symbol = Image::from_elf(&ElfParts::of_file("functions.so", &file)).unwrap();
    let slide = symbol.function_named(FUNCTIONS[0]).unwrap().span.start;
    let slide = slide.to(library.function(FUNCTIONS[0])).cast_unsigned();
    let live = code.0.iter().filter(|(start, bytes)| {
        let at = library.function(FUNCTIONS[0]);
        Span::new(*start, bytes.len() as u64).contains(at)
    });
    let parts = ElfParts {
        slide,
        live: live.cloned().collect(),
        ..ElfParts::of_file("functions.so", &file)
    };
    Image::from_elf(&parts).unwrap()
}

pub(super) fn placement(
    function: &str,
    (block, hook): (u32, HookType),
    instrument: &str,
) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    }
}

pub(super) fn session() -> Session {
    Session {
        duration: 1.0,
        ..Session::empty()
    }
}

pub(super) fn planned(
    image: &Image,
    session: &Session,
    layout: &RuntimeLayout,
) -> (VerifiedPlan, Session) {
    let library = Instruments::builtin().unwrap();
    let watch = &mut |_| ControlFlow::Continue(());
    let Possible { plan, session, .. } =
        plan_possible(image, session, &library, layout, watch).unwrap();
    (verify(image, plan).unwrap(), session)
}

/// A cache of the library with the instruments of a session, and all functions translated.
fn cache(
    library: &Library,
    counting: Counting,
    session: &Session,
    words: &Words,
) -> (Cache, VerifiedPlan) {
    let code = OwnCode::read();
    let image = Arc::new(image(library, &code));
    // Splices are planned into an arena that no byte is written to.
    let near = library.function(FUNCTIONS[0]);
    let arena = Span::new(Addr((near.0 & !0xfff) - (1 << 30)), 1 << 22);
    let layout = with_arena(&words.layout, arena);
    let (plan, session) = planned(&image, session, &layout);
    let gate = gate(&words.layout);
    let instruments = CacheInstruments::of(&image, plan.plan(), gate, session.save_all).unwrap();
    let proof = InstrumentProof::new(&image, &plan, gate).unwrap();
    let functions = FUNCTIONS.map(|name| library.function(name));
    let mut cache = Cache::with_instruments(
        functions[0],
        counting,
        Some((Arc::new(instruments), Arc::new(proof))),
    );
    // Those that tables target, too.
    let blocks = FUNCTIONS.iter().flat_map(|name| {
        let graph = Cfg::of(&image, image.function_named(name).unwrap().id);
        graph.blocks.into_iter().map(|block| block.span.start)
    });
    let seeds: Vec<Addr> = functions.into_iter().chain(blocks).collect();
    cache.add(&code, &seeds, WHOLE);
    (cache, plan)
}

/// Calls all functions in the cache and natively; returns the numbers of calls.
fn compare(library: &Library, cache: &Cache, layout: &RuntimeLayout) -> u64 {
    for name in FUNCTIONS {
        let function = library.function(name);
        let translated = cache.block(function);
        for number in 0..50 {
            let (one, other) = arguments(number);
            let expected = call(function, one, other);
            assert_eq!(
                call(translated, one, other),
                expected,
                "{name} {one:#x} {other:#x}"
            );
        }
    }
    disarm(layout.sequences().unwrap());
    50
}

/// Clears the descriptor that this thread armed last, which the kernel may read still: the cache will be unmapped.
fn disarm(sequences: Sequences) {
    #[allow(unsafe_code, reason = "a word of the area for restartable sequences")]
    // SAFETY: glibc's `pthread_self` is the base of `fs`, and the word is the thread's own.
    unsafe {
        let base = libc::pthread_self();
        let word = base.wrapping_add(sequences.armed().unwrap().0) as *mut u64;
        word.write_volatile(0);
    }
}

/// The last instruction of a block.
fn last(image: &Image, block: Span) -> Instruction {
    let bytes = image.bytes(block).unwrap();
    let decoder = Decoder::with_ip(64, bytes, block.start.0, DecoderOptions::NONE);
    decoder.into_iter().last().unwrap()
}

const OPTIONS: [&[&str]; 4] = [
    &["-O2"],
    &["-O2", "-fcf-protection=full"],
    &["-O0"],
    &["-O3", "-fomit-frame-pointer"],
];

#[test]
fn every_block_is_counted_by_its_instrument_as_often_as_it_executes() {
    for options in OPTIONS {
        for save_all in [false, true] {
            let library = Library::compiled("instrumented", options);
            let mut words = Words::new();
            let image = image(&library, &OwnCode::read());
            let mut session = Session {
                save_all,
                ..session()
            };
            for name in FUNCTIONS {
                let graph = Cfg::of(&image, image.function_named(name).unwrap().id);
                for block in &graph.blocks {
                    let hooks = [
                        HookType::Pre,
                        HookType::Post,
                        HookType::Taken,
                        HookType::Untaken,
                    ];
                    let count = match last(&image, block.span).flow_control() {
                        FlowControl::ConditionalBranch => 4,
                        FlowControl::Call | FlowControl::IndirectCall => 1,
                        _ => 2,
                    };
                    for hook in hooks.into_iter().take(count) {
                        let hook = (block.index.0, hook);
                        session.placements.push(placement(name, hook, "counter"));
                    }
                }
            }
            let (mut cache, plan) = cache(&library, Counting::Threads, &session, &words);
            compare(&library, &cache, &words.layout);
            let executed: BTreeMap<Addr, u64> = cache
                .counts()
                .into_iter()
                .map(|(block, count)| (block.original.start, count))
                .collect();
            let (mut hits, mut falls_through) = (0, 0);
            let mut ways: BTreeMap<Addr, u64> = BTreeMap::new();
            let plan = plan.plan();
            assert!(plan.instruments.len() > 30, "{}", plan.instruments.len());
            for one in &plan.instruments {
                let function = plan.function(one.id.major).unwrap();
                let block = function.outline.blocks[one.id.block as usize];
                let count = words.count(one.counter.unwrap());
                if matches!(one.id.hook, HookType::Taken | HookType::Untaken) {
                    let branch = Addr(last(&image, block).ip());
                    *ways.entry(branch).or_insert(0) += count;
                    continue;
                }
                let ends = last(&image, block);
                let start = match (one.id.hook, ends.flow_control()) {
                    (HookType::Post, FlowControl::Next) => {
                        falls_through += count;
                        block.start
                    }
                    (HookType::Post, _) => Addr(ends.ip()),
                    _ => block.start,
                };
                // An `endbr64` is a block of its own, before the one with the instrument.
                let begun = [start, start.add(4)].map(|at| executed.get(&at).copied());
                assert!(
                    begun.contains(&Some(count)),
                    "{} {start}: {count} in place of {begun:?}, {options:?}",
                    function.name
                );
                hits += count;
            }
            assert!(hits > 10_000, "{hits}");
            assert!(falls_through > 100, "{falls_through}");
            // Each branch was executed as often as its two ways are taken.
            assert!(ways.len() > 5, "{}", ways.len());
            for (branch, taken) in ways {
                assert_eq!(executed.get(&branch), Some(&taken), "{branch} {options:?}");
            }
        }
    }
}

/// Each way of branches that have no near form, and ends of blocks without a branch: their counts are those of a model of
/// the function, whose results are compared with it, too.
#[test]
fn each_way_of_a_short_branch_and_each_end_without_a_branch_is_hit_as_often_as_control_passes_it() {
    for (save_all, counting) in [(false, Counting::Off), (true, Counting::OneThread)] {
        let library = Library::compiled("instrumented", &["-O2"]);
        let mut words = Words::new();
        let image = image(&library, &OwnCode::read());
        let graph = Cfg::of(&image, image.function_named("looping").unwrap().id);
        let mut session = Session {
            save_all,
            ..session()
        };
        // In the order of the code: the branches without a near form, and the blocks that fall through.
        let mut places = Vec::new();
        for block in &graph.blocks {
            let last = last(&image, block.span);
            let hooks = match last.flow_control() {
                FlowControl::Next => &[HookType::Post][..],
                _ if last.is_jcc_short_or_near() => &[],
                FlowControl::ConditionalBranch => &[HookType::Taken, HookType::Untaken],
                _ => &[],
            };
            places.extend(hooks.iter().map(|hook| (block.index.0, *hook)));
        }
        for (index, instrument) in ["counter", "value"].into_iter().enumerate() {
            let placed = places
                .iter()
                .map(|place| placement("looping", *place, instrument));
            // A sample at each other one: of a register that the last instruction has changed.
            session.placements.extend(placed.step_by(1 + index));
        }
        let source = "instrument value \"x.\"; hit { sample(reg(\"ax\") + reg(\"cx\")) }";
        session.sources.insert("value".into(), source.into());
        let (cache, plan) = cache(&library, counting, &session, &words);
        let planned = &plan.plan().instruments;
        assert_eq!(planned.len(), places.len() + places.len().div_ceil(2));
        let (mut expected, mut sampled) = (vec![0_u64; places.len()], Vec::new());
        let function = library.function("looping");
        let translated = cache.block(function);
        for number in 0_u64..80 {
            let (one, other) = (number * 7, number.wrapping_mul(0x35) ^ number << 3);
            let result = looping(one, other, &mut |place, value| {
                expected[place] += 1;
                if place % 2 == 0 {
                    sampled.push(value);
                }
            });
            assert_eq!(call(function, one, other), result);
            assert_eq!(call(translated, one, other), result);
        }
        disarm(words.layout.sequences().unwrap());
        let of = |place: &(u32, HookType)| {
            let mut all = planned.iter().filter(|one| one.counter.is_some());
            all.find(|one| (one.id.block, one.id.hook) == *place)
                .unwrap()
        };
        let counts: Vec<u64> = places
            .iter()
            .map(|place| words.count(of(place).counter.unwrap()))
            .collect();
        assert_eq!(counts, expected, "{places:?}");
        assert!(expected.iter().all(|count| *count > 1), "{expected:?}");
        let samples: Vec<u64> = words
            .samples()
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(samples, sampled);
    }
}

/// The function `looping`, with a call for each passage of a place, with its number and the sum of `rax` and `rcx`.
fn looping(one: u64, other: u64, passes: &mut dyn FnMut(usize, u64)) -> u64 {
    let mut sum = one;
    let mut count = other & 7;
    // jrcxz
    passes(usize::from(count != 0), sum.wrapping_add(count));
    while count > 0 {
        sum = sum.wrapping_add(count);
        if sum & 1 != 0 {
            sum = sum.wrapping_add(3);
            passes(2, sum.wrapping_add(count));
        }
        count -= 1;
        passes(3 + usize::from(count == 0), sum.wrapping_add(count));
    }
    count = (other >> 3 & 7) + 1;
    passes(5, sum.wrapping_add(count));
    // The flags of the comparison before, then those of another one.
    let mut below = other < one;
    loop {
        sum = sum.wrapping_add(u64::from(below));
        count -= 1;
        let again = sum & 6 != 0 && count != 0;
        passes(6 + usize::from(!again), sum.wrapping_add(count));
        below = false;
        if again {
            continue;
        }
        // jecxz
        passes(8 + usize::from(count != 0), sum.wrapping_add(count));
        if count == 0 {
            return sum;
        }
        sum = sum.wrapping_add(5);
        count -= 1;
        passes(10 + usize::from(count == 0), sum.wrapping_add(count));
        if count == 0 {
            return sum;
        }
    }
}

#[test]
fn calls_and_results_are_sampled_once_and_in_order() {
    for options in OPTIONS {
        let library = Library::compiled("instrumented", options);
        let mut words = Words::new();
        let mut session = session();
        let source = "instrument both \"x.\"; entry { sample(arg0) } return { sample(retval) }";
        session.sources.insert("both".into(), source.into());
        let entry = placement("full", (0, HookType::Pre), "both");
        session.placements.push(entry);
        let (cache, plan) = cache(&library, Counting::Off, &session, &words);
        assert!(plan.plan().instruments.len() >= 2);
        let calls = compare(&library, &cache, &words.layout);
        let samples = words.samples();
        assert_eq!(samples.len() as u64, 2 * calls, "{options:?}");
        let begun = plan.plan().instruments[0].id.pack();
        for (number, pair) in (0..).zip(samples.chunks(2)) {
            let (one, other) = arguments(number);
            let result = call(library.function("full"), one, other);
            assert_eq!(pair[0], (begun, one), "{options:?}");
            assert_eq!(pair[1].1, result, "{options:?}");
        }
    }
}

/// Reads of memory at valid and other addresses, and after they have ended.
#[test]
fn reads_of_memory_yield_what_is_there_or_0_and_are_counted() {
    for options in OPTIONS {
        for save_all in [false, true] {
            let library = Library::compiled("instrumented", options);
            let mut words = Words::new();
            let mut session = Session {
                save_all,
                ..session()
            };
            let source = "instrument cell \"x.\"; entry { sample(*(u32 *)uptr(arg0 + 4)) }";
            session.sources.insert("cell".into(), source.into());
            let entry = placement("full", (0, HookType::Pre), "cell");
            session.placements.push(entry);
            let (cache, plan) = cache(&library, Counting::Off, &session, &words);
            let [one] = plan.plan().instruments.as_slice() else {
                panic!("{:?}", plan.plan().instruments);
            };
            let failed = one.probe.as_ref().unwrap().homes.failed.unwrap();
            let function = library.function("full");
            let translated = cache.block(function);
            let cells: Vec<u64> = (1..=20).map(|number| number << 32 | 7).collect();
            let read = |at: u64, other: u64| {
                assert_eq!(call(translated, at, other), call(function, at, other));
            };
            let mut expected = Vec::new();
            for (number, cell) in (1..).zip(&cells) {
                read(std::ptr::from_ref(cell).addr() as u64, number);
                read(8, number);
                read(u64::MAX, number);
                expected.extend([number, 0, 0]);
            }
            assert_eq!(words.count(failed), 40, "{options:?}");
            let closed = gate(&words.layout).closed.0 - words.memory.start();
            words.memory.write(closed, &1_u32.to_le_bytes());
            read(cells.as_ptr().addr() as u64, 1);
            expected.push(0);
            disarm(words.layout.sequences().unwrap());
            let samples = words.samples();
            let values: Vec<u64> = samples.iter().map(|(_, value)| *value).collect();
            assert_eq!(values, expected, "{options:?}");
            assert_eq!(words.count(failed), 41);
            // None is under way.
            assert_eq!(words.memory.word(closed) >> 32, 0);
        }
    }
}
