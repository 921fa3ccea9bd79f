//! Changes of sites → pokes.

use super::build::missing;
use super::dependences::Order;
use super::patches::Made;
use super::schedule::{Change, Schedule};
use super::{Batch, MAX_POKES, Part, PlannedInstrument, Poke, PokeBytes, PokeKind};
use crate::placement::{Bounce, BounceIndex, SHORT_SPLICE_BYTES, SPLICE_BYTES, Site, Splice};
use crate::relocate::{INT3, jump};
use crate::{Addr, Error, Image, Result, Span};

/// Writes batches.
pub(super) struct Writer<'a> {
    pub(super) image: &'a Image,
    pub(super) instruments: &'a [PlannedInstrument],
    pub(super) sites: &'a [Site],
    pub(super) bounces: &'a [Bounce],
    pub(super) order: &'a Order,
    pub(super) made: &'a Made,
}

/// What becomes of a site or its bounce, as indices of patches.
#[derive(Clone, Copy)]
struct Step {
    from: Option<usize>,
    to: Option<usize>,
    detour: Option<usize>,
}

impl Writer<'_> {
    /// The batches, in order of time.
    ///
    /// # Errors
    /// [`Error::Encode`] if a patch or a bounce is out of a splice's reach; [`Error::Full`] if more
    /// begins and ends at one time than the driver writes in one batch.
    pub(super) fn batches(&self, schedule: &Schedule) -> Result<Vec<Batch>> {
        let mut batches: Vec<Batch> = schedule
            .times
            .iter()
            .map(|&at| Batch {
                at,
                pokes: Vec::new(),
                launched: Vec::new(),
                splashed: Vec::new(),
            })
            .collect();
        let index = |time: f64| {
            schedule
                .times
                .partition_point(|known| known.total_cmp(&time).is_lt())
        };
        for one in self.instruments {
            if let Some(batch) = batches.get_mut(index(one.launch)) {
                batch.launched.push(one.id);
            }
            if let Some(batch) = batches.get_mut(index(one.splash)) {
                batch.splashed.push(one.id);
            }
        }
        for change in &schedule.changes {
            let batch = batches.get_mut(change.time as usize);
            let batch = batch.ok_or_else(|| missing("a time"))?;
            self.change(change, &mut batch.pokes)?;
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
            batch.pokes.shrink_to_fit();
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

    fn change(&self, change: &Change, pokes: &mut Vec<Poke>) -> Result<()> {
        let site = self.sites.get(change.site.0 as usize);
        let site = site.ok_or_else(|| missing("a site"))?;
        let patch = |version: u32| self.made.of_version.get(version as usize).copied();
        let step = Step {
            from: change.from.and_then(patch),
            to: change.to.and_then(patch),
            detour: change.detour.and_then(patch),
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
        leads_to: impl Fn(usize) -> Result<PokeBytes>,
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
    fn splice(&self, site: &Site, patch: usize) -> Result<PokeBytes> {
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
            Splice::Punned {
                prefix,
                written: length,
            } => {
                let prefixed = at.add(u64::from(prefix));
                let jump = self.jump(prefixed, patch)?;
                let mut bytes = vec![PREFIX; usize::from(prefix)];
                bytes.extend_from_slice(&jump);
                let fixed = bytes.split_off(usize::from(length).min(bytes.len()));
                let behind = self.original(at.add(u64::from(length)), fixed.len() as u64)?;
                if fixed != *behind {
                    return Err(Error::Encode {
                        at,
                        reason: "the bytes behind the splice do not lead to its patch".to_owned(),
                    });
                }
                written(at, &bytes)
            }
        }
    }

    fn jump(&self, at: Addr, patch: usize) -> Result<PokeBytes> {
        let patch = self.made.patches.get(patch);
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

/// Prefix of a punned splice: a segment override of cs, which a near jump ignores (Intel SDM 2, 2.1.1).
const PREFIX: u8 = 0x2e;
