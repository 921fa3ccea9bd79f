//! Plans for the functions of a real kernel pass the reader.
//!
//! `GILK_IMAGE` names a file of what was read from a kernel, as `postcard` writes
//! `gilk_engine::image::LiveParts`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's helpers fail the test by panicking"
)]

use std::time::Instant;

use gilk_engine::cfg::Cfg;
use gilk_engine::image::LiveParts;
use gilk_engine::layout::{CounterBank, Gs, RuntimeLayout};
use gilk_engine::placement::options;
use gilk_engine::plan::plan;
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Session, Span};
use gilk_instruments::Library;

fn image() -> Image {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    Image::from_live(&parts).unwrap()
}

fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0xffff_ffff_c000_0000), 512 << 20),
        ring_base: Addr(0xffff_c900_0400_0000),
        stride_log2: 21,
        slots_log2: 16,
        head: Gs(0x3_0000),
        limit: Gs(0x3_0008),
        lost_full: Gs(0x3_0010),
        lost_unmatched: Gs(0x3_0018),
        current: Gs(0x1_fbc0),
        counters: vec![
            CounterBank {
                base: Gs(0x3_1000),
                slots: 1024,
            },
            CounterBank {
                base: Gs(0x1000_0000),
                slots: 1 << 24,
            },
        ],
        timers: Addr(0xffff_c900_0800_0000),
        timers_log2: 12,
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
        timer: 5,
    }
}

/// Every instrument that a hook takes, each in a session of its own, over the kernel's functions.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn every_hookable_block_of_many_functions_passes() {
    let image = image();
    let library = Library::builtin().unwrap();
    let layout = layout();
    let step: usize = std::env::var("GILK_STEP").map_or(97, |step| step.parse().unwrap());
    let (mut splices, mut refused, mut planning, mut verifying) = (0, 0, 0.0, 0.0);
    let mut failures = Vec::new();
    for function in image.functions().iter().step_by(step) {
        let name = format!("{}@{:#x}", function.name, function.span.start.0);
        let cfg = Cfg::of(&image, function.id);
        let options = options(&image, &cfg);
        for instrument in library.iter() {
            let mut session = Session::empty();
            for option in &options {
                let block = option.block.0;
                let both = option.both.as_ref().is_some_and(Result::is_ok);
                for (hook, possible) in [
                    (HookType::Pre, option.pre.is_ok()),
                    (
                        HookType::Post,
                        option.post.is_ok() && (both || option.pre.is_err()),
                    ),
                ] {
                    if possible {
                        session
                            .placements
                            .push(placement(&name, block, hook, &instrument.name));
                    }
                }
            }
            // What an instrument's own rule refuses at a hook is left out, one at a time.
            let plan = loop {
                let begin = Instant::now();
                let planned = plan(&image, &session, &library, &layout);
                planning += begin.elapsed().as_secs_f64();
                match planned {
                    Ok(plan) => break plan,
                    Err(gilk_engine::Error::Refused {
                        block,
                        hook,
                        refusal,
                        ..
                    }) => {
                        refused += 1;
                        let before = session.placements.len();
                        session
                            .placements
                            .retain(|one| one.block != block || one.hook.to_string() != hook);
                        assert!(session.placements.len() < before, "{name}: {refusal}");
                    }
                    Err(other) => panic!("{name}: {other}"),
                }
            };
            splices += plan.patches.len();
            let begin = Instant::now();
            let verified = verify(&image, plan);
            verifying += begin.elapsed().as_secs_f64();
            if let Err(violations) = verified {
                failures.extend(
                    violations
                        .iter()
                        .map(|violation| format!("{name} {}: {violation}", instrument.name)),
                );
            }
        }
    }
    println!(
        "{splices} splices, {refused} refused by an instrument's rule; planned in {planning:.2} s, verified in {verifying:.2} s"
    );
    for failure in failures.iter().take(60) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} violations", failures.len());
}

/// A plan of a thousand splices, as large sessions are.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn a_thousand_splices_are_read_in_no_time() {
    let image = image();
    let library = Library::builtin().unwrap();
    let mut session = Session::empty();
    'full: for function in image.functions().iter().step_by(211) {
        let cfg = Cfg::of(&image, function.id);
        for option in options(&image, &cfg)
            .iter()
            .filter(|option| option.pre.is_ok())
        {
            let name = format!("{}@{:#x}", function.name, function.span.start.0);
            session
                .placements
                .push(placement(&name, option.block.0, HookType::Pre, "timestamp"));
            if session.placements.len() == 1000 {
                break 'full;
            }
        }
    }
    let plan = plan(&image, &session, &library, &layout()).unwrap();
    assert_eq!(plan.patches.len(), 1000);
    let begin = Instant::now();
    verify(&image, plan).unwrap();
    let took = begin.elapsed();
    println!(
        "1,000 splices in {} functions: {took:?}",
        session
            .placements
            .iter()
            .map(|one| &one.function)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    );
    assert!(cfg!(debug_assertions) || took.as_secs_f64() < 1.0);
}
