//! Events that interrupt a session, a live patch, or end it: a sleep, a restart, a TSC that is not trusted.

use std::sync::atomic::{AtomicBool, Ordering};

use gilk_engine::Session;
use gilk_samples::recording::{MarkKind, Recording};
use ilk_driver::client::{Connection, Gap};

use super::{lab_with_modules, quiet};
use crate::support::{Turn, answer, placement, prepared, printed, run, shared_of};

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

/// Waits in the guest until the session has splices.
const UNTIL_BACK: &str = "i=0; while [ $(wc -l < /sys/kernel/debug/ilk/splices) = 0 ] && [ $i -lt 1200 ]; do \
                          i=$((i + 1)); usleep 100000; done";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_live_patch_finds_no_splice_and_the_session_counts_again_after_it() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    // Counted: three directories before, and four after; what the live patch replaces, before it alone.
    let script = format!(
        "make() {{ mkdir /tmp/made; rmdir /tmp/made; }}; \
         make; make; make; cat /proc/version; cat /proc/version; \
         insmod /lab/hush.ko; {UNTIL_BACK}; sed 's/^/transition /' /sys/kernel/livepatch/hush/transition; \
         cat /proc/version; make; make; make; make; \
         /lab/unhush && echo unhushed; {UNTIL_BACK}; echo in place"
    );
    let mut session = quiet(&script, 120.0);
    session.placements = [
        ("vfs_mkdir", "counter"),
        ("version_proc_show", "counter"),
        ("vfs_rmdir", "timestamp"),
    ]
    .map(|(function, instrument)| placement(function, 0, instrument, (0.0, 120.0)))
    .into();
    let over = AtomicBool::new(false);
    let (outcome, was_shown) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let shows = || {
                let (shown, _) = printed(&answer(&turn, &["status"]));
                shown.contains("a live patch changes the kernel")
            };
            std::iter::repeat_with(shows)
                .take_while(|_| !over.load(Ordering::Relaxed))
                .any(|shown| shown)
        });
        let outcome = turn.run(&session);
        over.store(true, Ordering::Relaxed);
        (outcome, looking.join().unwrap())
    });
    assert!(was_shown, "`ilk status` has not named the live patch");
    let said = &outcome.said;
    for line in ["transition 0", "hush", "unhushed", "in place"] {
        assert!(said.iter().any(|one| one == line), "no {line:?}: {said:?}");
    }
    assert_eq!((outcome.total(0), outcome.total(1)), (7, 2), "{said:?}");
    assert_eq!(outcome.times(2).len(), 7);

    let gaps = &outcome.summary.gaps;
    let first = &gaps[0];
    assert_eq!(first.left_out, 1);
    assert_eq!(first.replaced, ["version_proc_show"]);
    assert!(first.back.is_some_and(|back| first.out < back), "{gaps:?}");
    let recording = Recording::open(&outcome.recording).unwrap();
    let sentences = |gaps: &[Gap]| -> Vec<String> { gaps.iter().map(Gap::to_string).collect() };
    assert_eq!(sentences(&recording.totals().gaps), sentences(gaps));
    // No sample is in the gap.
    let within = |at: &f64| first.out < *at && Some(*at) < first.back;
    assert!(!outcome.times(2).iter().any(within), "{gaps:?}");
    // Launched before and after each gap; what is replaced, not after the first.
    let marks = recording.marks().unwrap();
    let launches = |placement: usize| {
        let id = outcome.id(placement).pack();
        let marks = marks.iter().filter(|mark| mark.id == id);
        marks.filter(|mark| mark.kind == MarkKind::Launch).count()
    };
    let returns = gaps.iter().filter(|gap| gap.back.is_some()).count();
    assert_eq!(launches(0), 1 + returns);
    assert!(launches(1) < launches(0), "{gaps:?}");
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
