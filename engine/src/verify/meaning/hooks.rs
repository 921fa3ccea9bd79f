//! The instruments of a plan, and the events that hit each of them, derived from the bytes of its
//! function.

use crate::verify::reason::Reason;
use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_instruments::program::{Expr, ExprKind, Gpr, Input, Probe};
use iced_x86::{FlowControl, Mnemonic};

use crate::cfg::BlockIndex;
use crate::code::Why;
use crate::patch::Probed;
use crate::placement::{InsnEdge, Point, Splice};
use crate::plan::{Patch, Plan, PlannedInstrument};
use crate::verify::hash::Map;
use crate::verify::patch::hit::{Expected, NativeCall};
use crate::verify::patch::phase::Lists;
use crate::verify::text::decoded::DecodedInsn;
use crate::verify::text::effects::{Mask, argument_number};
use crate::verify::text::liveness::{Changed, SampledAt};
use crate::verify::text::routine::Routine;
use crate::verify::violation::Violation;
use crate::{Addr, HookType, Image, InstrumentId, Span};

/// Instruments by identifier.
pub(crate) type ById<'a> = Map<InstrumentId, &'a PlannedInstrument>;

/// The event that hits a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HitEvent {
    /// Control takes this edge.
    On(InsnEdge),
    /// Control reaches this instruction, from anywhere.
    At(Addr),
}

/// The events that hit each instrument, sorted.
pub(crate) type HitEvents = Vec<(InstrumentId, HitEvent)>;

/// Returns an address for violations of an instrument: the start of its block.
pub(crate) fn place(plan: &Plan, instrument: &PlannedInstrument) -> Addr {
    let function = plan.function(instrument.id.major);
    let block =
        function.and_then(|function| function.outline.block(BlockIndex(instrument.id.block)));
    block.map_or(Addr(0), |block| block.start)
}

/// Indexes the instruments by identifier, and checks that identifiers and counters are unique.
pub(crate) fn by_id<'a>(plan: &'a Plan, violations: &mut Vec<Violation>) -> ById<'a> {
    let mut by_id = ById::default();
    by_id.reserve(plan.instruments.len());
    let mut counters = BTreeSet::new();
    for instrument in &plan.instruments {
        let mut wrong = |why: Reason| {
            violations.push(Violation::Instrument {
                id: instrument.id,
                at: place(plan, instrument),
                why,
            });
        };
        if InstrumentId::unpack(instrument.id.pack()) != Some(instrument.id) {
            wrong(Reason::IdentifierBits);
        }
        if by_id.insert(instrument.id, instrument).is_some() {
            wrong(Reason::SameIdentifier);
        }
        if instrument.definition.counts() != instrument.counter.is_some() {
            wrong(Reason::NeedlessCounter);
        }
        if instrument.definition.native().is_some() == instrument.probe.is_some() {
            wrong(Reason::TwoPrograms);
        }
        if instrument
            .probe
            .as_ref()
            .is_some_and(|it| it.probe().is_none())
        {
            wrong(Reason::NoProbe);
        }
        if let Some(counter) = instrument.counter {
            if !counters.insert(counter) {
                wrong(Reason::SameCounter);
            }
            if counter_word(plan, instrument).is_none() {
                wrong(Reason::CounterBank);
            }
        }
        let sorted = instrument.points.is_sorted_by(|a, b| a < b)
            && instrument.needs.is_sorted_by(|a, b| a < b);
        let sites = instrument
            .points
            .iter()
            .map(|(site, _)| site)
            .chain(&instrument.needs);
        let mut sites = sites.copied();
        let known_sites = sites.all(|site| plan.site(site).is_some());
        if instrument.points.is_empty() || !sorted || !known_sites {
            wrong(Reason::InstrumentOrder);
        }
    }
    by_id
}

/// Returns the per-CPU word of an instrument's counter.
fn counter_word(plan: &Plan, instrument: &PlannedInstrument) -> Option<u64> {
    let counter = instrument.counter?;
    let bank = plan
        .layout
        .counters
        .get(usize::try_from(counter.bank).ok()?)?;
    (counter.slot < bank.slots).then(|| bank.base.0.wrapping_add(8 * u64::from(counter.slot)))
}

/// Returns the instruments that the walk over a patch must find, in order.
///
/// # Errors
/// The reason why the lists of the patch cannot be right.
pub(crate) fn expected(plan: &Plan, by_id: &ById<'_>, patch: &Patch) -> Result<Lists, Reason> {
    if !patch.hooks.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(Reason::PointOrder);
    }
    let mut lists = Lists::with_capacity(patch.hooks.len());
    for (point, ids) in &patch.hooks {
        let mut list = Vec::with_capacity(ids.len());
        for &id in ids {
            let instrument = by_id.get(&id).ok_or(Reason::UnplannedInstrument { id })?;
            if instrument
                .points
                .binary_search(&(patch.site, *point))
                .is_err()
            {
                return Err(Reason::ForeignPoint { id });
            }
            list.push(Expected {
                id,
                counter: instrument.counter,
                probe: instrument.probe.clone(),
                native: native(plan, instrument)?,
                replacement: replacement(plan, instrument)?,
            });
        }
        if list.is_empty() {
            return Err(Reason::EmptyPoint);
        }
        lists.push((*point, list));
    }
    Ok(lists)
}

/// Collects the registers that instruments read at each point, for liveness.
pub(crate) fn sampled_at(plan: &Plan) -> SampledAt {
    let mut sampled_at = SampledAt::default();
    for instrument in &plan.instruments {
        let Some(register) = sampled(instrument) else {
            continue;
        };
        for (site, point) in &instrument.points {
            let (map, at) = match *point {
                Point::Entry => match plan.site(*site) {
                    Some(site) => (&mut sampled_at.before, site.displaced.start),
                    // `by_id` refuses the instrument.
                    None => continue,
                },
                Point::Before(at) => (&mut sampled_at.before, at),
                Point::On(edge) => (&mut sampled_at.after, edge.from),
            };
            let mask = map.entry(at.0).or_default();
            *mask = mask.union(register);
        }
    }
    sampled_at
}

/// Returns the registers that an instrument reads.
pub(crate) fn sampled(instrument: &PlannedInstrument) -> Option<Mask> {
    let read = inputs(instrument).filter_map(|input| match input {
        Input::Argument(number) => argument_number(number),
        Input::Returned => Some(0),
        Input::Register(gpr) => {
            let number = Gpr::ALL.iter().position(|known| *known == gpr);
            number.and_then(|number| u8::try_from(number).ok())
        }
        _ => None,
    });
    let read = read.map(Mask::of_register).reduce(Mask::union);
    read.or_else(|| arguments(instrument))
}

/// Returns the argument registers that an instrument reads.
fn arguments(instrument: &PlannedInstrument) -> Option<Mask> {
    let read = inputs(instrument).filter_map(|input| match input {
        Input::Argument(number) => argument_number(number),
        _ => None,
    });
    read.map(Mask::of_register).reduce(Mask::union)
}

/// Returns whether the input is an argument on the stack.
fn is_stacked(input: Input) -> bool {
    matches!(input, Input::Argument(number) if argument_number(number).is_none())
}

/// Iterates over the inputs of an instrument's program or native function.
fn inputs(instrument: &PlannedInstrument) -> impl Iterator<Item = Input> {
    let probe = instrument.probe.as_deref().and_then(Probed::probe);
    let expressions = probe.into_iter().flat_map(Probe::expressions);
    let native = instrument.definition.native().into_iter();
    let given = native.flat_map(|native| native.inputs());
    expressions.flat_map(|expr| expr.inputs()).chain(given)
}

/// Returns the address of the function by which an instrument replaces the original one.
fn replacement(plan: &Plan, instrument: &PlannedInstrument) -> Result<Option<Addr>, Reason> {
    let native = instrument.definition.native();
    let Some(native) = native.filter(|native| native.replaces) else {
        return Ok(None);
    };
    let id = instrument.id;
    let entry = plan.layout.replacement(native);
    entry.map(Some).ok_or(Reason::NoNativeCode { id })
}

/// Returns the native function that an instrument calls.
fn native(plan: &Plan, instrument: &PlannedInstrument) -> Result<Option<NativeCall>, Reason> {
    let native = instrument.definition.native();
    let Some(native) = native.filter(|native| !native.replaces) else {
        return Ok(None);
    };
    let code = plan.natives.iter().find(|code| code.is_of(native));
    let entry = code.and_then(|code| code.entry(&native.function));
    let entry = entry.ok_or(Reason::NoNativeCode { id: instrument.id })?;
    Ok(Some(NativeCall {
        native: Arc::clone(native),
        entry,
    }))
}

/// Checks that no program that loads memory is placed in the kernel's handlers of failed loads.
pub(crate) fn handlers(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    for instrument in &plan.instruments {
        // A native function reads no memory for the program; `by_id` refuses a program without the probe.
        let Some(probe) = instrument.probe.as_deref().and_then(Probed::probe) else {
            continue;
        };
        let load = |expr: &Expr| {
            let loads = expr.any(&mut |node| {
                matches!(node.kind, ExprKind::Load { .. } | ExprKind::User { .. })
            });
            let counters = |input: &Input| {
                matches!(
                    input,
                    Input::Event(_) | Input::KernelStack(_) | Input::UserStack(_)
                )
            };
            let inputs = expr.inputs();
            loads
                || inputs
                    .iter()
                    .any(|input| counters(input) || is_stacked(*input))
        };
        let function = plan.function(instrument.id.major);
        let known = function.map(|function| image.function_at(function.outline.span.start));
        let refused = known
            .flatten()
            .is_none_or(|function| function.handles_faults || !image.is_known());
        if refused && probe.expressions().any(load) {
            let why = match function {
                Some(_) => Reason::LoadsInHandler { id: instrument.id },
                None => Reason::BlockNumber,
            };
            violations.push(Violation::Plan { why });
        }
    }
}

/// Checks the numbers and names of the plan's functions, to which identifiers refer.
pub(crate) fn functions(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    for (number, function) in plan.functions.iter().enumerate() {
        let known = image.function_at(function.outline.span.start);
        let same = known.is_some_and(|known| {
            known.span == function.outline.span && known.name == function.name
        });
        let mut blocks = function.outline.blocks.windows(2);
        let in_order = blocks.all(|pair| matches!(pair, [a, b] if a.end <= b.start));
        if u32::try_from(number) != Ok(function.major) || !same || !in_order {
            let name = function.name.clone();
            let why = Reason::NumberedFunction {
                number,
                name: name.to_string(),
            };
            violations.push(Violation::Plan { why });
        }
    }
}

/// Returns the events that hit an instrument: the start of its block or the end. An end that
/// branches is the branch itself, or its outgoing edges, depending on the instrument's points.
///
/// # Errors
/// The place and the reason if the block is not a block, or an argument may be gone.
pub(crate) fn event(
    plan: &Plan,
    routine: &Routine,
    instrument: &PlannedInstrument,
    changed: &mut Changed,
) -> Result<Vec<HitEvent>, (Addr, Reason)> {
    let function = plan.function(instrument.id.major);
    let function = function.filter(|function| function.outline.span == routine.span);
    let block =
        function.and_then(|function| function.outline.block(BlockIndex(instrument.id.block)));
    let Some(span) = block else {
        let why = Reason::BlockNumber;
        return Err((routine.span.start, why));
    };
    let instructions = routine.within(span).unwrap_or_default();
    let Some(last) = instructions.last() else {
        return Err((span.start, Reason::BlockBoundary));
    };
    is_straight(routine, span, instructions)?;
    let after_block = HitEvent::On(InsnEdge {
        from: Addr(last.at()),
        to: span.end,
    });
    let event = match instrument.id.hook {
        HookType::Pre => {
            let entry = span.start == routine.span.start;
            let stays = |decoded: &&DecodedInsn| {
                let endbr = decoded.instruction.mnemonic() == Mnemonic::Endbr64;
                endbr || entry && stays_first(routine, decoded)
            };
            let mut stand = instructions.iter().take_while(stays);
            // No code is between these instructions, so that each of them serves.
            let chosen = stand.find(|decoded| stands_at(plan, instrument, decoded.at()));
            let first = instructions.iter().find(|decoded| !stays(decoded));
            chosen
                .or(first)
                .map_or(after_block, |first| HitEvent::At(Addr(first.at())))
        }
        HookType::Post if terminates(routine, last) => HitEvent::At(Addr(last.at())),
        HookType::Post => after_block,
        HookType::Taken | HookType::Untaken => way_out(routine, last, instrument.id.hook)?,
    };
    if event == after_block && faults_to(routine, last, span.end) {
        let why = Reason::FaultsToNext;
        return Err((Addr(last.at()), why));
    }
    let ways = ways_from(routine, last);
    let by_ways = event == HitEvent::At(Addr(last.at()))
        && instrument.id.hook == HookType::Post
        && !ways.is_empty()
        && instrument.points.iter().all(|(site, point)| match *point {
            Point::On(edge) => edge.from.0 == last.at(),
            Point::Entry => plan.site(*site).is_some_and(|site| {
                let start = site.displaced.start;
                start.0 != last.at() && ways.contains(&start)
            }),
            Point::Before(_) => false,
        });
    let returns = last.instruction.flow_control() == FlowControl::Return
        || routine.is_return(last.instruction.near_branch_target());
    if inputs(instrument).any(|input| input == Input::Returned)
        && !(instrument.id.hook == HookType::Post && returns)
    {
        let why = Reason::ReturnedUnknown;
        return Err((Addr(last.at()), why));
    }
    let entry = instrument.id.hook == HookType::Pre && span.start == routine.span.start;
    let comes_back = routine.targets.contains(&routine.span.start.0);
    if inputs(instrument).any(is_stacked) && (!entry || comes_back) {
        let why = Reason::StackArgument;
        return Err((span.start, why));
    }
    if instrument.definition.replaces() && (!entry || comes_back) {
        let why = Reason::ReplacedInside;
        return Err((span.start, why));
    }
    if let Some(register) = arguments(instrument) {
        let (point, after_block) = match event {
            HitEvent::At(at) if !by_ways => (at.0, Mask::NONE),
            _ => (last.at(), last.changes),
        };
        let changed = changed.before(routine, point).union(after_block);
        let intact = changed.0 & register.0 == 0;
        if !intact {
            let why = Reason::ArgumentGone;
            return Err((Addr(last.at()), why));
        }
    }
    if by_ways {
        let from = Addr(last.at());
        let events = ways
            .into_iter()
            .map(|to| HitEvent::On(InsnEdge { from, to }));
        return Ok(events.collect());
    }
    Ok(vec![event])
}

/// Returns the edge of one of the two ways of a conditional branch.
fn way_out(
    routine: &Routine,
    last: &DecodedInsn,
    hook: HookType,
) -> Result<HitEvent, (Addr, Reason)> {
    let runs_on = Addr(last.end());
    let mut ways = ways_from(routine, last);
    let may_run_on = ways.remove(&runs_on);
    let (Some(jumps_to), true) = (ways.pop_first().filter(|_| ways.is_empty()), may_run_on) else {
        let why = Reason::NotTwoWay;
        return Err((Addr(last.at()), why));
    };
    let to = if hook == HookType::Taken {
        jumps_to
    } else {
        runs_on
    };
    let from = Addr(last.at());
    Ok(HitEvent::On(InsnEdge { from, to }))
}

/// Returns the targets of a conditional branch, a jump or a static key.
fn ways_from(routine: &Routine, decoded: &DecodedInsn) -> BTreeSet<Addr> {
    let key = routine
        .sites_in(decoded.span())
        .find(|site| site.why == Why::StaticKey);
    let near = decoded.instruction.is_jcc_short_or_near()
        || decoded.instruction.is_jmp_short_or_near()
        || decoded.instruction.is_loop()
        || decoded.instruction.is_loopcc()
        || decoded.instruction.is_jcx_short();
    let mut ways = BTreeSet::new();
    if near || key.is_some() {
        ways.extend(decoded.runs_on.then_some(Addr(decoded.end())));
        ways.extend(near.then_some(Addr(decoded.instruction.near_branch_target())));
        ways.extend(key.and_then(|key| key.target));
    }
    ways
}

/// Returns whether a point of the instrument is before the instruction at `at`.
fn stands_at(plan: &Plan, one: &PlannedInstrument, at: u64) -> bool {
    one.points.iter().any(|(site, point)| match *point {
        Point::Entry => plan
            .site(*site)
            .is_some_and(|site| site.displaced.start.0 == at && site.splice != Splice::Tracer),
        Point::Before(before) => before.0 == at,
        Point::On(_) => false,
    })
}

fn faults_to(routine: &Routine, decoded: &DecodedInsn, to: Addr) -> bool {
    routine
        .sites_in(decoded.span())
        .any(|site| matches!(site.why, Why::Exception { .. }) && site.target == Some(to))
}

/// Returns whether the instruction precedes every pre hook of the function's entry: `endbr64`, the
/// four-byte nop that replaces it where no indirect branch targets it, or the bytes of the tracer.
fn stays_first(routine: &Routine, decoded: &DecodedInsn) -> bool {
    let sealed = decoded.instruction.mnemonic() == Mnemonic::Nop && decoded.instruction.len() == 4;
    sealed
        || decoded.instruction.mnemonic() == Mnemonic::Endbr64
        || routine
            .sites_in(decoded.span())
            .any(|site| site.why == Why::Tracer)
}

/// Checks that control enters the block at its first instruction only, and leaves it at its last
/// only.
fn is_straight(
    routine: &Routine,
    span: Span,
    instructions: &[DecodedInsn],
) -> Result<(), (Addr, Reason)> {
    let inside = span.start.0.saturating_add(1)..span.end.0;
    if let Some(&at) = routine.targets.range(inside).next() {
        return Err((Addr(at), Reason::EntersBlock));
    }
    let before_last = instructions
        .split_last()
        .map_or(&[][..], |(_, before)| before);
    match before_last
        .iter()
        .find(|decoded| terminates(routine, decoded))
    {
        Some(decoded) => Err((Addr(decoded.at()), Reason::LeavesBlock)),
        None => Ok(()),
    }
}

/// Returns whether the instruction terminates a block. A trap that continues, and an interrupt, do
/// not.
fn terminates(routine: &Routine, decoded: &DecodedInsn) -> bool {
    let key = routine
        .sites_in(decoded.span())
        .any(|site| site.why == Why::StaticKey);
    let never_returns = decoded.is_call() && !decoded.runs_on;
    let comes_back = decoded.runs_on
        && matches!(
            decoded.instruction.flow_control(),
            FlowControl::Exception | FlowControl::Interrupt
        );
    key || never_returns || decoded.is_branch() && !comes_back
}
