//! Instruments in the code cache: a block whose first instruction has some begins with a branch to a patch, which is
//! proved as one of a splice is, but that it displaces nothing and leaves for the rest of the block.

use std::collections::BTreeMap;
use std::sync::Arc;

use iced_x86::{Code, Register};

use super::reader::SequenceReader;
use super::{FragmentRule, Proof};
use crate::cache::{BlockPatch, CachedBlock, CodeBytes, RowState};
use crate::ids::Id;
use crate::layout::RuntimeLayout;
use crate::patch::Pieces;
use crate::placement::{Point, Site, SiteIndex, Splice};
use crate::plan::{Patch, Plan, PlannedInstrument};
use crate::reads::{MemoryReader, ReadGate};
use crate::verify::VerifiedPlan;
use crate::verify::meaning::hooks::{self, HitEvent};
use crate::verify::patch::descriptor;
use crate::verify::patch::hit::Expected;
use crate::verify::patch::phase::{BrokenRule, By, Lists};
use crate::verify::patch::state::RAX;
use crate::verify::patch::walk::{Walk, WalkBuffers};
use crate::verify::reads;
use crate::verify::reason::Reason;
use crate::verify::text::callee::Callees;
use crate::verify::text::effects::Mask;
use crate::verify::text::liveness::{Changed, LiveSets, SampledAt};
use crate::verify::text::originals::OriginalCode;
use crate::verify::text::routine::Routine;
use crate::{Addr, HookType, Image, Span};

/// The instruments of a plan that was proved, by the instructions before which they must run.
#[derive(Debug)]
pub struct InstrumentProof {
    image: Arc<Image>,
    layout: RuntimeLayout,
    /// Words that end reads of memory.
    gate: ReadGate,
    places: BTreeMap<Addr, ProvedPlace>,
    /// Bytes of the functions with instruments.
    functions: BTreeMap<Addr, Box<[u8]>>,
}

/// The instruments of an arena, with the code there that reads memory for them.
#[derive(Clone, Debug)]
pub(super) struct ArenaProof {
    all: Arc<InstrumentProof>,
    layout: RuntimeLayout,
}

impl ArenaProof {
    /// Proves the code that reads memory; `None` if it is wrong.
    pub(super) fn new(all: Arc<InstrumentProof>, reader: Option<&MemoryReader>) -> Option<Self> {
        let layout = RuntimeLayout {
            users: reader.map(|reader| reader.start),
            further_arenas: Vec::new(),
            ..all.layout.clone()
        };
        let readers = reader.into_iter().cloned().collect();
        reads::verify(&layout, all.gate, readers).ok()?;
        Some(Self { all, layout })
    }
}

/// An instruction with instruments before it.
#[derive(Debug)]
struct ProvedPlace {
    /// The start of its function.
    function: Addr,
    instruments: Vec<Expected>,
    /// Registers and flags that must have their values after them.
    live: Mask,
}

/// Instruments of one function, by the instructions before which they run.
type PlacedInstruments<'p> = BTreeMap<u64, Vec<&'p PlannedInstrument>>;

impl InstrumentProof {
    /// Derives the places from the bytes of the functions; nothing of the plan's sites and patches is believed or used.
    /// Reads of memory must end by the words of `gate`.
    ///
    /// # Errors
    /// The place and the reason for a function that does not decode, or an instrument that no single instruction hits.
    pub fn new(
        image: &Arc<Image>,
        plan: &VerifiedPlan,
        gate: ReadGate,
    ) -> Result<Self, (Addr, Reason)> {
        let plan = plan.plan();
        let callees = Callees::new(image);
        let mut changed = Changed::default();
        let mut routines: BTreeMap<Addr, (Routine, PlacedInstruments<'_>)> = BTreeMap::new();
        for one in &plan.instruments {
            let planned = plan.function(one.id.major);
            let start = planned.map_or(Addr(0), |planned| planned.outline.span.start);
            let (routine, placed) = match routines.entry(start) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    let function = image.function_at(start);
                    let function = function.ok_or((start, Reason::BlockNumber))?;
                    let routine = Routine::read(&callees, function)?;
                    free.insert((routine, PlacedInstruments::new()))
                }
            };
            let at = event(plan, routine, one, &mut changed)?;
            placed.entry(at.0).or_default().push(one);
        }
        let mut proof = Self {
            image: Arc::clone(image),
            layout: plan.layout.clone(),
            gate,
            places: BTreeMap::new(),
            functions: BTreeMap::new(),
        };
        for (start, (routine, placed)) in routines {
            proof.function(start, &routine, placed)?;
        }
        Ok(proof)
    }

    fn function(
        &mut self,
        start: Addr,
        routine: &Routine,
        placed: PlacedInstruments<'_>,
    ) -> Result<(), (Addr, Reason)> {
        let mut sampled = SampledAt::default();
        for (&at, instruments) in &placed {
            let read = instruments.iter().filter_map(|one| hooks::sampled(one));
            if let Some(read) = read.reduce(Mask::union) {
                sampled.before.insert(at, read);
            }
        }
        let live = LiveSets::of(routine, &sampled);
        let name = routine.name.clone();
        let bytes = self.image.bytes(routine.span);
        let bytes = bytes.ok_or((start, Reason::Unread { name }))?;
        self.functions.insert(start, bytes.into());
        for (at, mut instruments) in placed {
            // Instruments of the end of a block that has one instruction run after those of its beginning.
            instruments.sort_by_key(|one| one.id.hook == HookType::Post);
            let expected = instruments.into_iter().map(|one| {
                let native = one.definition.native().is_some();
                match native {
                    true => Err((Addr(at), Reason::NoNativeCode { id: one.id })),
                    false => Ok(Expected {
                        id: one.id,
                        counter: one.counter,
                        probe: one.probe.clone(),
                        native: None,
                        replacement: None,
                    }),
                }
            });
            let place = ProvedPlace {
                function: start,
                instruments: expected.collect::<Result<_, _>>()?,
                live: live.after_hook(routine, at),
            };
            self.places.insert(Addr(at), place);
        }
        Ok(())
    }

    /// The place at an instruction, if the function's bytes are there.
    fn place(&self, code: &dyn CodeBytes, at: Addr) -> Option<&ProvedPlace> {
        let place = self.places.get(&at)?;
        let expected = self.functions.get(&place.function)?;
        let found = code.code_from(place.function)?.get(..expected.len())?;
        (found == &**expected).then_some(place)
    }
}

impl ArenaProof {
    /// The place at an instruction, if the function's bytes are there.
    fn place(&self, code: &dyn CodeBytes, at: Addr) -> Option<&ProvedPlace> {
        self.all.place(code, at)
    }

    /// Proves the bytes of a patch. Returns whether it reads memory.
    fn prove(
        &self,
        patch: &BlockPatch,
        place: &ProvedPlace,
        code: &[u8],
    ) -> Result<bool, BrokenRule> {
        let lists: Lists = vec![(Point::Entry, place.instruments.clone())];
        let site = Site {
            splice: Splice::Jump,
            displaced: Span::new(patch.original, 0),
            overwritten: 0,
            filled: 0,
            continuations: Box::default(),
        };
        let planned = Patch {
            site: SiteIndex::new(0),
            address: patch.span.start,
            code: code.into(),
            sequences: patch.sequences,
            rows: patch.rows.clone().into(),
            pieces: Pieces::default(),
            hooks: vec![].into(),
        };
        let originals = OriginalCode::new(&self.all.image, Vec::new());
        let (code, descriptors) = descriptor::split(&planned, self.layout.sequences())?;
        let mut walk = Walk::new(
            WalkBuffers::new(),
            (&self.layout, &[]),
            (&planned, code, descriptors),
            &site,
            &originals,
            &lists,
        );
        walk.run_by(By::Fragment {
            place: patch.exit.0,
            live: place.live,
        })?;
        match walk.machine.faults.first() {
            None => Ok(walk.machine.reads_process),
            // No fault of the cache's own code is recovered from.
            Some(fault) => Err((
                fault.at,
                Reason::Uncopyable {
                    instruction: "an instruction that may fault".to_owned(),
                    at: fault.at,
                },
            )),
        }
    }
}

/// The one instruction that hits an instrument.
fn event(
    plan: &Plan,
    routine: &Routine,
    one: &PlannedInstrument,
    changed: &mut Changed,
) -> Result<Addr, (Addr, Reason)> {
    // No splice stands anywhere, so no edge is hit for an instruction.
    let mut one = one.clone();
    one.points = vec![(SiteIndex::new(0), Point::Before(Addr(0)))].into();
    match *hooks::event(plan, routine, &one, changed)? {
        [HitEvent::At(at)] => Ok(at),
        _ => Err((routine.span.start, Reason::BlockBoundary)),
    }
}

impl Proof<'_> {
    /// Proves the rows of a patch: while it saves, only the stack pointer and `rax` are others than the original code's.
    fn saves(&self, patch: &BlockPatch, place: &ProvedPlace) -> Result<(), FragmentRule> {
        let (original, end) = (patch.original, patch.span.end);
        let mut read = self.sequence(patch.span.start, FragmentRule::WrongRow);
        let (mut pushed, mut kept, mut rax) = (0_u32, None, None);
        while self
            .rows((read.at, end), original, RowState::Instruments)
            .is_err()
        {
            let at = read.at;
            let instruction = read.next()?;
            self.rows((at, read.at), original, RowState::Saving { pushed, rax })?;
            match instruction.code() {
                Code::Push_r64 => {
                    pushed += 8;
                    if instruction.op0_register() == Register::RAX && rax.is_none() {
                        kept = Some(pushed);
                    }
                }
                Code::Lahf => {
                    // Its value is lost if it was not pushed.
                    if kept.is_none() && place.live.has_register(RAX) {
                        return Err(FragmentRule::WrongRow);
                    }
                    rax = kept;
                }
                Code::Seto_rm8 if instruction.op0_register() == Register::AL => {}
                Code::Lea_r64_m
                    if instruction.op0_register() == Register::RSP
                        && instruction.memory_base() == Register::RSP
                        && instruction.memory_index() == Register::None =>
                {
                    let below = instruction.memory_displacement64().wrapping_neg();
                    pushed += u32::try_from(below).map_err(|_| FragmentRule::WrongRow)?;
                }
                _ => return Err(FragmentRule::WrongRow),
            }
        }
        Ok(())
    }

    /// Returns whether instruments must run before an instruction.
    pub(super) fn is_instrumented(&self, at: Addr) -> bool {
        let instruments = self.before.instruments.as_ref();
        instruments.is_some_and(|instruments| instruments.place(self.code, at).is_some())
    }

    /// Proves the patch of a block with instruments; returns the place of the rest of a block.
    pub(super) fn patched(&self, block: &CachedBlock) -> Result<Addr, FragmentRule> {
        let original = block.original.start;
        let instruments = self.before.instruments.as_ref();
        let place = instruments.and_then(|all| Some((all, all.place(self.code, original)?)));
        let patch = self.patches.get(&original);
        let (Some((instruments, place)), Some(patch)) = (place, patch) else {
            return match (place, patch) {
                (None, None) => Ok(block.at),
                (None, Some(_)) => Err(FragmentRule::WrongPatch),
                (Some(_), _) => Err(FragmentRule::PatchMissing),
            };
        };
        let mut read = self.sequence(block.at, FragmentRule::PatchMissing);
        let tested = stack_test(self.sequence(block.at, FragmentRule::StackUntested));
        read.at = tested.unwrap_or(read.at);
        if read.jump()? != patch.span.start {
            return Err(FragmentRule::PatchMissing);
        }
        self.rows((block.at, read.at), original, RowState::Exact)?;
        let code = self.bytes.span(patch.span);
        let code = code.filter(|_| patch.exit == read.at);
        let code = code.ok_or(FragmentRule::WrongPatch)?;
        self.saves(patch, place)?;
        let proved = instruments.prove(patch, place, code);
        let reads = proved.map_err(|_| FragmentRule::WrongPatch)?;
        let deepest = patch.rows.iter().map(|row| u64::from(row.pushed)).max();
        let space = deepest.unwrap_or(0) + READER_STACK;
        match reads {
            true if tested.is_none() || space > TESTED => Err(FragmentRule::StackUntested),
            false if tested.is_some() => Err(FragmentRule::WrongPatch),
            _ => Ok(read.at),
        }
    }
}

/// Bytes below the stack pointer of the word that blocks write before instruments that read memory.
const TESTED: u64 = 400;
/// Bytes of the stack that the code which reads memory uses, with the address that it returns to: 16 words of its
/// [listing](mod@crate::verify::reads).
const READER_STACK: u64 = 16 * 8;

/// Reads the store of a word below the stack pointer by which a block finds out whether its stack has the space; returns
/// the place after it, if it is there.
fn stack_test(mut read: SequenceReader<'_>) -> Option<Addr> {
    let place = TESTED.cast_signed().wrapping_neg();
    read.store(Register::RSP, place).ok()?;
    Some(read.at)
}
