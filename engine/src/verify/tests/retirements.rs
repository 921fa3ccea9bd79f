//! Splices that go before their time: a plan in which they do is proved as well.

use std::collections::BTreeSet;

use super::*;
use crate::placement::{SiteIndex, Slot};
use crate::plan::{Batch, Part, PlannedInstrument, PokeKind};
use crate::{Error, InstrumentId};

/// The real planner's plan of all of these that it takes.
fn allowed(image: &Image, mut placements: Vec<Placement>) -> Plan {
    let library = Library::builtin().unwrap();
    loop {
        match crate::plan::plan(image, &session(placements.clone()), &library, &layout()) {
            Ok(plan) => return plan,
            Err(Error::Refused {
                function,
                block,
                hook,
                ..
            }) => placements
                .retain(|one| (&*one.function, one.block, one.hook) != (&*function, block, hook)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn stands_in(instrument: &PlannedInstrument, sites: &BTreeSet<SiteIndex>) -> bool {
    instrument
        .points
        .iter()
        .any(|(site, _)| sites.contains(site))
}

/// The plan in which these sites go before its last batch, and what stands there ends then.
fn early(plan: &Plan, sites: &BTreeSet<SiteIndex>) -> Plan {
    let mut plan = plan.clone();
    let time = plan.batches.last().unwrap().at - 0.25;
    let mut ended: BTreeSet<InstrumentId> = BTreeSet::new();
    for one in plan.instruments.iter_mut() {
        if stands_in(one, sites) {
            one.splash = time;
            ended.insert(one.id);
        }
    }
    let last = plan.batches.last_mut().unwrap();
    let goes = |part: Part| matches!(part, Part::Site(site) if sites.contains(&site));
    let (pokes, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut last.pokes)
        .into_iter()
        .partition(|poke| poke.kind == PokeKind::Remove && goes(poke.part));
    let (splashed, later): (Vec<_>, Vec<_>) = std::mem::take(&mut last.splashed)
        .into_iter()
        .partition(|id| ended.contains(id));
    (last.pokes, last.splashed) = (stay, later);
    assert_eq!(pokes.len(), sites.len());
    let batch = Batch {
        at: time,
        pokes,
        launched: Vec::new(),
        splashed,
    };
    let before_last = plan.batches.len() - 1;
    plan.batches.insert(before_last, batch);
    plan.batches.retain(|batch| !batch.pokes.is_empty());
    plan
}

/// Sites that have all their instruments in common with each other, and with no site that may not go.
fn groups(plan: &Plan, may_go: &BTreeSet<SiteIndex>) -> Vec<BTreeSet<SiteIndex>> {
    let mut groups: Vec<BTreeSet<SiteIndex>> = Vec::new();
    for one in &plan.instruments {
        let mut points: BTreeSet<SiteIndex> = one.points.iter().map(|(site, _)| *site).collect();
        groups.retain(|group| {
            let apart = group.is_disjoint(&points);
            if !apart {
                points.extend(group);
            }
            apart
        });
        groups.push(points);
    }
    groups.retain(|group| group.is_subset(may_go));
    groups
}

/// Returns the number of sites that may go, and of all.
fn whatever_goes_is_proved(image: &Image, placements: Vec<Placement>) -> (usize, usize) {
    let plan = allowed(image, placements);
    let verified = verify(image, plan.clone()).unwrap();
    let retired = verified.retirements();
    let may_go: BTreeSet<SiteIndex> = retired.iter().map(|one| one.site).collect();
    for instrument in plan
        .instruments
        .iter()
        .filter(|instrument| stands_in(instrument, &may_go))
    {
        let probed = instrument.probe.as_ref().unwrap();
        assert!(probed.checked.once, "{} stays", instrument.id);
    }
    for bounce in &plan.bounces {
        if let Slot::Exposed(host) = bounce.slot {
            assert!(!may_go.contains(&host), "a bounce is in its bytes");
        }
    }
    let groups = groups(&plan, &may_go);
    for group in &groups {
        passes(image, &early(&plan, group));
    }
    // In any company.
    for odd in 0..3 {
        let some = groups.iter().skip(odd).step_by(odd + 1).flatten();
        let some: BTreeSet<SiteIndex> = some.copied().collect();
        if !some.is_empty() {
            passes(image, &early(&plan, &some));
        }
    }
    (may_go.len(), plan.sites.len())
}

#[test]
fn what_goes_before_its_time_changes_nothing_else() {
    let tactics = tactics::fixture().image();
    for (image, least) in [(kernel().image(), 5), (tactics, 5)] {
        let mut everywhere = Vec::new();
        for function in image.functions() {
            let cfg = Cfg::of(&image, function.id);
            for block in 0..cfg.blocks.len() as u32 {
                let hooks = ALL.map(|hook| placement(&function.name, block, hook, "coverage"));
                everywhere.extend(hooks);
            }
        }
        let (go, of) = whatever_goes_is_proved(&image, everywhere.clone());
        assert!(go >= least && go <= of, "{go} of {of}");
        // Counters at some of the hooks stay, and so do the splices that they stand at or need.
        for every in [2, 3, 7] {
            let mut mixed = everywhere.clone();
            for one in mixed.iter_mut().step_by(every) {
                one.instrument = "counter".into();
            }
            let (fewer, _) = whatever_goes_is_proved(&image, mixed);
            assert!(fewer <= go);
        }
    }
}

/// A site that is retargeted meanwhile, or that something else stands at, stays.
#[test]
fn what_others_count_on_stays() {
    let image = kernel().image();
    let at = |instrument: &str, splash: f64| Placement {
        splash,
        ..placement("worker", 1, HookType::Pre, instrument)
    };
    let retirements = |placements| {
        verify(&image, allowed(&image, placements))
            .unwrap()
            .retirements()
    };
    let alone = retirements(vec![at("coverage", 2.0)]);
    assert_eq!((alone.len(), alone[0].hits.len()), (1, 1));
    // Two of them: both have to be hit.
    let both = retirements(vec![at("coverage", 2.0), at("coverage", 2.0)]);
    assert_eq!((both.len(), both[0].hits.len()), (1, 2));
    assert!(retirements(vec![at("coverage", 2.0), at("coverage", 1.5)]).is_empty());
    assert!(retirements(vec![at("coverage", 2.0), at("counter", 2.0)]).is_empty());
    assert!(retirements(vec![at("counter", 2.0)]).is_empty());
    // Both ways of a branch, by counters of both.
}
