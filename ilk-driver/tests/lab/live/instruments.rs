//! Instruments in the language on a live kernel, compared with known facts: Pulsar's forks, the
//! results of other system calls for the same processes, and other instruments in the same run.

use std::collections::BTreeSet;

use gilk_engine::session::Session;

use crate::support::{Outcome, placement, pulsar, shared};

/// The function that serves glibc's `fork`, which calls clone(2). `__x64_sys_clone` jumps to it and
/// so has no return of its own.
const FORK: &str = "__do_sys_clone";
/// The function that serves `waitpid`.
const WAIT: &str = "__do_sys_wait4";
/// Number of forks in these sessions.
const FORKS: usize = 160;
const ALWAYS: (f64, f64) = (0.0, 6.0);

/// Returns a session of Pulsar with instruments on functions: name of the instrument, source,
/// function. An empty source selects the library's instrument.
fn session(instruments: &[(&str, &str, &str)]) -> Session {
    let placements = instruments
        .iter()
        .map(|(name, _, function)| placement(function, 0, name, ALWAYS))
        .collect();
    let mut session = pulsar(6.0, 500, placements);
    for (name, source, _) in instruments {
        if !source.is_empty() {
            let text = format!("instrument {name} \"Under test.\"; {source}");
            session.sources.insert((*name).to_owned(), text);
        }
    }
    session
}

/// Returns times in ticks and values of all samples of a placement, over all of its hooks.
fn samples(outcome: &Outcome, placement: usize) -> Vec<(u64, u64)> {
    let ids: BTreeSet<u64> = outcome
        .plan
        .instruments
        .iter()
        .filter(|instrument| instrument.placement == placement)
        .map(|instrument| instrument.id.pack())
        .collect();
    outcome
        .samples
        .iter()
        .filter(|(_, sample)| ids.contains(&sample.id))
        .map(|(_, sample)| (sample.tsc, sample.value))
        .collect()
}

fn assert_nothing_lost(outcome: &Outcome) {
    assert_eq!((outcome.summary.lost(), outcome.summary.missing), (0, 0));
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_call_is_timed_from_its_entry_to_its_exit() {
    let shared = shared();
    let turn = shared.turn();
    let outcome = turn.run(&session(&[
        ("timestamp", "", FORK),
        (
            "timed",
            "call @start; entry { @start = tsc } return / @start != 0 / { sample(tsc - @start) }",
            FORK,
        ),
    ]));
    let begun = samples(&outcome, 0);
    let timed = samples(&outcome, 1);
    assert_eq!(
        (begun.len(), timed.len()),
        (FORKS, FORKS),
        "{:?}",
        outcome.said
    );
    let mut between = Vec::new();
    for ((start, _), (end, took)) in begun.iter().zip(&timed) {
        // The timestamp is taken right before the other instrument starts.
        assert!(*start < *end && *took > 0, "{start} {end} {took}");
        between.push((end - took).abs_diff(*start));
    }
    outcome.assert_moments(between, 1000);
    assert_nothing_lost(&outcome);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn fork_and_wait_return_the_same_processes() {
    const RETURNED: &str = "return / comm == \"pulsar\" && (s64)retval > 0 / { sample(retval) }";
    let shared = shared();
    let turn = shared.turn();
    let outcome = turn.run(&session(&[
        ("returned", RETURNED, FORK),
        ("returned", RETURNED, WAIT),
    ]));
    let [forked, waited] = [0, 1].map(|placement| {
        let values = samples(&outcome, placement);
        assert_eq!(values.len(), FORKS, "{:?}", outcome.said);
        values
            .into_iter()
            .map(|(_, value)| value)
            .collect::<BTreeSet<_>>()
    });
    assert_eq!(forked.len(), FORKS, "each process has a number of its own");
    assert_eq!(forked, waited);
    assert_nothing_lost(&outcome);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_function_is_timed_only_where_another_called_it() {
    const CALLER: &str =
        "shared thread @called; entry { @called++ } return / @called > 0 / { @called-- }";
    const WHEN_CALLED: &str = "shared thread @called; entry / @called > 0 / { sample(1) }";
    const AT_ALL: &str = "entry { sample(tid) }";
    let shared = shared();
    let turn = shared.turn();
    // The console's shell, the agent's workload and the kernel itself create processes in the same
    // way.
    let outcome = turn.run(&session(&[
        ("caller", CALLER, FORK),
        ("when-called", WHEN_CALLED, "kernel_clone"),
        ("at-all", AT_ALL, "kernel_clone"),
    ]));
    assert_eq!(samples(&outcome, 1).len(), FORKS, "{:?}", outcome.said);
    assert!(
        samples(&outcome, 2).len() > FORKS,
        "the agent created Pulsar by kernel_clone, too"
    );
    assert_nothing_lost(&outcome);
    turn.assert_untouched();
}
