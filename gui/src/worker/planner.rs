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

/// Returns the plan or its errors, or `None` if a newer request waits.
pub(super) fn outcome(
    planning: &Planning,
    newer: &Receiver<Planning>,
) -> Option<Result<Arc<VerifiedPlan>, Vec<String>>> {
    let planned = planned(planning, newer)?;
    Some(planned.map_err(|faults| faults.words))
}

fn planned(
    planning: &Planning,
    newer: &Receiver<Planning>,
) -> Option<Result<Arc<VerifiedPlan>, Faults>> {
    let image = planning.catalogue.image();
    let mut session = planning.session.shown();
    session.placements.extend(planning.added.clone());
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
                placement: faulty(&session, &error),
                words: vec![error.to_string()],
            }));
        }
        Ok(planned) => planned,
    };
    let verified = verify(image, planned).map(Arc::new);
    Some(verified.map_err(|violations| Faults {
        words: violations.iter().map(ToString::to_string).collect(),
        placement: None,
    }))
}

/// Returns the layout of the target for a session.
fn layout(planning: &Planning, session: &Session) -> ilk_driver::Result<RuntimeLayout> {
    let is_process = planning.catalogue.image().origin() == Origin::Object;
    match (&planning.process, &planning.layout) {
        (Some(process), Some(_)) if is_process => process.layout(session, &planning.library),
        (_, Some(layout)) => Ok(layout.clone()),
        (_, None) => Ok(nominal()),
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
    let in_cache = || process?.cache_refusal(plan);
    ProcessTarget::refusal(plan).or_else(in_cache)
}

pub(super) fn work(planning: &Planning, newer: &Receiver<Planning>, mail: &Mail) {
    let Some(planned) = planned(planning, newer) else {
        return;
    };
    let (outcome, fault) = match planned {
        Ok(plan) => (Ok(plan), None),
        Err(faults) => (Err(faults.words), faults.placement),
    };
    let plan = outcome.as_ref().ok().map(|verified| verified.plan());
    let bytes = plan.map_or(0, |plan| {
        plan.patches.iter().map(|patch| patch.code.len()).sum()
    });
    let reply = PlanReply {
        bytes,
        process_refusal: plan.and_then(|plan| refusal(planning, plan)),
        outcome,
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
    if let Some(outcome) = outcome(planning, newer) {
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
