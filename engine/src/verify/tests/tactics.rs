//! Plans for each tactic: they pass, and broken on purpose they do not.

use super::*;
use crate::placement::{
    Bounce, BounceIndex, Edge, Placement as Placed, Point, Reached, RunOn, Site, SiteIndex, Slot,
    Splice, Tactic,
};
use crate::plan::{Batch, Part, PokeKind};

/// Functions for which every tactic is needed.
pub(super) fn fixture() -> Fixture {
    let mut fixture = Fixture::new()
        .compiled("hosted", |a| {
            // A block of two bytes, entered by a branch, between two that are long.
            let (mut short, mut next) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.test(rdi, rdi)?;
            a.je(short)?;
            a.mov(eax, 1)?;
            a.set_label(&mut short)?;
            a.inc(eax)?;
            a.set_label(&mut next)?;
            a.lea(rax, qword_ptr(rax + rdx * 4 + 0x40))?;
            a.mov(rcx, 0x1234_5678_9abc_def0u64)?;
            a.mov(r8, 0x1234_5678_9abc_def0u64)?;
            a.sub(rsi, 1)?;
            a.jne(next)?;
            a.ret()
        })
        .compiled("arrives", |a| {
            let (mut join, mut call) = (a.create_label(), a.create_label());
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.test(rdi, rdi)?;
            a.jne(call)?;
            a.lea(rax, qword_ptr(rdi + 3))?;
            a.jmp(join)?;
            a.set_label(&mut call)?;
            a.mov(esi, 1)?;
            a.call(Fixture::address(0))?;
            a.set_label(&mut join)?;
            a.add(rax, rbx)?;
            a.mov(edx, 7)?;
            a.pop(rbx)?;
            a.ret()
        })
        .compiled("keyed", |a| {
            // Behind the key stands a block of one byte, then one that the slow way comes to.
            let (mut slow, mut on) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.mov(edx, 6)?;
            a.db(&[0x0f, 0x1f, 0x44, 0, 0])?;
            a.cdq()?;
            a.set_label(&mut on)?;
            a.lea(rax, qword_ptr(rax + rdx))?;
            a.add(rax, 5)?;
            a.ret()?;
            a.set_label(&mut slow)?;
            a.shl(rax, 2)?;
            a.jmp(on)
        })
        .compiled("told", |a| {
            // A static call at once.
            a.call(Fixture::address(4))?;
            a.mov(edx, 9)?;
            a.ret()
        })
        .asm("__SCT__told", |a| a.jmp(Fixture::address(0)))
        .asm("__SCT__other", |a| a.jmp(Fixture::address(0)))
        .compiled("edges", |a| {
            // A block of one byte that two ways lead to.
            let (mut one, mut two) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.test(rdi, rdi)?;
            a.je(one)?;
            a.mov(eax, 1)?;
            a.lea(rdx, qword_ptr(rax + 5))?;
            a.set_label(&mut one)?;
            a.cmc()?;
            a.set_label(&mut two)?;
            a.lea(rax, qword_ptr(rax + rdx * 4 + 0x40))?;
            a.sub(rsi, 1)?;
            a.jne(two)?;
            a.ret()
        })
        .compiled("punned", |a| {
            a.lea(rax, qword_ptr(rdi + 9))?;
            a.db(&[0x3e])?;
            a.mov(rdx, rax)?;
            a.ret()
        });
    let keyed = Fixture::address(2) + 5 + 8;
    let image = fixture.image();
    let slow = Cfg::of(&image, image.function_named("keyed").unwrap().id)
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .find(|one| one.mnemonic() == iced_x86::Mnemonic::Shl)
        .unwrap()
        .ip();
    fixture.jumps = vec![(keyed, slow)];
    fixture.jump_keys = vec![DATA + 0x3000];
    fixture.static_calls = vec![Fixture::address(3) + 5];
    fixture.static_call_keys = vec![DATA + 0x3100];
    fixture.symbols = vec![(DATA + 0x3100, 'D', "__SCK__told".into())];
    fixture
}

fn real(image: &Image, placements: Vec<Placement>) -> Plan {
    let library = Library::builtin().unwrap();
    crate::plan::plan(image, &session(placements), &library, &layout()).unwrap()
}

/// A plan with sites that are given; all instruments are at `points`.
fn given(
    image: &Image,
    placements: Vec<Placement>,
    layout: &RuntimeLayout,
    sites: Vec<Site>,
    points: &[(SiteIndex, Point)],
) -> Plan {
    let library = Library::builtin().unwrap();
    plan_placed(
        image,
        &session(placements),
        &library,
        layout,
        |_, wanted| Placed {
            sites,
            bounces: vec![],
            hooks: wanted
                .iter()
                .map(|_| {
                    Ok(Reached {
                        tactic: Tactic::Tracer,
                        points: points.to_vec(),
                        needs: vec![],
                    })
                })
                .collect(),
        },
    )
    .unwrap()
}

/// Every hook of the fixture, by the real placement: alone, and all at once.
#[test]
fn good_ones() {
    let image = fixture().image();
    let library = Library::builtin().unwrap();
    let mut all = Vec::new();
    let mut tactics = std::collections::BTreeSet::new();
    for function in image.functions() {
        for block in 0..Cfg::of(&image, function.id).blocks.len() as u32 {
            for hook in [HookType::Pre, HookType::Post] {
                let own = placement(&function.name, block, hook, "counter");
                let session = session(vec![own.clone()]);
                if let Ok(plan) = crate::plan::plan(&image, &session, &library, &layout()) {
                    tactics.insert(plan.instruments[0].tactic);
                    passes(&image, &plan);
                    all.push(own);
                }
            }
        }
    }
    passes(&image, &real(&image, all));
    println!("{tactics:?}");
    for tactic in [
        Tactic::DirectSplice,
        Tactic::BlockRelocation,
        Tactic::Edges,
        Tactic::Arrivals,
        Tactic::Tracer,
    ] {
        assert!(tactics.contains(&tactic), "{tactic:?} of {tactics:?}");
    }
}

/// A two-byte splice over the short block of `hosted`, by a bounce in the bytes of the block behind it.
fn bounced(image: &Image) -> Plan {
    let cfg = Cfg::of(image, image.function_named("hosted").unwrap().id);
    let (short, long) = (&cfg.blocks[2], &cfg.blocks[3]);
    let at = long.span.start.add(5);
    let displaced = Span {
        start: long.span.start,
        end: Addr(long.instructions[2].next_ip()),
    };
    let written = Span::new(displaced.start, 10);
    let overlapped = |one: &&Instruction| one.ip() < written.end.0;
    let site = |splice, displaced, overwritten| Site {
        splice,
        displaced,
        overwritten,
        run_ons: vec![],
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
        Placed {
            sites,
            bounces: vec![bounce],
            hooks: [0, 1]
                .map(|site| {
                    Ok(Reached {
                        tactic: Tactic::LocalBounce,
                        points: vec![(SiteIndex(site), Point::Entry)],
                        needs: vec![],
                    })
                })
                .into(),
        }
    })
    .unwrap()
}

fn number(plan: &Plan, part: Part, batch: usize) -> usize {
    let pokes = &plan.batches[batch].pokes;
    pokes.iter().position(|poke| poke.part == part).unwrap()
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
                let to = plan_now.patches[poke.patch].address;
                let far = (bounce.at.add(5).to(to) as i32).to_le_bytes();
                *leads = [&[0xe9][..], &far].concat();
                poke.at = bounce.at;
            }
            Part::Site(own) if own == bounce.site => *leads = near.to_vec(),
            Part::Site(_) => {}
        }
    }
}

/// The same with the original bytes, where the image has others.
fn expecting(image: &Image, plan: &mut Plan) {
    let at = plan.bounces[0].at;
    let original = image.bytes(Span::new(at, 5)).unwrap().to_vec();
    for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
        if let Part::Bounce(_) = poke.part {
            if poke.kind == PokeKind::Remove {
                poke.write.clone_from(&original);
            } else {
                poke.expect.clone_from(&original);
            }
        }
    }
}

#[test]
fn bounces() {
    let image = fixture().image();
    let good = bounced(&image);
    let bounce = good.bounces[0];
    let own = Part::Bounce(BounceIndex(0));
    let short = Part::Site(bounce.site);
    // Moved by a byte, alone or with all that leads there.
    refused(&image, &good, "it is elsewhere", |plan| {
        plan.bounces[0].at.0 += 1;
    });
    refused(&image, &good, "Poke", |plan| {
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.at.0 += u64::from(poke.part == own);
        }
    });
    refused(&image, &good, "not a short jump to the bounce", |plan| {
        let short = number(plan, short, 0);
        plan.batches[0].pokes[short].write[1] += 1;
    });
    refused(&image, &good, "not a jump to patch", |plan| {
        let bounce = number(plan, own, 0);
        plan.batches[0].pokes[bounce].write[1] ^= 1;
    });
    // Missing, or gone while it is needed.
    refused(&image, &good, "is not in place before it", |plan| {
        let bounce = number(plan, own, 0);
        plan.batches[0].pokes.remove(bounce);
    });
    refused(&image, &good, "is still there", |plan| {
        let bounce = number(plan, own, 1);
        plan.batches[1].pokes.remove(bounce);
    });
    refused(&image, &good, "not in the order", |plan| {
        let (one, two) = (number(plan, own, 0), number(plan, short, 0));
        plan.batches[0].pokes.swap(one, two);
    });
    refused(&image, &good, "is still in place", |plan| {
        let (one, two) = (number(plan, own, 1), number(plan, short, 1));
        plan.batches[1].pokes.swap(one, two);
    });
    // Ranks and dependences that are not what they should be.
    for batch in 0..2 {
        for part in [own, short] {
            refused(&image, &good, "its rank is", |plan| {
                let poke = number(plan, part, batch);
                plan.batches[batch].pokes[poke].rank += 1;
            });
        }
    }
    refused(&image, &good, "written in the same rank", |plan| {
        plan.dependences.clear();
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.rank = 0;
        }
    });
    for dependence in 0..good.dependences.len() {
        refused(&image, &good, "it does not say that", |plan| {
            plan.dependences.remove(dependence);
        });
    }
    refused(&image, &good, "depends on itself", |plan| {
        let mut back = plan.dependences[0];
        std::mem::swap(&mut back.what, &mut back.on);
        plan.dependences.push(back);
        plan.dependences.sort_unstable();
    });
    // Of another site.
    refused(&image, &good, "Poke", |plan| {
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
        at("overlap", displaced.start.0 + inside, exposed);
    }
    at("is not behind the splice", displaced.start.0 + 4, exposed);
    for over in [4, 3] {
        // The end of what is displaced, and what runs on from there.
        at("Bounce 0 may not be", displaced.end.0 - over, exposed);
    }
    at("Bounce 0 may not be", displaced.start.0 + 6, Slot::Padding);
    at(
        "Bounce 0 may not be",
        displaced.start.0 + 6,
        Slot::Exposed(short),
    );
    at(
        "Bounce 0 may not be",
        displaced.start.0 + 6,
        Slot::Exposed(SiteIndex(77)),
    );
    // Behind the return stands an int3 for speculation.
    let end = image.function_named("hosted").unwrap().span.end.0;
    at("speculation", end, Slot::Padding);
    at("Bounce 0 may not be", end - 1, Slot::Padding);
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
    // Counted while the other way may still come by the text.
    refused(&image, &good, "hits at", |plan| {
        let own = number(plan, Part::Site(site), 0);
        let poke = &mut plan.batches[0].pokes[own];
        assert_ne!(poke.detour, poke.patch);
        poke.detour = poke.patch;
    });
    // The other way is never led past.
    refused(&image, &good, "hits at", |plan| {
        for batch in &mut plan.batches {
            batch.pokes.retain(|poke| poke.part != Part::Site(need));
        }
    });
    // Nobody waits until those on their way are past it.
    let count = good.sites[need.0 as usize].overwritten;
    assert!(count > 1);
    refused(&image, &good, "are overwritten, and", |plan| {
        plan.sites[need.0 as usize].overwritten = 1;
    });
    // It does not say what it needs.
    refused(&image, &good, "hits at", |plan| {
        plan.instruments[0].needs.clear();
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
    refused(&image, &good, "hits at", |plan| {
        plan.dependences.clear();
        for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
            poke.rank = 0;
        }
        for batch in &mut plan.batches {
            batch.pokes.sort_by_key(|poke| poke.at);
        }
    });
    // The patch that leads past it does not, or leads past another.
    refused(&image, &good, "Patch", |plan| {
        let passing = plan
            .sites
            .iter_mut()
            .filter(|site| !site.run_ons.is_empty());
        passing.for_each(|site| site.run_ons.clear());
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
        refused(&image, &good, "Patch", |plan| {
            let (site, point) = plan.instruments[0].points[point];
            for patch in plan.patches.iter_mut().filter(|patch| patch.site == site) {
                patch.hooks.retain(|(known, _)| *known != point);
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
    refused(&image, &good, "Patch", |plan| {
        let at = key(plan) + 7;
        assert_eq!(plan.patches[with_key].code[at], 0x0f);
        plan.patches[with_key].code[at + 1] ^= 1;
    });
    refused(&image, &good, "Patch", |plan| {
        let at = key(plan) + 2;
        plan.patches[with_key].code[at] ^= 4;
    });
    refused(&image, &good, "Patch", |plan| {
        let at = key(plan) + 6;
        plan.patches[with_key].code[at] = 1;
    });
    for run_on in 0..good.sites[0].run_ons.len() {
        refused(&image, &good, "Patch", |plan| {
            plan.sites[0].run_ons.remove(run_on);
        });
    }
    // A kernel whose tables have the key the other way round, or another key.
    for other in [DATA + 0x3001, DATA + 0x3010] {
        let mut fixture = fixture();
        fixture.jump_keys = vec![other];
        let violations = verify(&fixture.image(), good.clone()).expect_err("another key");
        assert!(list(&violations).contains("Patch"), "{}", list(&violations));
    }
}

/// The tracer's site of `told`, going on with the static call.
fn traced(image: &Image) -> Plan {
    let start = Addr(Fixture::address(3));
    let site = Site {
        splice: Splice::Tracer,
        displaced: Span::new(start, 5),
        overwritten: 0,
        run_ons: vec![RunOn {
            edge: Edge {
                from: start,
                to: start.add(5),
            },
            copied: Span::new(start.add(5), 5),
        }],
    };
    let placements = vec![placement("told", 0, HookType::Pre, "counter")];
    let points = vec![(SiteIndex(0), Point::Entry)];
    given(image, placements, &layout(), vec![site], &points)
}

#[test]
fn tracers_and_static_calls() {
    let image = fixture().image();
    let good = traced(&image);
    let code = good.patches[0].code.clone();
    let jump = code.iter().rposition(|&byte| byte == 0xe9).unwrap();
    let other = Fixture::address(5);
    refused(&image, &good, "does not lead to its target", |plan| {
        let from = plan.patches[0].address.add(jump as u64 + 5);
        let to = (from.to(Addr(other)) as i32).to_le_bytes();
        plan.patches[0].code[jump + 1..jump + 5].copy_from_slice(&to);
    });
    let push = code.iter().rposition(|&byte| byte == 0x68).unwrap();
    for byte in 0..5 {
        refused(&image, &good, "Patch", |plan| {
            plan.patches[0].code[push + byte] ^= 1;
        });
    }
    refused(&image, &good, "are overwritten, and 0 are", |plan| {
        plan.sites[0].overwritten = 1;
    });
    // Something else of five bytes, and something of the function's middle.
    for offset in [5, 10] {
        refused(&image, &good, "it is not the function tracer's", |plan| {
            plan.sites[0].displaced = Span::new(Addr(Fixture::address(3) + offset), 5);
        });
    }
    refused(&image, &good, "it is not the function tracer's", |plan| {
        plan.sites[0].displaced = Span::new(Addr(Fixture::address(4)), 5);
    });
    refused(
        &image,
        &good,
        "the function tracer's bytes is displaced",
        |plan| {
            plan.sites[0].splice = Splice::Jump;
        },
    );
    // What is behind an edge is not what is copied.
    refused(
        &image,
        &good,
        "does not begin where the edge leads",
        |plan| {
            plan.sites[0].run_ons[0].copied.start.0 += 5;
            plan.sites[0].run_ons[0].copied.end.0 += 5;
        },
    );
    refused(&image, &good, "between instructions", |plan| {
        plan.sites[0].run_ons[0].copied.end.0 -= 1;
    });
    // A kernel that says nothing of the call.
    let mut silent = fixture();
    silent.static_call_keys.clear();
    let violations = verify(&silent.image(), good).expect_err("nothing is known of the call");
    assert!(
        list(&violations).contains("is not known"),
        "{}",
        list(&violations)
    );
}

/// Splices whose last byte stands there already, and those of one byte.
#[test]
fn puns_and_traps() {
    let image = fixture().image();
    let start = Addr(Fixture::address(7) + 5);
    let site = |splice: Splice| Site {
        splice,
        displaced: Span::new(start, 4),
        overwritten: 1,
        run_ons: vec![],
    };
    let mut layout = layout();
    layout.arena = Span::new(Addr(0xffff_ffff_bf80_0000), 4 << 20);
    let placements = vec![placement("punned", 0, HookType::Pre, "counter")];
    let points = vec![(SiteIndex(0), Point::Entry)];
    let plan = |splice: Splice| {
        let sites = vec![site(splice)];
        given(&image, placements.clone(), &layout, sites, &points)
    };
    let good = plan(Splice::Punned {
        prefix: 0,
        written: 4,
    });
    passes(&image, &good);
    for bit in 0..32 {
        refused(&image, &good, "not a punned jump", |plan| {
            for poke in plan.batches.iter_mut().flat_map(|batch| &mut batch.pokes) {
                let leads = if poke.kind == PokeKind::Remove {
                    &mut poke.expect
                } else {
                    &mut poke.write
                };
                leads[bit / 8] ^= 1 << (bit % 8);
            }
        });
    }
    refused(&image, &good, "prefixes", |plan| {
        plan.sites[0].splice = Splice::Punned {
            prefix: 4,
            written: 4,
        };
    });
    // The byte behind it is the kernel's to change, or another splice's.
    let mut rewritten = fixture();
    rewritten.bugs.push((start.0 + 4, true));
    let violations = verify(&rewritten.image(), good.clone()).expect_err("a site in its tail");
    assert!(list(&violations).contains("the bug table"));
    refused(&image, &good, "overlap", |plan| {
        plan.sites.push(Site {
            splice: Splice::Trap,
            displaced: Span::new(start.add(4), 4),
            overwritten: 1,
            run_ons: vec![],
        });
    });
    let good = plan(Splice::Trap);
    passes(&image, &good);
    refused(&image, &good, "not what such a splice writes", |plan| {
        plan.batches[0].pokes[0].write[0] = 0x90;
    });
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
    refused(&image, &good, "Poke", |plan| {
        // Nothing leads to the version that was removed.
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
    refused(&image, &good, "no batches launch it", |plan| {
        plan.batches.remove(1);
        plan.batches.remove(1);
    });
}
