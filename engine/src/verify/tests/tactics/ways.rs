//! Hooks that are known by the ways in and out: arrivals, edges, emulated keys.

use super::*;
use crate::Few;

/// The end of a block that cannot be displaced is known by the ways out of it, each of them and once.
#[test]
fn ends_that_stay() {
    let image = fixture().image();
    let cfg = Cfg::of(&image, image.function_named("decides").unwrap().id);
    let branch = cfg.blocks[0].instructions.last().unwrap();
    assert_eq!(branch.ip(), Fixture::address(8) + 5 + 9);
    let ways = [branch.next_ip() + 9, branch.next_ip()];
    let all = [(0, HookType::Post), (1, HookType::Pre), (2, HookType::Pre)];
    // Alone, and with the hooks before the next blocks.
    for count in 1..=all.len() {
        let hooks = all.iter().take(count);
        let hooks = hooks.map(|&(block, hook)| placement("decides", block, hook, "counter"));
        let good = real(&image, hooks.collect());
        let post = &good.instruments[0];
        let starts = |site: SiteIndex| good.sites[site.0 as usize].displaced.start.0;
        for way in ways {
            assert!(
                post.points.iter().any(|&(site, point)| match point {
                    Point::Entry => starts(site) == way,
                    Point::On(edge) => edge.from.0 == branch.ip() && edge.to.0 == way,
                    Point::Before(_) => false,
                }),
                "{:?}",
                post.points
            );
        }
        // Counted on one of the ways only: consistently, in patches and instruments.
        for point in 0..post.points.len() {
            refused(&image, &good, "ForeignPoint", |plan| {
                plan.instruments[0].points.edit(|list| list.remove(point));
            });
        }
        if count > 1 {
            // In the wrong order where both stand.
            let both = |list: &&mut (Point, Few<InstrumentId>)| list.1.len() > 1;
            let mut other = good.clone();
            let lists = other.patches.iter_mut().flat_map(|patch| &mut patch.hooks);
            lists.filter(both).for_each(|(_, list)| list.reverse());
            assert_ne!(other, good);
            let mut caught = Caught::new("instruments out of order", &[&["OtherAggregate"]]);
            caught.must_refuse(&image, other, "reversed");
        }
    }
}

#[test]
fn arrivals() {
    let image = fixture().image();
    let good = real(
        &image,
        vec![placement("arrives", 2, HookType::Post, "counter")],
    );
    assert_eq!(good.instruments[0].tactic, Tactic::Arrivals);
    let (site, _) = good.instruments[0].points[0];
    let need = good.instruments[0].needs[0];
    // Counted while the other way may still arrive from the original code.
    refused(&image, &good, "WrongHits: hits at", |plan| {
        let own = number(plan, Part::Site(site), 0);
        let poke = &mut plan.batches[0].pokes[own];
        assert_ne!(poke.detour, poke.patch);
        poke.detour = poke.patch;
    });
    // The other way is never diverted.
    refused(&image, &good, "WrongHits: hits at", |plan| {
        for batch in &mut plan.batches {
            batch.pokes.retain(|poke| poke.part != Part::Site(need));
        }
    });
    // No wait until the threads on their way have passed it.
    let count = good.sites[need.0 as usize].overwritten;
    assert!(count > 1);
    refused(&image, &good, "OverwrittenCount", |plan| {
        plan.sites[need.0 as usize].overwritten = 1;
    });
    // It does not say what it needs.
    refused(&image, &good, "WrongHits: hits at", |plan| {
        plan.instruments[0].needs = Few::default();
        let displaced = plan.sites[need.0 as usize].clone();
        let own = Cfg::of(&image, image.function_named("arrives").unwrap().id);
        let count = own
            .blocks
            .iter()
            .flat_map(|block| &block.instructions)
            .filter(|one| Span::new(displaced.displaced.start, 5).contains(Addr(one.ip())))
            .count() as u32;
        plan.sites[need.0 as usize].overwritten = count;
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            if poke.part == Part::Site(need) && poke.kind != PokeKind::Retarget {
                poke.overwritten = count;
            }
        }
    });
    // In one rank, or the wrong way round.
    refused(&image, &good, "WrongHits: hits at", |plan| {
        plan.dependences.clear();
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.rank = 0;
        }
        for batch in &mut plan.batches {
            batch.pokes.sort_by_key(|poke| poke.at);
        }
    });
    // The patch that diverts around it does not, or diverts around another.
    refused(&image, &good, "NotOriginal: Patch", |plan| {
        let passing = plan
            .sites
            .iter_mut()
            .filter(|site| !site.continuations.is_empty());
        passing.for_each(|site| site.continuations = Box::default());
    });
}

#[test]
fn edges_and_keys() {
    let image = fixture().image();
    let good = real(
        &image,
        vec![placement("edges", 2, HookType::Pre, "counter")],
    );
    assert!(
        good.instruments[0].points.len() > 1,
        "{:?}",
        good.instruments
    );
    for point in 0..good.instruments[0].points.len() {
        // The list of one edge is taken for another's.
        refused(&image, &good, "NotOriginal: Patch", |plan| {
            let (site, point) = plan.instruments[0].points[point];
            for patch in plan.patches.iter_mut().filter(|patch| patch.site == site) {
                patch
                    .hooks
                    .edit(|hooks| hooks.retain(|(known, _)| *known != point));
            }
        });
    }
    let good = real(
        &image,
        vec![placement("keyed", 1, HookType::Pre, "counter")],
    );
    let with_key = good
        .patches
        .iter()
        .position(|patch| patch.code.windows(2).any(|two| two == [0x83, 0x3d]))
        .unwrap();
    let key = |plan: &Plan| {
        let code = &plan.patches[with_key].code;
        code.windows(2).position(|two| two == [0x83, 0x3d]).unwrap()
    };
    refused(&image, &good, "OtherTarget: Patch", |plan| {
        let at = key(plan) + 7;
        assert_eq!(plan.patches[with_key].code[at], 0x0f);
        plan.patches[with_key].code[at + 1] ^= 1;
    });
    refused(&image, &good, "NotOriginal: Patch", |plan| {
        let at = key(plan) + 2;
        plan.patches[with_key].code[at] ^= 4;
    });
    refused(&image, &good, "NotOriginal: Patch", |plan| {
        let at = key(plan) + 6;
        plan.patches[with_key].code[at] = 1;
    });
    for run_on in 0..good.sites[0].continuations.len() {
        refused(&image, &good, "NotOriginal: Patch", |plan| {
            let mut continuations = plan.sites[0].continuations.to_vec();
            continuations.remove(run_on);
            plan.sites[0].continuations = continuations.into();
        });
    }
    // A kernel whose tables have the key the other way round, or another key.
    for other in [DATA + 0x3001, DATA + 0x3010] {
        let mut fixture = fixture();
        fixture.jump_keys[0] = other;
        let violations = verify(&fixture.image(), good.clone()).expect_err("another key");
        assert!(list(&violations).contains("Patch"), "{}", list(&violations));
    }
}
