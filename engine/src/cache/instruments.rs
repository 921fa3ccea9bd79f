//! Instruments of code in the cache. Each instruction that has some before it begins a block, and the block begins with a
//! branch to a patch: the same code as that of a splice, without displaced instructions, whose exit is the rest of the
//! block. On a way of a conditional branch, and after an instruction, the branch to the patch is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::translation::PatchMoment;
use super::{CACHE_ABI, CodeBytes};
use crate::cfg::{BlockIndex, Cfg};
use crate::code::FunctionId;
use crate::isa::relocate::movable;
use crate::layout::{ReadGate, RuntimeLayout};
use crate::liveness::{Analysis, Live, Liveness, RegisterSet};
use crate::patch::{Assembler, Code, HookProgram, Hooked, Probed, may_fault};
use crate::plan::{Plan, PlannedInstrument};
use crate::reads::MemoryReader;
use crate::{Addr, HookType, Image, Refusal, Rule, Span};

/// Alignment of the code that reads memory.
const READER_ALIGN: u64 = 16;

/// Bytes below the stack pointer that instruments which read memory use, at most: the red zone, the saved registers and
/// flags, the words of a call of the code that reads, and its own. A block with such instruments writes to the last of
/// them first, so that the thread has no fault in a patch.
const READ_SPACE: i32 = 400;
/// The same of instruments that number stacks.
const STACK_SPACE: i32 = 1700;

/// The instruments of a plan, by the instructions at which they run.
#[derive(Clone, Debug)]
pub struct CacheInstruments {
    layout: RuntimeLayout,
    /// Words that end the reads of memory.
    gate: ReadGate,
    places: BTreeMap<(Addr, PatchMoment), InstrumentedPlace>,
    /// Functions with instruments, and their bytes: other code that is mapped there later has none.
    functions: BTreeMap<Addr, Box<[u8]>>,
    /// From the first to the last of these functions.
    span: Span,
}

/// An instruction with instruments before or after it, or a way of a conditional branch with instruments.
#[derive(Clone, Debug)]
struct InstrumentedPlace {
    /// The start of its function.
    function: Addr,
    /// In the order of execution.
    instruments: Vec<PlannedInstrument>,
    /// Registers and flags that they preserve.
    live: Live,
    /// Bytes below the stack pointer that they use, if they read memory of the process.
    space: Option<i32>,
}

/// Instruments of one plan in one arena, with the code there that reads memory for them.
#[derive(Clone, Debug)]
pub(super) struct ArenaInstruments {
    pub(super) all: Arc<CacheInstruments>,
    layout: RuntimeLayout,
    reader: Option<MemoryReader>,
}

/// The graph of a function, and its liveness.
struct ReadFunction {
    cfg: Cfg,
    liveness: Liveness,
}

impl CacheInstruments {
    /// Finds the places of a plan's instruments; its sites and patches are not used. Where `saves_all`, instruments save
    /// every register that they change, live or not. Their reads of memory end by the words of `gate`.
    ///
    /// # Errors
    /// [`Rule::NotInCache`] for an instrument that the code cache does not run: after an instruction that is executed in
    /// the original code, with native code, or that is not in place for the whole session.
    pub fn of(
        image: &Image,
        plan: &Plan,
        gate: ReadGate,
        saves_all: bool,
    ) -> Result<Self, Refusal> {
        let read = plan.instruments.iter().filter_map(|one| one.probe.as_ref());
        // What one instrument reads, no other one may change, though the function does not read it.
        let read = read.fold(RegisterSet::EMPTY, |read, probed| {
            read.union(probed.reads())
        });
        let analysis = Analysis::new(image);
        let mut graphs: BTreeMap<FunctionId, ReadFunction> = BTreeMap::new();
        let mut instruments = Self {
            layout: plan.layout.clone(),
            gate,
            places: BTreeMap::new(),
            functions: BTreeMap::new(),
            span: Span::new(Addr(0), 0),
        };
        for one in &plan.instruments {
            let planned = plan.function(one.id.major);
            let block = planned.and_then(|planned| {
                let block = planned.outline.block(BlockIndex(one.id.block))?;
                Some((planned.outline.function, planned.outline.span, block))
            });
            let Some((function, span, block)) = block else {
                let why = "an instrument of the plan is in no block of it, which is a bug in gilk";
                return Err(Refusal::new(Rule::NotInCache, Addr(0), why));
            };
            if let Some(why) = refusal(plan, one) {
                return Err(Refusal::new(Rule::NotInCache, block.start, why));
            }
            let graph = graphs.entry(function).or_insert_with(|| {
                let cfg = Cfg::of(image, function);
                let liveness = Liveness::of(&analysis, &cfg);
                ReadFunction { cfg, liveness }
            });
            let found = place(&graph.cfg, one);
            let (at, next) =
                found.map_err(|why| Refusal::new(Rule::NotInCache, block.start, why))?;
            let live = graph.liveness.before(next);
            let bytes = image.bytes(span).unwrap_or_default();
            instruments.functions.insert(span.start, bytes.into());
            let place = instruments.places.entry(at);
            let place = place.or_insert_with(|| InstrumentedPlace {
                function: span.start,
                instruments: Vec::new(),
                live: match saves_all {
                    true => Live::ALL,
                    false => Live {
                        registers: live.registers.union(read),
                        ..live
                    },
                },
                space: None,
            });
            place.space = place.space.max(one.probe.as_deref().and_then(space));
            place.instruments.push(one.clone());
        }
        for place in instruments.places.values_mut() {
            // A block of one instruction begins before it ends.
            place
                .instruments
                .sort_by_key(|one| one.id.hook == HookType::Post);
        }
        instruments.span = span_of(&instruments.functions);
        Ok(instruments)
    }

    /// Returns those that are not in a span, whose code is mapped no more.
    #[must_use]
    pub fn outside(&self, gone: Span) -> Self {
        let mut rest = self.clone();
        rest.places
            .retain(|_, place| !gone.contains(place.function));
        rest.functions.retain(|start, _| !gone.contains(*start));
        rest.span = span_of(&rest.functions);
        rest
    }

    /// Returns whether an instrument reads memory of the process.
    #[must_use]
    pub fn read_memory(&self) -> bool {
        self.places.values().any(|place| place.space.is_some())
    }

    /// Returns whether a span of original code has an instruction with instruments.
    #[must_use]
    pub fn any_in(&self, span: Span) -> bool {
        let [start, end] = [span.start, span.end].map(|at| (at, PatchMoment::Before));
        self.places.range(start..end).next().is_some()
    }

    fn place(&self, at: (Addr, PatchMoment)) -> Option<&InstrumentedPlace> {
        // Of several parts, most are of other objects.
        self.span.contains(at.0).then(|| self.places.get(&at))?
    }

    /// Returns whether instruments run at an instruction: the function is the one that they were planned for.
    pub(super) fn is_place(&self, code: &dyn CodeBytes, at: (Addr, PatchMoment)) -> bool {
        self.place(at).is_some_and(|place| {
            let bytes = self.functions.get(&place.function);
            bytes.is_some_and(|bytes| {
                let found = code.code_from(place.function);
                found.is_some_and(|found| found.starts_with(bytes))
            })
        })
    }

    /// The instruments in an arena that is free from an address on.
    pub(super) fn in_arena(self: Arc<Self>, free: Addr) -> ArenaInstruments {
        let layout = RuntimeLayout {
            users: Some(Addr(free.0.next_multiple_of(READER_ALIGN))),
            further_arenas: Vec::new(),
            ..self.layout.clone()
        };
        let readers = self.read_memory();
        let readers = readers.then(|| MemoryReader::all(&layout, self.gate));
        ArenaInstruments {
            reader: readers.into_iter().flatten().next(),
            all: self,
            layout,
        }
    }
}

impl ArenaInstruments {
    /// Has none any more in functions that begin in a span. Returns whether some are left.
    pub(super) fn remove(&mut self, gone: Span) -> bool {
        if self.all.functions.keys().any(|start| gone.contains(*start)) {
            self.all = Arc::new(self.all.outside(gone));
        }
        !self.all.functions.is_empty()
    }

    /// The code that reads memory, if instruments do.
    pub(super) fn reader(&self) -> Option<&MemoryReader> {
        self.reader.as_ref()
    }

    /// Returns whether a place has instruments of this part.
    pub(super) fn has(&self, at: (Addr, PatchMoment)) -> bool {
        self.all.place(at).is_some()
    }

    /// The alignment of patches in bytes.
    pub(super) fn patch_align(&self) -> u64 {
        self.layout.patch_align()
    }

    /// Bytes below the stack pointer that instruments at a place use, if they read memory.
    pub(super) fn space_at(&self, at: (Addr, PatchMoment)) -> Option<i32> {
        self.all.place(at)?.space
    }

    /// Assembles the patch of a place, for an address that is [aligned](Self::patch_align).
    pub(super) fn assemble(
        &self,
        at: Addr,
        (original, moment): (Addr, PatchMoment),
        exit: Addr,
    ) -> Result<Code, Refusal> {
        let missing = || missing(original);
        let place = self.all.place((original, moment)).ok_or_else(missing)?;
        let hooked = place.instruments.iter().map(|one| {
            Some(Hooked {
                id: one.id,
                program: HookProgram::Probe(one.probe.as_deref()?),
                counter: one.counter,
            })
        });
        let hooked: Vec<Hooked<'_>> = hooked.collect::<Option<_>>().ok_or_else(missing)?;
        Assembler::new(&(), &self.layout).assemble_before(at, (original, exit), &hooked, place.live)
    }
}

/// The refusal of a patch of a place that has no instruments.
pub(super) fn missing(original: Addr) -> Refusal {
    Refusal::new(Rule::NotInCache, original, "no instrument is there")
}

/// The refusal of a patch after an instruction that the agent has a thread execute.
pub(super) fn not_copied(original: Addr) -> Refusal {
    let why = "an instrument is after an instruction that is executed in the original code";
    Refusal::new(Rule::NotInCache, original, why)
}

/// From the first to the last of functions, whose bytes are these.
fn span_of(functions: &BTreeMap<Addr, Box<[u8]>>) -> Span {
    let first = functions.keys().next();
    let ends = functions.iter();
    let ends = ends.map(|(start, bytes)| start.add(bytes.len() as u64));
    Span {
        start: first.copied().unwrap_or(Addr(0)),
        end: ends.max().unwrap_or(Addr(0)),
    }
}

/// The reason why the code cache does not run an instrument, whatever its place is.
fn refusal(plan: &Plan, one: &PlannedInstrument) -> Option<&'static str> {
    if one.launch > 0.0 || one.splash < plan.duration {
        return Some("instruments in the code cache are in place for the whole session");
    }
    match one.probe {
        Some(_) => None,
        None => Some("native code is not called from the code cache"),
    }
}

/// Bytes below the stack pointer that a probe uses, if it reads memory of the process: others of its instrument may, and this
/// one not.
fn space(probed: &Probed) -> Option<i32> {
    let probe = probed.probe().filter(|probe| may_fault(probe))?;
    Some(match probe.numbers_stacks() {
        true => STACK_SPACE,
        false => READ_SPACE,
    })
}

/// The instruction at which an instrument runs, with the moment, and the one that executes after it.
fn place(cfg: &Cfg, one: &PlannedInstrument) -> Result<((Addr, PatchMoment), Addr), &'static str> {
    let before = |at| ((at, PatchMoment::Before), at);
    let after = |last: Instruction| {
        let is_left_out = last.mnemonic() == Mnemonic::Endbr64;
        match is_left_out || movable(&last, &CACHE_ABI).is_ok() {
            true => Ok(((Addr(last.ip()), PatchMoment::After), Addr(last.next_ip()))),
            false => Err("it is after an instruction that is executed in the original code"),
        }
    };
    let block = cfg.block(BlockIndex(one.id.block));
    let block = block.ok_or("its block is none of its function")?;
    match one.id.hook {
        HookType::Pre => {
            let is_entry = block.span.start == cfg.span.start;
            let stays = |one: &Instruction| {
                // A sealed endbr64 is a nop of the same length.
                let is_sealed = one.mnemonic() == Mnemonic::Nop && one.len() == 4;
                one.mnemonic() == Mnemonic::Endbr64 || is_entry && is_sealed
            };
            let first = block.instructions.iter().find(|one| !stays(one));
            first.map_or_else(|| after(block.last()), |one| Ok(before(Addr(one.ip()))))
        }
        HookType::Post => match block.last().flow_control() {
            FlowControl::Next => after(block.last()),
            _ => Ok(before(Addr(block.last().ip()))),
        },
        HookType::Taken | HookType::Untaken => {
            let last = block.last();
            let is_short = last.is_loop() || last.is_loopcc() || last.is_jcx_short();
            if !last.is_jcc_short_or_near() && !is_short {
                return Err("it is on a way of an instruction that is no conditional branch");
            }
            let (moment, next) = match one.id.hook {
                HookType::Taken => (PatchMoment::Taken, last.near_branch_target()),
                _ => (PatchMoment::Untaken, last.next_ip()),
            };
            Ok(((Addr(last.ip()), moment), Addr(next)))
        }
    }
}
