//! One session on two machines at once: two labs, whose clocks have nothing to do with each other.

use std::ops::ControlFlow;
use std::path::Path;

use gilk_samples::clocks::{Alignment, Reading};
use gilk_samples::joined::Joined;
use gilk_samples::recording::Recording;

use crate::support::{ilk, placement, prepared, pulsar, saved, shared, shared_of};

const FORK: &str = "__x64_sys_clone";
/// Seconds by which what a program does may differ between two emulated machines on a busy host.
const SLACK: f64 = 0.4;

fn said(arguments: &[&str], paths: &[&Path]) -> String {
    let output = ilk().args(arguments).args(paths).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

#[test]
#[ignore = "boots the lab twice; cargo xtask test runs it"]
fn two_machines_begin_together_and_lie_on_one_timeline() {
    let (one, two) = (shared(), shared_of(&prepared()));
    let turns = [one.turn(), two.turn()];
    let directory = tempfile::tempdir().unwrap();
    let session = pulsar(7.0, 500, vec![placement(FORK, 0, "timestamp", (0.0, 7.0))]);
    let session = saved(&session, directory.path());
    let fleet = directory.path().join("fleet");
    let targets = format!(
        "left={},right={}",
        one.lab.socket().display(),
        two.lab.socket().display()
    );
    let told = said(
        &["run", "--target", &targets, "-o", fleet.to_str().unwrap()],
        &[&session],
    );
    assert!(
        told.contains(
            "
left:"
        ) && told.contains(
            "
right:"
        ),
        "{told}"
    );

    let paths = ["left", "right"].map(|name| fleet.join(format!("{name}.arrow")));
    for path in &paths {
        clocks_are_steady(&Recording::open(path).unwrap());
    }
    let joined = Joined::open(&paths).unwrap();
    let machines = &joined.metadata().machines;
    let names: Vec<&str> = machines
        .iter()
        .map(|machine| machine.name.as_str())
        .collect();
    assert_eq!(names, ["left", "right"]);
    // Second 0 was set by clocks as they were read before, and is looked at by clocks as they were read
    // before and after: each may be wrong by its error, twice.
    let errors: Vec<u64> = machines
        .iter()
        .map(|machine| machine.error_ns.unwrap())
        .collect();
    let apart = machines[0]
        .start_unix_ns
        .abs_diff(machines[1].start_unix_ns);
    println!("second 0 is {apart} ns apart; times are right to {errors:?} ns");
    assert!(
        apart <= 2 * errors.iter().sum::<u64>(),
        "{apart} ns apart, with {errors:?}"
    );
    assert!(errors.iter().all(|error| *error < 50_000_000), "{errors:?}");

    // What the same program does at the same time lies at the same place.
    let (index, troubles) = joined.index(|_| ControlFlow::Continue(()));
    assert!(troubles.is_empty());
    let clock = joined.metadata().clock;
    let rounds: Vec<Vec<f64>> = joined
        .metadata()
        .instruments
        .iter()
        .map(|instrument| {
            let points = index.samples_in(instrument.id, 0, u64::MAX, 1000);
            let times: Vec<f64> = points
                .iter()
                .map(|point| clock.seconds(point.tsc))
                .collect();
            assert_eq!(times.len(), 160, "{}", instrument.label);
            times.iter().step_by(32).copied().collect()
        })
        .collect();
    for (left, right) in rounds[0].iter().zip(&rounds[1]) {
        assert!((left - right).abs() < SLACK, "{rounds:?}");
    }

    let shown = said(&["show"], &paths.each_ref().map(|path| path.as_path()));
    for wanted in ["left: ", "right: ", "times are right to ±"] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    let all = directory.path().join("all.arrow");
    let paths = paths.each_ref().map(|path| path.as_path());
    said(&["join", "-o", all.to_str().unwrap()], &paths);
    assert_eq!(Recording::open(&all).unwrap().samples(), 320);
    for turn in &turns {
        turn.assert_untouched();
    }
}

/// Each reading of the clocks agrees with those before and behind it. How fast a clock goes is known less well
/// than what it shows, so the first and the last are not foretold.
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
fn nothing_begins_where_one_machine_is_missing() {
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
