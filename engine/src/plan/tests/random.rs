//! Random sites, hooks and times in random functions.

use std::collections::{BTreeMap, BTreeSet};

use gilk_instruments::Library;
use proptest::prelude::*;

use super::choices::Choices;
use super::layout;
use super::places::{RandomPlaces, at, begins, places};
use super::reached::ways_out;
use super::walk::{Ran, Thread, World};
use crate::cfg::random::{CodePiece, kernel, pieces};
use crate::cfg::{BlockEnd, Cfg};
use crate::code::FunctionId;
use crate::extent::few_cases;
use crate::placement::{BounceIndex, Point, SiteIndex, Slot, Solution, Splice, Style};
use crate::plan::build::{plan, plan_placed};
use crate::plan::{Batch, Part, Plan, PlannedInstrument, PokeKind};
use crate::session::{Placement, Session};
use crate::{Addr, Error, HookType, Image, InstrumentId};

type Hook = (usize, u32, HookType);

/// A session of some of these hooks.
fn session(graphs: &[&Cfg], hooks: &[Hook], random: &mut Choices) -> Session {
    let mut placements = Vec::new();
    let one_time = random.once_in(4);
    let rare = 1 + random.below(3);
    for &(graph, block, hook) in hooks {
        while random.once_in(rare + 1) || (rare == 1 && placements.len() < 2) {
            let launch = if one_time { 0 } else { random.below(6) };
            placements.push(Placement {
                function: graphs[graph].name.as_str().into(),
                block,
                hook,
                instrument: ["timestamp", "block-trace", "elapsed-stop"][random.below(3)].into(),
                launch: launch as f64,
                splash: (launch + 1 + random.below(6)) as f64,
            });
        }
    }
    Session {
        duration: 100.0,
        placements,
        ..Session::empty()
    }
}

/// A plan for sites that are given.
fn planned(image: &Image, session: &Session, places: &RandomPlaces) -> Plan {
    let library = Library::builtin().unwrap();
    let layout = layout(0x10_0000);
    let plan = plan_placed(image, session, &library, &layout, |graphs, wanted| {
        let hooks = wanted.iter().map(|one| {
            let key = (graphs[one.graph].function.0 as usize, one.block.0, one.hook);
            Ok(places.hooks[&key].clone())
        });
        Solution {
            sites: places.sites.clone(),
            bounces: places.bounces.clone(),
            hooks: hooks.collect(),
        }
    });
    plan.unwrap_or_else(|error| panic!("{error}\n{:#?}", places.sites))
}

/// A plan for those hooks of the session that are not refused.
fn allowed(image: &Image, mut session: Session) -> Plan {
    let library = Library::builtin().unwrap();
    let layout = layout(0x10_0000);
    loop {
        match plan(image, &session, &library, &layout) {
            Ok(plan) => return plan,
            Err(Error::Refused {
                function,
                block,
                hook,
                ..
            }) => {
                let before = session.placements.len();
                session.placements.retain(|one| {
                    (&*one.function, one.block, one.hook) != (&*function, block, hook)
                });
                assert!(session.placements.len() < before);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The instruments that must run when control comes to an instruction, in order.
fn due(world: &World<'_>, ran: &Ran, time: f64) -> Vec<InstrumentId> {
    let World {
        image,
        plan,
        graphs,
        ..
    } = *world;
    let mut ids = Vec::new();
    let mut list = |cfg: &Cfg,
                    block: u32,
                    hook: HookType,
                    wanted: &dyn Fn(&PlannedInstrument) -> bool| {
        let mut at_point: Vec<_> = plan
            .instruments
            .iter()
            .filter(|one| plan.functions[one.id.major as usize].outline.function == cfg.function)
            .filter(|one| (one.id.block, one.id.hook) == (block, hook))
            .filter(|one| one.launch <= time && time < one.splash && wanted(one))
            .map(|one| one.id)
            .collect();
        at_point.sort_by_key(|id| id.order);
        ids.extend(at_point);
    };
    let block_at = |place| {
        let function = image.function_at(place)?;
        let cfg = graphs.iter().find(|cfg| cfg.function == function.id)?;
        let block = cfg.block_at(place)?;
        Some((*cfg, block, block.instructions.last().as_ref().map(at)?))
    };
    if let Some((cfg, block, last)) = ran.from.and_then(block_at)
        && ran.from == Some(last)
    {
        if block.end == BlockEnd::FallThrough {
            list(cfg, block.index.0, HookType::Post, &|_| true);
        } else {
            list(cfg, block.index.0, HookType::Post, &|one| {
                is_after(plan, one, last)
            });
        }
    }
    if let Some((cfg, block, _)) = ran.from.and_then(block_at) {
        // Before what the next block begins with.
        for (hook, edge) in ways_out(image, block) {
            if (ran.from, ran.at) == (Some(edge.from), edge.to) {
                list(cfg, block.index.0, hook, &|_| true);
            }
        }
    }
    if let Some((cfg, block, last)) = block_at(ran.at) {
        if begins(image, block) == Some(ran.at) {
            list(cfg, block.index.0, HookType::Pre, &|_| true);
        }
        if last == ran.at && block.end != BlockEnd::FallThrough {
            list(cfg, block.index.0, HookType::Post, &|one| {
                !is_after(plan, one, last)
            });
        }
    }
    ids
}

/// Returns whether a post-hook is known by the ways out of its block, which ends with the instruction at `last`.
fn is_after(plan: &Plan, instrument: &PlannedInstrument, last: Addr) -> bool {
    instrument.points.iter().all(|&(site, point)| match point {
        Point::On(edge) => edge.from == last,
        Point::Before(at) => at != last,
        Point::Entry => plan.sites[site.0 as usize].displaced.start != last,
    })
}

/// Walks through the function, and compares what runs.
fn walk(world: &World<'_>, cfg: &Cfg, start: Addr, random: &mut Choices, time: Option<f64>) {
    let mut thread = Thread::new(start);
    for _ in 0..100 {
        let ran = match thread.step(world, random) {
            Ok(ran) => ran,
            Err(error) => panic!("{error}\n{}", report(world)),
        };
        if let Some(time) = time {
            let due = due(world, &ran, time);
            assert_eq!(ran.ids, due, "at {} s, {}: {}", time, ran.at, report(world));
        }
        if ran.exited || !cfg.span.contains(thread.original) {
            break;
        }
    }
}

fn report(world: &World<'_>) -> String {
    crate::plan::report::report(world.image, world.plan)
}

#[derive(Clone, Copy, Debug)]
enum PlayStep {
    Stage(usize),
    Write(usize),
    /// Until every thread has been outside.
    Wait,
}

/// The driver's steps for a batch, as documented.
fn steps(batch: &Batch, plan: &Plan) -> Vec<PlayStep> {
    let mut steps = Vec::new();
    let numbered = || batch.pokes.iter().enumerate();
    for (n, poke) in numbered() {
        let trap = |part| matches!(part, Part::Site(site) if plan.sites[site.0 as usize].splice == Splice::Trap);
        if poke.kind == PokeKind::Install && (poke.overwritten > 1 || trap(poke.part)) {
            steps.push(PlayStep::Stage(n));
        }
    }
    if !steps.is_empty() {
        steps.push(PlayStep::Wait);
    }
    let mut last = None;
    for (n, poke) in numbered() {
        if poke.kind == PokeKind::Remove {
            if last.is_some_and(|rank| rank != poke.rank) {
                steps.push(PlayStep::Wait);
            }
            last = Some(poke.rank);
        }
        steps.push(PlayStep::Write(n));
    }
    if last.is_some() {
        steps.push(PlayStep::Wait);
    }
    steps
}

/// A kernel, its graphs, and a plan of hooks at random: for sites at random too, or for those that placement
/// finds.
pub(super) fn made(
    pieces: &[CodePiece],
    random: &mut Choices,
    at_random: bool,
) -> (Image, Vec<Cfg>, Plan) {
    let (fixture, ..) = kernel(pieces);
    let image = fixture.try_image().unwrap();
    let cfgs: Vec<Cfg> = image
        .functions()
        .iter()
        .map(|function| Cfg::of(&image, function.id))
        .collect();
    let graphs: Vec<&Cfg> = cfgs.iter().collect();
    assert_eq!(cfgs[0].function, FunctionId(0));
    let plan = if at_random {
        let places = places(&image, &graphs, random.next());
        let hooks: Vec<Hook> = places.hooks.keys().copied().collect();
        let session = session(&graphs, &hooks, random);
        let plan = planned(&image, &session, &places);
        assert_eq!(
            plan,
            planned(&image, &session, &places),
            "the same every time"
        );
        plan
    } else {
        let mut hooks = Vec::new();
        for block in &graphs[0].blocks {
            if begins(&image, block).is_some() {
                hooks.push((0, block.index.0, HookType::Pre));
            }
            hooks.push((0, block.index.0, HookType::Post));
            let ways = ways_out(&image, block);
            hooks.extend(ways.iter().map(|(hook, _)| (0, block.index.0, *hook)));
        }
        let mut session = session(&graphs, &hooks, random);
        let style = Style::ALL[random.below(3)];
        session.styles.insert(graphs[0].name.clone(), style);
        allowed(&image, session)
    };
    (image, cfgs, plan)
}

fn holds(pieces: &[CodePiece], seed: u64, at_random: bool) {
    let mut random = Choices(seed);
    let (image, cfgs, plan) = made(pieces, &mut random, at_random);
    let graphs: Vec<&Cfg> = cfgs.iter().collect();
    parts_are_served(&plan);
    play(&image, &plan, &graphs, &mut random);
}

/// The graph of dependences says what is there, and the ranks keep to it.
fn parts_are_served(plan: &Plan) {
    let on = |what| {
        let all = plan.dependences.iter();
        all.filter(move |one| one.what == what).map(|one| one.on)
    };
    let sites = || (0..).map(SiteIndex).zip(&plan.sites);
    for (index, site) in sites() {
        if let Splice::Short(bounce) = site.splice {
            assert_eq!(plan.bounces[bounce.0 as usize].site, index);
            assert!(on(Part::Site(index)).any(|part| part == Part::Bounce(bounce)));
        }
    }
    for (index, bounce) in (0..).map(BounceIndex).zip(&plan.bounces) {
        if let Slot::Exposed(host) = bounce.slot {
            assert!(on(Part::Bounce(index)).any(|part| part == Part::Site(host)));
        }
    }
    // Each part's rank is one, and above those of all that it depends on.
    let mut ranks = BTreeMap::new();
    for poke in plan.batches.iter().flat_map(|batch| &batch.pokes) {
        assert_eq!(*ranks.entry(poke.part).or_insert(poke.rank), poke.rank);
    }
    for one in &plan.dependences {
        if let (Some(what), Some(on)) = (ranks.get(&one.what), ranks.get(&one.on)) {
            assert!(what > on, "{one:?}");
        }
    }
    // What is depended on for its place is there as long.
    let mut there = BTreeSet::new();
    for poke in plan.batches.iter().flat_map(|batch| &batch.pokes) {
        match poke.kind {
            PokeKind::Install => assert!(there.insert(poke.part)),
            PokeKind::Retarget => assert!(there.contains(&poke.part)),
            PokeKind::Remove => assert!(there.remove(&poke.part)),
        }
        for (index, site) in sites() {
            if let Splice::Short(bounce) = site.splice
                && there.contains(&Part::Site(index))
            {
                assert!(there.contains(&Part::Bounce(bounce)));
            }
        }
        for (index, bounce) in (0..).map(BounceIndex).zip(&plan.bounces) {
            if let Slot::Exposed(host) = bounce.slot
                && there.contains(&Part::Bounce(index))
            {
                assert!(there.contains(&Part::Site(host)));
            }
        }
    }
    assert!(there.is_empty());
}

/// Plays the batches, with threads that walk meanwhile.
pub(super) fn play(image: &Image, plan: &Plan, graphs: &[&Cfg], random: &mut Choices) {
    let mut world = World::new(image, plan, graphs);
    let function = graphs[0];
    let starts: Vec<Addr> = function
        .blocks
        .iter()
        .filter(|block| block.open)
        .map(|block| block.span.start)
        .collect();
    let start = |random: &mut Choices| {
        let any = starts[random.below(starts.len())];
        if random.once_in(2) {
            any
        } else {
            function.span.start
        }
    };
    let mut stray = Thread::new(function.span.start);
    for batch in &plan.batches {
        for step in steps(batch, plan) {
            match step {
                PlayStep::Stage(n) => world.stage(&batch.pokes[n]),
                PlayStep::Write(n) => world.write(&batch.pokes[n]),
                PlayStep::Wait => stray = Thread::new(start(random)),
            }
            for _ in 0..2 {
                walk(&world, function, start(random), random, None);
            }
            // And one that is somewhere when it happens.
            for _ in 0..random.below(6) {
                match stray.step(&world, random) {
                    Ok(ran) if ran.exited || !function.span.contains(stray.original) => {
                        stray = Thread::new(start(random));
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{error}, in the middle\n{}", report(&world)),
                }
            }
        }
        for _ in 0..10 {
            walk(&world, function, start(random), random, Some(batch.at));
        }
    }
    assert!(world.is_original());
}

proptest! {
    #![proptest_config(few_cases(100))]

    /// Whatever launches and splashes when: after every write the text is a program that does what
    /// the original does, and between batches exactly the instruments that are active run.
    #[test]
    fn every_prefix_of_all_batches_is_a_correct_program(pieces in pieces(), seed: u64) {
        holds(&pieces, seed, false);
    }

    /// The same for sites at random, which have more of everything.
    #[test]
    fn every_prefix_is_a_correct_program_wherever_sites_are(pieces in pieces(), seed: u64) {
        holds(&pieces, seed, true);
    }
}
