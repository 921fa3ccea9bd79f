//! Plans for the functions of a real kernel pass the reader.
//!
//! `GILK_IMAGE` names a file of what was read from a kernel, as `postcard` writes
//! `gilk_engine::kernel::LiveParts`.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::time::Instant;

use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::Function;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::{CounterBank, RuntimeLayout, SegmentOffset};
use gilk_engine::placement::{Wanted, place};
use gilk_engine::plan::{Plan, plan, plan_possible};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, HookType, Image, Session, Span};
use gilk_instruments::{Library, Stand};

fn image() -> Image {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    Image::from_live(&parts).unwrap()
}

fn layout() -> RuntimeLayout {
    let arena = Addr(0xffff_ffff_c000_0000);
    RuntimeLayout {
        // Room for all hooks of many functions, and a counter for each.
        arena: Span::new(arena, 512 << 20),
        counters: vec![
            CounterBank {
                base: SegmentOffset(0x3_1000),
                slots: 1024,
            },
            CounterBank {
                base: SegmentOffset(0x1000_0000),
                slots: 1 << 24,
            },
        ],
        shared: RuntimeLayout::supposed_shared(2),
        ..RuntimeLayout::supposed(arena)
    }
}

fn placement(function: &str, block: u32, hook: HookType, instrument: &str) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: 1.0,
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// Names a function so that no other can be meant.
fn named(function: &Function) -> String {
    format!("{}@{:#x}", function.name, function.span.start.0)
}

fn planned(image: &Image, session: &Session) -> Result<Plan, Error> {
    plan(image, session, &Library::builtin().unwrap(), &layout())
}

/// Every hook that can be reached of some functions, all at once.
fn reached(image: &Image, functions: &[&Function]) -> Vec<(String, u32, HookType)> {
    let graphs: Vec<Cfg> = functions
        .iter()
        .map(|function| Cfg::of(image, function.id))
        .filter(|cfg| cfg.refusal.is_none())
        .collect();
    let mut wanted = Vec::new();
    for (graph, cfg) in graphs.iter().enumerate() {
        for block in (0..).take(cfg.blocks.len()).map(BlockIndex) {
            wanted.extend([HookType::Pre, HookType::Post].map(|hook| Wanted {
                graph,
                block,
                hook,
            }));
        }
    }
    let placed = place(image, &graphs.iter().collect::<Vec<_>>(), &wanted);
    let names: Vec<String> = graphs
        .iter()
        .map(|cfg| named(image.function(cfg.function).unwrap()))
        .collect();
    wanted
        .iter()
        .zip(placed.hooks)
        .filter(|(_, reached)| reached.is_ok())
        .filter_map(|(want, _)| Some((names.get(want.graph)?.clone(), want.block.0, want.hook)))
        .collect()
}

/// Plans a session without what instruments' own rules refuse.
fn planned_as_can_be(image: &Image, session: &Session) -> (Plan, usize) {
    let library = Library::builtin().unwrap();
    let watch = &mut |_| ControlFlow::Continue(());
    let possible = plan_possible(image, session, &library, &layout(), watch).unwrap();
    (possible.plan, possible.left_out.len())
}

/// Verifies; gives seconds, and what is wrong.
fn verified(image: &Image, plan: Plan) -> (f64, Vec<String>) {
    let begin = Instant::now();
    let verified = verify(image, plan);
    let took = begin.elapsed().as_secs_f64();
    let wrong = verified.err().into_iter().flatten();
    (took, wrong.map(|violation| violation.to_string()).collect())
}

/// Every instrument at every hook of a function at once, over the kernel's functions.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn every_hook_of_many_functions_passes() {
    let image = image();
    let step = number("GILK_STEP", 613);
    let library = Library::builtin().unwrap();
    let hit = library.iter().filter(|one| one.stand() == Stand::Hook);
    let kinds: Vec<String> = hit.map(|one| one.name.clone()).collect();
    let (mut hooks, mut splices, mut refused, mut verifying) = (0, 0, 0, 0.0);
    let mut tactics: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for function in image
        .functions()
        .iter()
        .skip(number("GILK_SKIP", 0))
        .step_by(step)
    {
        let all = reached(&image, &[function]);
        for kind in &kinds {
            let mut session = Session::empty();
            session.placements = all
                .iter()
                .map(|(name, block, hook)| placement(name, *block, *hook, kind))
                .collect();
            if session.placements.is_empty() {
                continue;
            }
            let (plan, without) = planned_as_can_be(&image, &session);
            hooks += plan.instruments.len();
            splices += plan.patches.len();
            refused += without;
            for one in &plan.instruments {
                *tactics.entry(one.tactic.name()).or_default() += 1;
            }
            let (took, wrong) = verified(&image, plan);
            verifying += took;
            failures.extend(
                wrong
                    .iter()
                    .map(|why| format!("{} {kind}: {why}", named(function))),
            );
        }
    }
    println!(
        "{hooks} hooks by {splices} splices, {refused} refused by an instrument's rule; verified in {verifying:.2} s; {tactics:?}"
    );
    for failure in failures.iter().take(40) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} violations", failures.len());
}

/// Hooks that come and go at many times.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn hooks_that_come_and_go_pass() {
    let image = image();
    let mut seed = number("GILK_SEED", 1) as u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let kinds = ["counter", "timestamp", "block-trace"];
    let (mut pokes, mut verifying) = (0, 0.0);
    let mut failures = Vec::new();
    for function in image
        .functions()
        .iter()
        .skip(number("GILK_SKIP", 0))
        .step_by(number("GILK_STEP", 149))
    {
        let all = reached(&image, &[function]);
        let mut session = Session::empty();
        session.duration = 12.0;
        for (name, block, hook) in all {
            for _ in 0..=random(2) {
                let (launch, length) = (random(8), random(3) + 1);
                session.placements.push(Placement {
                    launch: launch as f64,
                    splash: (launch + length) as f64,
                    ..placement(&name, block, hook, kinds[random(3) as usize])
                });
            }
        }
        if session.placements.is_empty() {
            continue;
        }
        let plan = planned(&image, &session).unwrap();
        pokes += plan
            .batches
            .iter()
            .map(|batch| batch.pokes.len())
            .sum::<usize>();
        let (took, wrong) = verified(&image, plan);
        verifying += took;
        failures.extend(
            wrong
                .iter()
                .map(|why| format!("{}: {why}", named(function))),
        );
    }
    println!("{pokes} pokes; verified in {verifying:.2} s");
    for failure in failures.iter().take(40) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} violations", failures.len());
}

/// A plan of a thousand hooks, as large sessions are.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn a_thousand_splices_are_read_in_no_time() {
    let image = image();
    let functions: Vec<&Function> = image.functions().iter().step_by(211).collect();
    let mut session = Session::empty();
    session.placements = reached(&image, &functions)
        .iter()
        .filter(|(_, _, hook)| *hook == HookType::Pre)
        .take(1000)
        .map(|(name, block, hook)| placement(name, *block, *hook, "timestamp"))
        .collect();
    let plan = planned(&image, &session).unwrap();
    let patches = plan.patches.len();
    let functions: HashSet<&str> = session
        .placements
        .iter()
        .map(|one| &*one.function)
        .collect();
    let (took, wrong) = verified(&image, plan);
    assert!(wrong.is_empty(), "{wrong:?}");
    println!(
        "1,000 hooks, {patches} patches, in {} functions: {took:.3} s",
        functions.len()
    );
    assert!(cfg!(debug_assertions) || took < 1.0);
}

/// Every `GILK_STEP`th function, all of them in one plan: 1 for the whole kernel.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn all_at_once_passes() {
    let image = image();
    let step = number("GILK_STEP", 23);
    let functions: Vec<&Function> = image.functions().iter().step_by(step).collect();
    let mut session = Session::empty();
    session.placements = reached(&image, &functions)
        .iter()
        .map(|(name, block, hook)| placement(name, *block, *hook, "counter"))
        .collect();
    let begin = Instant::now();
    let plan = planned(&image, &session).unwrap();
    println!("planned in {:.2} s", begin.elapsed().as_secs_f64());
    let (hooks, splices, bounces) = (
        plan.instruments.len(),
        plan.patches.len(),
        plan.bounces.len(),
    );
    let (took, wrong) = verified(&image, plan);
    println!("{hooks} hooks by {splices} splices and {bounces} bounces; verified in {took:.2} s");
    for failure in wrong.iter().take(40) {
        println!("{failure}");
    }
    assert!(wrong.is_empty(), "{} violations", wrong.len());
}
