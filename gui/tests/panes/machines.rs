//! Additional machines, by accessibility names; with labs in `live`.

use std::path::Path;
use std::time::Duration;

use crate::support::{
    Window, browsing, click, fill, run_command, settle, until, until_within, window,
};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_gui::args::Start;
use gilk_gui::state::TargetState;
use gilk_samples::joined::Joined;
use gilk_samples::recording::Recording;
use ilk_driver::lab::{Lab, Options, prepare};

/// Adds machines with the dialog.
fn add(harness: &mut Window, machines: &str) {
    run_command(harness, "add machines");
    fill(harness, "Path", machines);
    harness.get_by_label("Connect").click();
    harness.run_steps(3);
}

fn lost(harness: &mut Window, name: &str) {
    let name = name.to_owned();
    until(harness, "the machine is lost", move |state| {
        let mut beside = state.machines.others.iter();
        beside.any(|one| one.name() == name && matches!(one.target, TargetState::Lost(_)))
    });
    harness.run_steps(3);
}

#[test]
fn unreachable_machines_are_reported_reconnected_and_removed() {
    let mut harness = browsing("kernel_clone");
    assert!(harness.query_by_label_contains("machine web").is_none());
    add(&mut harness, "web=/nowhere/web.sock, db=/nowhere/db.sock");
    for name in ["web", "db"] {
        lost(&mut harness, name);
        harness.get_by_label(&format!("machine {name}: lost"));
    }
    // A notice has the reason.
    let notices = &harness.state().state().notices;
    let reason = |name: &str| {
        let path = format!("/nowhere/{name}.sock");
        notices.iter().any(|notice| notice.words.contains(&path))
    };
    assert!(reason("web") && reason("db"), "{notices:?}");

    // A second machine with the same address is rejected.
    add(&mut harness, "web=/nowhere/web.sock");
    harness.get_by_label_contains("web is already connected");
    assert_eq!(harness.state().state().machines.others.len(), 2);

    let before = harness.state().state().machines.others[0].number;
    click(&mut harness, "reconnect to web");
    assert_ne!(harness.state().state().machines.others[0].number, before);
    lost(&mut harness, "web");

    click(&mut harness, "remove web");
    assert!(harness.query_by_label_contains("machine web").is_none());
    click(&mut harness, "remove db");
    assert!(harness.state().state().machines.others.is_empty());
    // The target is unchanged.
    let state = harness.state().state();
    assert!(matches!(state.target, TargetState::Offline));
}

#[test]
fn invalid_machines_are_rejected_and_the_first_becomes_the_target() {
    let mut harness = window(Start::default(), [1200.0, 800.0]);
    harness.run_steps(3);
    add(&mut harness, "root@web1,,x");
    harness.get_by_label_contains("is not a machine; write user@machine");
    assert!(harness.state().state().machines.others.is_empty());

    add(&mut harness, "a=/nowhere/a.sock, b=/nowhere/b.sock");
    lost(&mut harness, "b");
    until(&mut harness, "the target is lost too", |state| {
        matches!(state.target, TargetState::Lost(_))
    });
    assert_eq!(harness.state().state().machines.others.len(), 1);
}

const MINUTES: Duration = Duration::from_secs(900);

mod live {
    use super::*;

    /// Waits until a run has lasted for some seconds.
    fn runs(harness: &mut Window, seconds: f64) {
        until_within(harness, MINUTES, "it runs", |state| {
            state
                .run
                .active
                .as_ref()
                .is_some_and(|active| active.elapsed() > seconds)
        });
    }

    fn over(harness: &mut Window) {
        until_within(harness, MINUTES, "the session is over and read", |state| {
            let record = state.timeline.record.as_ref();
            state.run.active.is_none()
                && state.reading.is_none()
                && record.is_some_and(|record| record.now.is_none())
        });
        harness.run_steps(6);
    }

    #[test]
    #[ignore = "boots the lab twice; cargo xtask test runs it"]
    fn a_session_on_two_machines_survives_the_loss_of_one() {
        let prepared = prepare(&Options::default(), &mut |_| ()).unwrap();
        let left = Lab::boot(&prepared, &mut |_| ()).unwrap();
        let right = Lab::boot(&prepared, &mut |_| ()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let session = folder.path().join("forks.ron");
        std::fs::write(
            &session,
            r#"(version: 1, name: "forks", duration: 12.0, workload: Some((program: "/bin/pulsar", arguments: ["500"], start: 0.5)), placements: [
                (function: "__x64_sys_clone", block: 0, hook: Pre, instrument: "timestamp", launch: 0.0, splash: 12.0)])"#,
        )
        .unwrap();
        let target = vec![
            format!("left={}", left.socket().display()).parse().unwrap(),
            format!("right={}", right.socket().display())
                .parse()
                .unwrap(),
        ];
        let start = Start {
            target,
            session: Some(session),
            function: Some("__x64_sys_clone".into()),
            block: Some(0),
            ..Start::default()
        };
        let mut harness = window(start, [1500.0, 950.0]);
        harness.run_steps(3);
        until_within(&mut harness, MINUTES, "both are connected", |state| {
            matches!(state.target, TargetState::Ready(_))
                && state
                    .machines
                    .others
                    .iter()
                    .all(|one| one.outcome.is_some())
                && state.document.path().is_some()
        });
        settle(&mut harness);
        harness.get_by_label_contains("machine left: Linux ");
        harness.get_by_label_contains("machine right: Linux ");
        let recording = folder.path().join("forks.arrow").display().to_string();
        fill(&mut harness, "Recording path", &recording);
        let hindrance = harness.state().state().run_hindrance();
        assert_eq!(hindrance, None);

        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        until_within(&mut harness, MINUTES, "samples of both come", |state| {
            let Some(record) = &state.timeline.record else {
                return false;
            };
            let lanes = record.lanes();
            record.now.is_some()
                && lanes.len() == 2
                && lanes.iter().all(|lane| record.hits(lane) > 40)
        });
        harness.run_steps(3);
        harness.get_by_label_contains("lane left: timestamp pre __x64_sys_clone block 0: ");
        harness.get_by_label_contains("lane right: timestamp pre __x64_sys_clone block 0: ");
        // The error bound of the times is shown during the run and after it.
        let stated = |harness: &Window, name: &str| {
            let name = format!("machine {name}: ");
            let label = harness.get_by_label_contains(&name);
            let label = label.accesskit_node().value().unwrap();
            println!("{label}");
            assert!(label.contains(" samples · ±"), "{label}");
        };
        stated(&harness, "left");
        over(&mut harness);
        stated(&harness, "right");

        // Each machine has its own recording, and the timeline shows both.
        let fleet = folder.path().join("forks");
        let paths = ["left", "right"].map(|name| fleet.join(format!("{name}.arrow")));
        let joined = Joined::open(&paths).unwrap();
        assert_eq!(joined.samples(), 320, "5 rounds of 32 forks on each");
        let machines = &joined.metadata().machines;
        let errors: Vec<u64> = machines.iter().map(|one| one.error_ns.unwrap()).collect();
        let apart = machines[0]
            .start_unix_ns
            .abs_diff(machines[1].start_unix_ns);
        println!("second 0 is {apart} ns apart; times are accurate to {errors:?} ns");
        assert!(
            apart <= 2 * errors.iter().sum::<u64>(),
            "{apart} apart, {errors:?}"
        );
        let record = harness.state().state().timeline.record.as_ref().unwrap();
        assert_eq!(*record.metadata, joined.measured().unwrap());
        assert_eq!(record.index.look().samples(), 320);
        harness.get_by_label("lane left: timestamp pre __x64_sys_clone block 0: 160");
        harness.get_by_label("lane right: timestamp pre __x64_sys_clone block 0: 160");

        lanes_by_thread_appear_during_the_run(&mut harness);

        // Another run, during which one machine fails.
        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        runs(&mut harness, 1.0);
        drop(right);
        until_within(&mut harness, MINUTES, "the loss is reported", |state| {
            let mut notices = state.notices.iter();
            notices.any(|notice| notice.words.starts_with("right: "))
        });
        assert!(
            harness.state().state().run.active.is_some(),
            "the session continues on the other machine"
        );
        over(&mut harness);
        harness.get_by_label_contains("machine right: lost");
        let alone = fleet.with_file_name("forks-3");
        let recorded = Joined::open(&[alone.join("left.arrow")]).unwrap();
        assert_eq!(recorded.samples(), 160);
        harness.run_steps(4);
        let state = harness.state().state();
        let mut notices = state.notices.iter().chain(&state.log);
        let words = "The session finished on 1 of 2 machines: 160 samples are in";
        assert!(
            notices.any(|notice| notice.words.contains(words)),
            "{:#?}",
            state.notices
        );
        // No session starts on all machines until the lost one is removed.
        let hindrance = harness.state().state().run_hindrance().unwrap();
        assert!(hindrance.starts_with("right is lost; "), "{hindrance}");
        click(&mut harness, "remove right");
        assert_eq!(harness.state().state().run_hindrance(), None);

        a_screen_that_stalls_costs_nothing_but_time(&mut harness, folder.path());
        harness.state_mut().end();
    }

    /// Another run, with lanes by thread of each machine.
    fn lanes_by_thread_appear_during_the_run(harness: &mut Window) {
        click(harness, "lanes by thread");
        let no_threads = "This recording has no running threads.";
        harness.get_by_label_contains(no_threads);
        click(harness, "Record running threads");
        until(harness, "the session can be run", |state| {
            state.run_hindrance().is_none()
        });
        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        let thread_lanes = |harness: &Window, name: &str| {
            let lane = "timestamp pre __x64_sys_clone block 0 of ";
            let lane = format!("lane {name}: {lane}");
            let found = harness.query_all_by_label_contains(&lane);
            let whole = found.filter(|node| {
                let label = node.accesskit_node().value().unwrap_or_default();
                // A thread that is named has its number and its machine in parentheses.
                let numbered = [format!(" of {name}: "), format!(" of {name}): ")];
                label.contains("thread ") && numbered.iter().any(|words| label.contains(words))
            });
            whole.count()
        };
        until_within(harness, MINUTES, "samples of both come", |state| {
            let lanes = |record: &gilk_gui::timeline::Record| {
                let forks = record
                    .lanes()
                    .iter()
                    .filter(|lane| lane.instrument == "timestamp");
                forks.clone().count() == 2 && forks.clone().all(|lane| record.hits(lane) > 40)
            };
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.now.is_some() && lanes(record))
        });
        // There are many threads; those that forked must be visible.
        harness.set_size(egui::vec2(1500.0, 90_000.0));
        harness.run_steps(4);
        assert!(
            harness.state().state().run.active.is_some(),
            "it still runs"
        );
        assert!(harness.query_by_label_contains(no_threads).is_none());
        let threads = [
            thread_lanes(harness, "left"),
            thread_lanes(harness, "right"),
        ];
        println!("{threads:?} threads forked on each machine");
        assert!(threads.iter().all(|count| *count > 0), "{threads:?}");
        harness.set_size(egui::vec2(1500.0, 950.0));
        over(harness);
        assert!(harness.query_by_label_contains(no_threads).is_none());
        click(harness, "lanes by order");
        harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::Z);
        until(harness, "the session is as it was", |state| {
            state.document.session().placements.len() == 1 && state.run_hindrance().is_none()
        });
        settle(harness);
    }

    /// Samples every tick of every CPU for some seconds, during which the window does not draw and
    /// its index is locked.
    fn a_screen_that_stalls_costs_nothing_but_time(harness: &mut Window, folder: &Path) {
        let session = folder.join("ticks.ron");
        let text = r#"(version: 1, name: "ticks", duration: 6.0, placements: [
            (function: "update_process_times", block: 0, hook: Pre, instrument: "timestamp", launch: 0.0, splash: 6.0)])"#;
        std::fs::write(&session, text).unwrap();
        harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
        harness.run_steps(3);
        fill(harness, "Path", &session.display().to_string());
        click(harness, "Open");
        until(harness, "the session can be run", |state| {
            state.document.session().name == "ticks" && state.run_hindrance().is_none()
        });
        fill(
            harness,
            "Recording path",
            &folder.join("ticks.arrow").display().to_string(),
        );
        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        runs(harness, 0.5);
        let state = harness.state().state();
        let active = state.run.active.as_ref().unwrap();
        let (index, status) = (active.index.clone(), active.status.clone());
        let still = index.look();
        std::thread::sleep(Duration::from_secs(4));
        drop(still);
        over(harness);
        let missed = status.look().missed;
        println!("{missed} samples were dropped from the window");
        assert!(missed > 0, "the stall was too short");
        let state = harness.state().state();
        let summary = state.run.last.as_ref().expect("the run ended well");
        assert_eq!((summary.missing, summary.lost()), (0, 0));
        let recording = Recording::open(folder.join("ticks.arrow")).unwrap();
        assert_eq!(recording.samples(), summary.taken);
        // The window has read the dropped samples from the recording.
        let record = state.timeline.record.as_ref().unwrap();
        assert_eq!(record.index.look().samples(), summary.taken);
    }
}
