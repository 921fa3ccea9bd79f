//! Puts a patch together.

use iced_x86::{Code as Op, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::emit::{Emitter, Forward};
use super::group::Groups;
use super::instrument::{Lost, emit, emit_lost};
use super::registers::Registers;
use super::{Code, HookProgram, Hooked, PieceKind};
use crate::code::{Decided, Decision, Transfer, Why, present};
use crate::isa::relocate::{called, emulate, relocate};
use crate::layout::{Abi, RuntimeLayout};
use crate::liveness::Live;
use crate::placement::{InsnEdge, Point, Site, Splice};
use crate::{Addr, Image, InstrumentId, Refusal, Rule, Span};

/// Instruments by point, each list in the order in which it runs; sorted, no two for one point.
pub type Hooks<'h> = [(Point, &'h [Hooked<'h>])];

/// The original code that patches copy: an [`Image`], or less.
pub trait Originals {
    /// The bytes of a span, if all of it is known.
    fn bytes(&self, span: Span) -> Option<&[u8]>;
    /// The static key or call at an address.
    fn decided(&self, at: Addr) -> Option<Decided>;
    /// Returns whether the kernel's exception table has an entry for the instruction at an address.
    fn may_fault(&self, at: Addr) -> bool;
}

impl Originals for Image {
    fn bytes(&self, span: Span) -> Option<&[u8]> {
        self.bytes(span)
    }

    fn decided(&self, at: Addr) -> Option<Decided> {
        self.decided(at)
    }

    fn may_fault(&self, at: Addr) -> bool {
        let mut sites = self.fixed().overlapping(Span::new(at, 1));
        sites.any(|site| matches!(site.why, Why::Exception { .. }))
    }
}

/// No original code, for patches that copy none.
impl Originals for () {
    fn bytes(&self, _: Span) -> Option<&[u8]> {
        None
    }

    fn decided(&self, _: Addr) -> Option<Decided> {
        None
    }

    fn may_fault(&self, _: Addr) -> bool {
        false
    }
}

/// Assembles patches for one kernel and one target.
pub struct Assembler<'a> {
    originals: &'a dyn Originals,
    layout: &'a RuntimeLayout,
    save_all: bool,
    emitter: Emitter,
}

impl<'a> Assembler<'a> {
    /// For patches that are copied from `originals` and work with `layout`.
    #[must_use]
    pub fn new(originals: &'a dyn Originals, layout: &'a RuntimeLayout) -> Self {
        Self {
            originals,
            layout,
            save_all: false,
            emitter: Emitter::new(layout),
        }
    }

    /// Sets whether instruments save every register that they change, live or not. Copies do not change: an
    /// emulation is refused where flags are live.
    #[must_use]
    pub fn saving_all(self, save_all: bool) -> Self {
        Self { save_all, ..self }
    }

    /// Assembles the patch of `site` for the address `at`, which is [aligned](RuntimeLayout::patch_align); its length does not depend on where that
    /// is. `live` says what must survive instruments at a point, and what is live before any other
    /// instruction of what is copied.
    ///
    /// # Errors
    /// What [`relocate`] and [`emulate`] refuse, at the original instruction;
    /// [`Rule::Unrelocatable`] if a static key would be emulated where flags are live, or a list is for
    /// a point that the patch does not pass; [`Rule::OutOfReach`] if the way back is too far.
    pub fn assemble(
        &mut self,
        at: Addr,
        site: &Site,
        hooks: &Hooks<'_>,
        live: &dyn Fn(Point) -> Live,
    ) -> Result<Code, Refusal> {
        self.work(at, site, hooks, live).patch()?;
        self.emitter.finish()
    }

    /// Assembles a patch that runs instruments before the instruction at `original` and continues at the address `exit`,
    /// which executes that instruction.
    ///
    /// # Errors
    /// As [`assemble`](Self::assemble).
    pub fn assemble_before(
        &mut self,
        at: Addr,
        (original, exit): (Addr, Addr),
        instruments: &[Hooked<'_>],
        live: Live,
    ) -> Result<Code, Refusal> {
        let site = Site {
            splice: Splice::Jump,
            displaced: Span::new(original, 0),
            overwritten: 0,
            filled: 0,
            continuations: Box::default(),
        };
        let hooks = [(Point::Entry, instruments)];
        let live = |_| live;
        let mut work = self.work(at, &site, &hooks, &live);
        work.hook(Point::Entry);
        work.jump_out(exit);
        work.rest();
        self.emitter.finish()
    }

    fn work<'w>(
        &'w mut self,
        at: Addr,
        site: &'w Site,
        hooks: &'w Hooks<'w>,
        live: &'w dyn Fn(Point) -> Live,
    ) -> Work<'w> {
        self.emitter.begin(at, site.splice.pushes());
        Work {
            originals: self.originals,
            layout: self.layout,
            e: &mut self.emitter,
            site,
            hooks,
            live,
            save_all: self.save_all,
            passed: vec![false; hooks.len()],
            lost: Vec::new(),
            copies: Vec::new(),
            stubs: Vec::new(),
            branches: Vec::new(),
        }
    }
}

/// One patch in the making.
struct Work<'w> {
    originals: &'w dyn Originals,
    layout: &'w RuntimeLayout,
    e: &'w mut Emitter,
    site: &'w Site,
    hooks: &'w Hooks<'w>,
    live: &'w dyn Fn(Point) -> Live,
    save_all: bool,
    /// The hooks whose lists have been emitted.
    passed: Vec<bool>,
    lost: Vec<(InstrumentId, Lost, Addr, (Addr, u32))>,
    /// Copies that branches of the patch may target, with their addresses.
    copies: Vec<(Span, Addr)>,
    /// Stubs of edges, with their addresses; of an edge without instruments to a copy, the copy's.
    stubs: Vec<(InsnEdge, Addr)>,
    /// Branches to stubs.
    branches: Vec<(InsnEdge, Forward)>,
}

/// The destination of control at the end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// The original code at an address.
    Text(Addr),
    /// Code of the same patch at an address: a copy that has been emitted.
    Patch(Addr),
    /// The copy of a continuation, emitted next, so that control falls through.
    Continuation(Span),
}

impl Work<'_> {
    fn patch(mut self) -> Result<(), Refusal> {
        let displaced = self.site.displaced;
        self.hook(Point::Entry);
        if self.list(Point::Before(displaced.start)).is_none() {
            self.copies.push((displaced, self.e.here()));
        }
        let mut end = if !self.site.splice.displaces() {
            Some(InsnEdge {
                from: displaced.start,
                to: displaced.end,
            })
        } else if self.site.splice.pushes() > 0 {
            let call = originals_of(self.originals, displaced)?;
            let jump = called(call, displaced.start, self.e.here(), &self.layout.abi)?;
            self.e.relocated(&jump, |_| false);
            None
        } else {
            self.copy(displaced, true)?
        };
        let mut done = 0;
        loop {
            while let Some(edge) = end {
                end = self.leave(edge)?;
            }
            let Some(&(edge, _)) = self.branches.get(done) else {
                break;
            };
            done += 1;
            if self.stub(edge).is_some() {
                continue;
            }
            let bare = self.list(Point::On(edge)).is_none();
            if let (true, Exit::Patch(at)) = (bare, self.exit(edge)) {
                self.stubs.push((edge, at));
            } else {
                self.e.unusual();
                self.stubs.push((edge, self.e.here()));
                end = Some(edge);
            }
        }
        for (edge, forward) in std::mem::take(&mut self.branches) {
            if let Some(stub) = self.stub(edge) {
                self.e.land_at(forward, stub);
            }
        }
        self.rest();
        for ((point, _), passed) in self.hooks.iter().zip(&self.passed) {
            if !passed {
                return Err(Refusal::new(
                    Rule::Unrelocatable,
                    displaced.start,
                    format!("its patch does not pass {point:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Emits the rare paths of the instruments, and the descriptors.
    fn rest(&mut self) {
        for (id, lost, end, frame) in std::mem::take(&mut self.lost) {
            self.e.set_frame(frame);
            emit_lost(self.e, lost, end);
            self.e.piece(PieceKind::Lost(id));
        }
        self.e.descriptors();
    }

    fn list(&self, point: Point) -> Option<usize> {
        self.hooks
            .binary_search_by_key(&point, |(known, _)| *known)
            .ok()
    }

    fn stub(&self, edge: InsnEdge) -> Option<Addr> {
        let found = self.stubs.iter().find(|(known, _)| *known == edge);
        found.map(|(_, at)| *at)
    }

    fn continuation(&self, edge: InsnEdge) -> Option<Span> {
        let continuations = &self.site.continuations;
        let found = continuations.binary_search_by_key(&edge, |known| known.edge);
        Some(continuations.get(found.ok()?)?.copied)
    }

    /// Returns whether an edge has instruments or a continuation.
    fn is_hooked(&self, edge: InsnEdge) -> bool {
        self.list(Point::On(edge)).is_some() || self.continuation(edge).is_some()
    }

    /// The instruments of one point. Those between two branches to replacements are between one save and one restore.
    fn hook(&mut self, point: Point) {
        let Some(index) = self.list(point) else {
            return;
        };
        let Some(&(_, instruments)) = self.hooks.get(index) else {
            return;
        };
        if let Some(passed) = self.passed.get_mut(index) {
            *passed = true;
        }
        self.e.stands_for(match point {
            Point::Entry => self.site.splice.entered(self.site.displaced),
            Point::Before(at) => at,
            Point::On(edge) => edge.to,
        });
        let live = if self.save_all {
            Live::ALL
        } else {
            (self.live)(point)
        };
        let is_replaced = |one: &Hooked<'_>| matches!(one.program, HookProgram::Replaced(_));
        let groups = instruments.chunk_by(|one, other| is_replaced(one) == is_replaced(other));
        let mut groups = groups.peekable();
        while let Some(group) = groups.next() {
            // A replacement may read all registers that a function is called with, and no flags.
            let called = Live {
                flags: false,
                ..Live::ALL
            };
            let replaced = groups.peek().is_some();
            self.group(group, if replaced { called } else { live });
        }
    }

    /// Instruments of one point between one save and one restore.
    fn group(&mut self, instruments: &[Hooked<'_>], live: Live) {
        let entered = self.e.frame().1;
        let registers = Registers::choose(instruments, live, self.layout, entered);
        self.e.step_over(registers.red_zone, false);
        for &register in &registers.saved {
            self.e.push(Instruction::with1(Op::Push_r64, register));
        }
        self.e.save_flags(registers.flags);
        self.e.piece(PieceKind::Save);
        let mut groups = Groups::of(instruments, self.layout);
        for hooked in instruments {
            let ways = emit(self.e, hooked, &registers, self.layout, &mut groups);
            let frame = self.e.frame();
            let ways = ways.into_iter();
            self.lost
                .extend(ways.map(|(way, end)| (hooked.id, way, end, frame)));
            self.e.piece(PieceKind::Instrument(hooked.id));
        }
        self.e.restore_flags(registers.flags);
        for &register in registers.saved.iter().rev() {
            self.e.pop(Instruction::with1(Op::Pop_r64, register));
        }
        self.e.step_over(registers.red_zone, true);
        self.e.piece(PieceKind::Restore);
    }

    /// Returns the exit of a copy that ends at an edge.
    fn exit(&self, edge: InsnEdge) -> Exit {
        let Some(copied) = self.continuation(edge) else {
            return Exit::Text(edge.to);
        };
        let emitted = self.copies.iter().find(|(known, _)| *known == copied);
        emitted.map_or(Exit::Continuation(copied), |&(_, at)| Exit::Patch(at))
    }

    /// Returns whether the code of a branch's taken edge is to follow its copy, with the condition negated, rather than
    /// that of the next instruction: so control that takes the edge takes no jump there.
    fn prefers(&self, taken: InsnEdge, next: InsnEdge) -> bool {
        if self.stub(taken).is_some() {
            return false;
        }
        let bare = self.list(Point::On(taken)).is_none();
        let branches_there = bare && matches!(self.exit(taken), Exit::Patch(_));
        // A branch backwards is mostly a loop's, and taken.
        !branches_there && (!self.is_hooked(next) || taken.to <= taken.from)
    }

    /// Emits the instruments of an edge and its exit. Returns the edge at the end of a continuation's copy.
    fn leave(&mut self, edge: InsnEdge) -> Result<Option<InsnEdge>, Refusal> {
        self.hook(Point::On(edge));
        let target = match self.exit(edge) {
            Exit::Text(at) | Exit::Patch(at) => at,
            Exit::Continuation(copied) => {
                self.copies.push((copied, self.e.here()));
                return self.copy(copied, false);
            }
        };
        self.e.stands_for(edge.to);
        self.jump_out(target);
        Ok(None)
    }

    /// Emits the terminating branch.
    fn jump_out(&mut self, target: Addr) {
        self.e.jump(target);
        self.e.stop();
        self.e.piece(PieceKind::Terminating);
    }

    /// Copies instructions, with the instruments before and between them. Returns the edge at the end, if control
    /// falls through there.
    fn copy(&mut self, span: Span, displaced: bool) -> Result<Option<InsnEdge>, Refusal> {
        let originals = self.originals;
        let bytes = originals_of(originals, span)?;
        let mut copying = Copying {
            bytes,
            span,
            next: span.start,
            originals,
            abi: self.layout.abi,
        };
        let mut last = span.start;
        let mut at = span.start;
        while at < span.end {
            let edge = InsnEdge { from: last, to: at };
            if at != span.start && self.list(Point::On(edge)).is_some() {
                copying.copy_up_to(at, self.e)?;
                self.hook(Point::On(edge));
            }
            let entered = displaced && at == span.start;
            if !entered && self.list(Point::Before(at)).is_some() {
                copying.copy_up_to(at, self.e)?;
                self.hook(Point::Before(at));
            }
            let emulated = if displaced {
                None
            } else {
                originals.decided(at)
            };
            let (next, taken) = copying.step(at, emulated.as_ref())?;
            let taken = taken.map(|to| InsnEdge { from: at, to });
            let taken = taken.filter(|&edge| self.is_hooked(edge));
            last = at;
            at = next;
            if let Some(site) = emulated {
                copying.copy_up_to(last, self.e)?;
                self.emulate(&site)?;
                copying.copied(next, self.e)?;
            } else if taken.is_some() {
                copying.copy_up_to(next, self.e)?;
            } else {
                continue;
            }
            let falls_through = self.e.falls_through();
            if let Some(edge) = taken {
                let next = InsnEdge { from: last, to: at };
                let ends = emulated.is_none() && falls_through && at == span.end;
                if ends && self.prefers(edge, next) && self.e.negate_last_branch() {
                    let forward = self.e.last_branch();
                    if self.is_hooked(next) {
                        self.branches.push((next, forward));
                    } else {
                        self.e.land_at(forward, next.to);
                    }
                    self.stubs.push((edge, self.e.here()));
                    return Ok(Some(edge));
                }
                let forward = self.e.last_branch();
                self.branches.push((edge, forward));
                // A jump and the code of its edge are adjacent.
                if !falls_through && self.stub(edge).is_none() {
                    self.stubs.push((edge, self.e.here()));
                    return Ok(Some(edge));
                }
            }
        }
        copying.copy_up_to(span.end, self.e)?;
        let end = InsnEdge {
            from: last,
            to: span.end,
        };
        Ok(self.e.falls_through().then_some(end))
    }

    fn emulate(&mut self, site: &Decided) -> Result<(), Refusal> {
        let at = site.span.start;
        let is_key = matches!(site.by, Decision::StaticKey { .. });
        if is_key && (self.live)(Point::Before(at)).flags {
            return Err(Refusal::new(
                Rule::Unrelocatable,
                at,
                "the flags may be read after it, and testing the static key changes them",
            ));
        }
        let done = emulate(site, self.e.here(), &self.layout.abi)?;
        self.e.relocated(&done, |_| false);
        Ok(())
    }
}

/// The bytes of original instructions.
fn originals_of(originals: &dyn Originals, span: Span) -> Result<&[u8], Refusal> {
    let bytes = originals.bytes(span).filter(|bytes| !bytes.is_empty());
    bytes.ok_or_else(|| {
        Refusal::new(
            Rule::Undecodable,
            span.start,
            "fewer bytes could be read than the patch copies",
        )
    })
}

/// Original instructions that are being copied.
struct Copying<'i> {
    bytes: &'i [u8],
    span: Span,
    /// The first that is not copied yet.
    next: Addr,
    originals: &'i dyn Originals,
    abi: Abi,
}

impl Copying<'_> {
    fn bytes(&self, from: Addr, to: Addr) -> &[u8] {
        let offset =
            |at: Addr| usize::try_from(at.0.wrapping_sub(self.span.start.0)).unwrap_or(usize::MAX);
        present(self.bytes.get(offset(from)..offset(to)))
    }

    /// Returns the address of the instruction after the one at `at`, and the target of that one if it branches.
    fn step(&self, at: Addr, emulated: Option<&Decided>) -> Result<(Addr, Option<Addr>), Refusal> {
        if let Some(site) = emulated {
            let target = match site.by {
                Decision::StaticKey { target, .. } => Some(target),
                Decision::StaticCall {
                    transfer: Transfer::Call,
                    ..
                } => None,
                Decision::StaticCall { trampoline, .. } => Some(trampoline),
            };
            return Ok((site.span.end, target));
        }
        let bytes = self.bytes(at, self.span.end);
        let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(Refusal::new(
                Rule::Undecodable,
                at,
                "the bytes there are not an instruction",
            ));
        }
        let branches = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        ) && instruction.op0_kind() == OpKind::NearBranch64;
        let target = branches.then(|| Addr(instruction.near_branch_target()));
        Ok((Addr(instruction.next_ip()), target))
    }

    fn copy_up_to(&mut self, end: Addr, e: &mut Emitter) -> Result<(), Refusal> {
        if self.next < end {
            let moved = relocate(self.bytes(self.next, end), self.next, e.here(), &self.abi)?;
            e.relocated(&moved, |at| self.originals.may_fault(at));
        }
        self.copied(end, e)
    }

    /// Continues after the code that has been written.
    fn copied(&mut self, end: Addr, e: &Emitter) -> Result<(), Refusal> {
        self.next = end;
        if end != self.span.start && end != self.span.end && !e.falls_through() {
            return Err(Refusal::new(
                Rule::Unrelocatable,
                end,
                "an instruction follows one that does not fall through",
            ));
        }
        Ok(())
    }
}
