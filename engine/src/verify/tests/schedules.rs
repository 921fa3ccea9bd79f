//! Batches and pokes that do not fit each other, the text, or the patches.

use super::*;
use crate::plan::{PatchIndex, PokeBytes, PokeKind};

/// A splice that is installed at 1 s, gets a second instrument from 2 to 3 s, and goes at 4 s; and another
/// that comes and goes meanwhile.
fn example() -> (Image, Plan) {
    let image = kernel().image();
    let at = |instrument: &str, launch: f64, splash: f64| Placement {
        launch,
        splash,
        ..placement("worker", 1, HookType::Pre, instrument)
    };
    let other = Placement {
        launch: 2.0,
        splash: 4.0,
        ..placement("tail", 0, HookType::Post, "timestamp")
    };
    let plan = planned(
        &image,
        vec![at("counter", 1.0, 4.0), at("timestamp", 2.0, 3.0), other],
    );
    let kinds: Vec<Vec<PokeKind>> = plan
        .batches
        .iter()
        .map(|batch| batch.pokes.iter().map(|poke| poke.kind).collect())
        .collect();
    use PokeKind::{Install, Remove, Retarget};
    assert_eq!(
        kinds,
        [
            vec![Install],
            vec![Retarget, Install],
            vec![Retarget],
            vec![Remove, Remove]
        ]
    );
    (image, plan)
}

#[test]
fn times_and_order_of_batches() {
    let (image, plan) = example();
    refused(&image, &plan, "BatchTime", |plan| plan.batches.swap(0, 1));
    refused(&image, &plan, "BatchTime", |plan| plan.batches[1].at = 1.0);
    refused(&image, &plan, "BatchTime", |plan| {
        plan.batches[3].at = f64::NAN;
    });
    refused(&image, &plan, "BatchTime", |plan| {
        plan.batches[3].at = plan.duration + 1.0;
    });
    refused(&image, &plan, "BatchTime", |plan| {
        plan.batches[0].at = -1.0;
    });
    refused(&image, &plan, "NotDue", |plan| {
        plan.batches[2].at = 3.5;
    });
    refused(&image, &plan, "NoBatchAt", |plan| {
        plan.batches[2].at = 3.5;
    });
    refused(&image, &plan, "LeftInPlace", |plan| {
        drop(plan.batches.pop());
    });
    refused(&image, &plan, "OtherBytes", |plan| {
        drop(plan.batches.remove(0));
    });
    refused(&image, &plan, "OtherBytes", |plan| {
        drop(plan.batches.remove(1));
    });
    refused(&image, &plan, "PokeCount: 0 pokes", |plan| {
        plan.batches[2].pokes.clear();
    });
    refused(&image, &plan, "OtherBytes", |plan| {
        // Everything right but for two batches' pokes, which change places.
        let (first, last) = (plan.batches[0].pokes.clone(), plan.batches[3].pokes.clone());
        plan.batches[0].pokes = last;
        plan.batches[3].pokes = first;
    });
}

#[test]
fn what_runs_when() {
    let (image, plan) = example();
    refused(&image, &plan, "RunsAtPoints: should at 0", |plan| {
        plan.instruments[1].launch = 2.5;
    });
    refused(&image, &plan, "RunsAtPoints: should at 1", |plan| {
        plan.instruments[1].splash = 4.0;
    });
    refused(&image, &plan, "NotDue", |plan| {
        plan.batches[1].launched.truncate(1);
    });
    refused(&image, &plan, "NotDue", |plan| {
        plan.batches[2].splashed.clear();
    });
    refused(&image, &plan, "NotDue", |plan| {
        let first = plan.batches[1].launched[0];
        plan.batches[1].launched.push(first);
    });
    refused(&image, &plan, "NoBatchAt", |plan| {
        plan.instruments[0].launch = 5.0;
    });
    refused(&image, &plan, "RunsAtPoints: should at 1", |plan| {
        // Never retargeted: the second instrument never runs.
        plan.batches[1].pokes.remove(0);
        plan.batches.remove(2);
    });
}

#[test]
fn bytes_of_pokes() {
    let (image, plan) = example();
    for batch in 0..plan.batches.len() {
        for poke in 0..plan.batches[batch].pokes.len() {
            for byte in 0..5 {
                for bit in 0..8 {
                    refused(&image, &plan, "OtherBytes", |plan| {
                        plan.batches[batch].pokes[poke].expect[byte] ^= 1 << bit;
                    });
                    refused(&image, &plan, "NotJump|NotRestoredBytes: Poke", |plan| {
                        plan.batches[batch].pokes[poke].write[byte] ^= 1 << bit;
                    });
                }
            }
            refused(&image, &plan, "PokeLength: and should 5", |plan| {
                let longer = [&*plan.batches[batch].pokes[poke].write, &[0xcc]].concat();
                plan.batches[batch].pokes[poke].write = PokeBytes::new(&longer).unwrap();
            });
            refused(&image, &plan, "PokeLength: and should 5", |plan| {
                plan.batches[batch].pokes[poke].expect = PokeBytes::new(&[0; 4]).unwrap();
            });
            refused(&image, &plan, "PokeLength: and should 5", |plan| {
                plan.batches[batch].pokes[poke].write = PokeBytes::default();
            });
            refused(&image, &plan, "NoPart: Poke", |plan| {
                plan.batches[batch].pokes[poke].at = plan.batches[batch].pokes[poke].at.add(1);
            });
            refused(&image, &plan, "NoPart: Poke", |plan| {
                plan.batches[batch].pokes[poke].at = Addr(ARENA);
            });
            refused(&image, &plan, "PokeOverwritten", |plan| {
                plan.batches[batch].pokes[poke].overwritten += 1;
            });
            refused(&image, &plan, "PokeOverwritten", |plan| {
                plan.batches[batch].pokes[poke].overwritten = 0;
            });
            refused(
                &image,
                &plan,
                "HookedDetour|PatchOfSite|NoPatchNumber: Poke",
                |plan| {
                    plan.batches[batch].pokes[poke].patch.0 += 1;
                },
            );
            refused(&image, &plan, "NoPatchNumber", |plan| {
                plan.batches[batch].pokes[poke].patch = PatchIndex(u32::MAX);
            });
        }
    }
    refused(&image, &plan, "PokeKind: Retarget", |plan| {
        plan.batches[0].pokes[0].kind = PokeKind::Retarget;
    });
    refused(&image, &plan, "PokeKind: Install", |plan| {
        plan.batches[1].pokes[0].kind = PokeKind::Install;
    });
    refused(&image, &plan, "NotJump: Poke", |plan| {
        plan.batches[1].pokes[0].kind = PokeKind::Remove;
    });
    refused(&image, &plan, "PokedTwice", |plan| {
        let again = plan.batches[0].pokes[0].clone();
        plan.batches[0].pokes.push(again);
    });
    refused(&image, &plan, "OtherBytes", |plan| {
        let poke = &mut plan.batches[0].pokes[0];
        std::mem::swap(&mut poke.expect, &mut poke.write);
    });
}

/// A site that displaces what another one does.
#[test]
fn splices_that_meet() {
    let image = kernel().image();
    let plan = planned(
        &image,
        vec![placement("worker", 1, HookType::Pre, "counter")],
    );
    refused(&image, &plan, "SitesOverlap", |plan| {
        plan.sites[0].displaced.end = plan.sites[1].displaced.start.add(5);
    });
    refused(&image, &plan, "SitesOverlap", |plan| {
        plan.sites.swap(0, 1);
    });
}

#[test]
fn patches_have_places_of_their_own() {
    let (image, plan) = example();
    refused(&image, &plan, "PatchesOverlap", |plan| {
        plan.patches[1].address = plan.patches[0].address.add(1);
    });
    refused(&image, &plan, "OutsideArena", |plan| {
        plan.patches[2].address = Addr(ARENA - 1);
    });
    refused(&image, &plan, "OutsideArena", |plan| {
        plan.layout.arena.end = plan.patches[2].address.add(3);
    });
    refused(&image, &plan, "OutsideArena", |plan| {
        plan.patches[0].code = Box::default();
    });
    refused(&image, &plan, "ArenaInText", |plan| {
        plan.layout.arena.start = image.text().start;
    });
    refused(&image, &plan, "ArenasOverlap", |plan| {
        let arena = plan.layout.arena;
        plan.layout.further_arenas = vec![Span::new(arena.end.add(0x1000), 0x1000), arena];
    });
    refused(&image, &plan, "NotJump", |plan| {
        plan.patches[0].address = Addr(ARENA + 0x10_0000);
    });
}

#[test]
fn identifiers_counters_and_the_target() {
    let (image, plan) = example();
    refused(&image, &plan, "SameIdentifier", |plan| {
        plan.instruments[1].id = plan.instruments[0].id;
    });
    refused(&image, &plan, "ForeignPoint", |plan| {
        plan.patches[0].hooks[0].1[0] = plan.instruments[2].id;
    });
    refused(&image, &plan, "UnplannedInstrument", |plan| {
        plan.patches[0].hooks[0].1[0].order = 9;
    });
    refused(&image, &plan, "OutsideSample: Patch", |plan| {
        plan.patches
            .iter_mut()
            .flat_map(|patch| &mut patch.hooks)
            .for_each(|(_, list)| list.reverse());
    });
    refused(&image, &plan, "NumberedFunction", |plan| {
        plan.functions.swap(0, 1);
    });
    refused(&image, &plan, "NumberedFunction", |plan| {
        plan.functions[0].name = "tail".into();
    });
    refused(&image, &plan, "ForeignRelease", |plan| {
        plan.release.push('x');
    });
    refused(&image, &plan, "NeedlessCounter", |plan| {
        plan.instruments[0].counter = None;
    });
    refused(&image, &plan, "NoProbe", |plan| {
        let mut probes = plan
            .instruments
            .iter_mut()
            .filter_map(|one| one.probe.as_mut());
        std::sync::Arc::make_mut(probes.next().unwrap()).index = 7;
    });
    refused(&image, &plan, "CounterBank", |plan| {
        plan.layout.counters[0].slots = 0;
    });
    refused(&image, &plan, "OverlappingWords", |plan| {
        plan.layout.counters[0].base = SegmentOffset(plan.layout.rings.limit.0 - 8);
    });
    refused(&image, &plan, "OverlappingWords", |plan| {
        plan.layout.rings.lost_full = plan.layout.owner.word;
    });
    refused(&image, &plan, "RingSize", |plan| {
        plan.layout.rings.stride_log2 = 20;
    });
    // The code is for one layout; with any other it counts and writes elsewhere.
    refused(&image, &plan, "OtherAggregate: Patch 0", |plan| {
        plan.layout.counters[0].base.0 += 8;
    });
    refused(&image, &plan, "EarlyMark: Patch", |plan| {
        plan.layout.rings.base.0 += 8;
    });
    refused(&image, &plan, "HeadStep: Patch", |plan| {
        plan.layout.rings.slots_log2 -= 1;
        plan.layout.rings.stride_log2 -= 1;
    });
    refused(&image, &plan, "OtherMaximum: Patch", |plan| {
        std::mem::swap(&mut plan.layout.rings.head, &mut plan.layout.rings.limit);
    });
    refused(&image, &plan, "OutsideSample: Patch", |plan| {
        std::mem::swap(
            &mut plan.layout.rings.lost_full,
            &mut plan.layout.owner.word,
        );
    });
}
