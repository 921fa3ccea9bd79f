//! The whole workflow on the lab, a stock kernel in a virtual machine, from a click to a recording.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{click, fill, until, until_within, window};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_gui::app::App;
use gilk_gui::args::Start;
use gilk_gui::state::{State, TargetState};
use gilk_samples::recording::Recording;

/// Runs frames until a condition holds, for as long as a lab may take.
fn patiently(harness: &mut Harness<'_, App>, what: &str, so: impl Fn(&State) -> bool) {
    until_within(harness, Duration::from_secs(900), what, |state| {
        if let TargetState::Lost(why) = &state.target {
            panic!("{what}: {why}");
        }
        so(state)
    });
}

/// Opens the recording of 160 forks by its path.
fn open_recording(harness: &mut Harness<'_, App>, recording: &Path) {
    harness.key_press_modifiers(
        egui::Modifiers::COMMAND | egui::Modifiers::SHIFT,
        egui::Key::O,
    );
    harness.run_steps(3);
    fill(harness, "Path", &recording.display().to_string());
    click(harness, "Open");
    until(harness, "the recording is open", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.index.look().samples() == 160)
    });
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn forks_of_a_workload_are_recorded_saved_and_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("forks.ron");
    std::fs::write(
        &session,
        r#"(version: 1, name: "forks", duration: 8.0, workload: Some((program: "/bin/pulsar", arguments: ["500"], start: 0.5)), placements: [])"#,
    )
    .unwrap();
    let start = Start {
        lab: true,
        session: Some(session),
        function: Some("__x64_sys_clone".into()),
        block: Some(0),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    harness.run_steps(3);
    harness.get_by_label("Target progress");
    patiently(&mut harness, "the lab is connected", |state| {
        matches!(state.target, TargetState::Ready(_))
            && state.graph.scene.is_some()
            && state.document.path().is_some()
    });
    assert!(
        harness
            .get_by_label("Run session")
            .accesskit_node()
            .is_disabled(),
        "there is no instrument yet"
    );

    // The console shows the kernel's output.
    click(&mut harness, "Console tab");
    harness.get_by_label_contains("gilk-lab: ready");
    click(&mut harness, "Timeline tab");

    let listed = |harness: &Harness<'_, App>| harness.state().state().functions.found.len();
    let all = listed(&harness);
    click(&mut harness, "list functions of loaded modules");
    patiently(&mut harness, "those of modules are listed", |state| {
        (1..all / 2).contains(&state.functions.found.len())
    });
    click(&mut harness, "list every function");
    patiently(&mut harness, "all are listed again", |state| {
        state.functions.found.len() == all
    });

    click(&mut harness, "block 0 of __x64_sys_clone");
    click(&mut harness, "Add instrument");
    let recording: PathBuf = folder.path().join("deep/forks.arrow");
    fill(
        &mut harness,
        "Recording path",
        &recording.display().to_string(),
    );
    assert!(
        !harness
            .get_by_label("Run session")
            .accesskit_node()
            .is_disabled()
    );
    harness.get_by_label("Run session").click();
    harness.run_steps(2);
    patiently(&mut harness, "samples arrive while it runs", |state| {
        state.run.active.is_some()
            && state
                .timeline
                .record
                .as_ref()
                .is_some_and(|record| record.index.look().samples() > 40)
    });
    patiently(&mut harness, "the session is over", |state| {
        state.run.active.is_none()
    });
    let state = harness.state().state();
    let summary = state.run.last.as_ref().expect("the run ended well");
    assert_eq!((summary.missing, summary.lost()), (0, 0));
    let record = state.timeline.record.as_ref().unwrap();
    assert_eq!(record.index.look().samples(), 160, "5 rounds of 32 forks");
    harness.run_steps(3);
    harness.get_by_label("block 0 was hit 160 times");
    let opened = Recording::open(&recording).unwrap();
    assert_eq!((opened.samples(), opened.recovered()), (160, None));

    // A second run, stopped: it ends early, and the first recording still exists.
    harness.get_by_label("Run session").click();
    harness.run_steps(2);
    patiently(&mut harness, "it runs", |state| {
        state
            .run
            .active
            .as_ref()
            .is_some_and(|active| active.elapsed() > 1.0)
    });
    harness.get_by_label("Schedule tab").click();
    harness.run_steps(3);
    let before = harness.get_by_label("current time").rect().center().x;
    std::thread::sleep(Duration::from_millis(500));
    harness.run_steps(3);
    let now = harness.get_by_label("current time").rect().center().x;
    assert!(now > before, "the line moves: {before}, {now}");
    harness.get_by_label("Stop run").click();
    harness.run_steps(2);
    patiently(&mut harness, "it is stopped", |state| {
        state.run.active.is_none()
    });
    let stopped = harness
        .state()
        .state()
        .run
        .last
        .as_ref()
        .expect("the run ended well");
    assert!(stopped.stopped);
    assert_eq!(
        stopped.recording.path,
        folder.path().join("deep/forks-2.arrow")
    );
    assert_eq!(Recording::open(&recording).unwrap().samples(), 160);

    // The recording shows the same samples from disk.
    open_recording(&mut harness, &recording);

    // The session is saved and reopened unchanged, and its graph exported.
    let saved = harness.state().state().document.session().clone();
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::S);
    until(&mut harness, "the session is saved", |state| {
        !state.document.unsaved()
    });
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::N);
    until(&mut harness, "it is closed", |state| {
        state.document.session().placements.is_empty()
    });
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
    harness.run_steps(3);
    let session = folder.path().join("forks.ron");
    fill(&mut harness, "Path", &session.display().to_string());
    click(&mut harness, "Open");
    until(&mut harness, "it is open again", |state| {
        state.document.path().is_some()
    });
    assert_eq!(harness.state().state().document.session(), &saved);
    // A new session closes the recording of the last.
    assert!(harness.state().state().timeline.record.is_none());
    open_recording(&mut harness, &recording);
    harness.key_press_modifiers(
        egui::Modifiers::COMMAND | egui::Modifiers::SHIFT,
        egui::Key::P,
    );
    harness.run_steps(3);
    harness
        .get_by_label("Find command")
        .type_text("export graph");
    harness.run_steps(3);
    harness.key_press(egui::Key::Enter);
    harness.run_steps(3);
    let picture = folder.path().join("clone.svg");
    fill(&mut harness, "Path", &picture.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "the graph is written", |_| picture.exists());

    // A machine lost while idle is reported at once, and no data is lost.
    kill_the_lab();
    let began = Instant::now();
    until(&mut harness, "the loss is seen", |state| {
        matches!(state.target, TargetState::Lost(_))
    });
    assert!(began.elapsed() < Duration::from_secs(10));
    harness.run_steps(3);
    harness.get_by_label("target lost");
    let state = harness.state().state();
    assert_eq!(state.document.session(), &saved);
    assert_eq!(
        state
            .timeline
            .record
            .as_ref()
            .unwrap()
            .index
            .look()
            .samples(),
        160
    );

    // Another lab boots in its place, and the session runs on it.
    click(&mut harness, "Reconnect");
    patiently(&mut harness, "the lab is connected again", |state| {
        matches!(state.target, TargetState::Ready(_)) && state.run_hindrance().is_none()
    });
    assert_eq!(harness.state().state().document.session(), &saved);
    harness.get_by_label("Run session").click();
    harness.run_steps(2);
    patiently(&mut harness, "its samples arrive", |state| {
        let record = state.timeline.record.as_ref();
        state.run.active.is_some()
            && record
                .is_some_and(|record| record.now.is_some() && record.index.look().samples() > 40)
    });
    harness.get_by_label("Stop run").click();
    patiently(&mut harness, "it is stopped", |state| {
        state.run.active.is_none()
    });
    harness.state_mut().end();
}

/// Kills the virtual machine started by this process, like a power failure.
fn kill_the_lab() {
    let own = std::process::id().to_string();
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        let parent = tail.split_whitespace().nth(1);
        if head.contains("qemu") && parent == Some(own.as_str()) {
            let process = entry.file_name().into_string().unwrap().parse().unwrap();
            // SAFETY: a signal to a child that this process has not waited for yet touches no memory of ours.
            #[allow(unsafe_code, reason = "kill(2)")]
            let outcome = unsafe { libc::kill(process, libc::SIGKILL) };
            killed += usize::from(outcome == 0);
        }
    }
    assert_eq!(killed, 1, "the lab is one process of this one");
}

/// Clicks, and counts the clicks.
struct Clicker(usize);

impl Clicker {
    fn click(&mut self, harness: &mut Harness<'_, App>, name: &str) {
        self.0 += 1;
        harness.get_by_label(name).click();
        harness.run_steps(3);
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_slowest_system_call_is_found_with_three_clicks() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = window(Start::default(), [1500.0, 950.0]);
    harness.run_steps(3);
    let (began, mut clicks) = (Instant::now(), Clicker(0));
    clicks.click(&mut harness, "Which system calls are slow?");
    patiently(
        &mut harness,
        "the session of the question is planned",
        |state| {
            state.document.session().name == "slow-system-calls" && state.run_hindrance().is_none()
        },
    );
    let ready = began.elapsed();
    harness.state_mut().state_mut().run.path =
        folder.path().join("slow.arrow").display().to_string();
    harness.run_steps(3);
    clicks.click(&mut harness, "Run session");
    patiently(&mut harness, "the run has ended", |state| {
        state.run.active.is_none() && state.run.last.is_some()
    });
    patiently(&mut harness, "the table has its rows", |state| {
        state.statistics.rows.iter().any(|row| row.count > 0)
            && state
                .timeline
                .record
                .as_ref()
                .is_some_and(|one| one.now.is_none())
    });
    harness.run_steps(5);
    let rows = harness.state().state().statistics.shown();
    let slowest = rows.first().unwrap();
    let label = format!("{} {}: ", slowest.function, slowest.instrument);
    let largest = slowest.values.as_ref().map(|values| values.max);
    assert!(slowest.function.starts_with("__x64_sys_"), "{label}");
    let others = rows.iter().filter_map(|row| row.values.as_ref());
    assert_eq!(others.map(|values| values.max).max(), largest);
    clicks.0 += 1;
    harness.get_by_label_contains(&label).click();
    harness.run_steps(3);
    harness.get_by_label_contains("histogram of __x64_sys_");
    assert!(clicks.0 <= 6);
    // For the notes; no time is asserted on a shared machine.
    eprintln!(
        "{} clicks, {:.1} s, of which {:.1} s to the plan on a booted lab",
        clicks.0,
        began.elapsed().as_secs_f32(),
        ready.as_secs_f32()
    );
}
