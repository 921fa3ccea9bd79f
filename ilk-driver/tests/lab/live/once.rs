//! Instruments that are retired after a hit: their cost falls, and they hit the blocks that counters count.
//!
//! Every comparison is made within one run: a rare block, for example one that only executes right
//! after a timer tick, may be executed in one run and not in another.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::HookType;
use gilk_engine::session::{Session, Workload};
use gilk_engine::verify::verify;
use gilk_instruments::program::Summary as Total;

use crate::chosen::Chosen;
use crate::support::{Outcome, placement, shared};

/// Functions that only the workload's programs call here.
const FUNCTIONS: [&str; 6] = [
    "__x64_sys_getppid",
    "__do_sys_getpriority",
    "ksys_fadvise64_64",
    "generic_fadvise",
    "vfs_copy_file_range",
    "__x64_sys_umask",
];
/// Longer than the workload takes on any machine: the program's end is the session's.
const DURATION: f64 = 300.0;
const CALLS: u64 = 1_500_000;

/// Returns the ticks that a thousand of the cheapest calls of `getppid` took.
fn cheapest(outcome: &Outcome) -> u64 {
    let line = outcome
        .said
        .iter()
        .find_map(|line| line.split_once("calls took "));
    let (_, ticks) = line.unwrap_or_else(|| panic!("{:?}", outcome.said));
    ticks.trim_end_matches(" ticks").parse().unwrap()
}

/// Returns the hits counted by `coverage`, by placement.
fn coverage(outcome: &Outcome) -> BTreeMap<usize, u64> {
    let aggregates = outcome.summary.aggregates.iter();
    let hits = aggregates.map(|aggregate| match aggregate.value {
        Total::Number(number) => (aggregate.placement, u64::try_from(number).unwrap()),
        ref other => panic!("{other:?}"),
    });
    hits.collect()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn splices_are_retired_after_their_instruments_are_hit() {
    let shared = shared();
    let turn = shared.turn();
    let named = FUNCTIONS
        .iter()
        .filter_map(|name| shared.image.function_named(name).ok());
    let functions: Vec<_> = named.collect();
    let blocks = functions.iter().flat_map(|function| {
        let wanted = Chosen::of(&shared.image, &[function]).wanted;
        let before = wanted.into_iter().filter(|hook| hook.hook == HookType::Pre);
        before.map(|hook| (function.name.to_string(), hook.block.0))
    });
    let blocks: Vec<(String, u32)> = blocks.collect();
    // After the last call there is time for the agent to poll the words and retire the splices.
    let script = format!("witness calls; strobe {} 1000; sleep 3", CALLS / 1000);
    let session = |instruments: &[&'static str]| {
        let placements = instruments.iter().flat_map(|instrument| {
            let at = move |(name, block): &(String, u32)| {
                placement(name, *block, instrument, (0.0, DURATION))
            };
            blocks.iter().map(at)
        });
        Session {
            name: "once".into(),
            duration: DURATION,
            workload: Some(Workload {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), script.clone()],
                start: 0.5,
            }),
            placements: placements.collect(),
            ..Session::empty()
        }
    };
    let without = cheapest(&turn.run(&session(&[])));

    // With a counter at the same hook no splice may be retired, so both count every hit of the run.
    let both = turn.run(&session(&["counter", "coverage"]));
    assert_eq!(both.summary.retired, 0);
    let covered = coverage(&both);
    for (index, block) in blocks.iter().enumerate() {
        let (counted, covered) = (both.total(index), covered[&(blocks.len() + index)]);
        assert_eq!(
            covered > 0,
            counted > 0,
            "{block:?}: {covered} hits covered of {counted} counted"
        );
    }
    let entry = blocks
        .iter()
        .position(|(name, _)| name == FUNCTIONS[0])
        .unwrap();
    // A shell requests its parent's number once, too.
    let calls = both.total(entry);
    assert!((CALLS..CALLS + 10).contains(&calls), "{calls} calls");

    let retired = turn.run(&session(&["coverage"]));
    let hits = coverage(&retired);
    let hit: BTreeSet<usize> = hits
        .iter()
        .filter(|(_, hits)| **hits > 0)
        .map(|(index, _)| *index)
        .collect();
    assert!(!hit.is_empty() && hit.len() < blocks.len());

    // A splice is retired if the words of all of its instruments were hit.
    let instruments = retired.plan.instruments.iter();
    let slots: BTreeSet<_> = instruments
        .filter(|instrument| hit.contains(&instrument.placement))
        .flat_map(|instrument| {
            let homes = &instrument.probe.as_ref().unwrap().homes;
            homes.aggregates.values().to_vec()
        })
        .collect();
    let retirements = verify(&shared.image, retired.plan.clone())
        .unwrap()
        .retirements();
    let expected = retirements
        .iter()
        .filter(|retirement| retirement.hits.iter().all(|word| slots.contains(word)));
    assert_eq!(retired.summary.retired, expected.count() as u64);

    // The workload makes this number of calls in every run.
    let few = hits[&entry];
    assert!(few < CALLS, "{few} hits of {CALLS}: it was not retired");
    // Printed, not asserted: times depend on the machine. `cargo xtask evaluate coverage` counts
    // instructions.
    let (once, always) = (cheapest(&retired), cheapest(&both));
    println!(
        "{} of {} blocks executed, {} splices retired; {few} hits of {CALLS} counted; 1000 calls: {without} ticks \
         without instruments, {once} after the retirement, {always} with counters",
        hit.len(),
        blocks.len(),
        retired.summary.retired
    );
    turn.assert_untouched();
}
