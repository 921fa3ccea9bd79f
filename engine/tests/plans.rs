//! Plans for the kernel that `GILK_IMAGE` names: every hook of a sample of its functions.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

use gilk_engine::cfg::Cfg;
use gilk_engine::image::LiveParts;
use gilk_engine::layout::{CounterBank, Gs, RuntimeLayout};
use gilk_engine::placement::{Tactic, options};
use gilk_engine::plan::{plan, report::report};
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Span};
use gilk_instruments::Library;
use std::collections::BTreeMap;

/// The kernel that `GILK_IMAGE` names, or `None` with a message.
fn image() -> Option<Image> {
    let Ok(path) = std::env::var("GILK_IMAGE") else {
        eprintln!("skipped: GILK_IMAGE names no kernel image");
        return None;
    };
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    Some(Image::from_live(&parts).unwrap())
}

fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0xffff_ffff_c010_0000), 0x800_0000),
        ring_base: Addr(0xff11_0000_1234_0000),
        stride_log2: 22,
        slots_log2: 16,
        head: Gs(0x3_1000),
        limit: Gs(0x3_1008),
        lost_full: Gs(0x3_1010),
        lost_unmatched: Gs(0x3_1018),
        current: Gs(0x1_fb80),
        counters: vec![
            CounterBank {
                base: Gs(0x3_2000),
                slots: 512,
            },
            CounterBank {
                base: Gs(0xff11_0000_5678_0000),
                slots: 1 << 20,
            },
        ],
        timers: Addr(0xff11_0000_9abc_0000),
        timers_log2: 12,
    }
}

/// Where one function's name is another's too, the address says which.
fn name(image: &Image, cfg: &Cfg) -> String {
    if image
        .function_named(&cfg.name)
        .is_ok_and(|function| function.id == cfg.function)
    {
        cfg.name.clone()
    } else {
        format!("{}@{:#x}", cfg.name, cfg.span.start.0)
    }
}

fn placements(image: &Image, cfg: &Cfg, instrument: &str) -> Vec<Placement> {
    let mut placements = Vec::new();
    for block in options(image, cfg) {
        let both = block.both.as_ref().is_none_or(Result::is_ok);
        let hooks = [
            (HookType::Pre, block.pre.is_ok()),
            (HookType::Post, block.post.is_ok() && both),
        ];
        placements.extend(
            hooks
                .into_iter()
                .filter(|&(_, can)| can)
                .map(|(hook, _)| Placement {
                    function: name(image, cfg),
                    block: block.block.0,
                    hook,
                    instrument: instrument.into(),
                    launch: 0.0,
                    splash: 1.0,
                    timer: 0,
                }),
        );
    }
    placements
}

/// What the options promise, a plan keeps.
#[test]
fn every_hook_that_is_offered_can_be_planned() {
    let Some(image) = image() else { return };
    let library = Library::builtin().unwrap();
    let step = std::env::var("GILK_EVERY").map_or(97, |step| step.parse().unwrap());
    let (mut hooks, mut blocks, mut relocated, mut single) = (0, 0, 0, 0);
    let mut refusals = BTreeMap::<_, u32>::new();
    for function in image.functions().iter().step_by(step) {
        let cfg = Cfg::of(&image, function.id);
        for block in options(&image, &cfg) {
            blocks += 1;
            for (hook, option) in [(HookType::Pre, &block.pre), (HookType::Post, &block.post)] {
                match option {
                    Ok(site) => {
                        hooks += 1;
                        single += u32::from(site.overwritten == 1);
                    }
                    Err(refusal) => *refusals.entry((hook, refusal.rule)).or_default() += 1,
                }
            }
            if let Some(Err(refusal)) = &block.both {
                *refusals.entry((HookType::Post, refusal.rule)).or_default() += 1;
            }
        }
        for instrument in ["counter", "timestamp", "elapsed-stop"] {
            let session = Session {
                placements: placements(&image, &cfg, instrument),
                ..Session::empty()
            };
            let plan = plan(&image, &session, &library, &layout()).unwrap_or_else(|error| {
                panic!("{} at {}: {error}", function.name, function.span.start)
            });
            assert_eq!(plan.instruments.len(), session.placements.len());
            relocated += plan
                .patches
                .iter()
                .filter(|patch| patch.site.tactic == Tactic::BlockRelocation)
                .count();
            let text = report(&image, &plan);
            if let Err(violations) = verify(&image, plan.clone()) {
                panic!("{instrument} in {}: {violations:#?}\n{text}", function.name);
            }
            assert!(plan.patches.is_empty() || text.contains("relocated sequence"));
        }
    }
    eprintln!(
        "{hooks} hooks of {blocks} blocks, {single} over one instruction, {} blocks relocated whole",
        relocated / 3
    );
    for ((hook, rule), count) in refusals {
        eprintln!(
            "{hook} {rule}: {count} ({:.2} % of blocks)",
            f64::from(count) * 100.0 / f64::from(blocks)
        );
    }
    assert!(
        hooks > blocks,
        "a block has about two hooks, less what is refused"
    );
}

#[test]
fn the_demonstration_session_reads_well() {
    let Some(image) = image() else { return };
    let placements = ["kernel_clone", "copy_process"]
        .into_iter()
        .flat_map(|name| {
            let cfg = Cfg::of(&image, image.function_named(name).unwrap().id);
            placements(&image, &cfg, "counter")
        })
        .collect();
    let session = Session {
        placements,
        ..Session::empty()
    };
    let plan = plan(&image, &session, &Library::builtin().unwrap(), &layout()).unwrap();
    let text = report(&image, &plan);
    if let Ok(path) = std::env::var("GILK_WRITE_REPORT") {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        text.contains("kernel_clone block 0, direct splice"),
        "{}",
        &text[..2000]
    );
}
