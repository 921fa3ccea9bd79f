//! Changes of sites → pokes.

use std::collections::HashMap;

use super::dependencies::Order;
use super::error::internal;
use super::model::{Batch, MAX_POKES, Part, PatchIndex, PlannedInstrument, Poke, PokeKind};
use super::patches::Made;
use super::placed::PlacedParts;
use super::schedule::{Change, InstrumentIndex, TimeIndex, VersionIndex};
use crate::ids::{Id, Ids};
use crate::placement::{BounceIndex, PokeBytes, SPLICE_BYTES, Site, Splice};
use crate::{Addr, Error, Image, Result, Span};

/// Converts changes of sites to batches.
pub(super) struct BatchWriter<'a> {
    pub(super) image: &'a Image,
    pub(super) instruments: &'a Ids<InstrumentIndex, PlannedInstrument>,
    pub(super) placed: &'a PlacedParts,
    pub(super) order: &'a Order,
    pub(super) made: &'a Made,
    pub(super) detours: &'a HashMap<VersionIndex, VersionIndex>,
}

/// Entries of a batch.
#[derive(Clone, Copy, Default)]
struct BatchSize {
    pokes: usize,
    launched: usize,
    splashed: usize,
}

/// A change of a site or its bounce, as indices of patches.
#[derive(Clone, Copy)]
struct PatchChange {
    from: Option<PatchIndex>,
    to: Option<PatchIndex>,
    detour: Option<PatchIndex>,
}

/// Number of changes whose memory is released at a time.
const AT_ONCE: usize = 1 << 16;

impl BatchWriter<'_> {
    /// The batches, in order of time.
    ///
    /// # Errors
    /// [`Error::Encode`] if a patch or a bounce is out of a splice's reach; [`Error::Full`] if more splices
    /// change at one time than the driver writes in one batch.
    pub(super) fn batches(
        &self,
        times: &Ids<TimeIndex, f64>,
        mut changes: Vec<Change>,
    ) -> Result<Vec<Batch>> {
        let before = |time: f64| move |known: &f64| known.total_cmp(&time).is_lt();
        let index = |time: f64| TimeIndex::new(times.values().partition_point(before(time)));
        // There may be a million of each: exactly as much memory as they take.
        let mut counts = Ids::like(times, BatchSize::default());
        for instrument in self.instruments.values() {
            counts[index(instrument.launch)].launched += 1;
            counts[index(instrument.splash)].splashed += 1;
        }
        for change in &changes {
            counts[change.time].pokes += self.pokes(change);
        }
        let mut batches: Ids<TimeIndex, Batch> = (times.iter())
            .map(|(time, &at)| Batch {
                at,
                pokes: Vec::with_capacity(counts[time].pokes),
                launched: Vec::with_capacity(counts[time].launched),
                splashed: Vec::with_capacity(counts[time].splashed),
            })
            .collect();
        for one in self.instruments.values() {
            batches[index(one.launch)].launched.push(one.id);
            batches[index(one.splash)].splashed.push(one.id);
        }
        // Pokes take the memory that changes release.
        while let Some(change) = changes.pop() {
            self.change(&change, &mut batches[change.time].pokes)?;
            if changes.len().is_multiple_of(AT_ONCE) {
                changes.shrink_to_fit();
            }
        }
        let mut batches = batches.into_values();
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

    /// Number of pokes of a change.
    fn pokes(&self, change: &Change) -> usize {
        let is_short = !self.placed.sites[change.site].splice.retargets();
        let is_retarget = change.from.is_some() && change.to.is_some();
        1 + usize::from(is_short && !is_retarget)
    }

    fn change(&self, change: &Change, pokes: &mut Vec<Poke>) -> Result<()> {
        let site = &self.placed.sites[change.site];
        let patch = |version: VersionIndex| self.made.of_version[version];
        let first = change.to.filter(|_| change.from.is_none());
        let diverted = first.and_then(|first| self.detours.get(&first).copied());
        let step = PatchChange {
            from: change.from.map(patch),
            to: change.to.map(patch),
            detour: diverted.map(patch),
        };
        let is_retarget = step.from.is_some() && step.to.is_some();
        if let Some(index) = site.splice.bounce() {
            pokes.push(self.bounce(index, step)?);
        }
        if is_retarget && !site.splice.retargets() {
            return Ok(());
        }
        let at = site.displaced.start;
        let original = self.original(at, site.splice.bytes())?;
        let target = |patch| self.splice(site, patch);
        let overwritten = if is_retarget { 1 } else { site.overwritten };
        let overwritten = site.splice.overwrites(overwritten);
        let part = Part::Site(change.site);
        pokes.push(self.poke(part, at, original, target, step, overwritten)?);
        Ok(())
    }

    fn bounce(&self, index: BounceIndex, step: PatchChange) -> Result<Poke> {
        let at = self.placed.bounces[index].at;
        let original = self.original(at, SPLICE_BYTES)?;
        let target = |patch| self.jump(at, patch);
        self.poke(Part::Bounce(index), at, original, target, step, 1)
    }

    fn original(&self, at: Addr, bytes: u64) -> Result<PokeBytes> {
        let original = self.image.bytes(Span::new(at, bytes));
        original
            .and_then(PokeBytes::new)
            .ok_or_else(|| internal("the image has no bytes at a site"))
    }

    fn poke(
        &self,
        part: Part,
        at: Addr,
        original: PokeBytes,
        target: impl Fn(PatchIndex) -> Result<PokeBytes>,
        step: PatchChange,
        overwritten: u32,
    ) -> Result<Poke> {
        let (expect, write, kind, patch) = match (step.from, step.to) {
            (None, Some(to)) => (original, target(to)?, PokeKind::Install, to),
            (Some(from), Some(to)) => (target(from)?, target(to)?, PokeKind::Retarget, to),
            (Some(from), None) => (target(from)?, original, PokeKind::Remove, from),
            (None, None) => return Err(internal("a change neither installs nor removes its site")),
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

    /// The bytes of a site's splice for a version of its patch.
    fn splice(&self, site: &Site, patch: PatchIndex) -> Result<PokeBytes> {
        let at = site.displaced.start;
        let (to, reason) = match site.splice.bounce() {
            Some(bounce) => {
                let to = self.placed.bounces[bounce].at;
                (
                    to,
                    format!("the bounce at {to} is too far for a short jump"),
                )
            }
            None => {
                let to = self.made.patches[patch].address;
                (to, too_far(to))
            }
        };
        let bytes = site.splice.encode(at, to);
        bytes.ok_or(Error::Encode { at, reason })
    }

    /// The bytes of a bounce at `at` for a patch.
    fn jump(&self, at: Addr, patch: PatchIndex) -> Result<PokeBytes> {
        let to = self.made.patches[patch].address;
        let bytes = Splice::Jump.encode(at, to);
        bytes.ok_or_else(|| Error::Encode {
            at,
            reason: too_far(to),
        })
    }
}

fn too_far(patch: Addr) -> String {
    format!("the patch at {patch} is more than 2 GiB away")
}
