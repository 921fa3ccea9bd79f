//! Short splices and their bounces.

use super::*;
use crate::plan::PokeBytes;

/// A two-byte splice over the short block of `hosted`, with a bounce in the bytes of the next
/// block.
fn bounced(image: &Image) -> Plan {
    let cfg = Cfg::of(image, image.function_named("hosted").unwrap().id);
    let (short, long) = (&cfg.blocks[2], &cfg.blocks[3]);
    let at = long.span.start.add(5);
    let displaced = Span {
        start: long.span.start,
        end: Addr(long.instructions.to_vec()[2].next_ip()),
    };
    let written = Span::new(displaced.start, 10);
    let overlapped = |one: &Instruction| one.ip() < written.end.0;
    let site = |splice, displaced, overwritten| Site {
        splice,
        displaced,
        overwritten,
        filled: 0,
        continuations: Box::default(),
    };
    let sites = vec![
        site(Splice::Short(BounceIndex(0)), short.span, 1),
        site(
            Splice::Jump,
            displaced,
            long.instructions.iter().filter(overlapped).count() as u32,
        ),
    ];
    let bounce = Bounce {
        at,
        slot: Slot::Exposed(SiteIndex(1)),
        site: SiteIndex(0),
    };
    let placements = vec![
        placement("hosted", 2, HookType::Pre, "counter"),
        placement("hosted", 3, HookType::Pre, "counter"),
    ];
    let library = Library::builtin().unwrap();
    plan_placed(image, &session(placements), &library, &layout(), |_, _| {
        Solution {
            sites,
            bounces: vec![bounce],
            hooks: [0, 1]
                .map(|site| {
                    Ok(Reached {
                        tactic: Tactic::LocalBounce,
                        points: vec![(SiteIndex(site), Point::Entry)].into(),
                        needs: vec![].into(),
                    })
                })
                .into(),
        }
    })
    .unwrap()
}

/// Makes the bytes of a bounce, and of the short splice to it, fit where it is.
fn led_through(plan: &mut Plan) {
    let plan_now = plan.clone();
    let bounce = plan_now.bounces[0];
    let site = &plan_now.sites[bounce.site.0 as usize];
    let from = site.displaced.start;
    let near = [0xeb, from.add(2).to(bounce.at) as u8];
    for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
        let leads = if poke.kind == PokeKind::Remove {
            &mut poke.expect
        } else {
            &mut poke.write
        };
        match poke.part {
            Part::Bounce(_) => {
                let to = plan_now.patch(poke.patch).unwrap().address;
                let far = (bounce.at.add(5).to(to) as i32).to_le_bytes();
                *leads = PokeBytes::new(&[&[0xe9][..], &far].concat()).unwrap();
                poke.at = bounce.at;
            }
            Part::Site(own) if own == bounce.site => *leads = PokeBytes::new(&near).unwrap(),
            Part::Site(_) => {}
        }
    }
}

/// The same with the original bytes, where the image has others.
fn expecting(image: &Image, plan: &mut Plan) {
    let at = plan.bounces[0].at;
    let original = PokeBytes::new(image.bytes(Span::new(at, 5)).unwrap()).unwrap();
    for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
        if let Part::Bounce(_) = poke.part {
            if poke.kind == PokeKind::Remove {
                poke.write = original;
            } else {
                poke.expect = original;
            }
        }
    }
}

#[test]
fn bounces() {
    let image = fixture().image();
    let good = bounced(&image);
    let bounce = good.bounces[0];
    let second = Part::Bounce(BounceIndex(0));
    let short = Part::Site(bounce.site);
    // Moved by a byte, alone or with all branches to it.
    refused(&image, &good, "NoPart", |plan| {
        plan.bounces[0].at.0 += 1;
    });
    refused(&image, &good, "FilledByte", |plan| {
        plan.sites[1].filled = 1;
    });
    refused(&image, &good, "NoPart: Poke", |plan| {
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.at.0 += u64::from(poke.part == second);
        }
    });
    refused(&image, &good, "NotShort", |plan| {
        let short = number(plan, short, 0);
        plan.batches[0].pokes[short].write[1] += 1;
    });
    refused(&image, &good, "NotJump", |plan| {
        let bounce = number(plan, second, 0);
        plan.batches[0].pokes[bounce].write[1] ^= 1;
    });
    // Missing, or gone while it is needed.
    refused(&image, &good, "NotInPlace", |plan| {
        let bounce = number(plan, second, 0);
        plan.batches[0].pokes.remove(bounce);
    });
    refused(&image, &good, "LeftInPlace", |plan| {
        let bounce = number(plan, second, 1);
        plan.batches[1].pokes.remove(bounce);
    });
    refused(&image, &good, "PokeOrder", |plan| {
        let (one, two) = (number(plan, second, 0), number(plan, short, 0));
        plan.batches[0].pokes.swap(one, two);
    });
    refused(&image, &good, "StillInPlace", |plan| {
        let (one, two) = (number(plan, second, 1), number(plan, short, 1));
        plan.batches[1].pokes.swap(one, two);
    });
    // Ranks and dependences that are not what they should be.
    for batch in 0..2 {
        for part in [second, short] {
            refused(&image, &good, "PokeRank", |plan| {
                let poke = number(plan, part, batch);
                plan.batches[batch].pokes[poke].rank += 1;
            });
        }
    }
    refused(&image, &good, "SameRank", |plan| {
        plan.dependences.clear();
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.rank = 0;
        }
    });
    for dependence in 0..good.dependences.len() {
        refused(&image, &good, "MissingDependence", |plan| {
            plan.dependences.remove(dependence);
        });
    }
    refused(&image, &good, "CyclicDependence", |plan| {
        let mut back = plan.dependences[0];
        std::mem::swap(&mut back.what, &mut back.on);
        plan.dependences.push(back);
        plan.dependences.sort_unstable();
    });
    // Of another site.
    refused(&image, &good, "PatchOfSite: Poke", |plan| {
        plan.bounces[0].site = SiteIndex(bounce.site.0 ^ 1);
    });
}

/// Bytes for the bounce that are not free.
#[test]
fn slots() {
    let image = fixture().image();
    let good = bounced(&image);
    let at = |words: &str, at: u64, slot: Slot| {
        refused(&image, &good, words, |plan| {
            plan.bounces[0].at = Addr(at);
            plan.bounces[0].slot = slot;
            led_through(plan);
            expecting(&image, plan);
        });
    };
    let host = good
        .sites
        .iter()
        .position(|site| site.splice == Splice::Jump)
        .unwrap();
    let displaced = good.sites[host].displaced;
    let exposed = Slot::Exposed(SiteIndex(host as u32));
    let short = good.bounces[0].site;
    for inside in 0..5 {
        at("WritesOverlap", displaced.start.0 + inside, exposed);
    }
    at("BeforeSplice", displaced.start.0 + 4, exposed);
    for over in [4, 3] {
        // The end of the displaced bytes, and the code that they fall through to.
        at(
            "Executes: Bounce 0 may not be",
            displaced.end.0 - over,
            exposed,
        );
    }
    at(
        "Executes: Bounce 0 may not be",
        displaced.start.0 + 6,
        Slot::Padding,
    );
    at(
        "Executes: Bounce 0 may not be",
        displaced.start.0 + 6,
        Slot::Exposed(short),
    );
    at(
        "NoSite: Bounce 0 may not be",
        displaced.start.0 + 6,
        Slot::Exposed(SiteIndex(77)),
    );
    // After the return there is an int3 for speculation.
    let end = image.function_named("hosted").unwrap().span.end.0;
    at("TakesSpeculationStop", end, Slot::Padding);
    at("PastFunction: Bounce 0 may not be", end - 1, Slot::Padding);
    let mut free = good.clone();
    free.bounces[0].at = Addr(end + 1);
    free.bounces[0].slot = Slot::Padding;
    led_through(&mut free);
    expecting(&image, &mut free);
    let violations = verify(&image, free).err().unwrap_or_default();
    assert!(
        !list(&violations).contains("Bounce 0 may not be"),
        "{}",
        list(&violations)
    );
}

/// Two batches that retarget a bounce: the short splice stays.
#[test]
fn retargeted_bounces() {
    let image = fixture().image();
    let at = |launch: f64, splash: f64, kind: &str| Placement {
        launch,
        splash,
        ..placement("hosted", 2, HookType::Pre, kind)
    };
    let good = real(
        &image,
        vec![at(0.0, 4.0, "counter"), at(1.0, 2.0, "timestamp")],
    );
    let parts: Vec<(PokeKind, Part)> = good
        .batches
        .iter()
        .flat_map(|batch: &Batch| batch.pokes.iter().map(|poke| (poke.kind, poke.part)))
        .collect();
    let retargets = parts.iter().filter(|(kind, _)| *kind == PokeKind::Retarget);
    assert!(
        retargets.clone().count() == 2 && { retargets }
            .all(|(_, part)| matches!(part, Part::Bounce(_))),
        "{parts:?}"
    );
    refused(&image, &good, "HookedDetour: Poke", |plan| {
        // No splice branches to the version that was removed.
        let last = plan.batches.len() - 1;
        let first = plan.batches[1].pokes[0].patch;
        for poke in &mut plan.batches[last].pokes {
            if let Part::Site(site) = poke.part
                && matches!(plan.sites[site.0 as usize].splice, Splice::Short(_))
            {
                poke.patch = first;
            }
        }
    });
    refused(&image, &good, "NoBatchAt", |plan| {
        plan.batches.remove(1);
        plan.batches.remove(1);
    });
}
