//! One session on two machines at once: two labs with unrelated clocks.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use gilk_samples::clocks::{Alignment, Reading};
use gilk_samples::joined::Joined;
use gilk_samples::recording::Recording;

use crate::support::{ilk, placement, prepared, pulsar, saved, shared, shared_of};

/// This machine's time-stamp counter.
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc, and Linux permits it in user mode.
    #[allow(unsafe_code, unused_unsafe, reason = "rdtsc")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

const FORK: &str = "__x64_sys_clone";
/// Duration of a session: several times what the workload needs.
const SECONDS: f64 = 12.0;

fn output_of(arguments: &[&str], paths: &[&Path]) -> String {
    let output = ilk().args(arguments).args(paths).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

#[test]
#[ignore = "boots the lab twice; cargo xtask test runs it"]
fn two_machines_begin_together_and_share_one_timeline() {
    let (one, two) = (shared(), shared_of(&prepared()));
    let turns = [one.turn(), two.turn()];
    let directory = tempfile::tempdir().unwrap();
    let session = pulsar(
        SECONDS,
        500,
        vec![placement(FORK, 0, "timestamp", (0.0, SECONDS))],
    );
    let session = saved(&session, directory.path());
    let fleet = directory.path().join("fleet");
    let targets = format!(
        "left={},right={}",
        one.lab.socket().display(),
        two.lab.socket().display()
    );
    let now = || {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(since.as_nanos()).unwrap()
    };
    let before = now();
    let joined = output_of(
        &["run", "--target", &targets, "-o", fleet.to_str().unwrap()],
        &[&session],
    );
    let ran = before..now();
    assert!(
        joined.contains(
            "
left:"
        ) && joined.contains(
            "
right:"
        ),
        "{joined}"
    );

    let paths = ["left", "right"].map(|name| fleet.join(format!("{name}.arrow")));
    // The emulated TSC is this machine's: a kernel that calibrates it wrongly has seconds of another length.
    let (since, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(100));
    let rate = (ticks() - first) as f64 / since.elapsed().as_secs_f64();
    for path in &paths {
        let recording = Recording::open(path).unwrap();
        clocks_are_steady(&recording);
        let taken = recording.metadata().clock.hz as f64;
        assert!((taken - rate).abs() < rate / 100.0, "{taken}, {rate} here");
    }
    let joined = Joined::open(&paths).unwrap();
    let machines = &joined.metadata().machines;
    let names: Vec<&str> = machines
        .iter()
        .map(|machine| machine.name.as_str())
        .collect();
    assert_eq!(names, ["left", "right"]);
    // Second 0 was set by the readings before it, and is checked by the readings around it: each
    // may be off by its error, twice.
    let errors: Vec<u64> = machines
        .iter()
        .map(|machine| machine.error_ns.unwrap())
        .collect();
    let apart = machines[0]
        .start_unix_ns
        .abs_diff(machines[1].start_unix_ns);
    println!("second 0 is {apart} ns apart; times are accurate to {errors:?} ns");
    assert!(
        apart <= 2 * errors.iter().sum::<u64>(),
        "{apart} ns apart, with {errors:?}"
    );
    assert!(errors.iter().all(|error| *error < 50_000_000), "{errors:?}");

    // Every sample was taken while the command ran, by the clock of this machine.
    let begun = machines[0].start_unix_ns;
    let (index, troubles) = joined.index(|_| ControlFlow::Continue(()));
    assert!(troubles.is_empty());
    let clock = joined.metadata().clock;
    for instrument in &joined.metadata().instruments {
        let points = index.samples_in(instrument.id, 0, u64::MAX, 1000);
        assert_eq!(points.len(), 160, "{}", instrument.label);
        for point in &points {
            let at = begun + (clock.seconds(point.tsc) * 1e9) as u64;
            assert!(
                ran.contains(&at),
                "{}: {at} is not in {ran:?}",
                instrument.label
            );
        }
    }

    let shown = output_of(&["show"], &paths.each_ref().map(|path| path.as_path()));
    for wanted in ["left: ", "right: ", "times are accurate to ±"] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    let all = directory.path().join("all.arrow");
    let paths = paths.each_ref().map(|path| path.as_path());
    output_of(&["join", "-o", all.to_str().unwrap()], &paths);
    assert_eq!(Recording::open(&all).unwrap().samples(), 320);
    for turn in &turns {
        turn.assert_untouched();
    }
}

/// Checks that each reading of the clocks agrees with the ones around it. The rate of a clock is
/// known less precisely than its value, so the first and the last are not extrapolated.
fn clocks_are_steady(recording: &Recording) {
    let marks = recording.marks().unwrap();
    let readings: Vec<Reading> = marks.iter().filter_map(Reading::of).collect();
    assert!(readings.len() >= 3, "{readings:?}");
    for left_out in readings.iter().take(readings.len() - 1).skip(1) {
        let others = readings.iter().filter(|other| *other != left_out).copied();
        let aligned = Alignment::new(others, recording.metadata().clock);
        let error = aligned.error_ns(left_out.tsc).unwrap() + left_out.error_ns;
        let off = aligned.unix_ns(left_out.tsc).abs_diff(left_out.unix_ns);
        assert!(
            off <= error + 1,
            "{off} ns off, with an error of {error} ns: {readings:?}"
        );
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn no_machine_begins_if_one_is_missing() {
    let shared = shared();
    let turn = shared.turn();
    let directory = tempfile::tempdir().unwrap();
    let session = pulsar(1.0, 10, vec![placement(FORK, 0, "timestamp", (0.0, 1.0))]);
    let session = saved(&session, directory.path());
    let targets = format!("{},gone=/nowhere/ilk.sock", shared.lab.socket().display());
    let output = ilk()
        .args(["run", "--target", &targets, "-o"])
        .arg(directory.path().join("fleet"))
        .arg(session)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("/nowhere/ilk.sock"),
        "{errors}"
    );
    turn.assert_untouched();
}
