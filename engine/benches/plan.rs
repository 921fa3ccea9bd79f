//! Time to plan and verify 1,000 splices in a stock kernel. `GILK_IMAGE` names the
//! image (as `ilk dump` saves it).

#![allow(missing_docs, reason = "criterion's macros write the items")]
#![allow(
    clippy::expect_used,
    reason = "a bench that cannot run says so and ends"
)]

#[path = "../tests/support/kernel.rs"]
mod kernel;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;
use gilk_engine::plan::plan;
use gilk_engine::session::{Placement, Session};
use gilk_engine::verify::verify;
use gilk_engine::{HookType, Image};
use gilk_instruments::Library;
use kernel::{image, layout, name};

const SPLICES: usize = 1000;

/// A thousand pre-hooks: one in each of as many functions where `spread`, else as many as functions
/// have.
fn session(image: &Image, spread: bool) -> Session {
    let mut placements = Vec::new();
    for function in image.functions().iter().step_by(29) {
        let cfg = Cfg::of(image, function.id);
        let blocks = options(image, &cfg)
            .into_iter()
            .filter(|block| block.pre.is_ok());
        placements.extend(
            blocks
                .take(if spread { 1 } else { usize::MAX })
                .map(|block| Placement {
                    function: name(image, &cfg).into(),
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
    if std::env::var_os("GILK_IMAGE").is_none() {
        println!("GILK_IMAGE names no saved kernel, and the trimmed one has too few functions.");
        return;
    }
    let image = image();
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
