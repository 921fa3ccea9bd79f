//! Bytes that never execute, and the code before them.

use crate::verify::reason::Reason;
use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::decoded::DecodedInsn;
use super::originals::OriginalCode;
use super::routine::Routine;
use crate::isa::decode::is_padding;
use crate::{Addr, Span};

/// Opcode of `int3`.
const INT3: u8 = 0xcc;

/// Proves that the bytes never execute: padding after an instruction that does not fall through,
/// that no code or data targets and that has no other use.
///
/// # Errors
/// The reason why they may execute.
pub(crate) fn is_never_run(originals: &OriginalCode<'_>, span: Span) -> Result<(), Reason> {
    let (routine, first) = padding(originals, span)?;
    if let Some(entry) = originals.image.entry_in(span) {
        return Err(Reason::TracerEntry { at: entry.start });
    }
    let inside = first.0..span.end.0;
    let lead = routine
        .targets
        .range(inside.clone())
        .chain(routine.returns.range(inside));
    let all = Span {
        start: first,
        end: span.end,
    };
    let pointed = originals.image.entered(all).first().map(|at| &at.0);
    if let Some(&at) = lead.chain(pointed).next() {
        return Err(Reason::EntersPadding { at: Addr(at) });
    }
    Ok(())
}

/// Proves that `int3` still stops speculation past a return or an indirect branch.
///
/// # Errors
/// The first of the bytes is that `int3`.
pub(crate) fn keeps_speculation(originals: &OriginalCode<'_>, span: Span) -> Result<(), Reason> {
    let (routine, first) = padding(originals, span)?;
    let before = routine
        .instructions
        .partition_point(|decoded| decoded.end() <= first.0);
    let before = before
        .checked_sub(1)
        .and_then(|before| routine.instructions.get(before));
    let stops = before.is_some_and(|before| {
        let target = Addr(before.instruction.near_branch_target());
        match before.instruction.flow_control() {
            FlowControl::Return | FlowControl::IndirectBranch => true,
            FlowControl::UnconditionalBranch => {
                originals.image.is_return_thunk(target) || originals.image.is_indirect_thunk(target)
            }
            _ => false,
        }
    });
    let byte = originals.image.bytes(Span::new(first, 1));
    if stops && span.start == first && byte == Some(&[INT3]) {
        return Err(Reason::TakesSpeculationStop);
    }
    Ok(())
}

/// Returns the function that the padding belongs to, and the start of the padding.
fn padding<'a>(originals: &'a OriginalCode<'_>, span: Span) -> Result<(&'a Routine, Addr), Reason> {
    let (routine, _) = originals
        .before(span.start.0)
        .ok_or(Reason::NotAfterFunction)?;
    if routine.span.contains(span.start) {
        return inside(routine, span).map(|first| (routine, first));
    }
    let runs_on = routine.instructions.last().is_none_or(|last| last.runs_on);
    let functions = originals.image.functions();
    let next = functions.partition_point(|function| function.span.start <= span.start);
    let text = originals.image.text_of(routine.span.start);
    let next = functions
        .get(next)
        .map_or(text.end, |next| next.span.start.min(text.end));
    if runs_on || next < span.end {
        return Err(Reason::NotBetweenFunctions);
    }
    let start = routine.span.end;
    // Reserved bytes of the kernel have a symbol, such as __pfx_f.
    let last = span.end.0.saturating_sub(1);
    let named = originals
        .image
        .symbol_at(Addr(last))
        .is_none_or(|(_, distance)| distance <= last - start.0);
    if named {
        return Err(Reason::SymbolInside);
    }
    let bytes = originals.image.bytes(Span { start, end: next });
    let decoder = Decoder::with_ip(
        64,
        bytes.ok_or(Reason::PaddingUnread)?,
        start.0,
        DecoderOptions::NONE,
    );
    let mut filler = decoder
        .into_iter()
        .take_while(|instruction| instruction.ip() < span.end.0);
    if filler.all(|instruction| is_padding(&instruction)) {
        Ok((routine, start))
    } else {
        Err(Reason::NotPadding)
    }
}

/// Returns the start of the padding inside a function in which the span ends.
fn inside(routine: &Routine, span: Span) -> Result<Addr, Reason> {
    let after = routine
        .instructions
        .partition_point(|decoded| decoded.at() < span.end.0);
    if routine.span.end < span.end {
        return Err(Reason::PastFunction);
    }
    let mut first = None;
    for decoded in routine.instructions.iter().take(after).rev() {
        if !is_padding(&decoded.instruction) {
            let begins = first.filter(|&first| first <= span.start);
            return match begins {
                Some(first) if !decoded.runs_on => Ok(first),
                _ => Err(runs(decoded)),
            };
        }
        first = Some(Addr(decoded.at()));
    }
    Err(Reason::BeginsFunction)
}

fn runs(decoded: &DecodedInsn) -> Reason {
    Reason::Executes {
        instruction: decoded.instruction.to_string(),
        at: Addr(decoded.at()),
    }
}
