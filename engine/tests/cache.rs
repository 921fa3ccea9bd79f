//! Code in the cache against the original: functions of a compiled library, with all that they call in other
//! libraries, executed in both, with equal results.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/host.rs"]
mod host;
#[path = "cache/instrumented.rs"]
mod instrumented;
#[path = "cache/mutants.rs"]
mod mutants;
#[path = "cache/patched.rs"]
mod patched;
#[path = "cache/regions.rs"]
mod regions;

use std::ffi::CString;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gilk_engine::cache::{
    CacheInstruments, CacheLayout, CachedBlock, CodeBytes, Counting, Targets, Translation,
    TranslationReach, Translator,
};
use gilk_engine::verify::fragments::{FragmentProver, InstrumentProof};
use gilk_engine::{Addr, Span};
use host::Mapping;

const NAMES: [&str; 14] = [
    "loops",
    "fibonacci",
    "switched",
    "pointers",
    "sorted",
    "jumps",
    "variadic",
    "printed",
    "strings",
    "allocated",
    "called",
    "where",
    "counted_down",
    "carried",
];

/// Bytes of an arena.
const ARENA: usize = 32 << 20;
/// The number of counters.
const COUNTERS: u64 = 1 << 18;

/// The code of this process.
struct OwnCode(Vec<(Addr, Vec<u8>)>);

impl OwnCode {
    fn read() -> Self {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let code = maps
            .lines()
            .filter(|line| line.contains(" r-xp ") && line.contains('/'));
        let read = code.map(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split(' ').next().unwrap();
            let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
            let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
            memory.read_exact_at(&mut bytes, start).unwrap();
            (Addr(start), bytes)
        });
        Self(read.collect())
    }
}

impl OwnCode {
    /// The mapping that has an address.
    fn region(&self, at: Addr) -> Span {
        let spans = self.0.iter();
        let mut spans = spans.map(|(start, bytes)| Span::new(*start, bytes.len() as u64));
        spans.find(|span| span.contains(at)).unwrap()
    }
}

impl CodeBytes for OwnCode {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        self.0.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(at.0.checked_sub(start.0)?).ok()?;
            bytes.get(offset..).filter(|rest| !rest.is_empty())
        })
    }
}

/// A library of C functions, loaded into this process.
struct Library {
    handle: usize,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Library {
    fn compile(options: &[&str]) -> Self {
        Self::compiled("functions", options)
    }

    fn compiled(name: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join(name).with_extension("so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cache");
        let source = source.join(name).with_extension("c");
        let compiled = Command::new("gcc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(&object)
            .arg(&source)
            .args(options)
            .status()
            .unwrap();
        assert!(compiled.success());
        let path = CString::new(object.to_str().unwrap()).unwrap();
        #[allow(unsafe_code, reason = "loads a library")]
        // SAFETY: the library has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self {
            handle: handle as usize,
            file: object,
            _folder: folder,
        }
    }

    fn function(&self, name: &str) -> Addr {
        let name = CString::new(name).unwrap();
        #[allow(unsafe_code, reason = "finds a symbol")]
        // SAFETY: the handle is that of a loaded library, and the name ends in 0.
        let at = unsafe { libc::dlsym(self.handle as *mut libc::c_void, name.as_ptr()) };
        assert!(!at.is_null());
        Addr(at as u64)
    }
}

/// A cache for one region of this process.
struct Cache {
    words: Mapping,
    arena: Mapping,
    translator: Translator,
    prover: FragmentProver,
    targets: Targets,
    counting: Counting,
    regions: Vec<Span>,
    blocks: Vec<Translation>,
}

impl Cache {
    fn near(at: Addr, counting: Counting) -> Self {
        Self::with_instruments(at, counting, None)
    }

    fn with_instruments(
        at: Addr,
        counting: Counting,
        instruments: Option<(Arc<CacheInstruments>, Arc<InstrumentProof>)>,
    ) -> Self {
        let targets_log2 = 17;
        let bytes = 8 * CacheLayout::RECENT + (16 << targets_log2) + 4096 + 8 * COUNTERS;
        let mut words = Mapping::low(usize::try_from(bytes).unwrap());
        let recent = Addr(words.start());
        let targets = recent.add(8 * CacheLayout::RECENT);
        let agent = targets.add(16 << targets_log2);
        let layout = CacheLayout {
            recent,
            targets,
            targets_log2,
            agent,
            counters: Span::new(agent.add(4096), 8 * COUNTERS),
        };
        let arena = (1..200)
            .map(|steps| (at.0 & !0xfff) - steps * (8 << 20) - ARENA as u64)
            .find(|&start| is_free(start))
            .map(|start| Mapping::fixed(start, ARENA))
            .expect("free memory near the library");
        let span = Span::new(Addr(arena.start()), ARENA as u64);
        let mut translator = Translator::new(layout, span, counting).unwrap();
        let resident = translator.resident().clone();
        let mut prover = FragmentProver::new(layout, span, &resident).unwrap();
        if let Some((instruments, proof)) = instruments {
            let reader = translator.add_instruments(instruments).unwrap();
            prover.add_instruments(proof, reader).unwrap();
        }
        for entry in 0..CacheLayout::RECENT {
            words.write(8 * entry, &resident.search.0.to_le_bytes());
        }
        // There is no agent: what is not translated executes in the original code.
        words.write(agent.0 - recent.0, &0x4000_0000_u32.to_le_bytes());
        let mut cache = Self {
            words,
            arena,
            translator,
            prover,
            targets: Targets::new(layout),
            counting,
            regions: Vec::new(),
            blocks: Vec::new(),
        };
        cache.arena.write(0, &resident.bytes);
        for reader in cache.translator.readers() {
            let offset = reader.start.0 - cache.arena.start();
            cache.arena.write(offset, &reader.code);
        }
        cache
    }

    /// Translates from some addresses, proves and writes.
    fn add(&mut self, code: &OwnCode, seeds: &[Addr], reach: TranslationReach) {
        let region = code.region(seeds[0]);
        let translation = self.translator.translate(code, region, seeds, reach);
        self.write(code, region, translation.unwrap());
    }

    /// The translation of a block.
    fn block(&self, original: Addr) -> Addr {
        let mut regions = self.regions.iter();
        let region = regions.find(|region| region.contains(original)).unwrap();
        self.translator.block(*region, original).unwrap()
    }

    /// Proves a translation of a region and writes it.
    fn write(&mut self, code: &OwnCode, region: Span, translation: Translation) {
        self.regions.push(region);
        let proved = self.prover.prove(code, region, translation, self.counting);
        let proved =
            proved.unwrap_or_else(|all| panic!("{}: {:#?}", all.len(), &all[..all.len().min(5)]));
        let translation = proved.translation();
        self.arena
            .write(translation.start.0 - self.arena.start(), &translation.bytes);
        for link in &translation.links {
            self.arena
                .write(link.at.0 - self.arena.start(), &link.bytes);
        }
        for landing in &translation.landings {
            let write = self.targets.insert(landing.original, landing.at).unwrap();
            let offset = write.at.0 - self.words.start();
            self.words.write(offset + 8, &write.landing.to_le_bytes());
            self.words.write(offset, &write.key.to_le_bytes());
        }
        self.blocks.push(translation.clone());
    }

    /// The executions of each block.
    fn counts(&mut self) -> Vec<(CachedBlock, u64)> {
        let blocks = self.blocks.clone();
        let blocks = blocks.iter().flat_map(|translation| &translation.blocks);
        let mut count = |block: &CachedBlock| {
            let counter = u64::from(block.counter.unwrap());
            self.words
                .word(8 * CacheLayout::RECENT + (16 << 17) + 4096 + 8 * counter)
        };
        blocks.map(|block| (*block, count(block))).collect()
    }

    /// Blocks that were executed, and instructions.
    fn executed(&mut self) -> (usize, u64) {
        let counts = self.counts();
        let executed = counts.iter().filter(|(_, count)| *count > 0);
        let instructions = counts
            .iter()
            .map(|(block, count)| count * u64::from(block.instructions));
        (executed.count(), instructions.sum())
    }

    /// The addresses of blocks that were executed.
    fn executed_blocks(&mut self) -> Vec<Addr> {
        let counts = self.counts().into_iter();
        let executed = counts.filter(|(_, count)| *count > 0);
        executed.map(|(block, _)| block.original.start).collect()
    }
}

fn is_free(start: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    !maps.lines().any(|line| {
        let (low, rest) = line.split_once('-').unwrap();
        let high = rest.split(' ').next().unwrap();
        let [low, high] = [low, high].map(|text| u64::from_str_radix(text, 16).unwrap());
        low < start + ARENA as u64 && start < high
    })
}

/// Calls a function at an address.
fn call(at: Addr, one: u64, other: u64) -> u64 {
    #[allow(unsafe_code, reason = "executes the code under test")]
    // SAFETY: the address is that of a function of two numbers, or of its translation, which does the same.
    unsafe {
        let function: extern "C" fn(u64, u64) -> u64 = std::mem::transmute(at.0 as *const ());
        function(one, other)
    }
}

fn arguments(number: u64) -> (u64, u64) {
    let mixed = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (mixed(number + 1), mixed(number + 1000))
}

/// All that direct calls reach.
const WHOLE: TranslationReach = TranslationReach {
    calls: u32::MAX,
    blocks: usize::MAX,
};

#[test]
fn functions_return_the_same_from_the_cache() {
    for (options, counting) in [
        (&["-O2"][..], Counting::Off),
        (&["-O2", "-fcf-protection=full"][..], Counting::OneThread),
        (&["-O0"][..], Counting::Threads),
        (&["-O3", "-fomit-frame-pointer"][..], Counting::OneThread),
    ] {
        let library = Library::compile(options);
        let code = OwnCode::read();
        let functions = NAMES.map(|name| library.function(name));
        let mut cache = Cache::near(functions[0], counting);
        cache.add(&code, &functions, WHOLE);
        // Of a library that every function calls by pointers.
        let libc = [
            libc::qsort as *const () as u64,
            libc::snprintf as *const () as u64,
            libc::malloc as *const () as u64,
            libc::free as *const () as u64,
            libc::strtod as *const () as u64,
        ];
        let libc = libc.map(Addr);
        let reached = libc
            .iter()
            .all(|at| at.to(functions[0]).unsigned_abs() < 1 << 30);
        if reached {
            cache.add(&code, &libc, WHOLE);
        }
        for (name, &function) in NAMES.iter().zip(&functions) {
            let translated = cache.block(function);
            for number in 0..50 {
                let (one, other) = arguments(number);
                let expected = call(function, one, other);
                assert_eq!(
                    call(translated, one, other),
                    expected,
                    "{name}({one:#x}, {other:#x}) compiled with {options:?}"
                );
            }
        }
        // The blocks that were executed, and no others: control leaves the cache where it reaches another one.
        if counting != Counting::Off {
            let executed = cache.executed_blocks();
            let mut listed = Cache::near(functions[0], counting);
            let region = code.region(functions[0]);
            let done = listed
                .translator
                .translate_blocks(&code, region, &executed, &functions);
            listed.write(&code, region, done.unwrap());
            for (name, &function) in NAMES.iter().zip(&functions) {
                let (one, other) = arguments(7);
                let translated = listed.block(function);
                let expected = call(function, one, other);
                assert_eq!(call(translated, one, other), expected, "{name} of a list");
            }
        }
        if counting != Counting::Off {
            let (executed, instructions) = cache.executed();
            assert!(
                executed > 100 && instructions > 10_000,
                "{executed} {instructions}"
            );
        }
    }
}
