//! Conservation of flow: counters at every block of a function that can be hooked.

use gilk_engine::HookType;
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;

use crate::circulation::{Counts, unexplained};
use crate::support::{Shared, Turn, counts, placement, pulsar, shared};

/// All callers of `kernel_clone`.
const CALLERS: [&str; 6] = [
    "__x64_sys_clone",
    "__x64_sys_clone3",
    "__x64_sys_fork",
    "__x64_sys_vfork",
    "kernel_thread",
    "user_mode_thread",
];

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn of_every_block_of_kernel_clone() {
    let shared = shared();
    let turn = shared.turn();
    let mut placements = counters(&shared, "kernel_clone");
    placements.extend(
        CALLERS
            .iter()
            .filter(|caller| shared.image.function_named(caller).is_ok())
            .map(|caller| placement(caller, 0, "counter", WHOLE)),
    );
    let session = pulsar(WHOLE.1, 100, placements);
    let outcome = turn.run(&session);
    let entries = check(
        &shared,
        &counts(&outcome, &session, "kernel_clone"),
        "kernel_clone",
    );
    let by_callers: Vec<(&str, u64)> = CALLERS
        .iter()
        .filter_map(|caller| Some((*caller, *counts(&outcome, &session, caller).get(&0)?)))
        .collect();
    let forks = by_callers
        .iter()
        .find(|(caller, _)| *caller == "__x64_sys_clone")
        .map(|(_, count)| *count);
    assert_eq!(forks, Some(160), "{by_callers:?}");
    assert_eq!(
        entries,
        by_callers.iter().map(|(_, count)| count).sum::<u64>(),
        "{by_callers:?}"
    );
    // The agent starts Pulsar and threads that read its output.
    assert!((161..200).contains(&entries), "{by_callers:?}");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn of_every_block_of_copy_process() {
    every_block_of_copy_process(&shared().turn());
}

/// Counts every block of `copy_process` while Pulsar forks, and fails unless flow is conserved.
pub(super) fn every_block_of_copy_process(turn: &Turn<'_>) {
    let shared = turn.shared;
    let mut placements = counters(shared, "copy_process");
    placements.push(placement("kernel_clone", 0, "counter", WHOLE));
    let session = pulsar(WHOLE.1, 100, placements);
    let outcome = turn.run(&session);
    let entries = check(
        shared,
        &counts(&outcome, &session, "copy_process"),
        "copy_process",
    );
    assert_eq!(entries, counts(&outcome, &session, "kernel_clone")[&0]);
    turn.assert_untouched();
}

/// Until the workload ends.
const WHOLE: (f64, f64) = (0.0, 8.0);
const ENTRY: (u32, HookType) = (0, HookType::Pre);

/// Returns a counter before every block with a pre-hook.
fn counters(shared: &Shared, function: &str) -> Vec<gilk_engine::session::Placement> {
    let cfg = graph(shared, function);
    let hooked: Vec<_> = options(&shared.image, &cfg)
        .into_iter()
        .filter(|option| option.pre.is_ok())
        .map(|option| placement(function, option.block.0, "counter", WHOLE))
        .collect();
    assert!(
        hooked.len() * 2 > cfg.blocks.len(),
        "only {} of {} blocks of {function} can be hooked",
        hooked.len(),
        cfg.blocks.len()
    );
    hooked
}

/// Fails unless flow is conserved; returns the number of entries of the function.
fn check(shared: &Shared, counts: &std::collections::BTreeMap<u32, u64>, function: &str) -> u64 {
    let cfg = graph(shared, function);
    let counts = &counts
        .iter()
        .map(|(block, count)| ((*block, HookType::Pre), *count))
        .collect::<Counts>();
    let wrong = unexplained(&cfg, counts);
    assert!(
        wrong.is_empty(),
        "no paths through {function} explain these (block, hook, count, unexplained): {wrong:?}\nof {counts:?}"
    );
    let run = counts.values().filter(|count| **count > 0).count();
    println!(
        "{function}: {} blocks, {} counted, {run} of them executed, {} entries",
        cfg.blocks.len(),
        counts.len(),
        counts[&ENTRY]
    );
    // The result is only meaningful if an error of one hit would be detected at most blocks: a path
    // without other counters may explain it.
    let seen = |hook: &(u32, HookType)| {
        let mut damaged = counts.clone();
        damaged.insert(*hook, counts[hook] + 1);
        !unexplained(&cfg, &damaged).is_empty()
    };
    let blocks = counts.len();
    let noticed = counts.keys().filter(|hook| seen(hook)).count();
    println!("{function}: an extra hit would be detected at {noticed} of {blocks} blocks");
    assert!(
        noticed * 2 > blocks,
        "an extra hit would be detected at only {noticed} of {blocks} blocks"
    );
    counts[&ENTRY]
}

fn graph(shared: &Shared, function: &str) -> Cfg {
    let function = shared
        .image
        .function_named(function)
        .unwrap_or_else(|error| panic!("{error}"));
    Cfg::of(&shared.image, function.id)
}
