//! The module trusts nobody: what it refuses, what it survives, and what stays of a batch that fails.
//!
//! `GILK_FUZZ_CALLS`, `GILK_FUZZ_SEED` and `GILK_ROLLBACK_MOST` ask for more than fits into a minute.

use std::time::Duration;

use ilk_driver::lab::Lab;

use crate::guest::{Guest, assert_passed};
use crate::support::{number_in, prepared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn what_may_not_be_spliced_is_refused_by_its_reason_faults_go_on_and_want_of_memory_is_told() {
    let guest = Guest::new(&prepared());
    let console = guest.run(
        "/lab/assay faults; /lab/assay starve; LOCKDOWN=1 /lab/assay refusals",
        Duration::from_secs(300),
        |_| (),
    );
    assert_passed(&console);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn lock_prefixes_are_refused_where_one_processor_of_two_runs() {
    let guest = Guest::new(&prepared());
    let console = guest.run("/lab/assay refusals", Duration::from_secs(300), |options| {
        options.append.push("maxcpus=1".into());
    });
    assert_passed(&console);
    assert!(console.contains("lock prefixes refused"), "{console}");
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn requests_of_every_kind_do_no_harm() {
    let calls = number_in("GILK_FUZZ_CALLS");
    let seconds = if calls.is_some() { 100_000 } else { 30 };
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
fn a_batch_that_fails_at_any_step_leaves_nothing() {
    let most = number_in("GILK_ROLLBACK_MOST").unwrap_or(1000);
    let guest = Guest::new(&prepared());
    let script = format!("ROLLBACK_MOST={most} /lab/assay rollback");
    let console = guest.run(&script, Duration::from_secs(300 + most / 20), |options| {
        options.memory_mib = 2048;
    });
    assert_passed(&console);
}

/// Why a boot failed.
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
fn a_kernel_without_a_symbol_is_refused_by_its_name() {
    let why = refused_load(&["ilk.without=text_poke_queue"]);
    assert!(
        why.contains("this kernel has no symbol text_poke_queue"),
        "{why}"
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_kernel_that_is_locked_down_takes_no_module() {
    let why = refused_load(&["lockdown=integrity"]);
    assert!(why.contains("insmod ilk.ko"), "{why}");
}
