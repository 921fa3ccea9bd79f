//! Random sites, hooks and times in random functions.

use gilk_instruments::Library;
use proptest::prelude::*;

use super::choices::Choices;
use super::layout;
use super::places::{Places, at, begins, places};
use super::walk::{Ran, Thread, World};
use crate::cfg::soup::{Piece, kernel, pieces};
use crate::cfg::{BlockEnd, Cfg};
use crate::image::FunctionId;
use crate::placement::{Placement as Placed, Splice};
use crate::plan::build::plan_placed;
use crate::plan::{Batch, Part, Plan, PokeKind};
use crate::session::{Placement, Session};
use crate::{HookType, Image, InstrumentId};

/// A session of some of the hooks that are reached.
fn session(graphs: &[&Cfg], places: &Places, random: &mut Choices) -> Session {
    let all: Vec<_> = places.hooks.keys().copied().collect();
    let mut placements = Vec::new();
    let one_time = random.once_in(4);
    let rare = 1 + random.below(3);
    for (graph, block, hook) in all {
        while random.once_in(rare + 1) || (rare == 1 && placements.len() < 2) {
            let launch = if one_time { 0 } else { random.below(6) };
            placements.push(Placement {
                function: graphs[graph].name.clone(),
                block,
                hook,
                instrument: ["timestamp", "block-trace", "elapsed-stop"][random.below(3)].into(),
                launch: launch as f64,
                splash: (launch + 1 + random.below(6)) as f64,
                timer: 0,
            });
        }
    }
    Session {
        duration: 100.0,
        placements,
        ..Session::empty()
    }
}

fn planned(image: &Image, session: &Session, places: &Places) -> Plan {
    let library = Library::builtin().unwrap();
    let layout = layout(0x10_0000);
    let plan = plan_placed(image, session, &library, &layout, |graphs, wanted| {
        // Graphs are numbered by what comes first in the session.
        let hooks = wanted.iter().map(|one| {
            let key = (graphs[one.graph].function.0 as usize, one.block.0, one.hook);
            Ok(places.hooks[&key].clone())
        });
        Placed {
            sites: places.sites.clone(),
            bounces: places.bounces.clone(),
            hooks: hooks.collect(),
        }
    });
    plan.unwrap_or_else(|error| panic!("{error}\n{:#?}", places.sites))
}

/// The instruments that must run when control comes to an instruction, in order.
fn due(image: &Image, plan: &Plan, ran: &Ran, time: f64) -> Vec<InstrumentId> {
    let mut ids = Vec::new();
    let mut list = |cfg: &Cfg, block: u32, hook: HookType| {
        let mut here: Vec<_> = plan
            .instruments
            .iter()
            .filter(|one| plan.functions[one.id.major as usize].cfg.function == cfg.function)
            .filter(|one| (one.id.block, one.id.hook) == (block, hook))
            .filter(|one| one.launch <= time && time < one.splash)
            .map(|one| one.id)
            .collect();
        here.sort_by_key(|id| id.order);
        ids.extend(here);
    };
    let block_at = |at| {
        let function = image.function_at(at)?;
        let planned = plan.functions.iter();
        let cfg = &planned
            .map(|one| &one.cfg)
            .find(|cfg| cfg.function == function.id)?;
        Some((*cfg, cfg.block_at(at)?))
    };
    let ends = |block: &crate::cfg::Block, place| block.instructions.last().map(at) == Some(place);
    if let Some(from) = ran.from
        && let Some((cfg, block)) = block_at(from)
        && ends(block, from)
        && block.end == BlockEnd::FallThrough
    {
        list(cfg, block.index.0, HookType::Post);
    }
    if let Some((cfg, block)) = block_at(ran.at) {
        if begins(image, block) == Some(ran.at) {
            list(cfg, block.index.0, HookType::Pre);
        }
        if ends(block, ran.at) && block.end != BlockEnd::FallThrough {
            list(cfg, block.index.0, HookType::Post);
        }
    }
    ids
}

/// Walks from the function's entry, and compares what runs.
fn walk(world: &World<'_>, cfg: &Cfg, random: &mut Choices, time: Option<f64>) {
    let mut thread = Thread::new(cfg.span.start);
    for _ in 0..100 {
        let ran = match thread.step(world, random) {
            Ok(ran) => ran,
            Err(error) => panic!("{error}\n{}", report(world)),
        };
        if let Some(time) = time {
            let due = due(world.image, world.plan, &ran, time);
            assert_eq!(ran.ids, due, "at {} s, {}: {}", time, ran.at, report(world));
        }
        if ran.left || !cfg.span.contains(thread.original) {
            break;
        }
    }
}

fn report(world: &World<'_>) -> String {
    crate::plan::report::report(world.image, world.plan)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Stage(usize),
    Write(usize),
    /// Until every thread has been outside.
    Wait,
}

/// What the driver does for a batch, as documented.
fn steps(batch: &Batch, plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    let numbered = || batch.pokes.iter().enumerate();
    for (n, poke) in numbered() {
        let trap = |part| matches!(part, Part::Site(site) if plan.sites[site.0 as usize].splice == Splice::Trap);
        if poke.kind == PokeKind::Install && (poke.overwritten > 1 || trap(poke.part)) {
            steps.push(Step::Stage(n));
        }
    }
    if !steps.is_empty() {
        steps.push(Step::Wait);
    }
    let mut last = None;
    for (n, poke) in numbered() {
        if poke.kind == PokeKind::Remove {
            if last.is_some_and(|rank| rank != poke.rank) {
                steps.push(Step::Wait);
            }
            last = Some(poke.rank);
        }
        steps.push(Step::Write(n));
    }
    if last.is_some() {
        steps.push(Step::Wait);
    }
    steps
}

fn holds(pieces: &[Piece], seed: u64) {
    let (fixture, ..) = kernel(pieces);
    let image = fixture.try_image().unwrap();
    let cfgs: Vec<Cfg> = image
        .functions()
        .iter()
        .map(|function| Cfg::of(&image, function.id))
        .collect();
    let graphs: Vec<&Cfg> = cfgs.iter().collect();
    assert_eq!(cfgs[0].function, FunctionId(0));
    let mut random = Choices(seed);
    let places = places(&image, &graphs, random.next());
    let session = session(&graphs, &places, &mut random);
    let plan = planned(&image, &session, &places);
    assert_eq!(
        plan,
        planned(&image, &session, &places),
        "the same every time"
    );

    let mut world = World::new(&image, &plan, &graphs);
    let soup = graphs[0];
    let mut stray = Thread::new(soup.span.start);
    for batch in &plan.batches {
        for step in steps(batch, &plan) {
            match step {
                Step::Stage(n) => world.stage(&batch.pokes[n]),
                Step::Write(n) => world.write(&batch.pokes[n]),
                Step::Wait => stray = Thread::new(soup.span.start),
            }
            for _ in 0..2 {
                walk(&world, soup, &mut random, None);
            }
            // And one that is somewhere when it happens.
            for _ in 0..random.below(6) {
                match stray.step(&world, &mut random) {
                    Ok(ran) if ran.left || !soup.span.contains(stray.original) => {
                        stray = Thread::new(soup.span.start);
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{error}, in the middle\n{}", report(&world)),
                }
            }
        }
        for _ in 0..10 {
            walk(&world, soup, &mut random, Some(batch.at));
        }
    }
    assert!(world.is_original());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever launches and splashes when: after every write the text is a program that does what
    /// the original does, and between batches exactly the instruments that are active run.
    #[test]
    fn every_prefix_of_all_batches_is_a_correct_program(pieces in pieces(), seed: u64) {
        holds(&pieces, seed);
    }
}
