//! All processes of a program: those of now, and one that begins during the run.

use std::path::Path;

use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::state::TargetState;
use gilk_samples::recording::Recording;

use crate::processes::{PATIENCE, read};
use crate::starting::{SESSION, Starting, begin, compiled, end, no_trouble, until_counts};
use crate::support::{
    Window, click, fill, run_command, until, until_within, window, window_of_session,
};

pub(crate) fn open(harness: &mut Window, program: &Path) {
    run_command(harness, "all processes of a program");
    fill(harness, "Path", &program.display().to_string());
    click(harness, "Open");
}

fn counting(session: &Path) -> Window {
    std::fs::write(session, SESSION).unwrap();
    window_of_session(session.to_path_buf())
}

#[test]
fn all_processes_of_a_program_are_counted_those_too_that_begin_during_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut processes = vec![Starting::of(&program), Starting::of(&program)];
    let mut harness = counting(&folder.path().join("calls.ron"));
    open(&mut harness, &program);
    read(&mut harness);
    // That of the newest is shown.
    let newest = format!("of process {} ·", processes[1].pid());
    harness.get_by_label_contains(&newest);

    let recording = folder.path().join("calls.arrow");
    begin(&mut harness, &recording);
    let recorded = |harness: &mut Window, number: u32| {
        let part = recording.with_extension("parts");
        let part = part.join(format!("{number}.arrow"));
        until_within(harness, PATIENCE, "it is instrumented", |state| {
            no_trouble(state);
            part.exists()
        });
    };
    recorded(&mut harness, 1);
    recorded(&mut harness, 2);
    processes.push(Starting::of(&program));
    recorded(&mut harness, 3);
    for (process, times) in processes.iter_mut().zip(1..) {
        for _ in 0..times {
            process.does("c", "done");
        }
    }
    // Each has a lane while it runs.
    until_counts(&mut harness, &[10, 20, 30]);
    for (process, calls) in processes.iter().zip([10, 20, 30]) {
        let pid = process.pid();
        let lane = format!("lane process {pid}: counter pre counted block 0: {calls}");
        harness.get_by_label_contains(&lane);
    }
    let (counted, ended) = end(&mut harness);
    let expected: Vec<(u64, String)> = (1..)
        .zip(&processes)
        .map(|(times, process)| {
            let pid = process.pid();
            (
                10 * times,
                format!("process {pid}: counter pre counted block 0"),
            )
        })
        .collect();
    assert_eq!(counted, expected);
    let says = format!("3 processes of {} were measured.", program.display());
    assert_eq!(ended, says);
    until(&mut harness, "all lanes are shown", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.lanes().len() == 3)
    });
    let recording = Recording::open(recording).unwrap();
    assert_eq!(recording.metadata().instruments.len(), 3);
    for process in &mut processes {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap();
        assert!(!maps.contains("memfd:gilk"), "{maps}");
        process.does("c", "done");
    }

    // The target remains when the process ends that is shown.
    drop(processes.remove(1));
    harness.run_steps(3);
    begin(&mut harness, &folder.path().join("again.arrow"));
    let part = folder.path().join("again.parts");
    until_within(&mut harness, PATIENCE, "both are instrumented", |state| {
        no_trouble(state);
        part.join("2.arrow").exists()
    });
    let (counted, _) = end(&mut harness);
    assert_eq!(counted.len(), 2);
}

#[test]
fn a_program_without_processes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = window(Start::default(), [1500.0, 950.0]);
    open(&mut harness, &program);
    until_within(
        &mut harness,
        PATIENCE,
        "it is refused",
        |state| matches!(&state.target, TargetState::Lost(why) if why.starts_with("No process executes ")),
    );
}
