//! A process of this machine as the target: chosen in the list or started, instrumented, and left.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::state::{State, TargetState};
use gilk_samples::recording::Recording;

use crate::support::{Window, click, fill, run_command, settle, until, until_within, window};

/// All objects of a program are read and analysed, perhaps on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Lines that `cat` copies, with a call of `write` for each.
const LINES: u64 = 10;

/// `cat`, which ends with this.
pub(crate) struct Cat {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Cat {
    pub(crate) fn start() -> Self {
        Self::of(Command::new("cat"))
    }

    /// Starts a program that copies lines as `cat` does.
    pub(crate) fn of(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut cat = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        // Its libraries are mapped, and its thread is registered, once it copies.
        cat.copy("begun");
        cat
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn copy(&mut self, words: &str) {
        // In one write: cat copies what it reads at once.
        self.input
            .write_all(format!("{words}\n").as_bytes())
            .unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), words);
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

/// A window with a session that counts the calls of `write`.
fn counting(folder: &Path) -> Window {
    let session = folder.join("writes.ron");
    std::fs::write(
        &session,
        r#"(version: 1, name: "writes", duration: 600.0, placements: [
            (function: "libc.so.6:write", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0)])"#,
    )
    .unwrap();
    let start = Start {
        session: Some(session),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is open", |state| {
        state.document.path().is_some()
    });
    harness
}

/// Waits for a process to be the target.
pub(crate) fn read(harness: &mut Window) {
    until_within(harness, PATIENCE, "the process is read", |state| {
        if let TargetState::Lost(why) = &state.target {
            panic!("{why}");
        }
        matches!(state.target, TargetState::Ready(_))
    });
    settle(harness);
}

fn ready(harness: &mut Window) {
    read(harness);
    until_within(harness, PATIENCE, "the session can be run", |state| {
        state.run_hindrance().is_none()
    });
    harness.run_steps(3);
}

/// Begins a run, and returns the path of its recording.
fn begin(harness: &mut Window, folder: &Path) -> PathBuf {
    let recording = folder.join("writes.arrow");
    fill(harness, "Recording path", &recording.display().to_string());
    harness.get_by_label("Run session").click();
    harness.run_steps(2);
    recording
}

fn has_ended(state: &State) -> bool {
    state.run.active.is_none()
}

/// Checks the counts of the last run, in the window and in its recording.
fn counted(harness: &Window, recording: &Path, calls: u64) {
    let last = &harness.state().state().run.last;
    let last = last.as_ref().expect("the run ended well");
    let totals: Vec<_> = last.instruments.iter().map(|one| one.total).collect();
    assert_eq!(totals, [Some(calls)]);
    let recording = Recording::open(recording).unwrap();
    assert!(recording.samples() > 0 && recording.recovered().is_none());
}

#[test]
fn a_listed_process_is_instrumented_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let pid = cat.child.id();
    let mut harness = counting(folder.path());
    run_command(&mut harness, "process…");
    until(&mut harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    fill(&mut harness, "Filter of processes", &pid.to_string());
    harness.run_steps(3);
    click(&mut harness, &format!("process {pid}: cat"));
    ready(&mut harness);
    harness.get_by_label_contains(&format!("of process {pid} ·"));

    let recording = begin(&mut harness, folder.path());
    until_within(&mut harness, PATIENCE, "it is instrumented", |state| {
        assert!(state.run.active.is_some(), "{:?}", state.notices);
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_some())
    });
    for number in 0..LINES {
        cat.copy(&format!("line {number}"));
    }
    harness.get_by_label("Stop run").click();
    harness.run_steps(2);
    until_within(&mut harness, PATIENCE, "it is left", has_ended);
    counted(&harness, &recording, LINES);
    cat.copy("still the same program");

    // Its end is noticed.
    drop(cat);
    until_within(&mut harness, PATIENCE, "the process is lost", |state| {
        matches!(state.target, TargetState::Lost(_))
    });
}

#[test]
fn a_program_is_instrumented_before_its_first_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = counting(folder.path());
    run_command(&mut harness, "program…");
    fill(&mut harness, "Path", "cat /proc/self/comm");
    click(&mut harness, "Start");
    ready(&mut harness);
    let recording = begin(&mut harness, folder.path());
    until_within(&mut harness, PATIENCE, "the program ends", has_ended);
    counted(&harness, &recording, 1);
    let last = harness.state().state().run.last.as_ref().unwrap();
    let end = last.workload.as_deref().unwrap_or_default();
    assert!(end.ends_with("exit status: 0"), "{end:?}");
}
