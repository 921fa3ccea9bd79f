//! Every block of a real kernel hooked: how much is reached, and how fast.

use std::time::Instant;

use gilk_engine::cfg::Cfg;
use gilk_engine::placement::coverage::{self, Counts, Coverage};
use gilk_engine::placement::{Tactic, options, place};

fn share(counts: &Counts) -> f64 {
    counts.reached() as f64 / counts.all() as f64
}

/// Checks the share of hooks that are reached, less than one in a thousand of them by an `int3`.
fn enough(name: &str, counts: &Counts, least: f64) {
    let (reached, all) = (counts.reached(), counts.all());
    assert!(share(counts) >= least, "{name}: {reached} of {all}");
    let traps = counts.by_tactic.get(&Tactic::Trap).copied();
    let traps = traps.unwrap_or_default();
    assert!(traps * 1000 < all, "{name}: {traps} need an int3");
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
    let image = super::saved::image();
    let graphs = super::saved::graphs(&image);
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
    let (pre, post) = coverage::of_solution(&wanted, &placement);
    table("pre", &pre);
    table("post", &post);
    enough("pre-hooks", &pre, 0.999);
    enough("post-hooks", &post, 0.999);
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_block_alone() {
    let image = super::saved::image();
    let mut all = Coverage::default();
    let mut took = std::time::Duration::ZERO;
    for cfg in super::saved::part_of_graphs(&image) {
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
    for (name, counts, least) in [
        ("pre-hooks", &all.pre, 0.999),
        ("post-hooks", &all.post, 0.999),
        ("instructions", &all.instructions, 0.99),
    ] {
        enough(name, counts, least);
    }
}
