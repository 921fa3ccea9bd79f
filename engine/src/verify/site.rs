//! Whether the bytes a splice overwrites, and the instructions it displaces, may be touched at all.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::routine::{Decoded, Routine};
use crate::image::SiteKind;
use crate::placement::Site;
use crate::{Addr, Span};

/// Bytes of `jmp rel32`.
pub(super) const SPLICE: u64 = 5;

/// What is wrong, and where.
pub(super) type Faults = Vec<(Addr, String)>;

/// Judges a site by the function's own bytes.
///
/// # Errors
/// Everything that is wrong with it; the displaced instructions if nothing is.
pub(super) fn judge<'a>(routine: &'a Routine, site: &Site) -> Result<&'a [Decoded], Faults> {
    let span = site.displaced;
    let whole =
        routine.span.start <= span.start && span.end <= routine.span.end && span.start < span.end;
    if !whole {
        return Err(vec![(
            span.start,
            format!(
                "the bytes {} to {} are not inside {}",
                span.start, span.end, routine.name
            ),
        )]);
    }
    let Some(displaced) = routine.within(span) else {
        return Err(vec![(
            span.start,
            "it does not begin and end between instructions, decoded from the function's start"
                .into(),
        )]);
    };
    let mut faults = Faults::new();
    if span.len() < SPLICE {
        faults.push((
            span.start,
            format!(
                "it displaces {} bytes, and a splice needs {SPLICE}",
                span.len()
            ),
        ));
    }
    let splice = Span::new(span.start, SPLICE);
    if displaced_by(displaced, splice) != site.overwritten {
        let counted = displaced_by(displaced, splice);
        faults.push((
            span.start,
            format!(
                "it says {} instructions are overwritten, and {counted} are",
                site.overwritten
            ),
        ));
    }
    landings(routine, splice, &mut faults);
    kernel_sites(routine, span, &mut faults);
    for (index, decoded) in displaced.iter().enumerate() {
        let last = index + 1 == displaced.len();
        if !last && (decoded.is_call() || decoded.is_branch()) {
            faults.push((
                Addr(decoded.at()),
                "a branch or call is displaced that is not the last instruction".into(),
            ));
        }
        if let Some(why) = immovable(decoded) {
            faults.push((
                Addr(decoded.at()),
                format!("`{}` is displaced: {why}", decoded.instruction),
            ));
        }
    }
    if faults.is_empty() {
        Ok(displaced)
    } else {
        Err(faults)
    }
}

/// How many of the instructions have a byte in the splice.
pub(super) fn displaced_by(displaced: &[Decoded], splice: Span) -> u32 {
    u32::try_from(
        displaced
            .iter()
            .filter(|decoded| decoded.span().overlaps(splice))
            .count(),
    )
    .unwrap_or(u32::MAX)
}

/// Nothing may come into the overwritten bytes behind the first.
fn landings(routine: &Routine, splice: Span, faults: &mut Faults) {
    let behind_first = splice.start.0.saturating_add(1)..splice.end.0;
    for &target in routine.targets.range(behind_first.clone()) {
        faults.push((
            Addr(target),
            "control may come into the middle of the splice here".into(),
        ));
    }
    for &back in routine.returns.range(behind_first) {
        faults.push((
            Addr(back),
            "a call returns into the middle of the splice".into(),
        ));
    }
}

fn kernel_sites(routine: &Routine, span: Span, faults: &mut Faults) {
    for site in routine.sites_in(span) {
        let what = match site.kind {
            SiteKind::StaticKey => "a jump label",
            SiteKind::StaticCall => "a static call",
            SiteKind::Alternative => "an instruction that the kernel may rewrite",
            SiteKind::Ftrace => "the function tracer's bytes",
            SiteKind::Exception => "an instruction with an exception-table entry",
            SiteKind::Bug { .. } => "an instruction of the bug table",
            SiteKind::Blacklist => "text where the kernel forbids probes",
        };
        faults.push((site.span.start, format!("{what} is displaced")));
    }
}

/// Why an instruction may not be moved, whatever is around it.
fn immovable(decoded: &Decoded) -> Option<&'static str> {
    let instruction = &decoded.instruction;
    let near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    match instruction.flow_control() {
        FlowControl::Next => {}
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
        Mnemonic::Sti => Some("interrupts are held off until the instruction behind it has run"),
        Mnemonic::Mov | Mnemonic::Pop if target == Register::SS => {
            Some("interrupts are held off until the instruction behind it has run")
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

/// Whether it could have a lock and has the prefix that the kernel puts there on one CPU
/// (`alternatives_smp_unlock` in arch/x86/kernel/alternative.c). What has its lock keeps it.
fn unlocked(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::DS && instruction.op_code().can_use_lock_prefix()
}
