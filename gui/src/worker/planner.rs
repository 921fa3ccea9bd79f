//! Worker that plans and verifies the session after every change, so that errors show at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::Origin;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::placement::{Comparison, compare};
use gilk_engine::plan::{HitCosts, plan_watched};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, HookType, Plan, Session, VerifiedPlan};
use gilk_instruments::Library;
use ilk_driver::memory;
use ilk_driver::process::{ProcessLayouts, ProcessTarget};

use super::mail::{Mail, Message};
use crate::catalogue::Catalogue;
use crate::document::EditedSession;
use crate::plan_reply::PlanReply;

/// Address of the arena on a saved image: within reach of the kernel's text.
pub(crate) const SUPPOSED_ARENA: Addr = Addr(0xffff_ffff_c100_0000);

/// A request for a plan.
pub struct Planning {
    /// The revision of the session.
    pub revision: u64,
    /// The session to plan.
    pub session: EditedSession,
    /// A placement to plan in addition.
    pub added: Option<Placement>,
    /// The kernel's image.
    pub catalogue: Arc<Catalogue>,
    /// The instruments.
    pub library: Arc<Library>,
    /// The layout of the target's module; without a target, `nominal`.
    pub layout: Option<RuntimeLayout>,
    /// The process that is a target, whose layout has the session's replacements.
    pub process: Option<ProcessLayouts>,
    /// Its instruments are for the code cache of the process.
    pub in_cache: bool,
    /// The process that the session is hit by alone: the part of the kernel beside it.
    pub within: Option<u32>,
}

/// The errors of a session, and the placement that they are about.
struct Faults {
    words: Vec<String>,
    placement: Option<usize>,
}

/// The plan or its errors.
type Outcome = Result<Arc<VerifiedPlan>, Vec<String>>;

/// Returns the plan of all placements whose functions are known, or its errors, or `None` if a newer request waits.
fn outcome(planning: &Planning, newer: &Receiver<Planning>) -> Option<Outcome> {
    let planned = planned(planning, newer, |one| planning.is_listed(one))?;
    Some(planned.map_err(|faults| faults.words))
}

/// Returns the plan of what is placed when the run begins, or its errors, or `None` if a newer request waits.
pub(super) fn starting(planning: &Planning, newer: &Receiver<Planning>) -> Option<Outcome> {
    let planned = planned(planning, newer, |one| planning.is_mapped(one))?;
    Some(planned.map_err(|faults| faults.words))
}

/// Plans the placements of the session for which `keeps` holds. The plan has the indices of all placements.
fn planned(
    planning: &Planning,
    newer: &Receiver<Planning>,
    keeps: impl Fn(&Placement) -> bool,
) -> Option<Result<Arc<VerifiedPlan>, Faults>> {
    let image = planning.catalogue.image();
    let mut session = planning.session.shown();
    session.placements.extend(planning.added.clone());
    let kept = session.placements.iter().enumerate();
    let kept = kept.filter_map(|(index, one)| keeps(one).then_some(index));
    let kept: Vec<usize> = kept.collect();
    session.placements.retain(keeps);
    let layout = match layout(planning, &session) {
        Ok(layout) => layout,
        Err(error) => {
            return Some(Err(Faults {
                words: vec![error.to_string()],
                placement: None,
            }));
        }
    };
    // Here rather than in a frame after the next edit.
    planning.session.placements.learn();
    let mut give_back = memory::between_stages();
    let watch = &mut |stage| match newer.is_empty() {
        true => give_back(stage),
        false => ControlFlow::Break(()),
    };
    let planned = session
        .check()
        .and_then(|()| within(planning, session.clone()))
        .and_then(|session| plan_watched(image, &session, &planning.library, &layout, watch));
    let planned = match planned {
        Err(Error::GivenUp) => return None,
        Err(error) => {
            return Some(Err(Faults {
                placement: faulty(&session, &error).and_then(|one| kept.get(one).copied()),
                words: vec![error.to_string()],
            }));
        }
        Ok(planned) => numbered(planned, &kept),
    };
    let verified = verify(image, planned).map(Arc::new);
    Some(verified.map_err(|violations| Faults {
        words: violations.iter().map(ToString::to_string).collect(),
        placement: None,
    }))
}

/// Gives the placements of a plan other indices, by those that they have.
fn numbered(mut plan: Plan, indices: &[usize]) -> Plan {
    let instruments = plan.instruments.iter_mut();
    let instruments = instruments.map(|one| &mut one.placement);
    let notes = plan.notes.iter_mut().map(|one| &mut one.placement);
    for placement in instruments.chain(notes) {
        if let Some(index) = indices.get(*placement) {
            *placement = *index;
        }
    }
    plan
}

impl Planning {
    /// The process whose functions the session names, if it is for one.
    fn named_process(&self) -> Option<&ProcessLayouts> {
        let is_process = self.catalogue.image().origin() == Origin::Object;
        self.process.as_ref().filter(|_| is_process)
    }

    /// Returns the library of a placement, if the process has not mapped it.
    fn awaited<'p>(&self, placement: &'p Placement) -> Option<&'p str> {
        self.named_process()?.awaited(&placement.function)
    }

    /// Returns whether the function of a placement is known: of an object that is mapped, or of an opened library.
    fn is_listed(&self, placement: &Placement) -> bool {
        self.awaited(placement).is_none_or(|library| {
            let process = self.named_process();
            process.is_some_and(|process| process.is_opened(library))
        })
    }

    /// Returns whether a placement is placed when the run begins.
    fn is_mapped(&self, placement: &Placement) -> bool {
        self.awaited(placement).is_none()
    }
}

/// Returns the layout of the target for a session.
fn layout(planning: &Planning, session: &Session) -> ilk_driver::Result<RuntimeLayout> {
    match (planning.named_process(), &planning.layout) {
        // Also of one that has ended: its plan is still that of a process.
        (Some(process), _) => process.layout(session, &planning.library),
        (None, Some(layout)) => Ok(layout.clone()),
        (None, None) => Ok(nominal()),
    }
}

/// Returns the session for the process that alone is to hit it, if there is one.
fn within(planning: &Planning, session: Session) -> gilk_engine::Result<Session> {
    match planning.within {
        Some(pid) => session.within_process(pid, &planning.library),
        None => Ok(session),
    }
}

/// Returns the index of the placement that an error is about.
fn faulty(session: &Session, error: &Error) -> Option<usize> {
    let is_faulty = |one: &Placement| match error {
        Error::NoFunction { name, .. } | Error::Ambiguous { name, .. } => *one.function == **name,
        Error::NoBlock {
            function, block, ..
        } => *one.function == **function && one.block == *block,
        Error::Refused {
            instrument,
            hook,
            function,
            block,
            ..
        } => {
            let is_here = (one.block, one.hook) == (*block, *hook);
            is_here && *one.function == **function && *one.instrument == **instrument
        }
        Error::Program { name, function, .. } => {
            *one.function == **function && *one.instrument == **name
        }
        _ => false,
    };
    session.placements.iter().position(is_faulty)
}

/// Maximum number of functions whose styles are compared.
const COMPARED: usize = 64;

/// Compares the cost of each function in place and whole.
fn compared(planning: &Planning) -> BTreeMap<String, Comparison> {
    let mut hooks: BTreeMap<&str, BTreeSet<(BlockIndex, HookType)>> = BTreeMap::new();
    for one in &planning.session.placements {
        let hook = (BlockIndex(one.block), one.hook);
        hooks.entry(&one.function).or_default().insert(hook);
    }
    let image = planning.catalogue.image();
    let compared = hooks
        .into_iter()
        .take(COMPARED)
        .filter_map(|(name, hooks)| {
            let cfg = Cfg::of(image, image.function_named(name).ok()?.id);
            let hooks: Vec<_> = hooks.into_iter().collect();
            Some((name.to_owned(), compare(image, &cfg, &hooks)))
        });
    compared.collect()
}

/// Returns the reason why a process cannot execute a plan, in the code cache if it is for that.
fn refusal(planning: &Planning, plan: &Plan) -> Option<String> {
    let process = planning.process.as_ref().filter(|_| planning.in_cache);
    let image = planning.catalogue.image();
    let in_cache = || process?.cache_refusal(image, plan);
    let session = &planning.session;
    let mut unlisted = session.placements.iter();
    let unlisted = unlisted.any(|one| {
        let is_whole = one.launch <= 0.0 && one.splash >= session.duration;
        !is_whole && !planning.is_listed(one)
    });
    let of_time = || unlisted.then(|| ProcessTarget::refused_times().to_string());
    ProcessTarget::refusal(plan)
        .or_else(of_time)
        .or_else(in_cache)
}

/// Returns the number of placements that wait for each library.
fn waiting(planning: &Planning) -> BTreeMap<String, usize> {
    let mut waiting = BTreeMap::new();
    for one in &planning.session.placements {
        if let Some(library) = planning.awaited(one) {
            *waiting.entry(library.to_owned()).or_default() += 1;
        }
    }
    waiting
}

pub(super) fn work(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    let is_listed = |one: &Placement| planning.is_listed(one);
    let Some(planned) = planned(planning, newer, is_listed) else {
        return;
    };
    let (mut outcome, fault) = match planned {
        Ok(plan) => (Ok(plan), None),
        Err(faults) => (Err(faults.words), faults.placement),
    };
    let waiting = waiting(planning);
    let mut start = outcome.as_ref().ok().cloned();
    let mut placements = planning.session.placements.iter();
    // Those of opened libraries are planned with the others to be shown.
    if start.is_some() && placements.any(|one| is_listed(one) && !planning.is_mapped(one)) {
        match starting(planning, newer) {
            None => return,
            Some(Ok(plan)) => start = Some(plan),
            Some(Err(words)) => (start, outcome) = (None, Err(words)),
        }
    }
    let plan = outcome.as_ref().ok().map(|verified| verified.plan());
    let bytes = plan.map_or(0, |plan| {
        plan.patches.iter().map(|patch| patch.code.len()).sum()
    });
    let reply = PlanReply {
        bytes,
        process_refusal: plan.and_then(|plan| refusal(planning, plan)),
        outcome,
        start,
        waiting,
        compared: compared(planning),
        fault,
    };
    mail.send(Message::Planned(planning.revision, reply));
}

/// Returns the estimated nanoseconds of a hit of a placement's instrument.
fn hit_ns(plan: &Plan, placement: usize) -> Option<f64> {
    let one = (plan.instruments.iter()).find(|one| one.placement == placement)?;
    let mut costs = HitCosts::of(plan).of_instruments(|id| id == one.id);
    costs.remove(&one.id)
}

pub(super) fn preview(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    if let Some(outcome) = outcome(planning, newer) {
        // The added placement follows those of the session.
        let place = planning.session.placements.len();
        let plan = outcome.as_ref().ok();
        let hit_ns = plan.and_then(|plan| hit_ns(plan.plan(), place));
        mail.send(Message::Previewed(planning.revision, outcome, hit_ns));
    }
}

pub(super) fn offer(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    if let Some(outcome) = outcome(planning, newer) {
        mail.send(Message::Offered(planning.revision, outcome));
    }
}

pub(super) fn compile(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    if let Some(outcome) = outcome(planning, newer) {
        mail.send(Message::Compiled(planning.revision, outcome));
    }
}

pub(super) fn count(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    if let Some(outcome) = starting(planning, newer) {
        let session = within(planning, planning.session.shown());
        let (session, outcome) = match session {
            Ok(session) => (session, outcome),
            Err(error) => (planning.session.shown(), Err(vec![error.to_string()])),
        };
        mail.send(Message::Counting(session, outcome));
    }
}

/// Returns a layout to plan with on a saved image: an arena within reach of the kernel's text.
fn nominal() -> RuntimeLayout {
    RuntimeLayout::supposed(SUPPOSED_ARENA)
}
