//! Checks that the instructions of a site may be displaced, and that its written bytes may be
//! overwritten.

use crate::verify::reason::Reason;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::decoded::DecodedInsn;
use super::exception::may_be_moved;
use super::originals::OriginalCode;
use super::padding;
use super::routine::Routine;
use crate::code::{Fixed, Origin, Why};
use crate::placement::{Bounce, SPLICE_BYTES, Site, Slot, Splice};
use crate::{Addr, Span};

/// Violations of a site: places and reasons.
pub(crate) type Faults = Vec<(Addr, Reason)>;

/// Returns the bytes that are written at the start of a site.
pub(crate) fn written(site: &Site) -> Span {
    Span::new(site.displaced.start, site.splice.bytes())
}

/// Returns the function that contains `at`, if it may be modified.
fn routine<'a>(originals: &'a OriginalCode<'_>, at: Addr) -> Result<&'a Routine, (Addr, Reason)> {
    match originals.around(at.0) {
        Some((routine, _)) if routine.strays => Err((
            at,
            Reason::StrayBranch {
                name: routine.name.clone(),
            },
        )),
        Some((routine, _)) => Ok(routine),
        None => Err((at, Reason::NoFunction)),
    }
}

/// Returns the instructions of a span.
fn whole(routine: &Routine, span: Span) -> Result<&[DecodedInsn], (Addr, Reason)> {
    if !(routine.span.start <= span.start && span.end <= routine.span.end && span.start < span.end)
    {
        let Span { start, end } = span;
        let why = Reason::OutsideFunction {
            start,
            end,
            name: routine.name.clone(),
        };
        return Err((span.start, why));
    }
    routine.within(span).ok_or((span.start, Reason::NotWhole))
}

/// Checks a site against the bytes of its function. `needed` is whether the events of other sites
/// depend on it; `hosted` are the bounces in its bytes.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn judge(
    originals: &OriginalCode<'_>,
    site: &Site,
    needed: bool,
    hosted: &[Bounce],
) -> Result<(), Faults> {
    let span = site.displaced;
    let routine = routine(originals, span.start).map_err(|fault| vec![fault])?;
    let displaced = whole(routine, span).map_err(|fault| vec![fault])?;
    let mut faults = Faults::new();
    let mut fault = |at: Addr, why: Reason| faults.push((at, why));
    let written = written(site);
    let filled: Vec<Addr> = site.filled_bytes().collect();
    let overlapped = |decoded: &&DecodedInsn| {
        let bounce = |bounce: &Bounce| decoded.span().overlaps(Span::new(bounce.at, SPLICE_BYTES));
        decoded.span().overlaps(written)
            || hosted.iter().any(bounce)
            || filled.iter().any(|&at| decoded.span().contains(at))
    };
    // If another site depends on it for its meaning, no thread may be inside any displaced
    // instruction.
    let counted = match site.splice {
        Splice::Tracer => 0,
        _ if needed => displaced.len(),
        _ => displaced.iter().filter(overlapped).count(),
    };
    if u32::try_from(counted) != Ok(site.overwritten) {
        let why = Reason::OverwrittenCount {
            stated: site.overwritten,
            counted,
        };
        fault(span.start, why);
    }
    // No thread executes displaced bytes, whatever they hold, and the driver restores what it fills.
    let is_free = |at: Addr| {
        let bounce = |bounce: &Bounce| Span::new(bounce.at, SPLICE_BYTES).contains(at);
        span.contains(at) && site.splice != Splice::Tracer && !hosted.iter().any(bounce)
    };
    if let Some(&at) = filled.iter().find(|at| !is_free(**at)) {
        fault(at, Reason::FilledByte);
    }
    if span.end < written.end {
        let rest = Span {
            start: span.end,
            end: written.end,
        };
        if let Err(why) = padding::is_never_run(originals, rest) {
            let why = Reason::SpliceTooLong {
                displaced: span.len(),
                written: written.len(),
                why: why.into(),
            };
            fault(span.start, why);
        }
    }
    let touched = Span {
        start: span.start,
        end: span.end.max(written.end),
    };
    if site.splice == Splice::Tracer {
        let tracers = routine
            .sites_in(span)
            .all(|own| own.why == Why::Tracer && own.span == span);
        if !tracers || routine.sites_in(span).next().is_none() || !hosted.is_empty() {
            fault(span.start, Reason::NotTracers);
        }
    } else {
        kernel_sites(routine, touched, "displaced", &mut faults);
    }
    if site.splice == Splice::Call && !is_over_call(site, displaced) {
        faults.push((span.start, Reason::NotOverCall));
    }
    landings(routine, touched, &mut faults);
    for (index, decoded) in displaced.iter().enumerate() {
        if index + 1 != displaced.len() && (decoded.is_call() || !decoded.runs_on) {
            faults.push((Addr(decoded.at()), Reason::EndsEarly));
        }
        movable(originals, routine, decoded, "displaced", &mut faults);
    }
    for run_on in &site.continuations {
        if let Err(fault) = copied(originals, run_on.copied, &mut faults) {
            faults.push(fault);
        }
        if run_on.copied.start != run_on.edge.to {
            let why = Reason::ContinuationStart;
            faults.push((run_on.edge.to, why));
        }
    }
    if !site.continuations.is_sorted_by(|a, b| a.edge < b.edge) {
        let why = Reason::ContinuationOrder;
        faults.push((span.start, why));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

/// Returns whether a site displaces one `call rel32` without prefixes, so that the return address of a call in its
/// place is the original one, and has no continuation, since control returns to the text.
fn is_over_call(site: &Site, displaced: &[DecodedInsn]) -> bool {
    let is_plain = |decoded: &DecodedInsn| {
        decoded.instruction.code() == Code::Call_rel32_64
            && decoded.span().len() == SPLICE_BYTES
            && decoded.span() == site.displaced
    };
    matches!(displaced, [call] if is_plain(call)) && site.continuations.is_empty()
}

/// Checks a continuation. Its original stays in the text, so that only the copy must be right.
fn copied(
    originals: &OriginalCode<'_>,
    span: Span,
    faults: &mut Faults,
) -> Result<(), (Addr, Reason)> {
    let routine = routine(originals, span.start)?;
    for decoded in whole(routine, span)? {
        let mut emulated = false;
        for site in routine.sites_in(decoded.span()) {
            match site.why {
                Why::StaticKey | Why::StaticCall => emulated = true,
                _ if !stays(routine, site) => {}
                kind => faults.push((
                    site.span.start,
                    Reason::FixedSite {
                        kind: name(kind),
                        action: "copied",
                    },
                )),
            }
        }
        if !emulated {
            movable(originals, routine, decoded, "copied", faults);
        }
    }
    Ok(())
}

/// Checks a bounce against the bytes at its address.
///
/// # Errors
/// The bytes may execute, or are not free.
pub(crate) fn judge_bounce(
    originals: &OriginalCode<'_>,
    sites: &[Site],
    bounce: &Bounce,
) -> Result<(), Reason> {
    let span = Span::new(bounce.at, SPLICE_BYTES);
    let host = match bounce.slot {
        Slot::Padding => {
            padding::is_never_run(originals, span)?;
            padding::keeps_speculation(originals, span)?;
            None
        }
        Slot::Exposed(host) => {
            let host = sites.get(host.0 as usize).ok_or(Reason::NoSite)?;
            if host.splice == Splice::Tracer {
                return Err(Reason::ExposedByTracer);
            }
            if span.start < written(host).end {
                return Err(Reason::BeforeSplice);
            }
            let end = host.displaced.end;
            if end < span.end {
                let rest = Span {
                    start: end,
                    end: span.end,
                };
                padding::is_never_run(originals, rest)?;
            }
            Some(host)
        }
    };
    let mut faults = Faults::new();
    if let Some((routine, _)) = originals.before(bounce.at.0) {
        kernel_sites(routine, span, "overwritten", &mut faults);
    }
    if let Some((at, why)) = faults.pop() {
        return Err(Reason::FixedSiteAt {
            kind: why.into(),
            at,
        });
    }
    let after = sites.partition_point(|site| site.displaced.start < span.end);
    let mut displacing = sites
        .iter()
        .take(after)
        .rev()
        .take_while(|site| site.displaced.end > span.start);
    if displacing.any(|site| host != Some(site)) {
        return Err(Reason::ForeignDisplacement);
    }
    Ok(())
}

/// Checks that control never enters the bytes after the first.
fn landings(routine: &Routine, touched: Span, faults: &mut Faults) {
    let after_first = touched.start.0.saturating_add(1)..touched.end.0;
    for &target in routine.targets.range(after_first.clone()) {
        faults.push((Addr(target), Reason::TargetInside));
    }
    for &back in routine.returns.range(after_first) {
        faults.push((Addr(back), Reason::ReturnInside));
    }
}

fn name(kind: Why) -> &'static str {
    match kind {
        Why::StaticKey => "a jump label",
        Why::StaticCall => "a static call",
        Why::Alternative => "an instruction that the kernel may rewrite",
        Why::Tracer => "the function tracer's bytes",
        Why::Exception { .. } => "an instruction with an exception-table entry",
        Why::Bug { .. } => "an instruction of the bug table",
        Why::Forbidden => "text where the kernel forbids probes",
    }
}

/// Returns whether the fixed site must stay in place.
fn stays(routine: &Routine, site: &Fixed) -> bool {
    match site.why {
        Why::Exception { handler } => !may_be_moved(routine, site.span, handler),
        _ => true,
    }
}

fn kernel_sites(routine: &Routine, span: Span, action: &'static str, faults: &mut Faults) {
    for site in routine.sites_in(span).filter(|site| stays(routine, site)) {
        faults.push((
            site.span.start,
            Reason::FixedSite {
                kind: name(site.why),
                action,
            },
        ));
    }
}

fn movable(
    originals: &OriginalCode<'_>,
    routine: &Routine,
    decoded: &DecodedInsn,
    action: &'static str,
    faults: &mut Faults,
) {
    // The kernel's mitigations rewrite such jumps, or rely on their places; nothing in a process does.
    let may_jump =
        originals.image.origin() == Origin::Object && decoded.instruction.code() == Code::Jmp_rm64;
    if may_jump {
        return;
    }
    if let Some(why) = immovable(routine, decoded) {
        faults.push((
            Addr(decoded.at()),
            Reason::Immovable {
                instruction: decoded.instruction.to_string(),
                action,
                why,
            },
        ));
    }
}

/// Returns the reason why an instruction may never be moved, if there is one.
fn immovable(routine: &Routine, decoded: &DecodedInsn) -> Option<&'static str> {
    let instruction = &decoded.instruction;
    let near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    let target = Addr(instruction.near_branch_target());
    match instruction.flow_control() {
        FlowControl::Next => {}
        // FILL_RETURN_BUFFER of arch/x86/include/asm/nospec-branch.h, for example.
        FlowControl::Call
            if near && routine.span.contains(target) && target != routine.span.start =>
        {
            return Some("it is there for the processor's stack of return addresses");
        }
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call
            if near =>
        {
            return None;
        }
        FlowControl::Return if matches!(instruction.mnemonic(), Mnemonic::Ret) => return None,
        FlowControl::Exception => return Some("the kernel knows it by its address"),
        _ => return Some("only near branches, near direct calls and near returns are moved"),
    }
    let target = if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register {
        instruction.op0_register()
    } else {
        Register::None
    };
    match instruction.mnemonic() {
        Mnemonic::Endbr64 | Mnemonic::Endbr32 => Some("it must stay where indirect branches land"),
        Mnemonic::Sti => Some("interrupts are held off until the next instruction has executed"),
        Mnemonic::Mov | Mnemonic::Pop if target == Register::SS => {
            Some("interrupts are held off until the next instruction has executed")
        }
        Mnemonic::Mov | Mnemonic::Pop if target == Register::GS => {
            Some("it moves the per-CPU data")
        }
        Mnemonic::Mov if target.is_cr() || target.is_dr() => {
            Some("it changes how memory or debugging works")
        }
        Mnemonic::Swapgs | Mnemonic::Wrgsbase | Mnemonic::Wrmsr => {
            Some("it may move the per-CPU data")
        }
        Mnemonic::Lgdt | Mnemonic::Lidt | Mnemonic::Lldt | Mnemonic::Ltr => {
            Some("it changes descriptor tables")
        }
        Mnemonic::Hlt
        | Mnemonic::Mwait
        | Mnemonic::Mwaitx
        | Mnemonic::Monitor
        | Mnemonic::Monitorx => Some("the way into the idle state may not be stretched"),
        Mnemonic::INVALID => Some("it is not an instruction"),
        _ if unlocked(instruction) => {
            Some("the kernel makes its prefix a lock when a second CPU comes")
        }
        _ if instruction.memory_base() == Register::EIP => {
            Some("its operand is relative to the low half of its address")
        }
        _ => None,
    }
}

/// Returns whether the kernel has replaced the instruction's lock prefix, for a single CPU
/// (`alternatives_smp_unlock` in arch/x86/kernel/alternative.c). An instruction with its lock
/// prefix keeps it.
fn unlocked(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::DS && instruction.op_code().can_use_lock_prefix()
}
