//! Every block of a real kernel hooked: how much is reached, and how fast.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers fail the test by panicking"
)]

use std::time::Instant;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::coverage::{self, Counts, Coverage};
use gilk_engine::placement::{Tactic, options, place};

mod saved;

fn share(counts: &Counts) -> f64 {
    counts.reached() as f64 / counts.all() as f64
}

fn table(name: &str, counts: &Counts) {
    let all = counts.all() as f64;
    println!(
        "{name}: {} of {} = {:.4} %",
        counts.reached(),
        counts.all(),
        100.0 * counts.reached() as f64 / all
    );
    for (tactic, count) in &counts.by_tactic {
        println!(
            "  {:18} {count:8} {:8.4} %",
            tactic.name(),
            100.0 * *count as f64 / all
        );
    }
    for (rule, count) in &counts.by_rule {
        println!(
            "  no: {:22} {count:8} {:8.4} %",
            rule.name(),
            100.0 * *count as f64 / all
        );
    }
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn all_blocks_at_once() {
    let image = saved::image();
    let graphs = saved::graphs(&image);
    let graphs: Vec<&Cfg> = graphs.iter().collect();
    let wanted: Vec<_> = graphs
        .iter()
        .enumerate()
        .flat_map(|(index, cfg)| coverage::wanted(index, &image, cfg))
        .collect();
    let start = Instant::now();
    let placement = place(&image, &graphs, &wanted);
    println!(
        "{} hooks, {} sites, {} bounces in {:?}",
        wanted.len(),
        placement.sites.len(),
        placement.bounces.len(),
        start.elapsed()
    );
    let (pre, post) = coverage::of_placement(&wanted, &placement);
    table("pre", &pre);
    table("post", &post);
    for (name, counts) in [("pre", &pre), ("post", &post)] {
        let traps = counts
            .by_tactic
            .get(&Tactic::Trap)
            .copied()
            .unwrap_or_default();
        assert!(
            share(counts) >= 0.999,
            "{name}-hooks reach {} of {}",
            counts.reached(),
            counts.all()
        );
        assert!(
            traps * 1000 < counts.all(),
            "{traps} {name}-hooks need an int3"
        );
    }
    assert!(
        share(&pre) >= 0.999,
        "pre-hooks reach {} of {}",
        pre.reached(),
        pre.all()
    );
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_block_alone() {
    let image = saved::image();
    let mut all = Coverage::default();
    let mut took = std::time::Duration::ZERO;
    for cfg in saved::graphs(&image) {
        let start = Instant::now();
        let options = options(&image, &cfg);
        took += start.elapsed();
        all.merge(&coverage::of_function(&image, &cfg, &options));
    }
    println!(
        "options took {took:?}; {} functions, refused {:?}, unreachable {}",
        all.functions, all.refused, all.unreachable
    );
    table("pre", &all.pre);
    table("post", &all.post);
    table("instructions", &all.instructions);
    assert!(
        share(&all.pre) >= 0.999 && share(&all.post) >= 0.999 && share(&all.instructions) >= 0.99
    );
}
