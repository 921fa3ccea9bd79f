//! Libraries that a process loads while a session runs in it: instruments that are placed in them wait, and are placed when
//! they are loaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::state::{NoticeKind, State};
use gilk_samples::recording::Recording;

use crate::processes::{Cat, PATIENCE, read};
use crate::support::{
    Window, click, fill, press, run_command, save_as, until, until_filtered, until_measured,
    until_open, until_within, window,
};

/// A program that copies lines. With the first it loads its library, calls it a hundred times, and so with each that
/// follows.
const PROGRAM: &str = "#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **arguments) {
	char line[64];
	void *library = 0;
	fgets(line, sizeof(line), stdin);
	do {
		fputs(line, stdout);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin)) return 0;
		library = dlopen(arguments[1], RTLD_NOW);
		if (!library) { fputs(dlerror(), stderr); return 1; }
		void (*work)(int) = (void (*)(int))dlsym(library, \"work\");
		for (int i = 0; i < 100; i++) work(i);
	} while (1);
}
";
/// Its library, whose constructor calls the function, too.
const LIBRARY: &str = "static volatile int sum;
__attribute__((noipa)) void work(int x) { if (x % 4 == 0) sum += x; sum++; }
__attribute__((constructor)) static void first(void) { work(1000); }
";
/// Calls of the function when the first line has been copied.
pub(crate) const CALLS: u64 = 101;
const WORK: &str = "libwork.so:work";

/// A folder with a program, `loads`, and the library, `libwork.so`.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn compiled(program: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (text, name, options) in [
            (program, "loads", &[][..]),
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts the program, which has not loaded the library yet.
    fn start(&self) -> Cat {
        let mut command = Command::new(self.path("loads"));
        command.arg(self.path("libwork.so"));
        Cat::of(command)
    }

    /// Writes a session with instruments at the entry of the library's function.
    fn session(&self, instruments: &[&str]) -> PathBuf {
        let placement = |instrument: &&str| {
            format!(
                r#"(function: "{WORK}", block: 0, hook: Pre, instrument: "{instrument}", launch: 0.0, splash: 600.0)"#
            )
        };
        let placements: Vec<String> = instruments.iter().map(placement).collect();
        let text = format!(
            r#"(version: 1, name: "loading", duration: 600.0, placements: [{}])"#,
            placements.join(", ")
        );
        let path = self.path("loading.ron");
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Opens a window on a process, with a session.
fn attach(files: &Files, cat: &Cat, session: Option<PathBuf>) -> Window {
    attach_by("process…", files, cat, session)
}

fn attach_by(command: &str, files: &Files, cat: &Cat, session: Option<PathBuf>) -> Window {
    let has_session = session.is_some();
    let start = Start {
        session,
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is open", |state| {
        state.document.path().is_some() == has_session
    });
    run_command(&mut harness, command);
    until(&mut harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    let pid = cat.pid();
    fill(&mut harness, "Filter of processes", &pid.to_string());
    harness.run_steps(3);
    let (program, library) = (files.path("loads"), files.path("libwork.so"));
    let line = format!("{} {}", program.display(), library.display());
    click(&mut harness, &format!("process {pid}: {line}"));
    read(&mut harness);
    harness
}

/// Fails with the message of what has failed, which goes after a while.
fn no_trouble(state: &State) {
    let bad = state.notices.iter().find(|one| one.kind == NoticeKind::Bad);
    assert!(bad.is_none(), "{bad:?}");
}

/// Waits until the session can be run.
fn planned(harness: &mut Window) {
    until_within(harness, PATIENCE, "the session can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    harness.run_steps(3);
}

/// Begins a run.
fn begin(harness: &mut Window, recording: &Path) {
    planned(harness);
    fill(harness, "Recording path", &recording.display().to_string());
    press(harness, Modifiers::NONE, Key::F5);
    until_within(harness, PATIENCE, "the run has begun", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_some())
    });
    harness.run_steps(3);
}

/// Waits until a label is shown.
fn shows(harness: &mut Window, label: &str) {
    let begun = Instant::now();
    while harness.query_by_label(label).is_none() {
        assert!(begun.elapsed() < PATIENCE, "{label:?} is not shown");
        std::thread::sleep(Duration::from_millis(20));
        harness.run_steps(3);
    }
}

/// Ends the run, and waits until the process was read again.
fn stop(harness: &mut Window) {
    run_command(harness, "stop run");
    until_within(harness, PATIENCE, "the run has ended", |state| {
        no_trouble(state);
        state.run.active.is_none()
    });
}

/// The hits of the lanes of an instrument at the function.
fn hits(state: &State, instrument: &str) -> Vec<u64> {
    let record = state.timeline.record.as_ref().unwrap();
    let label = format!("{instrument} pre {WORK} block 0");
    let lanes = record.lanes().iter().filter(|lane| lane.label == label);
    lanes.map(|lane| record.hits(lane)).collect()
}

/// The totals up to now: names and hits.
fn totals(state: &State) -> Vec<(String, u64)> {
    let record = state.timeline.record.as_ref().unwrap();
    let totals = record.totals.iter();
    let totals = totals.map(|total| (total.name.clone(), total.value.hits()));
    totals.collect()
}

/// The hits of a counter at the function that the terminal counts with the same session.
fn counted_in_terminal(files: &Files, session: &Path) -> u64 {
    let mut cat = files.start();
    let recording = files.path("terminal.arrow");
    let tests = std::env::current_exe().unwrap();
    let mut ilk = Command::new(tests.parent().unwrap().with_file_name("ilk"));
    let ilk = ilk.arg("run").arg(session);
    let ilk = ilk
        .args(["-p", &cat.pid().to_string(), "-o"])
        .arg(&recording);
    let ilk = ilk.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = ilk.spawn().unwrap();
    // It says so once the instruments are in place, or awaited.
    let mut messages = std::io::BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("instrumented; its threads") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut messages, &mut line).unwrap();
        assert!(read > 0, "ilk has ended");
    }
    cat.copy("load");
    drop(cat);
    assert!(running.wait().unwrap().success());
    let recorded = Recording::open(&recording).unwrap();
    let instruments = &recorded.metadata().instruments;
    let counter = instruments.iter().find(|one| one.instrument == "counter");
    let id = counter.unwrap().id;
    let batches = recorded.batches().map(Result::unwrap);
    let samples = batches.flat_map(|batch| batch.samples);
    let last = samples.filter(|sample| sample.id == id).last();
    last.unwrap().value
}

#[test]
fn instruments_of_a_library_wait_until_it_is_loaded() {
    let files = Files::compiled(PROGRAM);
    let session = files.session(&["counter", "timestamp", "histogram"]);
    let mut cat = files.start();
    let mut harness = attach(&files, &cat, Some(session.clone()));
    planned(&mut harness);
    harness.get_by_label("Placed when libwork.so is loaded: 3 instruments.");
    // Its row says why it shows no graph yet.
    click(&mut harness, "show counter pre libwork.so:work block 0");
    let notice = harness.state().state().notices.last().unwrap();
    assert!(notice.words.contains("libwork.so is not loaded yet"));

    let recording = files.path("window.arrow");
    begin(&mut harness, &recording);
    harness.get_by_label("Placed when libwork.so is loaded: 3 instruments.");
    for round in 0..3 {
        cat.copy("load");
        let calls = CALLS + 100 * round;
        until_within(&mut harness, PATIENCE, "the calls are shown", |state| {
            no_trouble(state);
            assert!(state.run.active.is_some());
            let lanes = ["counter", "timestamp"].map(|instrument| hits(state, instrument));
            lanes == [vec![calls], vec![calls]] && totals(state) == [("values".to_owned(), calls)]
        });
        harness.run_steps(3);
        harness.get_by_label("libwork.so was loaded: 3 instruments in it.");
    }
    let shown = totals(harness.state().state());
    stop(&mut harness);
    cat.copy("still the same program");

    // What was shown is what the recording has, and its functions are listed now.
    until_within(&mut harness, PATIENCE, "it is read again", |state| {
        no_trouble(state);
        let catalogue = state.catalogue.as_ref().unwrap();
        let record = state.timeline.record.as_ref().unwrap();
        state.run_hindrance().is_none()
            && catalogue.image().function_named(WORK).is_ok()
            && state.plan.waiting.is_empty()
            && state.reading.is_none()
            && record.lanes().len() == 3
    });
    let state = harness.state().state();
    let (calls, recorded) = (CALLS + 200, Recording::open(&recording).unwrap());
    assert_eq!(hits(state, "counter"), [calls]);
    assert_eq!(hits(state, "timestamp"), [calls]);
    assert_eq!(totals(state), shown);
    let record = state.timeline.record.as_ref().unwrap();
    assert_eq!(record.totals, recorded.totals().added_up);
    until_measured(&mut harness, &recorded);
    let last = harness.state().state().run.last.as_ref().unwrap();
    let counted: Vec<_> = last
        .instruments
        .iter()
        .map(|one| (one.total, one.samples))
        .collect();
    assert!(counted.contains(&(None, calls)), "{counted:?}");
    assert_eq!(
        counted.iter().filter_map(|one| one.0).collect::<Vec<_>>(),
        [calls]
    );
    assert!(
        last.ended.contains("libwork.so was loaded once."),
        "{}",
        last.ended
    );
    assert_eq!(counted_in_terminal(&files, &session), CALLS);
    harness.run_steps(3);
    assert!(
        harness
            .query_by_label_contains("libwork.so is loaded")
            .is_none()
    );
}

#[test]
fn functions_of_a_library_are_chosen_before_it_is_loaded() {
    let files = Files::compiled(PROGRAM);
    let mut cat = files.start();
    let mut harness = attach(&files, &cat, None);
    fill(&mut harness, "Session duration", "600");
    run_command(&mut harness, "open library…");
    fill(
        &mut harness,
        "Path",
        &files.path("source.c").display().to_string(),
    );
    click(&mut harness, "Open");
    until_within(&mut harness, PATIENCE, "it is refused", |state| {
        let last = state.notices.last();
        last.is_some_and(|notice| notice.words.contains("is no library of 64 bits"))
    });
    read(&mut harness);
    harness.state_mut().state_mut().notices.clear();
    run_command(&mut harness, "open library…");
    fill(
        &mut harness,
        "Path",
        &files.path("libwork.so").display().to_string(),
    );
    click(&mut harness, "Open");
    until_within(
        &mut harness,
        PATIENCE,
        "its functions are listed",
        |state| {
            let catalogue = state.catalogue.as_ref().unwrap();
            catalogue.image().function_named(WORK).is_ok()
        },
    );
    read(&mut harness);
    fill(&mut harness, "Filter functions", WORK);
    until_filtered(&mut harness, WORK);
    harness.get_by_label("libwork.so:work, not loaded");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, WORK);
    for (block, instrument) in [(0, "counter"), (1, "counter"), (0, "timestamp")] {
        click(&mut harness, &format!("block {block} of {WORK}"));
        click(&mut harness, "Instrument");
        click(&mut harness, instrument);
        click(&mut harness, "Add instrument");
    }
    planned(&mut harness);
    harness.get_by_label("Placed when libwork.so is loaded: 3 instruments.");
    // What is chosen is undone as anything else, and saved.
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    planned(&mut harness);
    harness.get_by_label("Placed when libwork.so is loaded: 2 instruments.");
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    planned(&mut harness);
    let session = files.path("chosen.ron");
    save_as(&mut harness, &session);

    let recording = files.path("chosen.arrow");
    begin(&mut harness, &recording);
    cat.copy("load");
    until_within(&mut harness, PATIENCE, "the calls are shown", |state| {
        no_trouble(state);
        hits(state, "counter") == [CALLS] && hits(state, "timestamp") == [CALLS]
    });
    harness.run_steps(3);
    harness.get_by_label("libwork.so was loaded: 3 instruments in it.");
    // The open graph has the hits.
    shows(&mut harness, "block 0 was hit 101 times");
    stop(&mut harness);
    until_within(&mut harness, PATIENCE, "it is read again", |state| {
        no_trouble(state);
        state.run_hindrance().is_none() && state.plan.waiting.is_empty()
    });
    let last = harness.state().state().run.last.as_ref().unwrap();
    let labels = last.instruments.iter();
    let inner = labels.filter(|one| one.label.ends_with("block 1"));
    let inner: Vec<_> = inner.map(|one| one.total.unwrap()).collect();
    // 1000, and every fourth of a hundred.
    assert!(inner == [26] || inner == [CALLS - 26], "{inner:?}");

    // The same session in the mapped library, from the start.
    let again = files.path("again.arrow");
    begin(&mut harness, &again);
    cat.copy("again");
    until_within(&mut harness, PATIENCE, "the calls are shown", |state| {
        no_trouble(state);
        hits(state, "counter") == [100]
    });
    stop(&mut harness);
    assert_eq!(counted_in_terminal(&files, &session), CALLS);
}

#[test]
fn instruments_of_a_library_wait_in_the_code_cache() {
    let files = Files::compiled(PROGRAM);
    let session = files.session(&["counter", "timestamp", "histogram"]);
    let mut cat = files.start();
    let mut harness = attach_by("process in the code cache", &files, &cat, Some(session));
    click(&mut harness, "Measured in the cache");
    click(&mut harness, "the session's instruments");
    planned(&mut harness);
    harness.get_by_label("Placed when libwork.so is loaded: 3 instruments.");
    begin(&mut harness, &files.path("cache.arrow"));
    for (round, line) in (0..).zip(["load", "again"]) {
        cat.copy(line);
        let calls = CALLS + 100 * round;
        until_within(&mut harness, PATIENCE, "the totals are shown", |state| {
            no_trouble(state);
            assert!(state.run.active.is_some());
            totals(state) == [("values".to_owned(), calls)]
        });
    }
    // Its counter is shown with the next change once it is described.
    let calls = CALLS + 100;
    until_within(&mut harness, PATIENCE, "the hits are shown", |state| {
        hits(state, "counter") == [calls]
    });
    let shown = totals(harness.state().state());
    stop(&mut harness);
    until_within(&mut harness, PATIENCE, "the recording is shown", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref().unwrap();
        state.reading.is_none() && record.lanes().len() == 3
    });
    let state = harness.state().state();
    assert_eq!(hits(state, "counter"), [calls]);
    assert_eq!(hits(state, "timestamp"), [calls]);
    assert_eq!(totals(state), shown);
}

#[test]
fn a_library_that_is_not_loaded_is_named_at_the_end() {
    let files = Files::compiled(PROGRAM);
    let session = files.session(&["counter"]);
    let mut cat = files.start();
    let mut harness = attach(&files, &cat, Some(session));
    begin(&mut harness, &files.path("none.arrow"));
    stop(&mut harness);
    let last = harness.state().state().run.last.as_ref().unwrap();
    let words = "libwork.so was not loaded, so nothing was placed in it.";
    assert_eq!(last.ended, words);
    harness.run_steps(3);
    harness.get_by_label("Placed when libwork.so is loaded: 1 instrument.");
    cat.copy("still the same program");
}
