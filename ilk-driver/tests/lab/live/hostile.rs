//! The module's robustness: refusals, faults, and the state after a batch that fails.
//!
//! `GILK_FUZZ_CALLS`, `GILK_FUZZ_SEED` and `GILK_ROLLBACK_MOST` extend the tests beyond some seconds.

use std::time::Duration;

use gilk_engine::Rule;
use gilk_engine::cfg::Cfg;
use ilk_driver::lab::Lab;

use crate::guest::{Guest, assert_passed};
use crate::support::{number_in, prepared, shared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn refusals_have_reasons_faults_recover_and_failed_allocations_are_reported() {
    let guest = Guest::new(&prepared());
    let console = guest.run(
        "/lab/assay faults; /lab/assay starve
         rmmod ilk; insmod /lab/listener.ko; insmod /lab/ilk.ko; LOCKDOWN=1 /lab/assay refusals",
        Duration::from_secs(300),
        |_| (),
    );
    assert_passed(&console);
    assert!(console.contains("a module's notifier refused"), "{console}");
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn lock_prefixes_are_refused_with_one_of_two_cpus_online() {
    let guest = Guest::new(&prepared());
    let console = guest.run("/lab/assay refusals", Duration::from_secs(300), |options| {
        options.append.push("maxcpus=1".into());
    });
    assert_passed(&console);
    assert!(console.contains("lock prefixes refused"), "{console}");
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn random_requests_of_every_kind_do_no_harm() {
    let calls = number_in("GILK_FUZZ_CALLS");
    let seconds = if calls.is_some() { 100_000 } else { 3 };
    let (calls, seed) = (
        calls.unwrap_or(1_000_000),
        number_in("GILK_FUZZ_SEED").unwrap_or(1),
    );
    let script =
        format!("FUZZ_CALLS={calls} FUZZ_SEED={seed} FUZZ_SECONDS={seconds} /lab/assay fuzz");
    let guest = Guest::new(&prepared());
    let console = guest.run(&script, Duration::from_secs(120 + calls / 100), |_| ());
    assert_passed(&console);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_batch_that_fails_at_any_step_leaves_no_trace() {
    let most = number_in("GILK_ROLLBACK_MOST").unwrap_or(60);
    let guest = Guest::new(&prepared());
    let script = format!("ROLLBACK_MOST={most} /lab/assay rollback");
    let console = guest.run(&script, Duration::from_secs(300 + most / 20), |options| {
        options.memory_mib = 2048;
    });
    assert_passed(&console);
}

/// Boots with a module that must not load, and returns the reason.
fn refused_load(words: &[&str]) -> String {
    let prepared = prepared().with(|options| {
        options.append.extend(words.iter().map(ToString::to_string));
    });
    match Lab::boot(&prepared, &mut |_| ()) {
        Ok(_) => panic!("the module was loaded with {words:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_missing_kernel_symbol_is_refused_with_its_name() {
    let why = refused_load(&["ilk.without=text_mutex"]);
    assert!(
        why.contains("this kernel has no symbol text_mutex"),
        "{why}"
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_locked_down_kernel_loads_no_module() {
    let why = refused_load(&["lockdown=integrity"]);
    assert!(why.contains("insmod ilk.ko"), "{why}");
}

/// The module's refusal of the same function is in `assay refusals`.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_planner_refuses_the_notifiers_of_traps_that_are_called_before_the_drivers() {
    let shared = shared();
    let lines = shared.parts.blacklist.lines();
    let notifiers: Vec<&str> = lines
        .filter(|line| line.starts_with("notifier "))
        .filter_map(|line| line.split('\t').nth(1))
        .collect();
    println!("{notifiers:?}");
    assert!(notifiers.contains(&"hw_breakpoint_exceptions_notify"));
    assert!(!notifiers.contains(&"ilk_die"));
    for name in notifiers {
        let function = shared.image.function_named(name).unwrap().id;
        let refusal = Cfg::of(&shared.image, function).refusal;
        assert_eq!(
            refusal.map(|one| one.rule),
            Some(Rule::Blacklisted),
            "{name}"
        );
    }
}
