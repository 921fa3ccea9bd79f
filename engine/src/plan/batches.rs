//! Changes of sites → pokes.

use std::collections::HashMap;

use super::build::missing;
use super::dependences::Order;
use super::patches::Made;
use super::schedule::{Change, VersionIndex};
use super::{Batch, MAX_POKES, Part, PatchIndex, PlannedInstrument, Poke, PokeBytes, PokeKind};
use crate::isa::encode::{INT3, jump};
use crate::placement::{Bounce, BounceIndex, SHORT_SPLICE_BYTES, SPLICE_BYTES, Site, Splice};
use crate::{Addr, Error, Image, Result, Span};

/// Writes batches.
pub(super) struct Writer<'a> {
    pub(super) image: &'a Image,
    pub(super) instruments: &'a [PlannedInstrument],
    pub(super) sites: &'a [Site],
    pub(super) bounces: &'a [Bounce],
    pub(super) order: &'a Order,
    pub(super) made: &'a Made,
    pub(super) detours: &'a HashMap<VersionIndex, VersionIndex>,
}

/// What becomes of a site or its bounce, as indices of patches.
#[derive(Clone, Copy)]
struct Step {
    from: Option<PatchIndex>,
    to: Option<PatchIndex>,
    detour: Option<PatchIndex>,
}

/// Changes whose room is given back at a time.
const AT_ONCE: usize = 1 << 16;

impl Writer<'_> {
    /// The batches, in order of time.
    ///
    /// # Errors
    /// [`Error::Encode`] if a patch or a bounce is out of a splice's reach; [`Error::Full`] if more
    /// begins and ends at one time than the driver writes in one batch.
    pub(super) fn batches(&self, times: &[f64], mut changes: Vec<Change>) -> Result<Vec<Batch>> {
        let index = |time: f64| times.partition_point(|known| known.total_cmp(&time).is_lt());
        // There may be a million of each: none has more room than it fills.
        let mut counts = vec![[0; 3]; times.len()];
        for one in self.instruments {
            for (which, time) in [one.launch, one.splash].into_iter().enumerate() {
                let counts = counts.get_mut(index(time));
                if let Some(count) = counts.and_then(|counts| counts.get_mut(which)) {
                    *count += 1;
                }
            }
        }
        for change in &changes {
            if let Some([.., pokes]) = counts.get_mut(change.time as usize) {
                *pokes += self.pokes(change);
            }
        }
        let batches = times.iter().zip(counts);
        let batches = batches.map(|(&at, [launched, splashed, pokes])| Batch {
            at,
            pokes: Vec::with_capacity(pokes),
            launched: Vec::with_capacity(launched),
            splashed: Vec::with_capacity(splashed),
        });
        let mut batches: Vec<Batch> = batches.collect();
        for one in self.instruments {
            if let Some(batch) = batches.get_mut(index(one.launch)) {
                batch.launched.push(one.id);
            }
            if let Some(batch) = batches.get_mut(index(one.splash)) {
                batch.splashed.push(one.id);
            }
        }
        // Pokes take the room that changes leave.
        while let Some(change) = changes.pop() {
            let batch = batches.get_mut(change.time as usize);
            let batch = batch.ok_or_else(|| missing("a time"))?;
            self.change(&change, &mut batch.pokes)?;
            if changes.len().is_multiple_of(AT_ONCE) {
                changes.shrink_to_fit();
            }
        }
        for batch in &mut batches {
            batch.pokes.sort_unstable_by_key(|poke| {
                let removes = poke.kind == PokeKind::Remove;
                let rank = if removes {
                    u8::MAX - poke.rank
                } else {
                    poke.rank
                };
                (removes, rank, poke.at, poke.part)
            });
        }
        batches.retain(|batch| !batch.pokes.is_empty());
        let most = batches.iter().map(|batch| batch.pokes.len()).max();
        match most {
            Some(most) if most > MAX_POKES => Err(Error::Full {
                what: "writes of text at one time",
                needed: most as u64,
                available: MAX_POKES as u64,
            }),
            _ => Ok(batches),
        }
    }

    /// How many pokes a change takes.
    fn pokes(&self, change: &Change) -> usize {
        let site = self.sites.get(change.site.0 as usize);
        let short = site.is_some_and(|site| matches!(site.splice, Splice::Short(_)));
        let stays = change.from.is_some() && change.to.is_some();
        1 + usize::from(short && !stays)
    }

    fn change(&self, change: &Change, pokes: &mut Vec<Poke>) -> Result<()> {
        let site = self.sites.get(change.site.0 as usize);
        let site = site.ok_or_else(|| missing("a site"))?;
        let patch = |version: VersionIndex| self.made.of_version.get(version.get()).copied();
        let first = change.to.filter(|_| change.from.is_none());
        let diverted = first.and_then(|first| self.detours.get(&first).copied());
        let step = Step {
            from: change.from.and_then(patch),
            to: change.to.and_then(patch),
            detour: diverted.and_then(patch),
        };
        let stays = step.from.is_some() && step.to.is_some();
        if let Splice::Short(index) = site.splice {
            let bounce = self.bounces.get(index.0 as usize);
            let bounce = bounce.ok_or_else(|| missing("a bounce"))?;
            pokes.push(self.bounce(index, bounce, step)?);
            if stays {
                return Ok(());
            }
        }
        let at = site.displaced.start;
        let original = self.original(at, site.splice.bytes())?;
        let leads_to = |patch| self.splice(site, patch);
        let overwritten = match site.splice {
            Splice::Tracer => 0,
            _ if stays => 1,
            _ => site.overwritten,
        };
        let part = Part::Site(change.site);
        pokes.push(self.poke(part, at, original, leads_to, step, overwritten)?);
        Ok(())
    }

    fn bounce(&self, index: BounceIndex, bounce: &Bounce, step: Step) -> Result<Poke> {
        let original = self.original(bounce.at, SPLICE_BYTES)?;
        let leads_to = |patch| self.jump(bounce.at, patch);
        let part = Part::Bounce(index);
        self.poke(part, bounce.at, original, leads_to, step, 1)
    }

    fn original(&self, at: Addr, bytes: u64) -> Result<PokeBytes> {
        let original = self.image.bytes(Span::new(at, bytes));
        original
            .and_then(PokeBytes::new)
            .ok_or_else(|| missing("the bytes of a site"))
    }

    fn poke(
        &self,
        part: Part,
        at: Addr,
        original: PokeBytes,
        leads_to: impl Fn(PatchIndex) -> Result<PokeBytes>,
        step: Step,
        overwritten: u32,
    ) -> Result<Poke> {
        let (expect, write, kind, patch) = match (step.from, step.to) {
            (None, Some(to)) => (original, leads_to(to)?, PokeKind::Install, to),
            (Some(from), Some(to)) => (leads_to(from)?, leads_to(to)?, PokeKind::Retarget, to),
            (Some(from), None) => (leads_to(from)?, original, PokeKind::Remove, from),
            (None, None) => return Err(missing("a change of a site")),
        };
        Ok(Poke {
            part,
            at,
            expect,
            write,
            kind,
            rank: self.order.rank(part),
            patch,
            detour: step.detour.unwrap_or(patch),
            overwritten,
        })
    }

    /// The bytes at the start of a site that lead to a patch.
    fn splice(&self, site: &Site, patch: PatchIndex) -> Result<PokeBytes> {
        let at = site.displaced.start;
        match site.splice {
            Splice::Jump => self.jump(at, patch),
            Splice::Tracer => Ok(PokeBytes::default()),
            Splice::Trap => written(at, &[INT3]),
            Splice::Short(bounce) => {
                let bounce = self.bounces.get(bounce.0 as usize);
                let bounce = bounce.ok_or_else(|| missing("a bounce"))?;
                let distance = at.add(SHORT_SPLICE_BYTES).to(bounce.at);
                let distance = i8::try_from(distance).map_err(|_| Error::Encode {
                    at,
                    reason: format!("the bounce at {} is too far for a short jump", bounce.at),
                })?;
                written(at, &[0xeb, distance.cast_unsigned()])
            }
        }
    }

    fn jump(&self, at: Addr, patch: PatchIndex) -> Result<PokeBytes> {
        let patch = self.made.patches.get(patch.0 as usize);
        let patch = patch.ok_or_else(|| missing("a patch"))?;
        let bytes = jump(at, patch.address).ok_or_else(|| Error::Encode {
            at,
            reason: format!("the patch at {} is more than 2 GiB away", patch.address),
        })?;
        written(at, &bytes)
    }
}

fn written(at: Addr, bytes: &[u8]) -> Result<PokeBytes> {
    PokeBytes::new(bytes).ok_or_else(|| Error::Encode {
        at,
        reason: format!("{} bytes are more than can be written at once", bytes.len()),
    })
}
