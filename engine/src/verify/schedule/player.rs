//! Replays the batches over the current text, in the order in which the driver writes.

use crate::verify::internal::Required;
use crate::verify::progress::ProofProgress;
use crate::verify::reason::Reason;
use std::collections::BTreeMap;

use super::parts::{self, Parts};
use super::splice;
use crate::ids::Id;
use crate::placement::{SiteIndex, Splice};
use crate::plan::{Batch, Part, PatchIndex, Plan, Poke, PokeKind};
use crate::verify::hash::{Map, Set};
use crate::verify::meaning::hooks::ById;
use crate::verify::meaning::state::{Meaning, SiteChange};
use crate::verify::violation::Violation;
use crate::{Image, InstrumentId};

/// Maximum number of pokes in a batch (`ILK_MAX_POKES` in `ilk-driver/kmod/ilk_abi.h`).
const MAX_POKES: usize = 1 << 20;

/// Maps times to integers of the same order; equal times are equal.
pub(crate) fn bits(time: f64) -> i64 {
    let bits = time.to_bits().cast_signed();
    bits ^ (((bits >> 63).cast_unsigned()) >> 1).cast_signed()
}

/// Replays every batch and records its violations.
///
/// # Errors
/// That of `report`.
pub(crate) fn play<'a>(
    (image, plan, by_id, parts): (&'a Image, &'a Plan, &'a ById<'a>, &'a Parts),
    meaning: &mut Meaning<'a>,
    report: &mut ProofProgress<'_>,
    violations: &mut Vec<Violation>,
) -> crate::Result<()> {
    let mut times: BTreeMap<i64, [Vec<InstrumentId>; 2]> = BTreeMap::new();
    for one in &plan.instruments {
        let at = |time: f64| bits(time);
        let [launched, _] = times.entry(at(one.launch)).or_default();
        launched.push(one.id);
        let [_, splashed] = times.entry(at(one.splash)).or_default();
        splashed.push(one.id);
    }
    let mut player = Player {
        image,
        plan,
        by_id,
        parts,
        times,
        in_place: Map::default(),
        running: Map::default(),
        required: meaning.required,
        violations,
    };
    let mut last = f64::NEG_INFINITY;
    for (number, batch) in plan.batches.iter().enumerate() {
        if !(batch.at.is_finite() && batch.at > last && (0.0..=plan.duration).contains(&batch.at)) {
            let why = Reason::BatchTime {
                duration: plan.duration,
            };
            player.batch_is_wrong(number, batch, why);
        }
        last = batch.at;
        let (staged, changes) = player.batch(number, batch);
        let (launched, splashed) = (&batch.launched, &batch.splashed);
        meaning.batch(
            number,
            (&staged, &changes),
            (launched, splashed),
            report,
            player.violations,
        )?;
    }
    player.at_the_end();
    Ok(())
}

/// A part that is in place.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    /// The patch that it branches to, possibly through its bounce.
    patch: PatchIndex,
    /// The bytes in memory.
    bytes: &'a [u8],
}

pub(crate) struct Player<'a> {
    image: &'a Image,
    pub(crate) plan: &'a Plan,
    pub(crate) by_id: &'a ById<'a>,
    parts: &'a Parts,
    /// Instruments to launch and to splash, by time.
    pub(crate) times: BTreeMap<i64, [Vec<InstrumentId>; 2]>,
    pub(crate) in_place: Map<Part, Here<'a>>,
    /// Number of points at which each instrument runs.
    pub(crate) running: Map<InstrumentId, usize>,
    /// Records absent entries.
    pub(crate) required: &'a Required,
    pub(crate) violations: &'a mut Vec<Violation>,
}

impl<'a> Player<'a> {
    pub(crate) fn batch_is_wrong(&mut self, number: usize, batch: &Batch, why: Reason) {
        self.violations.push(Violation::Batch {
            batch: number,
            time: batch.at,
            why,
        });
    }

    /// Replays a batch. Returns the sites that get an `int3` first, with the patch it diverts to,
    /// and then the changes, one write after another.
    fn batch(
        &mut self,
        number: usize,
        batch: &'a Batch,
    ) -> (Vec<(SiteIndex, PatchIndex)>, Vec<SiteChange>) {
        if batch.pokes.is_empty() || batch.pokes.len() > MAX_POKES {
            let why = Reason::PokeCount {
                count: batch.pokes.len(),
                most: MAX_POKES,
            };
            self.batch_is_wrong(number, batch, why);
        }
        let in_order = batch.pokes.is_sorted_by_key(|poke| match poke.kind {
            PokeKind::Remove => (true, u8::MAX - poke.rank, poke.at),
            PokeKind::Install | PokeKind::Retarget => (false, poke.rank, poke.at),
        });
        if !in_order {
            let why = Reason::PokeOrder;
            self.batch_is_wrong(number, batch, why);
        }
        let (mut staged, mut changes) = (Vec::new(), Vec::new());
        let mut touched: Vec<InstrumentId> = Vec::new();
        let mut poked: Set<Part> = Set::default();
        poked.reserve(batch.pokes.len());
        for (index, poke) in batch.pokes.iter().enumerate() {
            let result = if poked.insert(poke.part) {
                self.poke(poke, &poked)
            } else {
                Err(Reason::PokedTwice)
            };
            match result {
                Ok(change) => {
                    if let Some(change) = change {
                        self.count(&change, &mut touched);
                        changes.push(change);
                    }
                    staged.extend(self.staged(poke));
                }
                Err(why) => self.violations.push(Violation::Poke {
                    batch: number,
                    poke: index,
                    at: poke.at,
                    why,
                }),
            }
        }
        self.check_running(number, batch, touched);
        (staged, changes)
    }

    /// Returns the site and its diversion if the site gets an `int3` before the first write.
    fn staged(&self, poke: &Poke) -> Option<(SiteIndex, PatchIndex)> {
        let Part::Site(number) = poke.part else {
            return None;
        };
        let site = self.plan.site(number)?;
        let staged =
            poke.kind == PokeKind::Install && (poke.overwritten > 1 || site.splice == Splice::Trap);
        staged.then_some((number, poke.detour))
    }

    /// Replays one poke. Returns the change of the site through which control reaches its patch.
    fn poke(&mut self, poke: &'a Poke, poked: &Set<Part>) -> Result<Option<SiteChange>, Reason> {
        let plan = self.plan;
        let part = poke.part;
        let Some(span) = parts::span(plan, part).filter(|span| span.start == poke.at) else {
            return Err(Reason::NoPart);
        };
        let owner = match part {
            Part::Site(site) => site,
            Part::Bounce(bounce) => match plan.bounce(bounce) {
                Some(bounce) => bounce.site,
                None => return Err(Reason::NoBounce),
            },
        };
        if poke.write.len() as u64 != span.len() || poke.expect.len() as u64 != span.len() {
            return Err(Reason::PokeLength {
                expect: poke.expect.len(),
                write: poke.write.len(),
                len: span.len(),
            });
        }
        let original = self.image.bytes(span);
        let original = original.ok_or(Reason::OutsideImage)?;
        let before = self.in_place.get(&part).copied();
        let now = before.map_or(original, |here| here.bytes);
        if *poke.expect != *now {
            return Err(Reason::OtherBytes {
                expect: poke.expect.to_vec(),
                memory: now.to_vec(),
            });
        }
        let (to, detour) = (poke.patch, poke.detour);
        for patch in [to, detour] {
            match plan.patch(patch) {
                None => {
                    let patch = patch.index();
                    return Err(Reason::NoPatchNumber { patch });
                }
                Some(known) if known.site != owner => {
                    return Err(Reason::PatchOfSite {
                        patch: patch.index(),
                        site: known.site.0,
                    });
                }
                Some(_) => {}
            }
        }
        let hookless = |patch| {
            plan.patch(patch)
                .is_some_and(|patch| patch.hooks.is_empty())
        };
        if detour != to && !hookless(detour) {
            return Err(Reason::HookedDetour);
        }
        let splice = if poke.kind == PokeKind::Remove {
            &poke.expect
        } else {
            &poke.write
        };
        splice::leads(plan, part, splice, to)?;
        let after = match (poke.kind, before.map(|here| here.patch)) {
            (PokeKind::Install, None) => Some(to),
            (PokeKind::Retarget, Some(before))
                if before != to && splice::is_retargeted(plan, part) =>
            {
                Some(to)
            }
            (PokeKind::Remove, Some(before)) if before == to => None,
            (kind, before) => {
                let kind = format!("{kind:?}");
                let before = before.map(PatchIndex::index);
                return Err(Reason::PokeKind { kind, before });
            }
        };
        if after.is_none() && *poke.write != *original {
            return Err(Reason::NotRestoredBytes {
                write: poke.write.to_vec(),
                original: original.to_vec(),
            });
        }
        self.counted(poke)?;
        self.ordered(poke, poked)?;
        match after {
            Some(patch) => {
                let bytes = &poke.write;
                self.in_place.insert(part, Here { patch, bytes });
                // A short splice branches to the patch of its bounce.
                if let Some(short) = self.in_place.get_mut(&Part::Site(owner)) {
                    short.patch = patch;
                }
            }
            None => drop(self.in_place.remove(&part)),
        }
        Ok(self.changed(part, owner, before.map(|here| here.patch), after))
    }

    fn counted(&self, poke: &Poke) -> Result<(), Reason> {
        let overlaps = match poke.part {
            Part::Bounce(_) => Some(1),
            Part::Site(number) => self.plan.site(number).map(|site| match poke.kind {
                PokeKind::Retarget if site.splice != Splice::Tracer => 1,
                _ => site.overwritten,
            }),
        };
        if overlaps != Some(poke.overwritten) {
            return Err(Reason::PokeOverwritten {
                stated: poke.overwritten,
            });
        }
        let rank = self.parts.rank_of(poke.part);
        if rank != poke.rank {
            return Err(Reason::PokeRank {
                stated: poke.rank,
                rank,
            });
        }
        Ok(())
    }

    /// Checks that the text is whole after each write: dependences are in place at an install, and
    /// dependents are not at a removal.
    fn ordered(&self, poke: &Poke, poked: &Set<Part>) -> Result<(), Reason> {
        let missing = |part: &&Part| !self.in_place.contains_key(part);
        let name = |part: Part| parts::name(self.plan, part);
        match poke.kind {
            PokeKind::Install => {
                if let Some(on) = self.parts.on(poke.part).iter().find(missing) {
                    return Err(Reason::NotInPlace { part: name(*on) });
                }
                if let Some(bounce) = self.bounce_of(poke.part)
                    && self.in_place.get(&bounce).map(|here| here.patch) != Some(poke.patch)
                {
                    return Err(Reason::OtherBounce { part: name(bounce) });
                }
            }
            PokeKind::Retarget => {}
            PokeKind::Remove => {
                let mut depending = self.parts.depending_on(poke.part).iter();
                if let Some(what) = depending.find(|part| !missing(part)) {
                    return Err(Reason::StillInPlace { part: name(*what) });
                }
            }
        }
        // The driver synchronises CPUs and waits for threads between ranks only.
        let rank = self.parts.rank_of(poke.part);
        let (on, of) = (self.parts.on(poke.part), self.parts.depending_on(poke.part));
        let close = on
            .iter()
            .filter(|part| self.parts.rank_of(**part) >= rank)
            .chain(of.iter().filter(|part| self.parts.rank_of(**part) <= rank))
            .find(|part| poked.contains(part));
        match close {
            Some(part) => Err(Reason::SameRank { part: name(*part) }),
            None => Ok(()),
        }
    }

    /// Returns the bounce of a short splice.
    fn bounce_of(&self, part: Part) -> Option<Part> {
        let Part::Site(site) = part else { return None };
        match self.plan.site(site)?.splice {
            Splice::Short(bounce) => Some(Part::Bounce(bounce)),
            _ => None,
        }
    }

    /// Returns the change of the site that a part belongs to.
    fn changed(
        &self,
        part: Part,
        owner: SiteIndex,
        before: Option<PatchIndex>,
        after: Option<PatchIndex>,
    ) -> Option<SiteChange> {
        let through = match part {
            Part::Site(_) => true,
            // A bounce has an effect while its short splice is in place.
            Part::Bounce(_) => self.in_place.contains_key(&Part::Site(owner)),
        };
        through.then_some(SiteChange {
            site: owner,
            before,
            after,
            rank: self.parts.rank_of(part),
        })
    }
}
