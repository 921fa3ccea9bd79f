//! A client's session, planned and verified on the kernel as the agent reads it, and planned again when a live patch
//! has changed that.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use gilk_engine::layout::{CounterSlot, Events, RuntimeLayout};
use gilk_engine::patch::Probed;
use gilk_engine::plan::{Resumption, Stage, Watch, plan_resumed, plan_watched};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify_watched;
use gilk_engine::{Error, Image, Plan, Session, VerifiedPlan};
use gilk_instruments::program::{Expr, Probe};
use gilk_instruments::{Definition, Library};

use super::image::KernelCache;
use super::replaced::Replaced;
use super::trust::Trust;
use super::{abi, kernel};
use crate::memory;
use crate::protocol::{
    MAX_ITEMS, MAX_PLACEMENTS, MAX_POKES, MAX_TEXT, ObjectFile, PlanOptions, PlanOutline, Refusal,
    RefusalKind, SessionPart,
};
use crate::tracepoint::{self, Tracepoint};
use crate::writes::{Batch, Poke, Writes};

/// Limit on the bytes of a refusal, which quotes names and sources of the client.
const MAX_REFUSAL: usize = 64 << 10;

/// A session that a client loads part by part.
pub(super) struct Draft {
    session: Session,
    names: Vec<Arc<str>>,
    objects: Vec<ObjectFile>,
    /// Bytes of names, sources and object files.
    text: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            session: Session::empty(),
            names: Vec::new(),
            objects: Vec::new(),
            text: 0,
        }
    }
}

impl Draft {
    /// Appends a part.
    ///
    /// # Errors
    /// A refusal if a sum is over its limit, a placement names nothing, or a name is there twice;
    /// the draft is then not to be used.
    pub(super) fn add(&mut self, part: SessionPart) -> Result<(), Refusal> {
        let SessionPart {
            names,
            placements,
            styles,
            sources,
            objects,
        } = part;
        let of_names = names.iter().map(String::len);
        let of_styles = styles.iter().map(|(name, _)| name.len());
        let of_sources = sources.iter().map(|(name, text)| name.len() + text.len());
        let of_objects = objects
            .iter()
            .map(|file| file.name.len() + file.bytes.len());
        let bytes = of_names
            .chain(of_styles)
            .chain(of_sources)
            .chain(of_objects);
        self.text = self.text.saturating_add(bytes.sum());
        for (what, count, limit) in [
            (
                "bytes of names, sources and object files",
                self.text,
                MAX_TEXT,
            ),
            ("names", self.names.len() + names.len(), MAX_PLACEMENTS),
            (
                "placements",
                self.session.placements.len() + placements.len(),
                MAX_PLACEMENTS,
            ),
        ] {
            if count > limit {
                return Err(wrong(&format!(
                    "The session has {count} {what}, and the limit is {limit}; divide it into several."
                )));
            }
        }
        self.names.extend(names.into_iter().map(Arc::from));
        for placed in placements {
            let name = |index: u32| {
                let name = self.names.get(usize::try_from(index).unwrap_or(usize::MAX));
                name.cloned().ok_or_else(|| {
                    wrong(&format!(
                        "A placement refers to name {index}, and {} were sent before it.",
                        self.names.len()
                    ))
                })
            };
            let (function, instrument) = (name(placed.function)?, name(placed.instrument)?);
            self.session.placements.push(Placement {
                function,
                block: placed.block,
                hook: placed.hook,
                instrument,
                launch: placed.launch,
                splash: placed.splash,
            });
        }
        for (function, style) in styles {
            if let Some(twice) = self.session.styles.insert(function.clone(), style) {
                return Err(wrong(&format!(
                    "The function {function} has two styles, {twice:?} and {style:?}."
                )));
            }
        }
        for (name, text) in sources {
            if self.session.sources.insert(name.clone(), text).is_some() {
                return Err(wrong(&format!("Two sources are named {name:?}.")));
            }
        }
        self.objects.extend(objects);
        Ok(())
    }

    /// Returns the built-in instruments and those of the object files.
    fn library(&self, trust: Trust) -> Result<Library, Refusal> {
        let unusable = |error: gilk_instruments::Error| plan_refusal(&error);
        let mut library = Library::builtin().map_err(unusable)?;
        if !self.objects.is_empty() && !trust.native {
            return Err(wrong(&format!(
                "The agent on {} runs no native functions, which nothing verifies, and the session \
                 calls some; start the agent with --allow-native, or take them out of the session.",
                kernel::host()
            )));
        }
        for object in &self.objects {
            let natives = Definition::natives(&object.name, &object.bytes);
            for definition in natives.map_err(unusable)? {
                library.add(definition).map_err(unusable)?;
            }
        }
        Ok(library)
    }
}

/// A planned session.
pub(super) struct Planned {
    pub(super) writes: Writes,
    pub(super) outline: PlanOutline,
    pub(super) duration: f64,
    /// Tracepoints that instruments stand on.
    pub(super) tracepoints: Vec<String>,
    /// The stacks that programs read, if they read any or read processes.
    pub(super) stacks: Option<StacksRead>,
    pub(super) replanner: Replanner,
}

/// The input of a plan besides the kernel.
struct PlanSource {
    session: Session,
    library: Library,
    layout: RuntimeLayout,
    /// The client insists on a kernel that the lists of functions were not compared with.
    insists: bool,
}

/// An instrument of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberedInstrument {
    /// Packed identifier.
    id: u64,
    placement: usize,
    counter: Option<CounterSlot>,
}

/// A session that can be planned again while it runs.
pub(super) struct Replanner {
    source: PlanSource,
    instruments: Vec<NumberedInstrument>,
    /// Times of the session's batches, seconds.
    times: Vec<f64>,
}

/// The rest of a session, planned again.
pub(super) struct Replanned {
    /// Everything but the batches.
    pub(super) writes: Writes,
    /// The kernel that it was planned on.
    pub(super) image: Arc<Image>,
    /// Number of the session's batches whose time is past.
    pub(super) past: u32,
    /// Installs what is in place at this time of the session.
    pub(super) first: Vec<Poke>,
    /// The later batches, each with its number among the session's.
    pub(super) later: VecDeque<(u32, Batch)>,
    /// Identifiers of instruments in or with replaced functions.
    pub(super) left_out: Vec<u64>,
    /// The replaced functions among those of the session.
    pub(super) replaced: Vec<String>,
}

/// The stacks that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StacksRead {
    /// Those of the kernel, or none: programs read the memory of processes.
    Kernel,
    /// Those of processes, whose frames the agent names.
    Processes,
}

/// Returns the layout that a plan with these options uses.
///
/// # Errors
/// A refusal if the agent does not permit to assume counters of events.
pub(super) fn layout(
    mut layout: RuntimeLayout,
    options: &PlanOptions,
    trust: Trust,
) -> Result<RuntimeLayout, Refusal> {
    layout.timers_log2 = layout.timers_log2.min(options.storage_log2);
    if let Some(assumed) = &options.assumed_events {
        if !trust.run {
            return Err(wrong(
                "Only an agent that runs programs permits to assume counters of events.",
            ));
        }
        layout.events = Events {
            counters: assumed.clone().into(),
            refused: Box::default(),
        };
    }
    Ok(layout)
}

/// Plans a session and verifies the plan. `is_gone` returns whether the client no longer waits: both stop then.
///
/// # Errors
/// A refusal that says what the engine found, or a bound that the plan exceeds.
pub(super) fn plan(
    mut draft: Draft,
    options: &PlanOptions,
    trust: Trust,
    image: &Image,
    layout: &RuntimeLayout,
    is_gone: &dyn Fn() -> bool,
) -> Result<Planned, Refusal> {
    if options.release != image.release() {
        return Err(wrong(&format!(
            "The session is for Linux {}, and the target runs {}; plan it again.",
            options.release,
            image.release()
        )));
    }
    let library = draft.library(trust)?;
    draft.session.duration = options.duration;
    draft.session.save_all = options.save_all;
    draft.session.tracepoints = options.tracepoints;
    let insists = options.unknown_kernel && !image.is_known();
    if insists && !trust.unknown_kernel {
        return Err(wrong(&format!(
            "The agent on {} does not permit reads of memory and splices in assembly on a kernel that \
             the lists of functions were not compared with; start it with --unknown-kernel.",
            kernel::host()
        )));
    }
    let source = PlanSource {
        session: draft.session,
        library,
        layout: layout.clone(),
        insists,
    };
    let (verified, writes) = source.planned(image, None, is_gone)?;
    let outline = writes.outline(verified.plan());
    Ok(Planned {
        tracepoints: if source.session.tracepoints {
            tracepoints(verified.plan())?
        } else {
            Vec::new()
        },
        stacks: reads_stacks(verified.plan()),
        outline: outline.map_err(|error| plan_refusal(&error))?,
        duration: verified.plan().duration,
        replanner: Replanner {
            source,
            instruments: numbered(verified.plan()).collect(),
            times: writes.batches.iter().map(|batch| batch.at).collect(),
        },
        writes,
    })
}

fn numbered(plan: &Plan) -> impl Iterator<Item = NumberedInstrument> {
    plan.instruments
        .iter()
        .map(|instrument| NumberedInstrument {
            id: instrument.id.pack(),
            placement: instrument.placement,
            counter: instrument.counter,
        })
}

impl PlanSource {
    /// Plans the session, or the rest of it, and verifies the plan.
    fn planned(
        &self,
        image: &Image,
        resumption: Option<&Resumption<'_>>,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<(VerifiedPlan, Writes), Refusal> {
        let own = match (self.layout.faults, self.insists) {
            (0, _) => Some(image.clone().on(&self.layout)),
            (_, true) => Some(image.clone().taken_as_known()),
            (_, false) => None,
        };
        let image = own.as_ref().unwrap_or(image);
        let mut give_back = memory::between_stages();
        let watch = &mut |stage: Stage| match is_gone() {
            true => ControlFlow::Break(()),
            false => give_back(stage),
        };
        let (session, library, layout) = (&self.session, &self.library, &self.layout);
        let plan = match resumption {
            None => plan_watched(image, session, library, layout, watch),
            Some(resumption) => plan_resumed(image, session, library, layout, watch, resumption),
        };
        let plan = plan.map_err(|e| unplanned(&e))?;
        verified(image, plan, watch)
    }
}

impl Replanner {
    /// Plans the rest of the session from second `at` on, on the kernel as it is now, without the functions that live
    /// patches replace. `is_over` returns whether the session ends: both stop then.
    ///
    /// # Errors
    /// A refusal that says what the engine found, or what cannot be read.
    pub(super) fn replan(
        &self,
        kernel: &KernelCache,
        at: f64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Replanned, Refusal> {
        let replaced = Replaced::read()?;
        let image = kernel.image()?;
        self.rest(&image, at, &replaced, is_over)
    }

    fn rest(
        &self,
        image: &Arc<Image>,
        at: f64,
        replaced: &Replaced,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Replanned, Refusal> {
        let functions = RefCell::new(BTreeSet::new());
        let resumption = Resumption {
            at,
            is_replaced: &|name| {
                let is_replaced = replaced.contains(name);
                if is_replaced {
                    functions.borrow_mut().insert(name.to_owned());
                }
                is_replaced
            },
        };
        let (verified, mut writes) = self.source.planned(image, Some(&resumption), is_over)?;
        let left_out = self.left_out(verified.plan(), at)?;
        let past = self.times.partition_point(|time| *time <= at);
        let mut numbers = (0..).zip(&self.times).skip(past);
        let (mut first, mut later) = (Vec::new(), VecDeque::new());
        for batch in std::mem::take(&mut writes.batches) {
            if batch.at <= at {
                first.extend(batch.pokes);
                continue;
            }
            let (number, _) = numbers
                .find(|(_, time)| **time == batch.at)
                .ok_or_else(|| {
                    plan_refusal(&format!(
                        "There was no batch at {} s before, which is a bug in gilk.",
                        batch.at
                    ))
                })?;
            later.push_back((number, batch));
        }
        Ok(Replanned {
            writes,
            image: Arc::clone(image),
            past: u32::try_from(past).unwrap_or(u32::MAX),
            first,
            later,
            left_out,
            replaced: functions.into_inner().into_iter().collect(),
        })
    }

    /// Returns the instruments that a plan of the rest of the session lacks, except those whose splash is past.
    ///
    /// # Errors
    /// A refusal if an instrument has another identifier or counter than before, or too many are left out.
    fn left_out(&self, plan: &Plan, at: f64) -> Result<Vec<u64>, Refusal> {
        let mut present = numbered(plan).peekable();
        let mut left_out = Vec::new();
        for before in &self.instruments {
            if present.next_if_eq(before).is_some() {
                continue;
            }
            let placement = self.source.session.placements.get(before.placement);
            if placement.is_some_and(|placement| placement.splash > at) {
                left_out.push(before.id);
            }
        }
        if let Some(other) = present.next() {
            return Err(plan_refusal(&format!(
                "The instrument of placement {} has another number than before, which is a bug in gilk.",
                other.placement
            )));
        }
        if left_out.len() > MAX_ITEMS {
            return Err(plan_refusal(&format!(
                "A live patch replaces functions with {} instruments, and the limit is {MAX_ITEMS}.",
                left_out.len()
            )));
        }
        Ok(left_out)
    }
}

fn verified(
    image: &Image,
    plan: Plan,
    watch: &mut Watch<'_>,
) -> Result<(VerifiedPlan, Writes), Refusal> {
    let verified = verify_watched(image, plan, watch).map_err(|e| unplanned(&e))?;
    let verified = verified.map_err(|violations| {
        let list = violations
            .iter()
            .map(|violation| format!("\n  {violation}"));
        let list: String = list.take(16).collect();
        plan_refusal(&format!(
            "The plan failed its verification on the target, which is a bug in gilk; nothing was \
             written:{list}"
        ))
    })?;
    let writes = Writes::of(&verified).map_err(|error| plan_refusal(&error))?;
    if writes.pokes() > MAX_POKES {
        return Err(wrong(&format!(
            "The session needs {} writes of text, and the limit is {MAX_POKES}; divide it into several.",
            writes.pokes()
        )));
    }
    Ok((verified, writes))
}

/// Returns the stacks that programs of a plan read, if any reads stacks or processes.
fn reads_stacks(plan: &Plan) -> Option<StacksRead> {
    let probes = plan.instruments.iter();
    let probes = probes.filter_map(|one| one.probe.as_deref().and_then(Probed::probe));
    let expressions: Vec<_> = probes.flat_map(Probe::expressions).collect();
    let any = |is: &dyn Fn(&Expr) -> bool| {
        expressions
            .iter()
            .any(|expr| expr.any(&mut |part| is(part)))
    };
    if any(&|part| part.is_stack() && part.is_of_process()) {
        Some(StacksRead::Processes)
    } else {
        any(&|part| part.is_stack() || part.is_of_process()).then_some(StacksRead::Kernel)
    }
}

/// Returns the tracepoints whose functions a plan's instruments are in.
fn tracepoints(plan: &Plan) -> Result<Vec<String>, Refusal> {
    let mut names = BTreeSet::new();
    for instrument in &plan.instruments {
        // A verified plan has the function of each instrument.
        let function = plan.functions.get(instrument.id.major as usize);
        let found = function.and_then(|function| tracepoint::of_function(&function.name));
        let Some(Tracepoint { name, module }) = found else {
            continue;
        };
        if let Some(module) = module {
            return Err(wrong(&format!(
                "The tracepoint {name} is one of the module {module}, and only those of the kernel \
                 itself can be switched on; instrument the function that has it."
            )));
        }
        names.insert(name.to_owned());
    }
    if names.len() > abi::MAX_TRACEPOINTS as usize {
        return Err(wrong(&format!(
            "The session stands on {} tracepoints, and the limit is {}; divide it into several.",
            names.len(),
            abi::MAX_TRACEPOINTS
        )));
    }
    Ok(names.into_iter().collect())
}

/// Returns the refusal of a session that cannot be planned, or whose client is gone.
fn unplanned(error: &Error) -> Refusal {
    match error {
        Error::GivenUp => wrong("The plan was given up, because the client is gone."),
        error => plan_refusal(error),
    }
}

fn wrong(text: &str) -> Refusal {
    Refusal::new(RefusalKind::Request, text)
}

fn plan_refusal(error: &dyn std::fmt::Display) -> Refusal {
    let mut text = error.to_string();
    if text.len() > MAX_REFUSAL {
        let end = text.floor_char_boundary(MAX_REFUSAL);
        text.truncate(end);
        text.push_str(" (…)");
    }
    Refusal::new(RefusalKind::Plan, text)
}

#[cfg(test)]
mod tests;
