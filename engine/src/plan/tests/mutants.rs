//! Plans with something of them changed at random: the reader refuses them, or they do what they should.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::choices::Choices;
use super::random::{made, play};
use crate::cfg::Cfg;
use crate::cfg::random::pieces;
use crate::extent::few_cases;
use crate::placement::{BounceIndex, InsnEdge, Point, Site, SiteIndex, Slot, Splice};
use crate::plan::{Batch, Part, PatchIndex, Plan, PlannedInstrument, Poke, PokeKind};
use crate::verify::tests::caught::{CODE, Caught, HITS, INSTRUMENTS, LISTS, PLAN, POKES, SITES};
use crate::verify::verify;
use crate::{Addr, HookType, InstrumentId};

/// A few more or less.
fn off(random: &mut Choices) -> u64 {
    let by = 1 + random.below(6) as u64;
    if random.once_in(2) {
        by
    } else {
        by.wrapping_neg()
    }
}

fn moved(at: Addr, random: &mut Choices) -> Addr {
    Addr(at.0.wrapping_add(off(random)))
}

fn any<'l, T>(list: &'l mut [T], random: &mut Choices) -> Option<&'l mut T> {
    let count = list.len().max(1);
    list.get_mut(random.below(count))
}

/// Takes one away, doubles one, or swaps two.
fn shuffled<T: Clone>(list: &mut Vec<T>, random: &mut Choices) {
    if list.is_empty() {
        return;
    }
    let (one, two) = (random.below(list.len()), random.below(list.len()));
    match random.below(3) {
        0 => drop(list.remove(one)),
        1 => list.insert(two, list[one].clone()),
        _ => list.swap(one, two),
    }
}

fn other_site(plan: &Plan, random: &mut Choices) -> SiteIndex {
    SiteIndex(random.below(plan.sites.len() + 1) as u32)
}

fn other_point(plan: &Plan, random: &mut Choices) -> Point {
    let points: Vec<Point> = plan
        .instruments
        .iter()
        .flat_map(|one| one.points.iter().map(|(_, point)| *point))
        .collect();
    match points[random.below(points.len())] {
        Point::Before(at) if random.once_in(3) => Point::Before(moved(at, random)),
        Point::On(edge) if random.once_in(3) => Point::On(InsnEdge {
            to: moved(edge.to, random),
            ..edge
        }),
        point => point,
    }
}

fn other_splice(splice: Splice, plan: &Plan, random: &mut Choices) -> Splice {
    let all = [
        Splice::Jump,
        Splice::Trap,
        Splice::Tracer,
        Splice::Short(BounceIndex(random.below(plan.bounces.len() + 1) as u32)),
    ];
    let others: Vec<Splice> = all.into_iter().filter(|one| *one != splice).collect();
    others[random.below(others.len())]
}

fn instrument(instrument: &mut PlannedInstrument, good: &Plan, random: &mut Choices) {
    match random.below(8) {
        0 => instrument.id.block = instrument.id.block.wrapping_add_signed(off(random) as i32),
        1 => instrument.id.order ^= 1,
        2 => {
            instrument.id.hook = match instrument.id.hook {
                HookType::Pre => HookType::Post,
                HookType::Post => HookType::Pre,
                HookType::Taken => HookType::Untaken,
                HookType::Untaken => HookType::Taken,
            }
        }
        3 => instrument.points.edit(|list| shuffled(list, random)),
        4 => {
            let site = other_site(good, random);
            if let Some(point) = any(&mut instrument.points, random) {
                *point = (site, other_point(good, random));
            }
        }
        5 => instrument.launch += 1.0,
        6 => instrument.splash += 1.0,
        _ => match instrument.needs.is_empty() {
            true => instrument.needs = vec![other_site(good, random)].into(),
            false => instrument.needs.edit(|list| shuffled(list, random)),
        },
    }
}

fn site(site: &mut Site, good: &Plan, random: &mut Choices) {
    match random.below(7) {
        0 => site.splice = other_splice(site.splice, good, random),
        1 => site.displaced.start = moved(site.displaced.start, random),
        2 => site.displaced.end = moved(site.displaced.end, random),
        3 => site.overwritten = site.overwritten.wrapping_add_signed(off(random) as i32),
        4 => {
            let mut continuations = std::mem::take(&mut site.continuations).into_vec();
            shuffled(&mut continuations, random);
            site.continuations = continuations.into();
        }
        5 => {
            if let Some(run_on) = any(&mut site.continuations, random) {
                run_on.copied.end = moved(run_on.copied.end, random);
            }
        }
        _ => {
            if let Some(run_on) = any(&mut site.continuations, random) {
                run_on.edge.to = moved(run_on.edge.to, random);
            }
        }
    }
}

fn poke(poke: &mut Poke, good: &Plan, random: &mut Choices) {
    let patches = good.patches.len();
    let bytes = |bytes: &mut [u8], random: &mut Choices| {
        let bit = random.below(8);
        any(bytes, random).map(|byte| *byte ^= 1 << bit)
    };
    match random.below(10) {
        0 => {
            poke.part = match random.once_in(2) {
                true => Part::Site(other_site(good, random)),
                false => Part::Bounce(BounceIndex(random.below(3) as u32)),
            }
        }
        1 => poke.at = moved(poke.at, random),
        2 => drop(bytes(&mut poke.expect, random)),
        3 => drop(bytes(&mut poke.write, random)),
        4 => {
            let kinds = [PokeKind::Install, PokeKind::Retarget, PokeKind::Remove];
            poke.kind = kinds[random.below(3)];
        }
        5 => poke.rank ^= 1,
        6 => poke.patch = PatchIndex(random.below(patches + 1) as u32),
        7 => poke.detour = PatchIndex(random.below(patches + 1) as u32),
        8 => std::mem::swap(&mut poke.expect, &mut poke.write),
        _ => poke.overwritten = poke.overwritten.wrapping_add_signed(off(random) as i32),
    }
}

fn batch(batch: &mut Batch, good: &Plan, random: &mut Choices) {
    match random.below(6) {
        0 => batch.at += 0.5,
        1 => shuffled(&mut batch.pokes, random),
        2 => shuffled(&mut batch.launched, random),
        3 => shuffled(&mut batch.splashed, random),
        _ => {
            if let Some(batch) = any(&mut batch.pokes, random) {
                poke(batch, good, random);
            }
        }
    }
}

/// The part of a plan that is changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mutated {
    Instrument,
    Site,
    Bounce,
    Dependence,
    Patch,
    Batch,
}

impl Mutated {
    /// No verdicts yet on such mutants.
    fn caught(self) -> Caught {
        let (name, rules): (_, &[_]) = match self {
            Self::Instrument => (
                "changed instruments",
                &[LISTS, CODE, SITES, INSTRUMENTS, HITS, POKES],
            ),
            Self::Site => (
                "changed sites",
                &[SITES, LISTS, CODE, INSTRUMENTS, HITS, POKES],
            ),
            Self::Bounce => ("changed bounces", &[SITES, HITS, POKES]),
            Self::Dependence => ("changed dependences", &[HITS, POKES]),
            Self::Patch => ("changed patches", &[PLAN, SITES, LISTS, CODE, HITS, POKES]),
            Self::Batch => ("changed batches", &[HITS, POKES]),
        };
        Caught::new(name, rules)
    }
}

/// Changes one thing.
fn changed(good: &Plan, random: &mut Choices) -> (Mutated, Plan) {
    let mut plan = good.clone();
    let mutated = match random.below(9) {
        0 => {
            if let Some(one) = any(&mut plan.instruments, random) {
                instrument(one, good, random);
            }
            Mutated::Instrument
        }
        1 | 2 => {
            if let Some(one) = any(&mut plan.sites, random) {
                site(one, good, random);
            }
            Mutated::Site
        }
        3 => {
            let site = other_site(good, random);
            if let Some(one) = any(&mut plan.bounces, random) {
                match random.below(4) {
                    0 => one.at = moved(one.at, random),
                    1 => one.site = site,
                    2 => one.slot = Slot::Exposed(site),
                    _ => one.slot = Slot::Padding,
                }
            }
            Mutated::Bounce
        }
        4 => {
            shuffled(&mut plan.dependences, random);
            if let Some(one) = any(&mut plan.dependences, random).filter(|_| random.once_in(2)) {
                std::mem::swap(&mut one.what, &mut one.on);
            }
            Mutated::Dependence
        }
        5 => {
            let site = other_site(good, random);
            let ids: Vec<InstrumentId> = good.instruments.iter().map(|one| one.id).collect();
            if let Some(one) = any(&mut plan.patches, random) {
                match random.below(5) {
                    0 => one.site = site,
                    1 => one.address = moved(one.address, random),
                    2 => one.hooks.edit(|list| shuffled(list, random)),
                    3 => {
                        if let Some((_, list)) = any(&mut one.hooks, random) {
                            list.edit(|list| shuffled(list, random));
                        }
                    }
                    _ => {
                        if let Some((_, list)) = any(&mut one.hooks, random)
                            && let Some(id) = any(list, random)
                        {
                            *id = ids[random.below(ids.len())];
                        }
                    }
                }
            }
            Mutated::Patch
        }
        6 if random.once_in(4) => {
            shuffled(&mut plan.batches, random);
            Mutated::Batch
        }
        _ => {
            if let Some(one) = any(&mut plan.batches, random) {
                batch(one, good, random);
            }
            Mutated::Batch
        }
    };
    (mutated, plan)
}

proptest! {
    #![proptest_config(few_cases(20))]

    /// Sites at random and the placement's own, with random times: a plan that passes is played with
    /// threads that walk meanwhile, and does what its instruments say.
    #[test]
    fn what_passes_does_what_it_says(pieces in pieces(), seed: u64, at_random: bool) {
        let mut random = Choices(seed);
        let (image, cfgs, good) = made(&pieces, &mut random, at_random);
        let graphs: Vec<&Cfg> = cfgs.iter().collect();
        if let Err(wrong) = verify(&image, good.clone()) {
            panic!("{}", wrong[0]);
        }
        let mut caught = BTreeMap::<Mutated, Caught>::new();
        for _ in 0..60 {
            let (mutated, other) = changed(&good, &mut random);
            if other == good || good.patches.is_empty() {
                continue;
            }
            let caught = caught.entry(mutated).or_insert_with(|| mutated.caught());
            if !caught.refuses(&image, other.clone(), format_args!("{seed}")) {
                play(&image, &other, &graphs, &mut random);
            }
        }
    }
}
