//! Libraries that are loaded while a session runs: in a program that the process executes, in all processes of a program, and
//! in a program that the window starts.

use std::path::Path;
use std::process::Command;

use egui::{Key, Modifiers};

use crate::every::open;
use crate::loading::{CALLS, Files};
use crate::processes::{PATIENCE, read};
use crate::starting::{Starting, begin, choose, end, no_trouble, opened, until_counts};
use crate::support::{
    Window, click, fill, press, run_command, scroll_to, until_within, window_of_session,
};

/// Calls `counted` once, loads the library that is its first argument and calls `work` of that 100 times; executes itself. With
/// a second argument, does the former once.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) int counted(int value) { return value + 1; }
static int works(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    void (*work)(int) = library ? (void (*)(int))dlsym(library, "work") : 0;
    for (int done = 0; work && done < 100; done++) work(done);
    return counted(0) && work;
}
int main(int count, char **arguments) {
    char line[16];
    if (count > 2) return !works(arguments[1]);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 'e') execv("/proc/self/exe", arguments);
        puts(line[0] == 'l' && works(arguments[1]) ? "loaded" : "failed");
        fflush(stdout);
    }
    return 0;
}
"#;
const SESSION: &str = r#"(version: 1, name: "calls", duration: 600.0, placements: [
    (function: "counted", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0),
    (function: "libwork.so:work", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0)])"#;

/// Compiles the program and the library, and writes the session beside them.
fn files() -> Files {
    let files = Files::compiled(PROGRAM);
    std::fs::write(files.path("calls.ron"), SESSION).unwrap();
    files
}

fn start(files: &Files) -> Starting {
    let mut command = Command::new(files.path("loads"));
    command.arg(files.path("libwork.so"));
    Starting::of_command(command)
}

/// Waits until a measurement of a run is recorded.
fn recorded(harness: &mut Window, recording: &Path, number: u32) {
    let part = recording.with_extension("parts");
    let part = part.join(format!("{number}.arrow"));
    until_within(harness, PATIENCE, "it is instrumented", |state| {
        no_trouble(state);
        part.exists()
    });
}

/// The counts of a run at its end.
fn counts(counted: &[(u64, String)]) -> Vec<u64> {
    counted.iter().map(|(calls, _)| *calls).collect()
}

#[test]
fn a_library_is_followed_in_the_program_that_the_process_executes() {
    let files = files();
    let mut process = start(&files);
    let mut harness = opened(&files.path("calls.ron"), &process);
    scroll_to(&mut harness, "Session options");
    click(&mut harness, "Session options");
    choose(&mut harness, "Executed programs", "is measured, too");
    let recording = files.path("calls.arrow");
    begin(&mut harness, &recording);
    process.does("l", "loaded");
    until_counts(&mut harness, &[1, CALLS]);
    process.does("e", "ready");
    recorded(&mut harness, &recording, 1);
    process.does("l", "loaded");
    until_counts(&mut harness, &[1, 1, CALLS, CALLS]);
    let (counted, ended) = end(&mut harness);
    assert_eq!(counts(&counted), [1, 1, CALLS, CALLS]);
    assert_eq!(
        ended.matches("libwork.so was loaded once.").count(),
        2,
        "{ended}"
    );
}

#[test]
fn a_library_is_followed_in_all_processes_of_a_program() {
    let files = files();
    let mut processes = vec![start(&files), start(&files)];
    let mut harness = window_of_session(files.path("calls.ron"));
    open(&mut harness, &files.path("loads"));
    read(&mut harness);
    let recording = files.path("calls.arrow");
    begin(&mut harness, &recording);
    recorded(&mut harness, &recording, 1);
    recorded(&mut harness, &recording, 2);
    processes[0].does("l", "loaded");
    processes.push(start(&files));
    recorded(&mut harness, &recording, 3);
    processes[2].does("l", "loaded");
    until_counts(&mut harness, &[0, 1, 1, CALLS, CALLS]);
    processes[1].does("l", "loaded");
    until_counts(&mut harness, &[1, 1, 1, CALLS, CALLS, CALLS]);
    let (counted, ended) = end(&mut harness);
    assert_eq!(counts(&counted), [1, 1, 1, CALLS, CALLS, CALLS]);
    assert!(ended.contains("3 processes of"), "{ended}");
}

#[test]
fn a_library_is_followed_in_a_program_that_the_window_starts() {
    let files = files();
    let mut harness = window_of_session(files.path("calls.ron"));
    run_command(&mut harness, "program…");
    let (program, library) = (files.path("loads"), files.path("libwork.so"));
    let line = format!("{} {} once", program.display(), library.display());
    fill(&mut harness, "Path", &line);
    click(&mut harness, "Start");
    read(&mut harness);
    let recording = files.path("calls.arrow");
    scroll_to(&mut harness, "Recording path");
    fill(
        &mut harness,
        "Recording path",
        &recording.display().to_string(),
    );
    until_within(&mut harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    press(&mut harness, Modifiers::NONE, Key::F5);
    until_within(&mut harness, PATIENCE, "the program has ended", |state| {
        no_trouble(state);
        state.run.active.is_none() && state.run.last.is_some()
    });
    let last = harness.state().state().run.last.as_ref().unwrap();
    let totals: Vec<_> = last.instruments.iter().map(|one| one.total).collect();
    assert_eq!(totals, [Some(1), Some(CALLS)]);
    assert!(
        last.ended.contains("libwork.so was loaded once."),
        "{}",
        last.ended
    );
    let status = last.workload.as_deref().unwrap_or_default();
    assert!(status.ends_with("exit status: 0"), "{status:?}");
}
