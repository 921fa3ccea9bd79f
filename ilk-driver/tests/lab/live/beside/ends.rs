//! Events that end a session: a live patch, a sleep, a restart, a TSC that is not trusted.

use gilk_engine::Session;
use gilk_samples::recording::Recording;
use ilk_driver::client::Connection;

use super::{lab_with_modules, quiet};
use crate::support::{Turn, placement, prepared, run, shared_of};

/// A session on functions that execute all the time.
fn busy(script: &str) -> Session {
    let mut session = quiet(script, 60.0);
    session.placements = ["vfs_read", "ksys_read", "hrtimer_start_range_ns"]
        .map(|name| placement(name, 0, "timestamp", (0.0, 60.0)))
        .into();
    session
}

/// Runs a session that an event ends; returns the message of the client, which the recording has too.
fn ended(turn: &Turn<'_>, connection: &mut Connection, script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ended.arrow");
    let (_, outcome) = run(connection, &turn.shared.image, &busy(script), &path);
    let sentence = outcome.expect_err("the session is ended").to_string();
    let recording = Recording::open(&path).unwrap();
    assert!(
        recording.merged().count() > 0,
        "no sample from before the end is kept"
    );
    assert_eq!(recording.totals().ended, sentence);
    sentence
}

/// Runs a session that nothing ends.
fn serves(turn: &Turn<'_>) {
    let mut session = quiet("true", 1.0);
    session.placements = vec![placement("vfs_read", 0, "timestamp", (0.0, 1.0))];
    session.workload = None;
    turn.run(&session);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_live_patch_finds_no_splice_and_ends_the_session() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let script = "sleep 1; insmod /lab/hush.ko; cat /proc/version";
    let sentence = ended(&turn, &mut connection, script);
    assert!(sentence.contains("a live patch was loaded"), "{sentence}");
    drop(connection);
    // A patch that is there already disturbs no session.
    let mut after = busy("/lab/unhush && echo unhushed");
    after.duration = 120.0;
    let said = turn.run(&after).said;
    assert!(said.iter().any(|line| line == "unhushed"), "{said:?}");
    turn.assert_same_text();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_suspension_finds_no_splice_and_ends_the_session() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let mut connection = turn.connect();
    // A process that cannot be frozen ends the suspension after the splices are out.
    let script = "sleep 1; echo 500 > /sys/power/pm_freeze_timeout; insmod /lab/sleeper.ko & \
                  sleep 1; echo freeze > /sys/power/state; sleep 30";
    let sentence = ended(&turn, &mut connection, script);
    assert!(sentence.contains("the machine went to sleep"), "{sentence}");
    drop(connection);
    serves(&turn);
    turn.assert_same_text();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_tsc_that_the_kernel_distrusts_ends_the_session_and_permits_no_other() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let sentence = ended(
        &turn,
        &mut connection,
        "sleep 1; insmod /lab/doubter.ko; sleep 30",
    );
    assert!(
        sentence.contains("does not trust its TSC any more"),
        "{sentence}"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("refused.arrow");
    let (_, outcome) = run(&mut connection, &shared.image, &busy("true"), &path);
    let refused = outcome.expect_err("the TSC is not trusted").to_string();
    assert!(
        refused.contains("does not trust its TSC, by which"),
        "{refused}"
    );
    // The text differs then: the kernel has switched static keys of its scheduler's clock.
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_restart_finds_no_splice() {
    let shared = shared_of(&prepared());
    let turn = shared.turn();
    let mut connection = turn.connect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("restarted.arrow");
    let session = busy("dmesg -n 7; sleep 1; reboot -f");
    let (_, outcome) = run(&mut connection, &shared.image, &session, &path);
    outcome.expect_err("the machine restarts");
    let console = shared.lab.console().unwrap();
    assert!(
        console.contains("ilk: this machine restarts: every splice is removed"),
        "{console}"
    );
    assert!(Recording::open(&path).unwrap().merged().count() > 0);
}
