//! Which splices may go before their time: those of instruments that are there once (KernInst's coverage,
//! whose cost falls to nothing).
//!
//! A splice that is taken out changes nothing but what stands in its own patch: control that would have
//! come there runs the original, and by this comes to the other splices as it would have from the patch. So
//! it may go as soon as all that stands in its patch has been hit, if nothing else counts on it: no bounce in
//! the bytes that it exposes, and no instrument that means its hook alone only while it is there.

use gilk_instruments::program::AggregateKind;

use crate::layout::CounterSlot;
use crate::placement::{BounceIndex, SiteIndex, Slot, Splice};
use crate::plan::{Part, Plan, PlannedInstrument, PokeKind};

/// A splice that nobody needs any more once all of its words have counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// The site.
    pub site: SiteIndex,
    /// The words: per CPU, sorted, none twice, never none. None of them may be zero over all CPUs.
    pub hits: Vec<CounterSlot>,
}

/// The splices that may be taken out before their time, by site: nothing but the splice itself, by
/// the poke that would take it out, at any time while it is in place.
pub(crate) fn retirements(plan: &Plan) -> Vec<Retirement> {
    let once = |one: &PlannedInstrument| one.probe.as_ref().is_some_and(|it| it.checked.once);
    if !plan.instruments.iter().any(once) {
        return Vec::new();
    }
    // By site: what must have counted; `None` where somebody needs it to the end.
    let mut hits: Vec<Option<Vec<CounterSlot>>> = vec![Some(Vec::new()); plan.sites.len()];
    for one in &plan.instruments {
        let own = counted(one);
        let sites = one.points.iter().map(|(site, _)| site).chain(&one.needs);
        for site in sites {
            let Some(known) = hits.get_mut(site.0 as usize) else {
                continue;
            };
            match (known.as_mut(), &own) {
                (Some(known), Some(own)) => known.extend(own),
                _ => *known = None,
            }
        }
    }
    for bounce in &plan.bounces {
        if let Slot::Exposed(host) = bounce.slot
            && let Some(host) = hits.get_mut(host.0 as usize)
        {
            *host = None;
        }
    }
    let pokes = Pokes::of(plan);
    let all = (0..).map(SiteIndex).zip(hits).zip(&plan.sites);
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

/// What an instrument that is there once counts in; `None` if it is there to the end.
fn counted(one: &PlannedInstrument) -> Option<Vec<CounterSlot>> {
    let probed = one.probe.as_ref().filter(|probed| probed.checked.once)?;
    let aggregates = probed.checked.aggregates.iter();
    let counts = aggregates.zip(&probed.homes.aggregates);
    let counts = counts.filter(|(aggregate, _)| aggregate.kind == AggregateKind::Count);
    let slots: Vec<CounterSlot> = counts.map(|(_, slot)| *slot).collect();
    (!slots.is_empty()).then_some(slots)
}

/// How often parts are written, installs and retargets.
struct Pokes {
    sites: Vec<u32>,
    bounces: Vec<u32>,
}

impl Pokes {
    fn of(plan: &Plan) -> Self {
        let mut pokes = Self {
            sites: vec![0; plan.sites.len()],
            bounces: vec![0; plan.bounces.len()],
        };
        let all = plan.batches.iter().flat_map(|batch| &batch.pokes);
        for poke in all.filter(|poke| poke.kind != PokeKind::Remove) {
            let count = match poke.part {
                Part::Site(site) => pokes.sites.get_mut(site.0 as usize),
                Part::Bounce(bounce) => pokes.bounces.get_mut(bounce.0 as usize),
            };
            count.into_iter().for_each(|count| *count += 1);
        }
        pokes
    }

    /// Whether it leads to one patch, once.
    fn site_stays(&self, site: SiteIndex) -> bool {
        self.sites.get(site.0 as usize) == Some(&1)
    }

    fn bounce_stays(&self, bounce: BounceIndex) -> bool {
        self.bounces.get(bounce.0 as usize) == Some(&1)
    }
}
