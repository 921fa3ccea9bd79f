//! Changes of sites → pokes.

use super::build::missing;
use super::schedule::Change;
use super::{Batch, Patch, PlannedInstrument, Poke, PokeKind};
use crate::placement::Site;
use crate::relocate::jump;
use crate::{Error, Image, InstrumentId, Result};

/// The batches, in order of time.
///
/// # Errors
/// [`Error::Encode`] if a patch is out of a splice's reach.
pub(super) fn batches(
    image: &Image,
    instruments: &[PlannedInstrument],
    patches: &[Patch],
    times: &[(f64, Vec<Change>)],
) -> Result<Vec<Batch>> {
    times
        .iter()
        .map(|(at, changes)| {
            let pokes = changes
                .iter()
                .map(|change| poke(image, patches, change))
                .collect::<Result<_>>()?;
            let with = |time: fn(&PlannedInstrument) -> f64| -> Vec<InstrumentId> {
                instruments
                    .iter()
                    .filter(|one| time(one).total_cmp(at).is_eq())
                    .map(|one| one.id)
                    .collect()
            };
            Ok(Batch {
                at: *at,
                pokes,
                launched: with(|one| one.launch),
                splashed: with(|one| one.splash),
            })
        })
        .collect()
}

fn poke(image: &Image, patches: &[Patch], change: &Change) -> Result<Poke> {
    let site = change.site;
    let original = || {
        image
            .bytes(site.splice())
            .map(<[u8]>::to_vec)
            .ok_or_else(|| missing("the bytes of a site"))
    };
    let leads_to = |version| splice(patches, site, version);
    let (expect, write, kind, patch) = match (change.from, change.to) {
        (None, Some(to)) => (original()?, leads_to(to)?, PokeKind::Install, to),
        (Some(from), Some(to)) => (leads_to(from)?, leads_to(to)?, PokeKind::Retarget, to),
        (Some(from), None) => (leads_to(from)?, original()?, PokeKind::Remove, from),
        (None, None) => return Err(missing("a change of a site")),
    };
    let overwritten = if kind == PokeKind::Retarget {
        1
    } else {
        site.overwritten
    };
    Ok(Poke {
        at: site.displaced.start,
        expect,
        write,
        kind,
        patch,
        overwritten,
    })
}

fn splice(patches: &[Patch], site: Site, version: usize) -> Result<Vec<u8>> {
    let at = site.displaced.start;
    let patch = patches.get(version).ok_or_else(|| missing("a patch"))?;
    jump(at, patch.address)
        .map(Vec::from)
        .ok_or_else(|| Error::Encode {
            at,
            reason: format!("the patch at {} is more than 2 GiB away", patch.address),
        })
}
