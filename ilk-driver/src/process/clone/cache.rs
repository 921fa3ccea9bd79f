//! The code cache of a process: its words and arenas, and what was translated.

mod changed;
mod instrumented;
mod patches;
mod regions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_engine::cache::resident::Resident;
use gilk_engine::cache::{
    CacheLayout, CacheRow, CachedBlock, CounterNumbers, Counting, Targets, Translation,
    TranslationReach, Translator,
};
use gilk_engine::verify::fragments::{FragmentProver, FragmentViolation, ProvedTranslation};
use gilk_engine::{Addr, Refusal, Rule, Span};

use self::patches::PlacedPatches;
use super::super::mapped::{counters, place};
use super::super::maps;
use super::super::refused;
use super::super::remote::{Remote, RemoteCode};
use super::super::removal::unmap;
use super::super::shared::{SharedCode, SharedWords};
use super::super::stopped::{Stopped, Thread};
use super::access_file::AccessOptions;
use super::accesses::AccessAreas;
use super::block_counters::BlockCounters;
use super::changing::ChangingFragments;
use super::code::{self, ProcessCode};
use super::earlier::EarlierBlocks;
use super::files::{close_file, create_file};
use super::fragments::{PlacedFragment, TranslatedRegion};
use super::instruments::{CloneInstruments, MappedWords};
use super::writes::{WriteWatch, page_of};
use crate::{Error, Result};

/// Entries of the table of all targets, as a power of two.
const TARGETS_LOG2: u8 = 18;
/// Counters, as many as blocks that can be translated at a time.
const COUNTERS: u64 = 1 << 19;
/// Bytes of an arena.
const ARENA: u64 = 64 << 20;
/// Arenas, at most.
const MOST_ARENAS: usize = 16;
/// Bytes between two mappings of one arena, at most.
const CLUSTER: u64 = 1 << 30;
/// The distance from an arena to code that is translated there, less one to its data.
const REACH: u64 = (1 << 31) - (256 << 20);
/// The lower 2 GiB.
const LOW: u64 = 1 << 31;

/// Bounds of one translation on demand.
const DEMANDED: TranslationReach = TranslationReach {
    calls: 2,
    blocks: 64,
};

/// An arena, and what was translated there.
struct CacheArena {
    /// From the first to the last code that it is for.
    cluster: Span,
    span: Span,
    code: SharedCode,
    translator: Translator,
    prover: FragmentProver,
    rows: Vec<CacheRow>,
    patches: PlacedPatches,
}

impl CacheArena {
    /// Translates, with counters that are free.
    fn translate(
        &mut self,
        free: &mut CounterNumbers,
        translate: impl FnOnce(&mut Translator) -> std::result::Result<Translation, Refusal>,
    ) -> std::result::Result<Translation, Refusal> {
        self.translator.swap_counters(free);
        let translation = translate(&mut self.translator);
        self.translator.swap_counters(free);
        translation
    }
}

/// Sizes and numbers of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheNumbers {
    /// Translations on demand.
    pub(super) translations: u64,
    /// Translated blocks, those included that were translated again.
    pub(super) blocks: u64,
    /// Bytes of translated code, with the resident code.
    pub(super) bytes: u64,
    /// Times that everything translated was dropped.
    pub(super) flushes: u64,
}

/// Translations that were dropped, but for all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DroppedCode {
    /// Bytes of arenas that are not used any more, since the cache has begun again.
    bytes: u64,
    translations: u64,
}

/// The code cache of one process.
pub(super) struct ProcessCache {
    pid: u32,
    memory: File,
    words: Span,
    layout: CacheLayout,
    arenas: Vec<CacheArena>,
    targets: Targets,
    counting: Counting,
    /// The translated blocks with their counters.
    pub(super) counters: BlockCounters,
    /// The counters that no block has.
    free: CounterNumbers,
    /// The file of the words, and the words themselves.
    shared: File,
    tables: Arc<SharedWords>,
    changing: ChangingFragments,
    /// The watched pages of changing code, or the reason why writes are not watched.
    pub(super) writes: std::result::Result<WriteWatch, String>,
    pub(super) numbers: CacheNumbers,
    /// Blocks of earlier starts, and since the last flush those of before it.
    pub(super) earlier: EarlierBlocks,
    /// Translations of code that does not change, by its mappings.
    regions: BTreeMap<Span, TranslatedRegion>,
    dropped: DroppedCode,
    /// Addresses whose lookups stop the thread.
    stopping: BTreeSet<Addr>,
    /// Areas in which threads record their accesses.
    pub(super) accesses: Option<AccessAreas>,
    /// Those of the objects from the start, and then those of each object that was loaded later and is mapped.
    instruments: Vec<CloneInstruments>,
    /// Words of instruments that no thread could unmap.
    left_words: Vec<Span>,
    /// Instruments do not read memory any more.
    pub(super) reads_ended: bool,
}

/// The stop of a thread in the resident code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResidentStop {
    /// The target is in no table.
    Missed,
    /// The instruction is executed in the original code.
    Stepped,
}

impl ProcessCache {
    /// Maps the words and the arenas into a stopped process.
    ///
    /// # Errors
    /// There is no free memory near its code, or it cannot map memory. Nothing is left in it then.
    pub(super) fn map(
        pid: u32,
        stopped: &Stopped,
        memory: File,
        code: &ProcessCode,
        (counting, accesses, instruments): (
            Counting,
            Option<&AccessOptions>,
            Option<CloneInstruments>,
        ),
    ) -> Result<(Self, Option<MappedWords>)> {
        let mut mapped = maps::read(pid)?;
        if let Some(instruments) = &instruments {
            maps::insert(&mut mapped, instruments.span());
        }
        let bytes = 8 * CacheLayout::RECENT + (16 << TARGETS_LOG2) + maps::PAGE + 8 * COUNTERS;
        let words = maps::free_below(&mapped, bytes, LOW);
        let words = words.ok_or_else(|| {
            refused(
                pid,
                format!(
                    "its lower 2 GiB have no {bytes} free bytes for the tables of the code cache"
                ),
            )
        })?;
        let targets = words.start.add(8 * CacheLayout::RECENT);
        let agent = targets.add(16 << TARGETS_LOG2);
        let layout = CacheLayout {
            recent: words.start,
            targets,
            targets_log2: TARGETS_LOG2,
            agent,
            counters: Span::new(agent.add(maps::PAGE), 8 * COUNTERS),
        };
        let remote = Remote::of(pid, stopped, &memory, &mapped)?;
        let writes = WriteWatch::create(pid, &remote).map_err(|error| error.to_string());
        if let (Some(mapping), Err(why)) = (code.writable(), &writes) {
            let refusal = unwatched(mapping.span.start, code::named(mapping), why);
            return Err(refused(
                pid,
                format!("it cannot execute in the code cache: {refusal}"),
            ));
        }
        let number = create_file(&remote)?;
        let mut placed = Vec::new();
        let mut areas = None;
        let mut instrumented = None;
        let all = (|| {
            if let Some(instruments) = &instruments {
                instrumented = Some(instruments.map(&remote)?);
                placed.push(instruments.span());
            }
            let clusters = clusters(code);
            let bytes = words.len() + ARENA * clusters.len() as u64;
            let shared = counters(pid, number, bytes)?;
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            place(&remote, words, (writable, libc::MAP_SHARED), (number, 0))?;
            placed.push(words);
            let mut arenas = Vec::new();
            let mut offset = words.len();
            for cluster in clusters {
                let mapped = maps::read(pid)?;
                let span = maps::free_near(&mapped, ARENA, cluster).ok_or_else(|| {
                    refused(
                        pid,
                        format!(
                            "no {ARENA} bytes are free within reach of its code at {}",
                            cluster.start
                        ),
                    )
                })?;
                place(&remote, span, EXECUTABLE, (number, offset))?;
                placed.push(span);
                arenas.push((cluster, span, arena_code(&shared, offset)?));
                offset += ARENA;
            }
            let bytes = usize::try_from(words.len()).unwrap_or(usize::MAX);
            let tables = SharedWords::new(&shared, bytes).map_err(|error| {
                Error::Target(format!(
                    "The agent cannot map the tables of the code cache ({error})."
                ))
            })?;
            if let Some(options) = accesses {
                let mapped = AccessAreas::map(pid, &remote, options)?;
                placed.push(mapped.span());
                areas = Some(mapped);
            }
            Ok((shared, tables, arenas))
        })();
        close_file(&remote, number)?;
        let (shared, tables, arenas) = match all {
            Ok(all) => all,
            Err(error) => {
                for span in placed {
                    unmap(&remote, span)?;
                }
                return Err(error);
            }
        };
        drop(remote);
        let tables = Arc::new(tables);
        let first = (layout.counters.start.0 - words.start.0) / 8;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let mut cache = Self {
            pid,
            memory,
            words,
            layout,
            arenas: Vec::new(),
            targets: Targets::new(layout),
            counting,
            counters: BlockCounters::new(Arc::clone(&tables), first),
            free: CounterNumbers::default(),
            shared,
            tables,
            changing: ChangingFragments::default(),
            writes,
            numbers: CacheNumbers::default(),
            earlier: EarlierBlocks::default(),
            regions: BTreeMap::new(),
            dropped: DroppedCode::default(),
            stopping: BTreeSet::new(),
            accesses: areas,
            instruments: instruments.into_iter().collect(),
            left_words: Vec::new(),
            reads_ended: false,
        };
        for (cluster, span, code) in arenas {
            let arena = cache.arena(cluster, span, code)?;
            cache.arenas.push(arena);
        }
        cache.clear_recent()?;
        Ok((cache, instrumented))
    }

    /// Returns whether code at an address is within reach of an arena.
    pub(super) fn reaches(&self, original: Addr) -> bool {
        self.near(original).is_some()
    }

    /// Maps an arena for code that none is near to, by a thread with an original context. There is none after that if no
    /// memory near it is free, or there are many.
    ///
    /// # Errors
    /// The thread cannot map memory.
    pub(super) fn add_arena(&mut self, thread: &Thread, original: Addr) -> Result<()> {
        let mapped = maps::read(self.pid)?;
        let cluster = Span::new(page_of(original), maps::PAGE);
        let span = maps::free_near(&mapped, ARENA, cluster);
        let Some(span) = span.filter(|_| self.arenas.len() < MOST_ARENAS) else {
            return Ok(());
        };
        let code = RemoteCode::find(self.pid, &self.memory, &mapped)?;
        let remote = Remote::by(self.pid, thread, &self.memory, code)?;
        let number = create_file(&remote)?;
        let placed = counters(self.pid, number, ARENA).and_then(|file| {
            let code = arena_code(&file, 0)?;
            place(&remote, span, EXECUTABLE, (number, 0)).map(|()| code)
        });
        close_file(&remote, number)?;
        drop(remote);
        let arena = self.arena(cluster, span, placed?)?;
        self.arenas.push(arena);
        Ok(())
    }

    /// Begins an arena with its resident code.
    fn arena(&self, cluster: Span, span: Span, code: SharedCode) -> Result<CacheArena> {
        let wrong = |why: String| refused(self.pid, format!("its code cache is wrong: {why}"));
        let translator = Translator::new(self.layout, span, self.counting)
            .map_err(|refusal| wrong(refusal.to_string()))?;
        let resident = translator.resident();
        let prover = FragmentProver::new(self.layout, span, resident)
            .map_err(|violation| wrong(violation.to_string()))?;
        let resident = resident.clone();
        let mut arena = CacheArena {
            cluster,
            span,
            code,
            prover,
            rows: Vec::new(),
            patches: PlacedPatches::default(),
            translator,
        };
        self.write(&arena, &resident.bytes, resident.start)?;
        for part in &self.instruments {
            let added = self.add_to(&mut arena, part)?;
            added.map_err(|refusal| wrong(refusal.to_string()))?;
        }
        Ok(arena)
    }

    /// Writes code that was proved to an arena.
    fn write(&self, arena: &CacheArena, bytes: &[u8], at: Addr) -> Result<()> {
        let offset = at.0.checked_sub(arena.span.start.0);
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        match offset.is_some_and(|offset| arena.code.write(offset, bytes)) {
            true => Ok(()),
            false => Err(refused(
                self.pid,
                "translated code is outside of its arena, which is a bug in gilk",
            )),
        }
    }

    /// A word of the tables or of the counters, which threads may access meanwhile.
    fn word(&self, at: Addr) -> Result<&AtomicU64> {
        let offset = at.0.checked_sub(self.words.start.0);
        let index = offset.and_then(|offset| usize::try_from(offset / 8).ok());
        let word = index.and_then(|index| self.tables.word(index));
        word.ok_or_else(|| {
            refused(
                self.pid,
                "a word is outside of its tables, which is a bug in gilk",
            )
        })
    }

    fn set(&self, at: Addr, value: u64) -> Result<()> {
        self.word(at)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Makes all recent targets unknown.
    fn clear_recent(&self) -> Result<()> {
        let first = self.arenas.first();
        let search = first.map_or(Addr(0), |arena| arena.translator.resident().search);
        let mut recent = 0..CacheLayout::RECENT;
        recent.try_for_each(|index| self.set(self.layout.recent.add(8 * index), search.0))
    }

    /// The file of the words, with the offset of the agent's word.
    pub(super) fn agent_word(&self) -> (&File, u64) {
        (&self.shared, self.layout.agent.0 - self.words.start.0)
    }

    /// Mappings to remove in the end.
    pub(super) fn spans(&self) -> Vec<Span> {
        let arenas = self.arenas.iter().map(|arena| arena.span);
        let areas = self.accesses.iter().map(AccessAreas::span);
        let instruments = self.instruments.iter().map(CloneInstruments::span);
        let others = areas.chain(instruments);
        let others = others.chain(self.left_words.iter().copied());
        arenas.chain([self.words]).chain(others).collect()
    }

    /// The first address of the tables.
    pub(super) fn tables(&self) -> Addr {
        self.words.start
    }

    /// Returns whether an address is in an arena.
    pub(super) fn contains(&self, at: Addr) -> bool {
        self.arenas.iter().any(|arena| arena.span.contains(at))
    }

    fn resident(&self, at: Addr) -> Option<&Resident> {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(at))?;
        Some(arena.translator.resident())
    }

    /// Returns whether an address is in resident code.
    pub(super) fn is_resident(&self, at: Addr) -> bool {
        self.resident(at)
            .is_some_and(|resident| at < resident.end())
    }

    /// Returns whether a thread at an address of resident code is about to [store](Resident::has_target) first.
    pub(super) fn has_target(&self, at: Addr) -> bool {
        self.resident(at).is_some_and(|one| one.has_target(at))
    }

    /// Returns the stop of a thread that is at an address after its `int3`.
    pub(super) fn stop(&self, at: Addr) -> Option<ResidentStop> {
        let resident = self.resident(at)?;
        [
            (resident.missed, ResidentStop::Missed),
            (resident.stepped, ResidentStop::Stepped),
        ]
        .into_iter()
        .find_map(|(int3, stop)| (int3.add(1) == at).then_some(stop))
    }

    /// The row of an address in an arena; resident code and code that reads memory have none.
    pub(super) fn row(&self, at: Addr) -> Option<CacheRow> {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(at))?;
        match self.end_of_read(at) {
            // Rows of blocks may be before it.
            Some(_) => None,
            None => CacheRow::find(&arena.rows, at),
        }
    }

    /// The place after the translation of a system call that ends before an original address.
    pub(super) fn returned(&self, original: Addr) -> Option<Addr> {
        let mut rows = self.arenas.iter().flat_map(|arena| arena.rows.iter());
        let is_wanted = |row: &&CacheRow| {
            row.original == original && row.state == gilk_engine::cache::RowState::Returned
        };
        rows.find(is_wanted).map(|row| row.at)
    }

    /// The arena nearest to an address, if it is within reach.
    fn near(&self, original: Addr) -> Option<usize> {
        let distance = |arena: &CacheArena| {
            let Span { start, end } = arena.span;
            start.0.abs_diff(original.0).max(end.0.abs_diff(original.0))
        };
        let all = self.arenas.iter().enumerate();
        let near = all.filter(|(_, arena)| distance(arena) < REACH);
        near.min_by_key(|(_, arena)| distance(arena))
            .map(|(index, _)| index)
    }

    /// The entry of an address in the table of recent targets.
    fn recent(&self, original: Addr) -> Addr {
        let index = original.0 & (CacheLayout::RECENT - 1);
        self.layout.recent.add(8 * index)
    }

    /// Has the next lookup of a missed target search: the entry of a dropped target may stand in the way of others.
    pub(super) fn search_again(&self, original: Addr) -> Result<()> {
        let recent = self.recent(original);
        let found = self.word(recent)?.load(Ordering::Acquire);
        let resident = self.arenas.iter().map(|arena| arena.translator.resident());
        match resident.clone().find(|one| one.dropped.0 == found) {
            Some(resident) => self.set(recent, resident.search.0),
            None => Ok(()),
        }
    }

    /// Returns whether a full cache has enough bytes or targets of dropped translations to begin again.
    pub(super) fn is_worth_flushing(&self) -> bool {
        self.dropped.bytes > ARENA / 2 || self.targets.is_mostly_removed()
    }

    /// Translations that were dropped since their code changed or was unmapped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.translations
    }

    /// Writes what was proved: the code, and then the entries by which threads find it.
    fn add(
        &mut self,
        index: usize,
        proved: &ProvedTranslation,
        original: Addr,
    ) -> Result<std::result::Result<(), Refusal>> {
        let translation = proved.translation();
        if let Some(arena) = self.arenas.get_mut(index) {
            arena.rows.extend_from_slice(&translation.rows);
            arena.patches.add(&translation.patches);
        }
        self.counters.add(&translation.blocks);
        self.numbers.blocks += translation.blocks.len() as u64;
        if let Some(accesses) = &mut self.accesses {
            accesses.add(&translation.recorded)?;
        }
        self.numbers.translations += 1;
        self.numbers.bytes = self
            .arenas
            .iter()
            .map(|arena| arena.translator.used())
            .sum();
        let Some(arena) = self.arenas.get(index) else {
            return Ok(Ok(()));
        };
        let dropped = arena.translator.resident().dropped;
        self.write(arena, &translation.bytes, translation.start)?;
        for landing in &translation.landings {
            let is_stop = self.stopping.contains(&landing.original);
            let at = if is_stop { dropped } else { landing.at };
            if !self.add_target(landing.original, at)? {
                let why = "the table of targets is full";
                let full = Refusal::new(Rule::CacheFull, original, why);
                return Ok(Err(full));
            }
        }
        Ok(Ok(()))
    }

    /// Adds a target, or replaces its landing. Returns false if the table is full.
    fn add_target(&mut self, original: Addr, landing: Addr) -> Result<bool> {
        let Some(write) = self.targets.insert(original, landing) else {
            return Ok(false);
        };
        self.set(write.at.add(8), write.landing)?;
        self.set(write.at, write.key)?;
        Ok(true)
    }

    /// Has every lookup of an address stop the thread, until the process is let go.
    pub(super) fn stop_lookups(&mut self, original: Addr) -> Result<()> {
        if !self.stopping.insert(original) {
            return Ok(());
        }
        self.stop_at(original)
    }

    /// Has lookups of an address stop the thread, as they do if it is in no table.
    fn stop_at(&mut self, original: Addr) -> Result<()> {
        let first = self.arenas.first();
        let Some(resident) = first.map(|arena| arena.translator.resident().clone()) else {
            return Ok(());
        };
        // A full table has it already, or has no landing of it.
        let _is_full = self.add_target(original, resident.dropped)?;
        self.set(self.recent(original), resident.search.0)
    }

    /// Drops everything translated. No thread may be in the cache.
    pub(super) fn flush(&mut self, counting: Counting) -> Result<()> {
        self.counting = counting;
        let regions = std::mem::take(&mut self.regions).into_values();
        let mut fragments = self.changing.take_all();
        fragments.extend(regions.flat_map(|translated| translated.fragments));
        self.release_counters(&fragments);
        self.dropped.bytes = 0;
        if let Some(accesses) = &mut self.accesses {
            accesses.flush();
        }
        for arena in std::mem::take(&mut self.arenas) {
            let arena = self.arena(arena.cluster, arena.span, arena.code)?;
            self.arenas.push(arena);
        }
        let mut words = 0..2 << TARGETS_LOG2;
        words.try_for_each(|index| self.set(self.layout.targets.add(8 * index), 0))?;
        self.targets = Targets::new(self.layout);
        self.numbers.flushes += 1;
        self.clear_recent()?;
        let stops: Vec<Addr> = self.stopping.iter().copied().collect();
        stops.into_iter().try_for_each(|at| self.stop_at(at))
    }

    /// Keeps the counts of dropped translations, and has other blocks have their counters.
    fn release_counters(&mut self, dropped: &[PlacedFragment]) {
        let blocks = || dropped.iter().flat_map(|one| &one.blocks);
        self.counters.drop_blocks(blocks());
        release(&mut self.free, blocks());
    }

    pub(super) fn counting(&self) -> Counting {
        self.counting
    }
}

/// The protection and kind of mappings of arenas: the process executes them, and the agent writes them.
const EXECUTABLE: (i32, i32) = (
    libc::PROT_READ | libc::PROT_EXEC,
    libc::MAP_SHARED | libc::MAP_NORESERVE,
);

/// Maps an arena of a file to write its code.
fn arena_code(file: &File, offset: u64) -> Result<SharedCode> {
    let bytes = usize::try_from(ARENA).unwrap_or(usize::MAX);
    SharedCode::new(file, offset.cast_signed(), bytes).map_err(|error| {
        Error::Target(format!(
            "The agent cannot map an arena of the code cache ({error})."
        ))
    })
}

fn too_far(original: Addr) -> Refusal {
    let why = "the code is too far from all other code for the cache's arenas";
    Refusal::new(Rule::OutOfReach, original, why)
}

fn unwatched(at: Addr, name: &str, why: &str) -> Refusal {
    let why = format!("{name} can be written and executed, and its writes are not seen ({why})");
    Refusal::new(Rule::MayChange, at, why)
}

/// The error of a page that stays watched.
pub(super) fn unreleased(pid: u32, page: Addr, error: &std::io::Error) -> Error {
    refused(
        pid,
        format!("its page at {page} stays watched for writes ({error})"),
    )
}

fn unproved(pid: u32, violations: &[FragmentViolation]) -> Error {
    let first = violations.first();
    let first = first.map(ToString::to_string).unwrap_or_default();
    refused(
        pid,
        format!("a translation is not proved, which is a bug in gilk: {first}"),
    )
}

/// Groups code into spans, each of which one arena can be near to.
fn clusters(code: &ProcessCode) -> Vec<Span> {
    let mut clusters: Vec<Span> = Vec::new();
    let mut spans: Vec<Span> = code.spans().chain(code.changing_spans()).collect();
    spans.sort_unstable();
    for span in spans {
        match clusters.last_mut() {
            Some(last) if span.end.0 - last.start.0 < CLUSTER => last.end = span.end,
            _ => clusters.push(span),
        }
    }
    clusters
}

/// Gives back the counters of blocks that no thread executes.
fn release<'b>(free: &mut CounterNumbers, blocks: impl IntoIterator<Item = &'b CachedBlock>) {
    for counter in blocks.into_iter().filter_map(|block| block.counter) {
        free.release(counter);
    }
}
