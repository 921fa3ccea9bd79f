//! The bytes that a splice leaves of the instructions that it displaces: the driver fills them with `int3`.
//!
//! Half an instruction would hide the boundaries of all that follow from kprobes, which decode from the
//! start of a function (`can_probe` in arch/x86/kernel/kprobes/core.c), and a probe on a displaced
//! instruction, which would never fire, is refused at an `int3`.

use super::body::Body;
use super::ids::{InsnId, InsnRange};
use crate::{Addr, Span};

/// Returns the bytes to fill, as [`Site::filled`](super::Site::filled) has them, and the end of the
/// instructions that they are in: those of `range` that end within 64 bytes after the splice, without
/// the bytes of the `bounces` among them. The module refuses a fill that ends inside an instruction, so
/// the last instruction is one whose end is not of a bounce.
pub(super) fn fill(
    body: &Body<'_>,
    range: InsnRange,
    splice: Span,
    bounces: &[Span],
) -> (u64, InsnId) {
    let first = splice.end;
    let is_near = |at: &InsnId| body.end(*at).0.saturating_sub(first.0) <= u64::from(u64::BITS);
    let is_free = |at: &u64| !bounces.iter().any(|bounce| bounce.contains(Addr(*at)));
    let ends_free = |at: &InsnId| is_free(&(body.end(*at).0 - 1));
    let near = range.iter().take_while(is_near);
    let Some(last) = near.filter(ends_free).last() else {
        return (0, range.first);
    };
    let bytes = (first.0..body.end(last).0).filter(is_free);
    let filled = bytes.fold(0, |filled, at| filled | 1 << (at - first.0));
    (filled, last.next())
}
