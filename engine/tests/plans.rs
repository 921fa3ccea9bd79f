//! Plans for the kernel that `GILK_IMAGE` names, or the trimmed one: every hook of a sample of its
//! functions.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/kernel.rs"]
mod kernel;

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;
use gilk_engine::plan::{Plan, plan, report::report};
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Error, HookType, Image};
use gilk_instruments::Library;
use kernel::{image, layout, name, step};

/// Every hook that the function offers, each with the instrument, from 0 to 1 s.
fn placements(image: &Image, cfg: &Cfg, instrument: &str) -> Vec<Placement> {
    let mut placements = Vec::new();
    for block in options(image, cfg) {
        let both = block.both.as_ref().is_none_or(Result::is_ok);
        let hooks = [
            (HookType::Pre, block.pre.is_ok()),
            (HookType::Post, block.post.is_ok() && both),
        ];
        let offered = hooks.into_iter().filter(|&(_, can)| can);
        placements.extend(offered.map(|(hook, _)| Placement {
            function: name(image, cfg).into(),
            block: block.block.0,
            hook,
            instrument: instrument.into(),
            launch: 0.0,
            splash: 1.0,
        }));
    }
    placements
}

/// A plan for those hooks that go together, and how many do not.
fn planned(image: &Image, session: &mut Session) -> (Plan, usize) {
    let library = Library::builtin().unwrap();
    let before = session.placements.len();
    loop {
        match plan(image, session, &library, &layout()) {
            Ok(plan) => return (plan, before - session.placements.len()),
            Err(Error::Refused {
                function,
                block,
                hook,
                ..
            }) => {
                let refused = (function.as_str(), block, hook);
                session
                    .placements
                    .retain(|one| (&*one.function, one.block, one.hook) != refused);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A plan reaches every hook that the options offer, nearly all of them at once.
#[test]
fn every_hook_that_is_offered_can_be_planned() {
    let image = image();
    let (mut hooks, mut refused) = (0, 0);
    let mut tactics = BTreeMap::<_, u32>::new();
    for function in image.functions().iter().step_by(step(97)) {
        let cfg = Cfg::of(&image, function.id);
        for instrument in ["counter", "timestamp", "elapsed-stop"] {
            let mut session = Session {
                placements: placements(&image, &cfg, instrument),
                ..Session::empty()
            };
            hooks += session.placements.len();
            let (plan, not) = planned(&image, &mut session);
            refused += not;
            assert_eq!(plan.instruments.len(), session.placements.len());
            for one in &plan.instruments {
                *tactics.entry(one.tactic.name()).or_default() += 1;
            }
            let text = report(&image, &plan);
            if let Err(violations) = verify(&image, plan.clone()) {
                panic!("{instrument} in {}: {violations:#?}\n{text}", function.name);
            }
            assert!(plan.patches.is_empty() || text.contains("relocated sequence"));
        }
    }
    eprintln!("{hooks} hooks, {refused} of them refused beside the others: {tactics:?}");
    assert!(hooks > 0 && refused * 200 < hooks);
}

/// The report of two functions describes each splice.
#[test]
fn the_demonstration_session_reads_well() {
    let image = image();
    let placements = ["kernel_clone", "copy_process"]
        .into_iter()
        .flat_map(|name| {
            let cfg = Cfg::of(&image, image.function_named(name).unwrap().id);
            placements(&image, &cfg, "counter")
        })
        .collect();
    let mut session = Session {
        placements,
        ..Session::empty()
    };
    let (plan, _) = planned(&image, &mut session);
    let text = report(&image, &plan);
    if let Ok(path) = std::env::var("GILK_WRITE_REPORT") {
        std::fs::write(path, &text).unwrap();
    }
    for says in [
        "counter pre kernel_clone block 0",
        " in kernel_clone+",
        "depends on bounce",
        "relocated sequence",
        "install  splice",
    ] {
        assert!(text.contains(says), "{says}: {}", &text[..2000]);
    }
    let of_stacks = |unwinds| {
        let mut plan = plan.clone();
        plan.layout.unwinds = unwinds;
        let text = report(&image, &plan);
        text.lines()
            .find(|line| line.starts_with("stacks: "))
            .map(str::to_owned)
    };
    let [right, ended] = [true, false].map(|unwinds| of_stacks(unwinds).unwrap());
    assert!(right.contains("through every patch") && ended.contains("ends there"));
}
