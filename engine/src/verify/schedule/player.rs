//! The batches, played over the kernel's text as it is now, in the order in which the driver writes.

use std::collections::BTreeMap;

use super::parts::{self, Parts};
use super::splice;
use crate::placement::{SiteIndex, Splice};
use crate::plan::{Batch, Part, Plan, Poke, PokeKind};
use crate::verify::hash::{Map, Set};
use crate::verify::meaning::hooks::ById;
use crate::verify::meaning::state::{Change, Meaning};
use crate::verify::violation::Violation;
use crate::{Image, InstrumentId};

/// Pokes that the driver takes in one batch (`ILK_MAX_POKES` in `ilk-driver/kmod/ilk_abi.h`).
const MAX_POKES: usize = 1 << 20;

/// Times in an order, and the same for equal times.
pub(crate) fn bits(time: f64) -> i64 {
    let bits = time.to_bits().cast_signed();
    bits ^ (((bits >> 63).cast_unsigned()) >> 1).cast_signed()
}

/// Plays every batch and says what is wrong with any.
pub(crate) fn play(
    image: &Image,
    plan: &Plan,
    by_id: &ById<'_>,
    parts: &Parts,
    meaning: &mut Meaning<'_>,
    violations: &mut Vec<Violation>,
) {
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
        violations,
    };
    let mut last = f64::NEG_INFINITY;
    for (number, batch) in plan.batches.iter().enumerate() {
        if !(batch.at.is_finite() && batch.at > last && (0.0..=plan.duration).contains(&batch.at)) {
            let why = format!(
                "its time is not behind that of the batch before it, within the session's {} s",
                plan.duration
            );
            player.batch_is_wrong(number, batch, why);
        }
        last = batch.at;
        let (staged, changes) = player.batch(number, batch);
        let (launched, splashed) = (&batch.launched, &batch.splashed);
        meaning.batch(
            number,
            &staged,
            &changes,
            launched,
            splashed,
            player.violations,
        );
    }
    player.at_the_end();
}

/// A part that is in place.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    /// The patch that it leads to, in the end.
    patch: usize,
    /// What is written there.
    bytes: &'a [u8],
}

pub(crate) struct Player<'a> {
    image: &'a Image,
    pub(crate) plan: &'a Plan,
    pub(crate) by_id: &'a ById<'a>,
    parts: &'a Parts,
    /// Who is to begin and to end when.
    pub(crate) times: BTreeMap<i64, [Vec<InstrumentId>; 2]>,
    pub(crate) in_place: Map<Part, Here<'a>>,
    /// At how many points each instrument runs.
    pub(crate) running: Map<InstrumentId, usize>,
    pub(crate) violations: &'a mut Vec<Violation>,
}

impl<'a> Player<'a> {
    pub(crate) fn batch_is_wrong(&mut self, number: usize, batch: &Batch, why: String) {
        self.violations.push(Violation::Batch {
            batch: number,
            time: batch.at,
            why,
        });
    }

    /// Plays a batch. Gives the sites that get an `int3` first, with the patch it leads to, and then what
    /// changes, one write after another.
    fn batch(&mut self, number: usize, batch: &'a Batch) -> (Vec<(SiteIndex, usize)>, Vec<Change>) {
        if batch.pokes.is_empty() || batch.pokes.len() > MAX_POKES {
            let why = format!(
                "it has {} pokes, and must have 1 to {MAX_POKES}",
                batch.pokes.len()
            );
            self.batch_is_wrong(number, batch, why);
        }
        let in_order = batch.pokes.is_sorted_by_key(|poke| match poke.kind {
            PokeKind::Remove => (true, u8::MAX - poke.rank, poke.at),
            PokeKind::Install | PokeKind::Retarget => (false, poke.rank, poke.at),
        });
        if !in_order {
            let why = "its pokes are not in the order in which they are written";
            self.batch_is_wrong(number, batch, why.into());
        }
        let (mut staged, mut changes) = (Vec::new(), Vec::new());
        let mut touched: Vec<InstrumentId> = Vec::new();
        let mut poked: Set<Part> = Set::default();
        poked.reserve(batch.pokes.len());
        for (index, poke) in batch.pokes.iter().enumerate() {
            let result = if poked.insert(poke.part) {
                self.poke(poke, &poked)
            } else {
                Err("another poke of the batch writes there too".into())
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

    /// Whether the site gets an `int3` before anything is written, and what that leads to.
    fn staged(&self, poke: &Poke) -> Option<(SiteIndex, usize)> {
        let Part::Site(number) = poke.part else {
            return None;
        };
        let site = self.plan.sites.get(number.0 as usize)?;
        let staged =
            poke.kind == PokeKind::Install && (poke.overwritten > 1 || site.splice == Splice::Trap);
        staged.then_some((number, poke.detour.0 as usize))
    }

    /// Plays one poke. Gives how the site changes that control comes to its patch by.
    fn poke(&mut self, poke: &'a Poke, poked: &Set<Part>) -> Result<Option<Change>, String> {
        let plan = self.plan;
        let part = poke.part;
        let Some(span) = parts::span(plan, part).filter(|span| span.start == poke.at) else {
            return Err("there is no such part of the plan, or it is elsewhere".into());
        };
        let own = match part {
            Part::Site(site) => site,
            Part::Bounce(bounce) => match plan.bounces.get(bounce.0 as usize) {
                Some(bounce) => bounce.site,
                None => return Err("there is no such bounce".into()),
            },
        };
        if poke.write.len() as u64 != span.len() || poke.expect.len() as u64 != span.len() {
            return Err(format!(
                "it expects {} bytes and writes {}, and should {}",
                poke.expect.len(),
                poke.write.len(),
                span.len()
            ));
        }
        let original = self.image.bytes(span);
        let original = original.ok_or("it does not lie inside the image")?;
        let before = self.in_place.get(&part).copied();
        let now = before.map_or(original, |here| here.bytes);
        if *poke.expect != *now {
            return Err(format!(
                "it expects {:02x?} where memory holds {now:02x?}",
                poke.expect
            ));
        }
        let (to, detour) = (poke.patch.0 as usize, poke.detour.0 as usize);
        for patch in [to, detour] {
            match plan.patches.get(patch) {
                None => return Err(format!("there is no patch {patch}")),
                Some(known) if known.site != own => {
                    return Err(format!("patch {patch} was made for site {}", known.site.0));
                }
                Some(_) => {}
            }
        }
        let hookless = |patch: usize| {
            plan.patches
                .get(patch)
                .is_some_and(|patch| patch.hooks.is_empty())
        };
        if detour != to && !hookless(detour) {
            return Err("threads are diverted to another version with instruments".into());
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
                return Err(format!(
                    "it is called {kind:?}, and the splice in place leads to {before:?}"
                ));
            }
        };
        if after.is_none() && *poke.write != *original {
            return Err(format!(
                "it puts back {:02x?} where the original has {original:02x?}",
                poke.write
            ));
        }
        self.counted(poke)?;
        self.ordered(poke, poked)?;
        match after {
            Some(patch) => {
                let bytes = &poke.write;
                self.in_place.insert(part, Here { patch, bytes });
                // The short splice of a bounce leads where the bounce does.
                if let Some(short) = self.in_place.get_mut(&Part::Site(own)) {
                    short.patch = patch;
                }
            }
            None => drop(self.in_place.remove(&part)),
        }
        Ok(self.changed(part, own, before.map(|here| here.patch), after))
    }

    fn counted(&self, poke: &Poke) -> Result<(), String> {
        let overlaps =
            match poke.part {
                Part::Bounce(_) => Some(1),
                Part::Site(number) => self.plan.sites.get(number.0 as usize).map(|site| match poke
                    .kind
                {
                    PokeKind::Retarget if site.splice != Splice::Tracer => 1,
                    _ => site.overwritten,
                }),
            };
        if overlaps != Some(poke.overwritten) {
            return Err(format!(
                "it says {} instructions are overwritten, which would make the driver wait wrongly",
                poke.overwritten
            ));
        }
        let rank = self.parts.rank_of(poke.part);
        if rank != poke.rank {
            return Err(format!(
                "it says its rank is {}, and by the plan's dependences it is {rank}",
                poke.rank
            ));
        }
        Ok(())
    }

    /// The text is whole after each write: what it depends on is there, and before it what depends on it
    /// is not.
    fn ordered(&self, poke: &Poke, poked: &Set<Part>) -> Result<(), String> {
        let missing = |part: &&Part| !self.in_place.contains_key(part);
        let name = |part: Part| parts::name(self.plan, part);
        match poke.kind {
            PokeKind::Install => {
                if let Some(on) = self.parts.on(poke.part).iter().find(missing) {
                    return Err(format!("{} is not in place before it", name(*on)));
                }
                if let Some(bounce) = self.bounce_of(poke.part)
                    && self.in_place.get(&bounce).map(|here| here.patch)
                        != Some(poke.patch.0 as usize)
                {
                    return Err(format!("{} leads to another patch", name(bounce)));
                }
            }
            PokeKind::Retarget => {}
            PokeKind::Remove => {
                let depending = self.parts.depending_on(poke.part).iter();
                if let Some(what) = { depending }.find(|part| !missing(part)) {
                    return Err(format!("{} is still in place", name(*what)));
                }
            }
        }
        // Only between ranks does the driver see to it that everyone sees, or is out of, what was written.
        let rank = self.parts.rank_of(poke.part);
        let (on, of) = (self.parts.on(poke.part), self.parts.depending_on(poke.part));
        let close = on
            .iter()
            .filter(|part| self.parts.rank_of(**part) >= rank)
            .chain(of.iter().filter(|part| self.parts.rank_of(**part) <= rank))
            .find(|part| poked.contains(part));
        match close {
            Some(part) => Err(format!("{} is written in the same rank", name(*part))),
            None => Ok(()),
        }
    }

    /// The bounce of a short splice.
    fn bounce_of(&self, part: Part) -> Option<Part> {
        let Part::Site(site) = part else { return None };
        match self.plan.sites.get(site.0 as usize)?.splice {
            Splice::Short(bounce) => Some(Part::Bounce(bounce)),
            _ => None,
        }
    }

    /// How control goes on at the site that a part is for.
    fn changed(
        &self,
        part: Part,
        own: SiteIndex,
        before: Option<usize>,
        after: Option<usize>,
    ) -> Option<Change> {
        let through = match part {
            Part::Site(_) => true,
            // A bounce matters while its short splice is there.
            Part::Bounce(_) => self.in_place.contains_key(&Part::Site(own)),
        };
        through.then_some(Change {
            site: own,
            before,
            after,
            rank: self.parts.rank_of(part),
        })
    }
}
