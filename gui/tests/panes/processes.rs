//! A process of this machine as the target: chosen in the list or started, instrumented, and left.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::state::{State, TargetState};
use gilk_samples::recording::Recording;

use crate::support::{
    Window, button, click, fill, middle, run_command, settle, until, until_within, window,
    window_of_session,
};

/// All objects of a program are read and analysed, perhaps on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Lines that `cat` copies, with a call of `write` for each.
const LINES: u64 = 10;

/// An instrument of the session's own.
const CALLERS: &str = r#"
    instrument callers "Callers." unit "hits" value;
    hit { @by[ustack(2)] = count(); sample(ustack(2)) }"#;

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
    measuring(folder, "counter")
}

/// A window with a session that has an instrument at the calls of `write`.
fn measuring(folder: &Path, instrument: &str) -> Window {
    let session = folder.join("writes.ron");
    let text = format!(
        r#"(version: 1, name: "writes", duration: 600.0, sources: {{"callers": {CALLERS:?}}}, placements: [
            (function: "libc.so.6:write", block: 0, hook: Pre, instrument: "{instrument}", launch: 0.0, splash: 600.0)])"#
    );
    std::fs::write(&session, text).unwrap();
    window_of_session(session)
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

/// Makes a process of `cat` the target.
fn choose(harness: &mut Window, pid: u32) {
    list(harness, "process…", pid);
    ready(harness);
}

/// Makes a process of `cat` the target of splices, or of runs in the code cache with the session's instruments.
fn choose_way(harness: &mut Window, pid: u32, in_cache: bool) {
    if !in_cache {
        return choose(harness, pid);
    }
    list(harness, "process in the code cache", pid);
    read(harness);
    click(harness, "Measured in the cache");
    click(harness, "the session's instruments");
    ready(harness);
}

/// Chooses a process of `cat` from the list that a command opens.
fn list(harness: &mut Window, command: &str, pid: u32) {
    run_command(harness, command);
    until(harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    fill(harness, "Filter of processes", &pid.to_string());
    harness.run_steps(3);
    click(harness, &format!("process {pid}: cat"));
}

/// Begins a run, and returns the path of its recording.
fn begin(harness: &mut Window, folder: &Path) -> PathBuf {
    let recording = folder.join("writes.arrow");
    fill(harness, "Recording path", &recording.display().to_string());
    harness.get_by_label("Run session").click();
    harness.run_steps(2);
    recording
}

/// Has `cat` copy its lines once it is instrumented.
fn copy_within_run(harness: &mut Window, cat: &mut Cat) {
    until_within(harness, PATIENCE, "it is instrumented", |state| {
        assert!(state.run.active.is_some(), "{:?}", state.notices);
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_some())
    });
    for number in 0..LINES {
        cat.copy(&format!("line {number}"));
    }
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
    choose(&mut harness, pid);
    harness.get_by_label_contains(&format!("of process {pid} ·"));

    let recording = begin(&mut harness, folder.path());
    copy_within_run(&mut harness, &mut cat);
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
    settle(&mut harness);
    let state = harness.state().state();
    let ended = format!("Process {pid} has ended");
    let hindrance = state.run_hindrance().unwrap();
    assert!(hindrance.starts_with(&ended), "{hindrance}");
    // Its plan is that of a process, as before.
    let outcome = state.plan.outcome.as_ref().unwrap();
    assert!(outcome.is_ok(), "{:?}", outcome.as_ref().err());
}

#[test]
fn the_start_page_opens_a_process_by_a_click_anywhere_in_its_row() {
    let cat = Cat::start();
    let mut harness = window(Start::default(), [1200.0, 800.0]);
    harness.run_steps(4);
    click(&mut harness, "Process…");
    until(&mut harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    fill(&mut harness, "Filter of processes", &cat.pid().to_string());
    harness.run_steps(3);
    // Its number is at the row's other end from its command.
    let at = middle(&harness, &cat.pid().to_string());
    button(&mut harness, at, true);
    button(&mut harness, at, false);
    read(&mut harness);
    let chosen = format!("of process {} ·", cat.pid());
    harness.get_by_label_contains(&chosen);
}

#[test]
fn rates_of_a_run_that_lasts_are_those_of_the_time_up_to_now() {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let mut harness = measuring(folder.path(), "timestamp");
    choose(&mut harness, cat.pid());
    click(&mut harness, "Statistics tab");
    begin(&mut harness, folder.path());
    copy_within_run(&mut harness, &mut cat);
    until_within(
        &mut harness,
        PATIENCE,
        "the calls are in the table",
        |state| {
            assert!(state.run.active.is_some(), "{:?}", state.notices);
            let rows = &state.statistics.rows;
            rows.iter().map(|row| row.count).sum::<u64>() == LINES
        },
    );
    // Within the 600 s that are planned it would be this rate; the run lasts a part of them at most.
    let of_planned = LINES as f64 / 600.0;
    let rate = harness.state().state().statistics.rows[0].rate;
    assert!(rate > 1.5 * of_planned, "{rate} per second");
    harness.get_by_label("Stop run").click();
    harness.run_steps(2);
    until_within(&mut harness, PATIENCE, "it is left", has_ended);
}

#[test]
fn a_program_beside_a_process_is_refused_rather_than_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let cat = Cat::start();
    let mut harness = counting(folder.path());
    choose(&mut harness, cat.pid());
    click(&mut harness, "Run a program");
    let why = harness.state().state().run_hindrance().unwrap();
    assert!(why.contains("the target is a process"), "{why}");
    click(&mut harness, "Run a program");
    assert_eq!(harness.state().state().run_hindrance(), None);
}

/// The sizes of all writes, as the window has them.
fn sizes(state: &State) -> Vec<(String, u64)> {
    let record = state.timeline.record.as_ref();
    let totals = record.into_iter().flat_map(|record| &record.totals);
    let totals = totals.map(|total| (total.name.clone(), total.value.hits()));
    totals.collect()
}

#[test]
fn totals_are_shown_while_the_session_runs_and_are_those_of_its_end() {
    show_totals(false);
}

#[test]
fn totals_in_the_code_cache_are_shown_while_the_session_runs_and_are_those_of_its_end() {
    show_totals(true);
}

fn show_totals(in_cache: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let mut harness = measuring(folder.path(), "histogram");
    choose_way(&mut harness, cat.pid(), in_cache);
    let recording = begin(&mut harness, folder.path());
    let grown = |harness: &mut Window, calls| {
        until_within(harness, PATIENCE, "the totals are up to now", |state| {
            assert!(state.run.active.is_some(), "{:?}", state.notices);
            sizes(state) == [("values".to_owned(), calls)]
        });
        harness.run_steps(3);
        harness.get_by_label("Totals up to now");
        if calls > 0 {
            // A line has seven letters.
            harness.get_by_label(&format!("@values of histogram: 4 to 7: {calls}"));
        }
    };
    grown(&mut harness, 0);
    for calls in [LINES, 2 * LINES] {
        for number in 0..LINES {
            cat.copy(&format!("line {number}"));
        }
        grown(&mut harness, calls);
    }
    harness.get_by_label("Stop run").click();
    harness.run_steps(2);
    until_within(&mut harness, PATIENCE, "it is left", has_ended);
    harness.run_steps(3);
    harness.get_by_label("Totals at the end of the run");
    let recorded = Recording::open(&recording).unwrap();
    let totals = &recorded.totals().added_up;
    let shown = harness.state().state().timeline.record.as_ref();
    assert_eq!(shown.map(|record| &record.totals), Some(totals));
    assert_eq!(
        sizes(harness.state().state()),
        [("values".to_owned(), 2 * LINES)]
    );
}

#[test]
fn stacks_are_named_while_the_session_runs_and_at_its_end() {
    name_stacks(false);
}

#[test]
fn stacks_in_the_code_cache_are_named_while_the_session_runs_and_at_its_end() {
    name_stacks(true);
}

fn name_stacks(in_cache: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let mut harness = measuring(folder.path(), "callers");
    choose_way(&mut harness, cat.pid(), in_cache);
    let recording = begin(&mut harness, folder.path());
    copy_within_run(&mut harness, &mut cat);
    until_within(&mut harness, PATIENCE, "calls are counted", |state| {
        sizes(state) == [("by".to_owned(), LINES)]
    });
    let shown = |harness: &mut Window| {
        harness.run_steps(3);
        let record = harness.state().state().timeline.record.as_ref();
        let stacks = record.unwrap().named.stacks.clone();
        let [(number, frames)] = &stacks.frames.iter().collect::<Vec<_>>()[..] else {
            panic!("all calls have one stack: {stacks:?}");
        };
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert!(frames[0].contains("write+0x0 (libc.so.6)"), "{frames:?}");
        assert!(frames[1].starts_with("cat+"), "{frames:?}");
        let line = stacks.line(i128::from(**number)).unwrap();
        harness.get_by_label_contains(&format!("@by of callers: {line}: {LINES}"));
        stacks
    };
    let live = shown(&mut harness);
    harness.get_by_label("Stop run").click();
    harness.run_steps(2);
    until_within(&mut harness, PATIENCE, "it is left", has_ended);
    assert_eq!(shown(&mut harness), live);
    assert_eq!(Recording::open(&recording).unwrap().totals().stacks, live);
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
