//! How long it takes to plan and verify 1,000 splices in a stock kernel. `GILK_IMAGE` names the
//! image (what `ilk lab` reads from a running kernel, as postcard).

#![allow(missing_docs, reason = "criterion's macros write the items")]
#![allow(
    clippy::expect_used,
    reason = "a bench that cannot run says so and ends"
)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gilk_engine::cfg::Cfg;
use gilk_engine::image::LiveParts;
use gilk_engine::layout::{CounterBank, Gs, RuntimeLayout};
use gilk_engine::placement::options;
use gilk_engine::plan::plan;
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, HookType, Image, Span};
use gilk_instruments::Library;

const SPLICES: usize = 1000;

/// A layout as the module gives it.
fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0xffff_ffff_c010_0000), 0x40_0000),
        ring_base: Addr(0xffff_c900_1234_0000),
        stride_log2: 22,
        slots_log2: 16,
        head: Gs(0x3_1000),
        limit: Gs(0x3_1008),
        lost_full: Gs(0x3_1010),
        lost_unmatched: Gs(0x3_1018),
        current: Gs(0x1_fb80),
        counters: vec![CounterBank {
            base: Gs(0x3_2000),
            slots: 4096,
        }],
        timers: Addr(0xffff_c900_5678_0000),
        timers_log2: 12,
    }
}

/// A thousand pre-hooks: one in each of as many functions where `spread`, else as many as functions
/// have.
fn session(image: &Image, spread: bool) -> Session {
    let mut placements = Vec::new();
    for function in image.functions().iter().step_by(29) {
        let by_name = image.function_named(&function.name);
        if !by_name.is_ok_and(|found| found.id == function.id) {
            continue;
        }
        let cfg = Cfg::of(image, function.id);
        let blocks = options(image, &cfg)
            .into_iter()
            .filter(|block| block.pre.is_ok());
        placements.extend(
            blocks
                .take(if spread { 1 } else { usize::MAX })
                .map(|block| Placement {
                    function: function.name.clone(),
                    block: block.block.0,
                    hook: HookType::Pre,
                    instrument: if block.block.0.is_multiple_of(2) {
                        "counter"
                    } else {
                        "timestamp"
                    }
                    .into(),
                    launch: 0.0,
                    splash: 1.0,
                    timer: 0,
                }),
        );
        if placements.len() >= SPLICES {
            break;
        }
    }
    placements.truncate(SPLICES);
    assert_eq!(placements.len(), SPLICES, "the image has too few functions");
    Session {
        placements,
        ..Session::empty()
    }
}

fn plans(c: &mut Criterion) {
    let Ok(path) = std::env::var("GILK_IMAGE") else {
        eprintln!("skipped: GILK_IMAGE names no kernel image");
        return;
    };
    let file = std::fs::read(&path).expect("GILK_IMAGE cannot be read");
    let parts: LiveParts = postcard::from_bytes(&file).expect("GILK_IMAGE is not an image");
    let image = Image::from_live(&parts).expect("GILK_IMAGE is not a kernel");
    let library = Library::builtin().expect("the library is damaged");
    let layout = layout();
    let mut group = c.benchmark_group("1000 splices");
    group.sample_size(10);
    for (name, spread) in [("in as many functions", true), ("in few functions", false)] {
        let session = session(&image, spread);
        let made =
            || plan(&image, &session, &library, &layout).expect("the session can be planned");
        group.bench_function(format!("plan, {name}"), |b| b.iter(made));
        group.bench_function(format!("verify, {name}"), |b| {
            b.iter_batched(
                made,
                |plan| verify(&image, plan).expect("the plan is right"),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
