//! Puts a patch together.

use iced_x86::{Code as Op, Instruction};

use super::emit::Emitter;
use super::instrument::{Lost, emit, emit_lost};
use super::registers::Registers;
use super::{Code, Hooked, PieceKind};
use crate::layout::RuntimeLayout;
use crate::liveness::Live;
use crate::placement::Site;
use crate::relocate::{INT3, refuse, relocate};
use crate::{Addr, InstrumentId, Refusal, Rule};

/// The instruments of one hook, in order, and what is live there. Registers that instruments
/// further on in the function sample belong to what is live.
#[derive(Clone, Copy, Debug)]
pub struct Hook<'a> {
    /// In the order in which they run; may be empty.
    pub instruments: &'a [Hooked],
    /// Live at the hook's point.
    pub live: Live,
}

/// Assembles the patch of `site` for the address `at`. `displaced` are the original bytes of
/// [`Site::displaced`].
///
/// # Errors
/// What [`relocate`] refuses, at the original instruction; [`Rule::PostBehindCall`] if post-hook
/// instruments would stand behind a moved call; [`Rule::OutOfReach`] if the way back is too far.
pub fn assemble(
    at: Addr,
    site: &Site,
    displaced: &[u8],
    pre: Hook<'_>,
    post: Hook<'_>,
    layout: &RuntimeLayout,
) -> Result<Code, Refusal> {
    let start = site.displaced.start;
    let split = usize::try_from(site.split.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
    let Some((sequential, end)) = displaced.split_at_checked(split) else {
        return refuse(
            Rule::Undecodable,
            start,
            "fewer bytes could be read than the splice displaces",
        );
    };
    let mut e = Emitter::new(at);
    let mut lost = Vec::new();

    hook(&mut e, pre, layout, &mut lost);
    let moved = relocate(sequential, start, e.here())?;
    e.raw(&moved.bytes, moved.executed);
    e.piece(PieceKind::Relocated);
    let mut falls_through = moved.falls_through;
    let something_follows = !end.is_empty() || !post.instruments.is_empty();
    if something_follows && !falls_through {
        return refuse(
            Rule::PostBehindCall,
            site.split,
            "what runs before it does not come back to the patch",
        );
    }
    hook(&mut e, post, layout, &mut lost);
    if !end.is_empty() {
        let moved = relocate(end, site.split, e.here())?;
        e.raw(&moved.bytes, moved.executed);
        e.piece(PieceKind::Relocated);
        falls_through = moved.falls_through;
    }
    if falls_through {
        e.jump(site.displaced.end);
        e.raw(&[INT3], 0);
        e.piece(PieceKind::Terminating);
    }
    for (id, lost, end) in lost {
        emit_lost(&mut e, lost, end);
        e.piece(PieceKind::Lost(id));
    }
    e.finish()
}

/// The instruments of one hook between one save and one restore.
fn hook(
    e: &mut Emitter,
    hook: Hook<'_>,
    layout: &RuntimeLayout,
    lost: &mut Vec<(InstrumentId, Lost, Addr)>,
) {
    let registers = Registers::choose(hook.instruments, hook.live, layout);
    for &register in &registers.saved {
        e.op(Instruction::with1(Op::Push_r64, register));
    }
    if registers.flags {
        e.op(Ok(Instruction::with(Op::Pushfq)));
    }
    e.piece(PieceKind::Save);
    for hooked in hook.instruments {
        let ways = emit(e, hooked, &registers, layout);
        let end = e.here();
        lost.extend(ways.into_iter().map(|way| (hooked.id, way, end)));
        e.piece(PieceKind::Instrument(hooked.id));
    }
    if registers.flags {
        e.op(Ok(Instruction::with(Op::Popfq)));
    }
    for &register in registers.saved.iter().rev() {
        e.op(Instruction::with1(Op::Pop_r64, register));
    }
    e.piece(PieceKind::Restore);
}
