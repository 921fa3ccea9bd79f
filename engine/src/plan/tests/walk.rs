//! A thread that runs what the text and the patches say, and beside it what the original says: each
//! instruction by instruction, with branches decided by chance.

use std::collections::{BTreeMap, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::choices::Choices;
use super::places::at;
use crate::cfg::Cfg;
use crate::code::{Decision, Why};
use crate::patch::PieceKind;
use crate::placement::Splice;
use crate::plan::{Part, Plan, Poke};
use crate::{Addr, Image, InstrumentId, Span};

/// The text as it stands at some time.
pub(super) struct World<'a> {
    pub(super) image: &'a Image,
    pub(super) plan: &'a Plan,
    pub(super) graphs: &'a [&'a Cfg],
    originals: HashMap<Addr, Instruction>,
    text: BTreeMap<Addr, u8>,
    /// Patches to which int3s and the function tracer divert.
    diverted: BTreeMap<Addr, usize>,
}

impl<'a> World<'a> {
    pub(super) fn new(image: &'a Image, plan: &'a Plan, graphs: &'a [&'a Cfg]) -> Self {
        let blocks = graphs.iter().flat_map(|cfg| &cfg.blocks);
        let instructions = blocks.flat_map(|block| &block.instructions);
        Self {
            image,
            plan,
            graphs,
            originals: instructions.map(|one| (at(&one), one)).collect(),
            text: BTreeMap::new(),
            diverted: BTreeMap::new(),
        }
    }

    pub(super) fn is_original(&self) -> bool {
        self.text.is_empty() && self.diverted.is_empty()
    }

    fn byte(&self, at: Addr) -> Option<u8> {
        let original = || self.image.bytes(Span::new(at, 1)).map(|bytes| bytes[0]);
        self.text.get(&at).copied().or_else(original)
    }

    /// An int3 that diverts until the poke is written.
    pub(super) fn stage(&mut self, poke: &Poke) {
        self.diverted.insert(poke.at, poke.detour.0 as usize);
    }

    pub(super) fn write(&mut self, poke: &Poke) {
        self.diverted.remove(&poke.at);
        for (at, (&expect, &write)) in (0..)
            .map(|n| poke.at.add(n))
            .zip(poke.expect.iter().zip(poke.write.iter()))
        {
            assert_eq!(self.byte(at), Some(expect), "{poke:?}");
            if self.image.bytes(Span::new(at, 1)).unwrap() == [write] {
                self.text.remove(&at);
            } else {
                self.text.insert(at, write);
            }
        }
        assert_eq!(poke.expect.len(), poke.write.len());
        let Part::Site(site) = poke.part else { return };
        let by_itself = matches!(
            self.plan.sites[site.0 as usize].splice,
            Splice::Tracer | Splice::Trap
        );
        if by_itself && poke.kind != crate::plan::PokeKind::Remove {
            self.diverted.insert(poke.at, poke.patch.0 as usize);
        }
    }

    fn patch_at(&self, at: Addr) -> Option<usize> {
        let after = self
            .plan
            .patches
            .partition_point(|patch| patch.address <= at);
        let index = after.checked_sub(1)?;
        let patch = &self.plan.patches[index];
        (at.0 < patch.address.0 + patch.code.len() as u64).then_some(index)
    }

    fn decode(&self, at: Addr) -> Instruction {
        let bytes: Vec<u8> = match self.patch_at(at) {
            Some(index) => {
                let patch = &self.plan.patches[index];
                patch.code[(at.0 - patch.address.0) as usize..].to_vec()
            }
            None => (0..15).map_while(|n| self.byte(at.add(n))).collect(),
        };
        Decoder::with_ip(64, &bytes, at.0, DecoderOptions::NONE).decode()
    }
}

/// Location of a thread in both.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// Address in the original code.
    pub(super) original: Addr,
    /// In what there is.
    now: Addr,
    /// The instruction run last.
    last: Option<Addr>,
    /// Instruments run since.
    ids: Vec<InstrumentId>,
    /// The return address that a splice has pushed.
    pushed: Option<Addr>,
}

/// One instruction that both have run: before it, `ids` have.
pub(super) struct Ran {
    pub(super) from: Option<Addr>,
    pub(super) at: Addr,
    pub(super) ids: Vec<InstrumentId>,
    /// The thread has left the function.
    pub(super) exited: bool,
}

impl Thread {
    pub(super) fn new(start: Addr) -> Self {
        Self {
            original: start,
            now: start,
            last: None,
            ids: Vec::new(),
            pushed: None,
        }
    }

    /// Runs until the next original instruction has been run. Says what went wrong.
    pub(super) fn step(&mut self, world: &World<'_>, random: &mut Choices) -> Result<Ran, String> {
        for _ in 0..1000 {
            if let Some(ran) = self.one(world, random)? {
                return Ok(ran);
            }
        }
        Err(format!("{self:?} runs in a circle"))
    }

    /// Runs one instruction, or stretch of an instrument's, of what there is.
    fn one(&mut self, world: &World<'_>, random: &mut Choices) -> Result<Option<Ran>, String> {
        if let Some(&patch) = world.diverted.get(&self.now) {
            let patch = &world.plan.patches[patch];
            let tracer = world.plan.sites[patch.site.0 as usize].splice == Splice::Tracer;
            self.now = patch.address;
            if tracer {
                // The tracer's bytes do nothing.
                let following = self.following(world, self.now);
                let original = &world.originals[&self.original];
                return Ok(Some(self.ran(
                    world,
                    (false, following),
                    following,
                    original,
                )));
            }
            return Ok(None);
        }
        let is = world.decode(self.now);
        let next = Addr(is.next_ip());
        let Some(patch) = world.patch_at(self.now) else {
            let span = Span::new(self.now, is.len() as u64);
            let changed = world.text.range(span.start..span.end).next().is_some();
            if changed {
                let branches = matches!(is.mnemonic(), Mnemonic::Jmp | Mnemonic::Call);
                if !branches || is.op0_kind() != OpKind::NearBranch64 {
                    return Err(format!("{self:?} runs {is} in broken text"));
                }
                self.pushed = (is.mnemonic() == Mnemonic::Call).then_some(next);
                self.now = Addr(is.near_branch_target());
                return Ok(None);
            }
            if self.now != self.original {
                return Err(format!("{self:?} has come to the wrong place in the text"));
            }
            let (taken, to) = self.decide(world, random);
            self.now = if taken {
                to
            } else {
                self.following(world, next)
            };
            return Ok(Some(self.ran(
                world,
                (taken, to),
                self.following(world, next),
                &is,
            )));
        };
        let patch = &world.plan.patches[patch];
        let offset = (self.now.0 - patch.address.0) as u32;
        let piece = patch.pieces().find(|piece| piece.range.contains(&offset));
        let piece = piece.ok_or_else(|| format!("{self:?} is in no piece"))?;
        match piece.kind {
            PieceKind::Instrument(id) => {
                assert_eq!(piece.range.start, offset);
                self.ids.push(id);
                self.now = patch.address.add(u64::from(piece.range.end));
                return Ok(None);
            }
            PieceKind::Save | PieceKind::Restore => {
                self.now = patch.address.add(u64::from(piece.range.end));
                return Ok(None);
            }
            PieceKind::Terminating => {
                if is.mnemonic() != Mnemonic::Jmp {
                    return Err(format!("{self:?} runs {is} after the end"));
                }
                self.now = Addr(is.near_branch_target());
                return Ok(None);
            }
            PieceKind::Lost(_) => return Err(format!("{self:?} is lost")),
            PieceKind::Relocated | PieceKind::Descriptors => {}
        }
        // What stands for the static key comes in two instructions.
        let key = world.image.decided(self.original).map(|site| site.by);
        if let Some(Decision::StaticKey { .. }) = key {
            if is.mnemonic() == Mnemonic::Cmp {
                self.now = next;
                return Ok(None);
            }
            if is.flow_control() != FlowControl::ConditionalBranch {
                return Err(format!("{self:?} runs {is} for a static key"));
            }
            let (taken, to) = self.decide(world, random);
            self.now = if taken {
                Addr(is.near_branch_target())
            } else {
                next
            };
            let following = self.following(world, next);
            return Ok(Some(self.ran(world, (taken, to), following, &is)));
        }
        let original = world.originals.get(&self.original);
        let original = original.ok_or_else(|| format!("{self:?} left the original"))?;
        let following = Addr(original.next_ip());
        if original.flow_control() == FlowControl::Return && is.mnemonic() == Mnemonic::Nop {
            // A return keeps its half of a cache line.
            self.now = next;
            return Ok(None);
        }
        if let Some(pushed) = self.pushed.take() {
            let goes = is.mnemonic() == Mnemonic::Jmp
                && is.near_branch_target() == original.near_branch_target();
            if original.flow_control() != FlowControl::Call || pushed != following || !goes {
                return Err(format!(
                    "{self:?}: {is} with {pushed} pushed is not {original}"
                ));
            }
            self.now = following;
            return Ok(Some(self.ran(
                world,
                (false, following),
                following,
                original,
            )));
        }
        if original.flow_control() == FlowControl::Call && is.mnemonic() == Mnemonic::Push {
            if is.immediate(0) != following.0 {
                return Err(format!("{self:?}: {is} is not where {original} returns to"));
            }
            let jump = world.decode(next);
            if jump.near_branch_target() != original.near_branch_target() {
                return Err(format!("{self:?}: {jump} is not {original}"));
            }
            self.now = following;
            return Ok(Some(self.ran(
                world,
                (false, following),
                following,
                original,
            )));
        }
        let same = is.mnemonic() == original.mnemonic()
            && is.op_count() == original.op_count()
            && (0..is.op_count()).all(|n| {
                is.op_kind(n) == original.op_kind(n)
                    && match is.op_kind(n) {
                        OpKind::NearBranch64 => true,
                        OpKind::Register => is.op_register(n) == original.op_register(n),
                        OpKind::Memory => {
                            is.memory_base() == original.memory_base()
                                && is.memory_index() == original.memory_index()
                                && is.memory_displacement64() == original.memory_displacement64()
                        }
                        _ => is.immediate(n) == original.immediate(n),
                    }
            });
        let negated = is.is_jcc_short_or_near() && original.is_jcc_short_or_near() && {
            let mut opposite = *original;
            opposite.negate_condition_code();
            is.condition_code() == opposite.condition_code()
        };
        if !same && !negated {
            return Err(format!("{self:?} runs {is}, and should run {original}"));
        }
        let (taken, to) = self.decide(world, random);
        self.now = if taken != negated && is.op0_kind() == OpKind::NearBranch64 {
            Addr(is.near_branch_target())
        } else {
            next
        };
        Ok(Some(self.ran(world, (taken, to), following, original)))
    }

    /// Successor in the original code, if the instruction does not branch.
    fn following(&self, world: &World<'_>, next: Addr) -> Addr {
        let original = world.originals.get(&self.original);
        original.map_or(next, |original| Addr(original.next_ip()))
    }

    /// Chooses whether the original instruction branches, and its target.
    fn decide(&self, world: &World<'_>, random: &mut Choices) -> (bool, Addr) {
        if let Some(site) = world.image.decided(self.original)
            && let Decision::StaticKey { target, .. } = site.by
        {
            return (random.once_in(2), target);
        }
        let Some(original) = world.originals.get(&self.original) else {
            return (false, Addr(0));
        };
        let taken = match original.flow_control() {
            FlowControl::ConditionalBranch => random.once_in(2),
            FlowControl::UnconditionalBranch => true,
            _ => false,
        };
        (taken, Addr(original.near_branch_target()))
    }

    /// The original has run its instruction.
    fn ran(
        &mut self,
        world: &World<'_>,
        (taken, to): (bool, Addr),
        following: Addr,
        original: &Instruction,
    ) -> Ran {
        let ran = Ran {
            from: self.last,
            at: self.original,
            ids: std::mem::take(&mut self.ids),
            exited: match original.flow_control() {
                FlowControl::Exception => !warns(world, self.original),
                flow => flow == FlowControl::Return,
            },
        };
        self.last = Some(self.original);
        self.original = if taken { to } else { following };
        ran
    }
}

/// Returns whether the kernel continues after the `ud2` there.
fn warns(world: &World<'_>, at: Addr) -> bool {
    let mut sites = world.image.fixed().overlapping(Span::new(at, 1));
    sites.any(|site| site.why == Why::Bug { warn: true })
}
