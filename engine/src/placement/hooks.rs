//! The event of a hook, and the first tactic that reaches it.

use iced_x86::FlowControl;

use super::cover::{Cover, Dead, Needs, refusal};
use super::segments::{BlockNumber, Number, Outline};
use super::{Tactic, arrivals, edges, tracer};
use crate::cfg::BlockEnd;
use crate::{Addr, HookType, Refusal, Rule};

/// What a hook waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This instruction is about to run: counted wherever it is copied.
    Before(Number),
    /// Control takes one of these edges: counted wherever what they leave is copied.
    On(Vec<(Number, Addr)>),
    /// Control comes by the text to one of these.
    Arrives(Vec<Number>),
    /// Control comes to the function tracer's site.
    Traced,
}

/// How a hook is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// What it takes besides sites.
    pub(super) tactic: Tactic,
    pub(super) event: Event,
    pub(super) needs: Needs,
}

/// The cheapest way to a hook.
///
/// # Errors
/// The rule that forbids it at the hook itself.
pub(super) fn reach(
    outline: &Outline<'_>,
    dead: &mut Dead,
    block: BlockNumber,
    hook: HookType,
) -> Result<Way, Refusal> {
    if let Some(refusal) = &outline.refused {
        return Err(refusal.clone());
    }
    let way = |dead: &Dead| match hook {
        HookType::Pre => pre(outline, dead, block),
        HookType::Post => post(outline, dead, block),
        HookType::Taken | HookType::Untaken => way_out(outline, dead, block, hook),
    };
    way(dead).or_else(|refusal| with_traps(dead, way).map_err(|_| refusal))
}

/// As [`reach`], for any one instruction about to run.
pub(super) fn reach_instruction(
    outline: &Outline<'_>,
    dead: &mut Dead,
    at: Number,
) -> Result<Way, Refusal> {
    // Behind an endbr64 and at the tracer's site is nothing but the function's entry.
    if outline.tracer.is_some_and(|tracer| at <= tracer) {
        return Ok(tracer::entry());
    }
    let way = |dead: &Dead| before(outline, dead, at);
    way(dead).or_else(|refusal| with_traps(dead, way).map_err(|_| refusal))
}

/// The same search, with traps where nothing else goes.
fn with_traps(
    dead: &mut Dead,
    way: impl Fn(&Dead) -> Result<Way, Refusal>,
) -> Result<Way, Refusal> {
    dead.traps = true;
    let found = way(dead);
    dead.traps = false;
    found
}

fn pre(outline: &Outline<'_>, dead: &Dead, block: BlockNumber) -> Result<Way, Refusal> {
    match outline.body(block) {
        Some((Some(first), _)) => before(outline, dead, first),
        Some((None, last)) if outline.tracer == Some(last) => Ok(tracer::entry()),
        _ => nothing(outline, block),
    }
}

fn nothing(outline: &Outline<'_>, block: BlockNumber) -> Result<Way, Refusal> {
    let at = (outline.block(block)).map_or(Addr(0), |(_, block)| block.span.start);
    Err(Refusal::new(
        Rule::NothingToDisplace,
        at,
        "the block has nothing but an endbr64, which must stay",
    ))
}

/// An instruction about to run.
fn before(outline: &Outline<'_>, dead: &Dead, at: Number) -> Result<Way, Refusal> {
    if dead.reachable(outline, at) {
        return Ok(direct(Event::Before(at), at));
    }
    let before = at
        .checked_sub(1)
        .filter(|&before| outline.tracer == Some(before));
    if before.is_some_and(|before| outline.block_of(before) == outline.block_of(at)) {
        return Ok(tracer::entry());
    }
    edges::into(outline, dead, at).map_err(|why| because(refusal(outline, at), &why))
}

fn direct(event: Event, copied: Number) -> Way {
    let needs = Needs {
        copied: vec![copied],
        ..Needs::default()
    };
    Way {
        tactic: Tactic::DirectSplice,
        event,
        needs,
    }
}

/// One way on from an instruction, with what it took to copy all that leaves it.
fn on(outline: &Outline<'_>, dead: &Dead, cover: Cover<'_, '_>, from: Number, to: Addr) -> Way {
    Way {
        tactic: edges::tactic(outline, dead, from),
        event: Event::On(vec![(from, to)]),
        needs: cover.needs,
    }
}

/// The rule at the hook, and why its edges do not help either.
fn because(mut refusal: Refusal, edges: &Refusal) -> Refusal {
    refusal.why = format!(
        "{}; nor can its edges be hooked: {} ({})",
        refusal.why, edges.why, edges.at
    );
    refusal
}

/// The rule at the hook, and why what follows the block does not tell either.
fn because_of(mut refusal: Refusal, arrivals: &Refusal) -> Refusal {
    refusal.why = format!(
        "{}; nor does what control comes to tell it: {} ({})",
        refusal.why, arrivals.why, arrivals.at
    );
    refusal
}

fn post(outline: &Outline<'_>, dead: &Dead, block: BlockNumber) -> Result<Way, Refusal> {
    let Some((body, last)) = outline.body(block) else {
        return nothing(outline, block);
    };
    if !branches(outline, block, last) {
        return run_on(outline, dead, block, last);
    }
    if dead.reachable(outline, last) {
        return Ok(direct(Event::Before(last), last));
    }
    if body.is_none_or(|body| body >= last) {
        let way = pre(outline, dead, block);
        return way.or_else(|why| arrivals::out_of(outline, dead, block, last).map_err(|_| why));
    }
    let mut cover = Cover::new(outline, dead);
    let before = last.saturating_sub(1);
    match cover.leaving(before) {
        Ok(()) => Ok(on(outline, dead, cover, before, outline.start(last))),
        Err(why) => arrivals::out_of(outline, dead, block, last).map_err(|no| {
            let why = if why.rule == Rule::PostAfterCall {
                why
            } else {
                because(refusal(outline, last), &why)
            };
            because_of(why, &no)
        }),
    }
}

/// One of the two ways on from the conditional branch at the end of a block.
fn way_out(
    outline: &Outline<'_>,
    dead: &Dead,
    block: BlockNumber,
    hook: HookType,
) -> Result<Way, Refusal> {
    let Some((_, last)) = outline.body(block) else {
        return nothing(outline, block);
    };
    let end = outline.block(block).map(|(_, block)| block.end);
    let jumps_to = (outline.target(last)).filter(|_| end == Some(BlockEnd::Conditional));
    let runs_on = outline.end(last);
    let to = match jumps_to {
        Some(target) if target == runs_on => {
            let why = "the branch leads to the same place whether it jumps or not";
            return Err(Refusal::new(Rule::NoBranch, outline.start(last), why));
        }
        Some(target) if hook == HookType::Taken => target,
        Some(_) => runs_on,
        None => {
            let why = "the block does not end with a conditional branch";
            return Err(Refusal::new(Rule::NoBranch, outline.start(last), why));
        }
    };
    let mut cover = Cover::new(outline, dead);
    match cover.leaving(last) {
        Ok(()) => Ok(on(outline, dead, cover, last, to)),
        Err(why) => {
            let way = outline.number(to).map_or_else(
                || {
                    Err(Refusal::new(
                        Rule::WaysUnknown,
                        to,
                        "control leaves the function here",
                    ))
                },
                |to| arrivals::by(outline, dead, last, vec![to]),
            );
            way.map_err(|no| because_of(why, &no))
        }
    }
}

/// The post-hook of a block that runs on into the next.
fn run_on(
    outline: &Outline<'_>,
    dead: &Dead,
    block: BlockNumber,
    last: Number,
) -> Result<Way, Refusal> {
    if outline.faults_on(last) {
        let why = "its last instruction may also fault and go on where the next block begins";
        return Err(Refusal::new(Rule::MayFault, outline.start(last), why));
    }
    let mut cover = Cover::new(outline, dead);
    match cover.leaving(last) {
        Ok(()) => Ok(on(outline, dead, cover, last, outline.end(last))),
        Err(why) => arrivals::out_of(outline, dead, block, last).map_err(|no| because_of(why, &no)),
    }
}

/// Whether the block ends with a branch, before which its post-hook stands, rather than running on.
fn branches(outline: &Outline<'_>, block: BlockNumber, last: Number) -> bool {
    let end = outline.block(block).map(|(_, block)| block.end);
    match outline.instruction(last).map(|last| last.flow_control()) {
        // A static key that is off now is a branch all the same.
        Some(FlowControl::Next) => end == Some(BlockEnd::Conditional),
        Some(FlowControl::Call | FlowControl::IndirectCall) => end == Some(BlockEnd::NoReturn),
        // A WARN goes on.
        Some(FlowControl::Exception) => end != Some(BlockEnd::FallThrough),
        Some(FlowControl::Interrupt) => false,
        _ => true,
    }
}
