//! The instruments of a plan by the instructions of original code at which they must run, and the proof of their patches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::{BlockPatch, CodeBytes, PatchMoment};
use crate::ids::Id;
use crate::layout::{ReadGate, RuntimeLayout};
use crate::patch::Pieces;
use crate::placement::{Point, Site, SiteIndex, Splice};
use crate::plan::{Patch, Plan, PlannedInstrument};
use crate::reads::MemoryReader;
use crate::verify::VerifiedPlan;
use crate::verify::meaning::hooks::{self, HitEvent};
use crate::verify::patch::descriptor;
use crate::verify::patch::hit::Expected;
use crate::verify::patch::phase::{BrokenRule, By, Lists};
use crate::verify::patch::walk::{Walk, WalkBuffers};
use crate::verify::reads;
use crate::verify::reason::Reason;
use crate::verify::text::callee::Callees;
use crate::verify::text::effects::Mask;
use crate::verify::text::liveness::{Changed, LiveSets, SampledAt};
use crate::verify::text::originals::OriginalCode;
use crate::verify::text::routine::Routine;
use crate::{Addr, HookType, Image, Span};

/// The instruments of a plan that was proved, by the instructions at which they must run.
#[derive(Clone, Debug)]
pub struct InstrumentProof {
    image: Arc<Image>,
    layout: RuntimeLayout,
    /// Words that end reads of memory.
    gate: ReadGate,
    places: BTreeMap<(Addr, PatchMoment), ProvedPlace>,
    /// Bytes of the functions with instruments.
    functions: BTreeMap<Addr, Box<[u8]>>,
}

/// The instruments of a plan in an arena, with the code there that reads memory for them.
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

    /// Has none any more in functions that begin in a span. Returns whether some are left.
    pub(super) fn remove(&mut self, gone: Span) -> bool {
        if self.all.functions.keys().any(|start| gone.contains(*start)) {
            self.all = Arc::new(self.all.outside(gone));
        }
        !self.all.functions.is_empty()
    }

    /// The functions with instruments, by their start.
    pub(super) fn functions(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = self.all.spans().collect();
        spans.sort_unstable();
        spans
    }
}

/// Returns whether one of some spans has a byte in common with one of others; both are in order of their starts.
pub(super) fn meet(some: &[Span], others: &[Span]) -> bool {
    let [mut some, mut others] = [some, others].map(|spans| spans.iter().peekable());
    // The ends of those that were passed.
    let (mut end, mut end_of_others) = (Addr(0), Addr(0));
    loop {
        let is_next = match (some.peek(), others.peek()) {
            (None, None) => return false,
            (Some(one), other) => other.is_none_or(|other| one.start <= other.start),
            (None, Some(_)) => false,
        };
        let (next, passed, before) = match is_next {
            true => (some.next(), &mut end, end_of_others),
            false => (others.next(), &mut end_of_others, end),
        };
        let Some(next) = next else {
            return false;
        };
        if !next.is_empty() && next.start < before {
            return true;
        }
        *passed = next.end.max(*passed);
    }
}

/// An instruction with instruments before or after it, or on one of its ways.
#[derive(Clone, Debug)]
pub(super) struct ProvedPlace {
    /// The start of its function.
    function: Addr,
    instruments: Vec<Expected>,
    /// Registers and flags that must have their values after them.
    pub(super) live: Mask,
}

/// An event that hits an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedEvent {
    /// The instruction.
    at: Addr,
    moment: PatchMoment,
    /// The instruction that executes next.
    next: Addr,
}

/// Instruments of one function, by the events that hit them.
type PlacedInstruments<'p> = BTreeMap<PlacedEvent, Vec<&'p PlannedInstrument>>;

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
            placed.entry(at).or_default().push(one);
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
                let map = match at.moment {
                    PatchMoment::Before => &mut sampled.before,
                    _ => &mut sampled.after,
                };
                let mask = map.entry(at.at.0).or_default();
                *mask = mask.union(read);
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
                    true => Err((at.at, Reason::NoNativeCode { id: one.id })),
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
                live: match at.moment {
                    PatchMoment::Before => live.after_hook(routine, at.at.0),
                    _ => live.before(routine, at.next.0),
                },
            };
            self.places.insert((at.at, at.moment), place);
        }
        Ok(())
    }

    /// Returns those that are not in a span, whose code is mapped no more.
    #[must_use]
    pub fn outside(&self, gone: Span) -> Self {
        let mut rest = self.clone();
        rest.places
            .retain(|_, place| !gone.contains(place.function));
        rest.functions.retain(|start, _| !gone.contains(*start));
        rest
    }

    /// The functions with instruments.
    fn spans(&self) -> impl Iterator<Item = Span> {
        let functions = self.functions.iter();
        functions.map(|(start, bytes)| Span::new(*start, bytes.len() as u64))
    }

    /// The place at an instruction, if the function's bytes are there.
    fn place(&self, code: &dyn CodeBytes, at: (Addr, PatchMoment)) -> Option<&ProvedPlace> {
        let place = self.places.get(&at)?;
        let expected = self.functions.get(&place.function)?;
        let found = code.code_from(place.function)?.get(..expected.len())?;
        (found == &**expected).then_some(place)
    }
}

impl ArenaProof {
    /// The place at an instruction, if the function's bytes are there.
    pub(super) fn place(
        &self,
        code: &dyn CodeBytes,
        at: (Addr, PatchMoment),
    ) -> Option<&ProvedPlace> {
        self.all.place(code, at)
    }

    /// Proves the bytes of a patch. Returns whether it reads memory.
    pub(super) fn prove(
        &self,
        patch: &BlockPatch,
        place: &ProvedPlace,
        code: &[u8],
    ) -> Result<u64, BrokenRule> {
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
            None => Ok(walk.machine.reader_stack),
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

/// The one instruction, way of a branch, or passage to the next instruction, that hits an instrument.
fn event(
    plan: &Plan,
    routine: &Routine,
    one: &PlannedInstrument,
    changed: &mut Changed,
) -> Result<PlacedEvent, (Addr, Reason)> {
    // No splice stands anywhere, so no edge is hit for an instruction.
    let mut one = one.clone();
    one.points = vec![(SiteIndex::new(0), Point::Before(Addr(0)))].into();
    let placed = |at, moment, next| PlacedEvent { at, moment, next };
    match (&*hooks::event(plan, routine, &one, changed)?, one.id.hook) {
        (&[HitEvent::At(at)], _) => Ok(placed(at, PatchMoment::Before, at)),
        (&[HitEvent::On(edge)], HookType::Taken) => {
            Ok(placed(edge.from, PatchMoment::Taken, edge.to))
        }
        (&[HitEvent::On(edge)], HookType::Untaken) => {
            Ok(placed(edge.from, PatchMoment::Untaken, edge.to))
        }
        (&[HitEvent::On(edge)], _) => Ok(placed(edge.from, PatchMoment::After, edge.to)),
        _ => Err((routine.span.start, Reason::BlockBoundary)),
    }
}
