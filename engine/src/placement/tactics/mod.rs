//! Tactics: a file each, with what the tactic is, when it applies, what it writes and what it waits for.
//!
//! [`EVENTS`] lists those that make a hook's event observable, in the order in which they are tried. A short
//! splice gets its bounce in a slot that [`super::offers`] collects, in order of cost. A new tactic is a file, a
//! variant of [`Tactic`] and an entry in one of the two; [`Tactics::without`](super::Tactics::without)
//! switches it off.

pub(super) mod arrivals;
pub(super) mod block_relocation;
pub(super) mod call_splice;
pub(super) mod direct_splice;
pub(super) mod donor;
pub(super) mod edges;
pub(super) mod local_bounce;
pub(super) mod padding;
pub(super) mod search;
pub(super) mod springboard;
pub(super) mod tracer;
pub(super) mod trap;
pub(super) mod whole_function;

use iced_x86::FlowControl;

use super::availability::Availability;
use super::body::Body;
use super::ids::{BlockId, InsnId};
use super::tactic::Tactic;
use crate::cfg::BlockEnd;
use crate::{HookType, Refusal, Rule};
use search::{Approach, EventTactic, Moment, Search, nothing};

/// Tactics that make events observable, in the order in which they are tried; [`trap`] repeats the search.
const EVENTS: [EventTactic; 4] = [
    direct_splice::TACTIC,
    tracer::TACTIC,
    edges::TACTIC,
    arrivals::TACTIC,
];

/// The cheapest approach to a hook.
///
/// # Errors
/// The rule that forbids it at the hook itself.
pub(super) fn reach(
    body: &Body<'_>,
    available: &mut Availability,
    block: BlockId,
    hook: HookType,
) -> Result<Approach, Refusal> {
    if let Some(refusal) = &body.refusal {
        return Err(refusal.clone());
    }
    let moment = match hook {
        HookType::Pre => pre(body, block),
        HookType::Post => post(body, block),
        HookType::Taken | HookType::Untaken => way_out(body, block, hook),
    };
    approach(body, available, moment?)
}

/// As [`reach`], for any instruction about to execute.
pub(super) fn reach_instruction(
    body: &Body<'_>,
    available: &mut Availability,
    at: InsnId,
) -> Result<Approach, Refusal> {
    approach(body, available, Moment::Before(at))
}

fn approach(
    body: &Body<'_>,
    available: &mut Availability,
    moment: Moment,
) -> Result<Approach, Refusal> {
    body.is_whole(moment.at())?;
    let cheapest = |available: &Availability| Search { body, available }.first(moment);
    cheapest(available).or_else(|refusal| trap::reach(available, cheapest).ok_or(refusal))
}

impl Search<'_, '_> {
    /// The first approach of [`EVENTS`].
    fn first(self, moment: Moment) -> Result<Approach, Refusal> {
        let mut first: Option<Refusal> = None;
        let tactics = EVENTS.iter();
        for entry in tactics.filter(|entry| self.available.tactics.has(entry.tactic)) {
            let next = match (entry.reach)(self, moment) {
                Some(Ok(approach)) => return Ok(approach),
                Some(Err(refusal)) => refusal,
                None => continue,
            };
            first = Some(match first {
                None => next,
                // The last instruction before the block's branch may be a call, which explains the refusal better.
                Some(_) if entry.tactic == Tactic::Edges && is_after_call(moment, &next) => next,
                Some(mut first) => {
                    first.why =
                        format!("{}; {}: {} ({})", first.why, entry.also, next.why, next.at);
                    first
                }
            });
        }
        Err(first.unwrap_or_else(|| {
            let why = "no tactic that is switched on applies";
            Refusal::new(Rule::NothingToDisplace, self.body.start(moment.at()), why)
        }))
    }
}

/// Returns whether a refusal is about a call before the branch that ends a block.
fn is_after_call(moment: Moment, refusal: &Refusal) -> bool {
    let has_others = match moment {
        Moment::Branch { begin, last, .. } => begin.is_some_and(|begin| begin < last),
        Moment::Before(_) | Moment::Leaves { .. } => false,
    };
    has_others && refusal.rule == Rule::PostAfterCall
}

/// The start of a block.
fn pre(body: &Body<'_>, block: BlockId) -> Result<Moment, Refusal> {
    match body.ends_of(block) {
        Some((Some(begin), _)) => Ok(Moment::Before(begin)),
        Some((None, last)) if body.tracer == Some(last) => Ok(Moment::Before(last)),
        _ => Err(nothing(body, block)),
    }
}

/// The end of a block.
fn post(body: &Body<'_>, block: BlockId) -> Result<Moment, Refusal> {
    let Some((begin, last)) = body.ends_of(block) else {
        return Err(nothing(body, block));
    };
    if ends_with_branch(body, block, last) {
        return Ok(Moment::Branch { block, begin, last });
    }
    if body.faults_to_next(last) {
        let why =
            "its last instruction may also fault, and its fixup is where the next block begins";
        return Err(Refusal::new(Rule::MayFault, body.start(last), why));
    }
    Ok(Moment::Leaves {
        block,
        last,
        to: body.end(last),
        only: false,
    })
}

/// One of the two ways out of a block that ends with a conditional branch.
fn way_out(body: &Body<'_>, block: BlockId, hook: HookType) -> Result<Moment, Refusal> {
    let Some((_, last)) = body.ends_of(block) else {
        return Err(nothing(body, block));
    };
    let end = body.block(block).map(|(_, block)| block.end);
    let target = (body.target(last)).filter(|_| end == Some(BlockEnd::Conditional));
    let next = body.end(last);
    let to = match target {
        Some(target) if target == next => {
            let why = "the branch targets the next instruction, so both ways are the same";
            return Err(Refusal::new(Rule::NoBranch, body.start(last), why));
        }
        Some(target) if hook == HookType::Taken => target,
        Some(_) => next,
        None => {
            let why = "the block does not end with a conditional branch";
            return Err(Refusal::new(Rule::NoBranch, body.start(last), why));
        }
    };
    Ok(Moment::Leaves {
        block,
        last,
        to,
        only: true,
    })
}

/// Returns whether the block ends with a branch, before which its post-hook is, rather than by falling through.
fn ends_with_branch(body: &Body<'_>, block: BlockId, last: InsnId) -> bool {
    let end = body.block(block).map(|(_, block)| block.end);
    match body.instruction(last).map(|last| last.flow_control()) {
        // A static key that is off now is a branch all the same.
        Some(FlowControl::Next) => end == Some(BlockEnd::Conditional),
        Some(FlowControl::Call | FlowControl::IndirectCall) => end == Some(BlockEnd::NoReturn),
        // A WARN continues.
        Some(FlowControl::Exception) => end != Some(BlockEnd::FallThrough),
        Some(FlowControl::Interrupt) => false,
        _ => true,
    }
}
