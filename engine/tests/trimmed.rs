//! Every function of the trimmed kernel image in the tree is analysed, hooked, planned and verified,
//! so that plain `cargo test` meets real code. Whole kernels need `GILK_IMAGE`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers fail the test by panicking"
)]

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Why;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::placement::coverage::{self, Counts};
use gilk_engine::placement::place;
use gilk_engine::plan::plan;
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, Image, Session};
use gilk_instruments::Library;

/// Bytes that the image may take in the tree.
const MOST_BYTES: usize = 300_000;
const TRIMMED: &[u8] = include_bytes!("data/fork.image");

fn image() -> Image {
    Image::from_live(&postcard::from_bytes(TRIMMED).unwrap()).unwrap()
}

/// Returns the graphs of all functions that may be hooked.
fn graphs(image: &Image) -> Vec<Cfg> {
    let functions = image.functions().iter();
    functions
        .map(|function| Cfg::of(image, function.id))
        .filter(|cfg| cfg.refusal.is_none())
        .collect()
}

#[test]
fn every_function_has_a_graph() {
    let image = image();
    assert!(TRIMMED.len() < MOST_BYTES, "{} bytes", TRIMMED.len());
    let graphs = graphs(&image);
    println!(
        "{} functions, {} graphs",
        image.functions().len(),
        graphs.len()
    );
    assert!(graphs.len() >= 40 && graphs.len() * 100 >= image.functions().len() * 95);
    for cfg in &graphs {
        let bytes: u64 = cfg.blocks.iter().map(|block| block.span.len()).sum();
        assert!(bytes > 0 && bytes <= cfg.span.len(), "{}", cfg.name);
    }
}

#[test]
fn nearly_every_block_is_reached_at_once() {
    let image = image();
    let graphs = graphs(&image);
    let graphs: Vec<&Cfg> = graphs.iter().collect();
    let wanted: Vec<_> = graphs
        .iter()
        .enumerate()
        .flat_map(|(index, cfg)| coverage::wanted(index, &image, cfg))
        .collect();
    let solution = place(&image, &graphs, &wanted);
    let (pre, post) = coverage::of_solution(&wanted, &solution);
    let share = |counts: &Counts| counts.reached() as f64 / counts.all() as f64;
    println!(
        "{} hooks, {:.4} of pre, {:.4} of post",
        wanted.len(),
        share(&pre),
        share(&post)
    );
    assert!(wanted.len() > 1000 && share(&pre) >= 0.999 && share(&post) >= 0.999);
}

#[test]
fn a_plan_of_each_function_is_verified() {
    let image = image();
    let library = Library::builtin().unwrap();
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
    let mut patches = 0;
    for cfg in &graphs(&image) {
        let wanted = coverage::wanted(0, &image, cfg);
        let solution = place(&image, &[cfg], &wanted);
        let reached = wanted
            .iter()
            .zip(&solution.hooks)
            .filter(|(_, hook)| hook.is_ok());
        for instrument in ["counter", "timestamp"] {
            let placements = reached.clone().map(|(wanted, _)| Placement {
                function: cfg.name.as_str().into(),
                block: wanted.block.0,
                hook: wanted.hook,
                instrument: instrument.into(),
                launch: 0.0,
                splash: 1.0,
            });
            let session = Session {
                placements: placements.collect(),
                ..Session::empty()
            };
            let plan = match plan(&image, &session, &library, &layout) {
                Ok(plan) => plan,
                // Symbols that occur twice are named by address elsewhere.
                Err(Error::Ambiguous { .. }) => continue,
                Err(error) => panic!("{instrument} in {}: {error}", cfg.name),
            };
            patches += plan.patches.len();
            if let Err(violations) = verify(&image, plan) {
                panic!("{instrument} in {}: {violations:#?}", cfg.name);
            }
        }
    }
    println!("{patches} patches verified");
    assert!(patches > 1000);
}

#[test]
fn the_image_has_fixed_sites_of_each_common_kind() {
    let image = image();
    for why in [Why::StaticKey, Why::Tracer] {
        assert!(image.fixed().iter().any(|site| site.why == why), "{why:?}");
    }
}
