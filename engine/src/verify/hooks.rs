//! Whether each instrument stands where its identifier says, decoded from the function's bytes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gilk_instruments::{Program, Sampled};
use iced_x86::{FlowControl, Mnemonic};

use super::effects::Mask;
use super::hit::{Expected, argument_number};
use super::live::is_intact;
use super::routine::{Decoded, Routine};
use super::violation::Violation;
use crate::cfg::BlockIndex;
use crate::image::SiteKind;
use crate::plan::{Plan, PlannedInstrument};
use crate::{Addr, HookType, Image, InstrumentId, Span};

/// Instruments by identifier.
pub(super) type ById<'a> = BTreeMap<InstrumentId, &'a PlannedInstrument>;

/// The instruments by identifier; no two may have one, or one counter.
pub(super) fn by_id<'a>(plan: &'a Plan, violations: &mut Vec<Violation>) -> ById<'a> {
    let mut known = ById::new();
    let mut counters = BTreeSet::new();
    for one in &plan.instruments {
        let mut wrong = |why: String| {
            violations.push(Violation::Instrument {
                id: one.id,
                at: one.site.displaced.start,
                why,
            });
        };
        if InstrumentId::unpack(one.id.pack()) != Some(one.id) {
            wrong("its identifier does not fit its bits".into());
        }
        if known.insert(one.id, one).is_some() {
            wrong("another instrument has the same identifier".into());
        }
        if (one.definition.program == Program::Count) != one.counter.is_some() {
            wrong("it counts and has no counter, or has one and does not count".into());
        }
        if let Some(counter) = one.counter {
            if !counters.insert(counter) {
                wrong("another instrument has the same counter".into());
            }
            if counter_word(plan, one).is_none() {
                wrong("its counter is outside of the counters there are".into());
            }
        }
        if one.timer > 63 {
            wrong(format!("it uses timer {}, and the last is 63", one.timer));
        }
    }
    known
}

/// The per-CPU word an instrument counts in.
fn counter_word(plan: &Plan, one: &PlannedInstrument) -> Option<u64> {
    let counter = one.counter?;
    let bank = plan
        .layout
        .counters
        .get(usize::try_from(counter.bank).ok()?)?;
    (counter.slot < bank.slots).then(|| bank.base.0.wrapping_add(8 * u64::from(counter.slot)))
}

/// What the walk over a patch must find, in order.
///
/// # Errors
/// Why the patch's own list cannot be right.
pub(super) fn expected(
    plan: &Plan,
    known: &ById<'_>,
    patch: usize,
    hook: HookType,
) -> Result<Vec<Expected>, String> {
    let Some(patch) = plan.patches.get(patch) else {
        return Err("there is no such patch".into());
    };
    let ids = if hook == HookType::Pre {
        &patch.pre
    } else {
        &patch.post
    };
    let mut last: Option<InstrumentId> = None;
    let mut expected = Vec::with_capacity(ids.len());
    for &id in ids {
        let one = known
            .get(&id)
            .ok_or_else(|| format!("its instrument {id} is not in the plan"))?;
        if id.hook != hook || one.site != patch.site {
            return Err(format!("instrument {id} belongs to another hook or site"));
        }
        if last.is_some_and(|last| {
            (last.major, last.block) != (id.major, id.block) || last.order >= id.order
        }) {
            return Err(format!("instrument {id} is out of order"));
        }
        last = Some(id);
        expected.push(Expected {
            id,
            program: one.definition.program,
            timer: one.timer,
            counter: counter_word(plan, one),
        });
    }
    Ok(expected)
}

/// The point of the original code behind the sequential instructions of what is displaced.
pub(super) fn split(displaced: &[Decoded], span: Span) -> Addr {
    match displaced.last() {
        Some(last) if last.is_branch() || last.is_call() => Addr(last.at()),
        _ => span.end,
    }
}

/// What argument instruments use and where, for liveness: at a point, or behind an instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct SampledAt {
    pub(super) before: HashMap<u64, Mask>,
    pub(super) behind: HashMap<u64, Mask>,
}

impl SampledAt {
    pub(super) fn add(&mut self, routine: &Routine, one: &PlannedInstrument) {
        let Some(register) = sampled(one) else { return };
        let span = one.site.displaced;
        let (map, at) = match (
            one.id.hook,
            routine.within(span).and_then(<[Decoded]>::last),
        ) {
            (HookType::Post, Some(last)) if !last.is_branch() && !last.is_call() => {
                (&mut self.behind, last.at())
            }
            (HookType::Post, Some(last)) => (&mut self.before, last.at()),
            _ => (&mut self.before, span.start.0),
        };
        let mask = map.entry(at).or_default();
        *mask = mask.union(register);
    }
}

fn sampled(one: &PlannedInstrument) -> Option<Mask> {
    match one.definition.program {
        Program::Sample(Sampled::Argument(argument)) => {
            argument_number(argument).map(Mask::of_register)
        }
        _ => None,
    }
}

/// Checks the numbers and names of the plan's functions, which identifiers refer to.
pub(super) fn functions(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    for (number, function) in plan.functions.iter().enumerate() {
        let known = image.function_at(function.cfg.span.start);
        let same = known
            .is_some_and(|known| known.span == function.cfg.span && known.name == function.name);
        let in_order = function
            .cfg
            .blocks
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.span.end <= b.span.start));
        let numbered = function
            .cfg
            .blocks
            .iter()
            .zip(0..)
            .all(|(block, index)| block.index == BlockIndex(index));
        if u32::try_from(number) != Ok(function.major) || !same || !in_order || !numbered {
            let why = format!(
                "function {number}, {}, is not numbered, named or divided as the image has it",
                function.name
            );
            violations.push(Violation::Plan { why });
        }
    }
}

/// Checks that an instrument's splice leads to its hook: before the first instruction of its block,
/// or behind its last sequential one.
///
/// # Errors
/// Where it is not so, and why.
pub(super) fn stands(
    plan: &Plan,
    routine: &Routine,
    one: &PlannedInstrument,
) -> Result<(), (Addr, String)> {
    let site = one.site;
    let start = site.displaced.start;
    let function = plan
        .functions
        .get(usize::try_from(one.id.major).unwrap_or(usize::MAX));
    let function = function.filter(|function| function.cfg.span == routine.span);
    let block = function.and_then(|function| function.cfg.block(BlockIndex(one.id.block)));
    let Some(block) = block else {
        return Err((
            start,
            "its splice is not in the function of its number".into(),
        ));
    };
    let span = block.span;
    let Some(instructions) = routine.within(span).filter(|all| !all.is_empty()) else {
        return Err((
            span.start,
            "its block does not begin and end between instructions".into(),
        ));
    };
    if !(span.start <= start && start < span.end && site.displaced.end <= span.end) {
        return Err((
            start,
            format!(
                "its splice displaces bytes outside of its block, {} to {}",
                span.start, span.end
            ),
        ));
    }
    is_straight(routine, span, instructions)?;
    let point = match one.id.hook {
        HookType::Pre => {
            let skipped = routine
                .within(Span {
                    start: span.start,
                    end: start,
                })
                .unwrap_or_default();
            if !skipped.iter().all(|decoded| stays_first(routine, decoded)) {
                return Err((start, "instructions of its block run before it".into()));
            }
            start
        }
        HookType::Post => {
            let displaced = routine.within(site.displaced).unwrap_or_default();
            let point = behind_sequential(routine, span, instructions);
            if split(displaced, site.displaced) != point || site.split != point {
                return Err((
                    point,
                    "its place is not behind the last sequential instruction of its block".into(),
                ));
            }
            point
        }
    };
    match sampled(one) {
        Some(register) if !is_intact(routine, point.0, register) => Err((
            point,
            "the argument it samples may have changed since the function's entry".into(),
        )),
        _ => Ok(()),
    }
}

/// `endbr64`, the nop of four bytes that it becomes where no indirect branch leads, and the tracer's
/// bytes stand before any pre-hook of the function's entry.
fn stays_first(routine: &Routine, decoded: &Decoded) -> bool {
    let sealed = decoded.instruction.mnemonic() == Mnemonic::Nop && decoded.instruction.len() == 4;
    sealed
        || decoded.instruction.mnemonic() == Mnemonic::Endbr64
        || routine
            .sites_in(decoded.span())
            .any(|site| site.kind == SiteKind::Ftrace)
}

/// Control comes in at the first instruction only, and leaves at the last only.
fn is_straight(
    routine: &Routine,
    span: Span,
    instructions: &[Decoded],
) -> Result<(), (Addr, String)> {
    let inside = span.start.0.saturating_add(1)..span.end.0;
    if let Some(&at) = routine.targets.range(inside).next() {
        return Err((
            Addr(at),
            "control may come into the middle of its block here".into(),
        ));
    }
    let before_last = instructions
        .split_last()
        .map_or(&[][..], |(_, before)| before);
    let goes_on = |decoded: &Decoded| {
        decoded.instruction.flow_control() == FlowControl::Exception && decoded.runs_on
    };
    match before_last
        .iter()
        .find(|decoded| decoded.is_branch() && !goes_on(decoded) || is_key(routine, decoded))
    {
        Some(decoded) => Err((
            Addr(decoded.at()),
            "control may leave the middle of its block here".into(),
        )),
        None => Ok(()),
    }
}

fn is_key(routine: &Routine, decoded: &Decoded) -> bool {
    routine
        .sites_in(decoded.span())
        .any(|site| site.kind == SiteKind::StaticKey)
}

fn behind_sequential(routine: &Routine, span: Span, instructions: &[Decoded]) -> Addr {
    let Some(last) = instructions.last() else {
        return span.end;
    };
    let never_returns = last.is_call() && !last.runs_on;
    if last.is_branch() || never_returns || is_key(routine, last) {
        Addr(last.at())
    } else {
        span.end
    }
}
