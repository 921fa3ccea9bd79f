//! The experiment of the original report: Pulsar's forks, counted one by one.

use gilk_engine::Session;
use gilk_engine::session::Workload;
use gilk_samples::recording::{MarkKind, Recording};

use crate::support::{Outcome, placement, pulsar, shared};
use crate::trace;

/// The function that serves glibc's `fork`, which calls clone(2).
const FORK: &str = "__x64_sys_clone";
/// Gap between two rounds in seconds: Pulsar's sleep, less the tolerance of the clocks.
const GAP: f64 = 0.45;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn pulsar_yields_160_samples_in_five_groups_of_32() {
    let shared = shared();
    let turn = shared.turn();
    let outcome = turn.run(&pulsar(
        8.0,
        500,
        vec![placement(FORK, 0, "timestamp", (0.0, 8.0))],
    ));
    let times = outcome.times(0);
    assert_eq!(times.len(), 160, "Pulsar printed {:?}", outcome.said);
    assert!(times.is_sorted());
    // A busy machine may stop between any two forks, but never skips Pulsar's sleep.
    let groups = times.chunks(32).zip(times.chunks(32).skip(1));
    for (earlier, later) in groups {
        assert!(later[0] - earlier[31] >= GAP, "{times:?}");
    }
    assert_eq!(
        (
            outcome.summary.lost(),
            outcome.summary.missing,
            outcome.summary.taken
        ),
        (0, 0, 160)
    );
    assert!(
        outcome
            .said
            .iter()
            .any(|line| line.contains("160 forks in 5 rounds")),
        "{:?}",
        outcome.said
    );
    turn.assert_untouched();
}

/// Correlates with other tools, as the report did: the kernel's own tracers time the same forks in
/// the same run.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_kernels_own_tracers_see_the_same_forks_slightly_earlier() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        name: "correlation".into(),
        duration: 12.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), trace::script(200)],
            start: 0.2,
        }),
        placements: vec![placement(trace::FORK, 0, "timestamp", (0.0, 12.0))],
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let said = outcome.said.iter();
    let seen = trace::read(said.filter_map(|line| line.strip_prefix("sh: ")));
    let times: Vec<u64> = outcome.samples.iter().map(|(_, one)| one.tsc).collect();
    for events in [&seen.function, &seen.kprobe] {
        assert_eq!(events.len(), 160, "{:?}", outcome.said);
        let apart = trace::matched(events, &times).unwrap_or_else(|why| panic!("{why}"));
        // Their hooks precede ours, and the difference is far less than a fork.
        outcome.assert_moments(apart, 1000);
    }
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn no_instrument_samples_before_launch_or_after_splash() {
    let shared = shared();
    let turn = shared.turn();
    let windows = [
        (0.0, 8.0),
        (0.0, 1.2),
        (1.3, 2.2),
        (0.0, 2.7),
        (2.4, 8.0),
        (4.9, 8.0),
    ];
    let placements = windows
        .iter()
        .map(|&window| placement(FORK, 0, "timestamp", window))
        .collect();
    let outcome = turn.run_whole(turn.connect(), &pulsar(8.0, 500, placements));
    assert_eq!(outcome.times(0).len(), 160);
    let switches = &outcome.summary.switches;
    let scheduled: Vec<f64> = switches.iter().map(|switch| switch.scheduled).collect();
    assert!(
        scheduled.is_sorted()
            && switches
                .iter()
                .all(|switch| switch.scheduled <= switch.begun && switch.begun <= switch.done),
        "{switches:?}"
    );
    let all = outcome.times(0);
    for (index, (launch, splash)) in windows.into_iter().enumerate() {
        let at = |time: f64| {
            switches
                .iter()
                .find(|switch| (switch.scheduled - time).abs() < 1e-9)
                .expect("every time has a switch")
        };
        let times = outcome.times(index);
        let (first, last) = (at(launch), at(splash));
        assert!(
            times
                .iter()
                .all(|&time| first.begun <= time && time <= last.done),
            "instrument {index} ({launch} to {splash} s) sampled outside {first:?} to {last:?}: {times:?}"
        );
        // It samples every fork while it is certainly installed.
        let surely = all
            .iter()
            .filter(|&&time| first.done < time && time < last.begun)
            .count();
        assert!(
            times.len() >= surely,
            "instrument {index} took {} samples of {surely}",
            times.len()
        );
    }
    assert_lateness_is_recorded(&outcome);
    turn.assert_untouched();
}

/// Checks that the recording alone has the scheduled and the actual time of every launch and
/// splash.
fn assert_lateness_is_recorded(outcome: &Outcome) {
    let recording = Recording::open(&outcome.recording).unwrap();
    let marks = recording.marks().unwrap();
    let done = |kind, id| {
        let mut found = marks
            .iter()
            .filter(|mark| mark.kind == kind && mark.id == id);
        let mark = found.next().expect("every launch and splash has its mark");
        assert!(found.next().is_none(), "and only one");
        (outcome.seconds(mark.tsc), mark.value)
    };
    let mut worst: f64 = 0.0;
    for instrument in &recording.metadata().instruments {
        for (kind, scheduled) in [
            (MarkKind::Launch, instrument.launch),
            (MarkKind::Splash, instrument.splash),
        ] {
            let (done, took) = done(kind, instrument.id);
            let switches = &outcome.summary.switches;
            let switch = switches
                .iter()
                .find(|switch| (switch.done - done).abs() < 1e-6);
            let switch = switch.expect("a mark is at the end of a batch");
            let ticks = (switch.done - switch.begun) * outcome.summary.clock.hz as f64;
            assert!(
                (switch.scheduled - scheduled).abs() < 1e-9
                    && done >= scheduled
                    && (ticks - took as f64).abs() < 1e3
            );
            worst = worst.max(done - scheduled);
        }
    }
    println!(
        "the latest launch or splash was done {:.1} ms after it was due",
        worst * 1e3
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_demonstration_session_samples_every_fork() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/sessions/pulsar.ron");
    let text = std::fs::read_to_string(file).unwrap();
    let mut session =
        gilk_engine::Session::from_ron(&text).unwrap_or_else(|error| panic!("{error}"));
    let shared = shared();
    if shared.image.function_named("__lock_acquire").is_ok() {
        // Lockdep takes part in an int3, and may allocate memory there: a splice in what that calls is refused.
        let placements = session.placements.len();
        session
            .placements
            .retain(|placement| *placement.function != *"schedule");
        assert_eq!(session.placements.len(), placements - 1);
    }
    let turn = shared.turn();
    let outcome = turn.run(&session);
    let whole = session.placements.iter().position(|placement| {
        *placement.function == *FORK
            && placement.launch == 0.0
            && placement.splash == session.duration
    });
    let whole = whole.expect("one instrument of the demonstration lasts all its time");
    assert_eq!(
        outcome.times(whole).len(),
        160,
        "Pulsar printed {:?}",
        outcome.said
    );
    turn.assert_untouched();
}
