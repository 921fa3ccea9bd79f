//! Splices that may be removed early: those of instruments that are active until their first hit
//! (KernInst's coverage, whose cost falls to zero).
//!
//! The removal of a splice affects its own patch only: control that would have reached the patch
//! executes the original code, and reaches the other splices from there as it would have from the
//! patch. So a splice may be removed as soon as each instrument in its patch has been hit, unless
//! another part depends on it: a bounce in the bytes that it exposes, or an instrument whose event
//! is known only while the site is in place.

use gilk_instruments::program::AggregateKind;

use crate::ids::Ids;
use crate::layout::CounterSlot;
use crate::placement::{BounceIndex, SiteIndex, Slot, Splice};
use crate::plan::{Part, Plan, PlannedInstrument, PokeKind};

/// A splice that is not needed once each of its counters is above zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// The site whose splice may go.
    pub site: SiteIndex,
    /// Per-CPU counters, sorted, unique, never empty. The splice may go when the sum of each over
    /// all CPUs is above zero.
    pub hits: Vec<CounterSlot>,
}

/// Returns the splices of a verified plan that may be removed early, by site: the splice alone, by the poke of its
/// regular removal, at any time while it is in place.
pub(crate) fn retirements(plan: &Plan) -> Vec<Retirement> {
    let once = |instrument: &PlannedInstrument| {
        instrument.probe.as_ref().is_some_and(|it| it.checked.once)
    };
    if !plan.instruments.iter().any(once) {
        return Vec::new();
    }
    // By site: the counters, or `None` if the site is needed to the end.
    let mut hits =
        Ids::<SiteIndex, Option<Vec<CounterSlot>>>::from(vec![Some(Vec::new()); plan.sites.len()]);
    for instrument in &plan.instruments {
        let own = counted(instrument);
        let sites = instrument
            .points
            .iter()
            .map(|(site, _)| site)
            .chain(&instrument.needs);
        for &site in sites {
            let known = &mut hits[site];
            match (known.as_mut(), &own) {
                (Some(known), Some(own)) => known.extend(own),
                _ => *known = None,
            }
        }
    }
    for bounce in &plan.bounces {
        if let Slot::Exposed(host) = bounce.slot {
            hits[host] = None;
        }
    }
    let pokes = Pokes::of(plan);
    let all = (0..)
        .map(SiteIndex)
        .zip(hits.into_values())
        .zip(&plan.sites);
    let retired = all.filter_map(|((site, hits), known)| {
        let mut hits = hits.filter(|hits| !hits.is_empty())?;
        hits.sort_unstable();
        hits.dedup();
        let leads = match known.splice {
            Splice::Short(bounce) => pokes.bounce_stays(bounce),
            _ => true,
        };
        (leads && pokes.site_stays(site)).then_some(Retirement { site, hits })
    });
    retired.collect()
}

/// Returns the hit counters of a `once` instrument, or `None` for others.
fn counted(one: &PlannedInstrument) -> Option<Vec<CounterSlot>> {
    let probed = one.probe.as_ref().filter(|probed| probed.checked.once)?;
    let aggregates = probed.checked.aggregates.values().iter();
    let counts = aggregates.zip(probed.homes.aggregates.values());
    let counts = counts.filter(|(aggregate, _)| aggregate.kind == AggregateKind::Count);
    let slots: Vec<CounterSlot> = counts.map(|(_, slot)| *slot).collect();
    (!slots.is_empty()).then_some(slots)
}

/// Numbers of installs and retargets, by part.
struct Pokes {
    sites: Ids<SiteIndex, u32>,
    bounces: Ids<BounceIndex, u32>,
}

impl Pokes {
    fn of(plan: &Plan) -> Self {
        let mut pokes = Self {
            sites: vec![0; plan.sites.len()].into(),
            bounces: vec![0; plan.bounces.len()].into(),
        };
        let all = plan.batches.iter().flat_map(|batch| &batch.pokes);
        for poke in all.filter(|poke| poke.kind != PokeKind::Remove) {
            match poke.part {
                Part::Site(site) => pokes.sites[site] += 1,
                Part::Bounce(bounce) => pokes.bounces[bounce] += 1,
            }
        }
        pokes
    }

    /// Returns whether the site branches to a single patch in the whole session.
    fn site_stays(&self, site: SiteIndex) -> bool {
        self.sites[site] == 1
    }

    fn bounce_stays(&self, bounce: BounceIndex) -> bool {
        self.bounces[bounce] == 1
    }
}
