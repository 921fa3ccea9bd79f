//! Libraries that are loaded while a session runs: in a program that the process executes, in all processes of a program, and
//! in a program that the window starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use egui::{Key, Modifiers};
use gilk_gui::args::Start;

use crate::every::open;
use crate::processes::{PATIENCE, read};
use crate::starting::{Starting, begin, choose, end, no_trouble, opened, until_counts};
use crate::support::{
    Window, click, fill, press, run_command, scroll_to, until, until_within, window,
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
const LIBRARY: &str = "static volatile int sum;
__attribute__((noipa)) void work(int x) { if (x % 4 == 0) sum += x; sum++; }
__attribute__((constructor)) static void first(void) { work(1000); }
";
/// Calls of the library's function by a load, with that of its constructor.
const CALLS: u64 = 101;
const SESSION: &str = r#"(version: 1, name: "calls", duration: 600.0, placements: [
    (function: "counted", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0),
    (function: "libwork.so:work", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0)])"#;

/// A folder with the program, the library and the session.
struct Files(tempfile::TempDir);

impl Files {
    fn compiled() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        std::fs::write(files.path("calls.ron"), SESSION).unwrap();
        for (text, name, options) in [
            (PROGRAM, "loads", &[][..]),
            (LIBRARY, "libwork.so", &["-shared", "-fPIC"]),
        ] {
            let source = files.path("source.c");
            std::fs::write(&source, text).unwrap();
            let mut compiler = Command::new("cc");
            let compiler = compiler.args(["-O2", "-w", "-o"]);
            let compiler = compiler.args([&files.path(name), &source]).args(options);
            assert!(compiler.status().unwrap().success());
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self) -> Starting {
        let mut command = Command::new(self.path("loads"));
        command.arg(self.path("libwork.so"));
        Starting::of_command(command)
    }

    /// Opens a window with the session alone.
    fn window(&self) -> Window {
        let start = Start {
            session: Some(self.path("calls.ron")),
            ..Start::default()
        };
        let mut harness = window(start, [1500.0, 950.0]);
        until(&mut harness, "the session is open", |state| {
            state.document.path().is_some()
        });
        harness
    }
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
    let files = Files::compiled();
    let mut process = files.start();
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
    let files = Files::compiled();
    let mut processes = vec![files.start(), files.start()];
    let mut harness = files.window();
    open(&mut harness, &files.path("loads"));
    read(&mut harness);
    let recording = files.path("calls.arrow");
    begin(&mut harness, &recording);
    recorded(&mut harness, &recording, 1);
    recorded(&mut harness, &recording, 2);
    processes[0].does("l", "loaded");
    processes.push(files.start());
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
    let files = Files::compiled();
    let mut harness = files.window();
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
