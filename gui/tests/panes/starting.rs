//! Children that an instrumented process forks, and programs that it executes: the choices of what becomes of them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::state::{NoticeKind, State};
use gilk_samples::metadata::InstrumentInfo;
use gilk_samples::recording::Recording;
use ilk_driver::process::{Children, Exec, ProcessChoices, clock};

use crate::processes::{PATIENCE, read};
use crate::support::{
    Window, click, fill, press, run_command, scroll_to, until, until_within, window,
    window_of_session,
};

/// Calls `counted` 10 times, forks a child that calls it 100 times, or executes itself.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noipa)) int counted(int value) { return value + 1; }
static void calls(int count) { for (int done = 0; done < count;) done = counted(done); }
int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 'e')
            execl("/proc/self/exe", "again", NULL);
        if (line[0] == 'c')
            calls(10);
        if (line[0] == 'f') {
            pid_t child = fork();
            if (!child) {
                calls(100);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"#;

pub(crate) const SESSION: &str = r#"(version: 1, name: "calls", duration: 600.0, placements: [
    (function: "counted", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 600.0)])"#;

/// Compiles the program.
pub(crate) fn compiled(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("starting.c"), folder.join("starting"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O2", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    program
}

/// A program that answers each line with one.
pub(crate) struct Starting {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Starting {
    fn start(folder: &Path) -> Self {
        Self::of(&compiled(folder))
    }

    /// Starts a program, which says when it is ready.
    pub(crate) fn of(program: &Path) -> Self {
        Self::of_command(Command::new(program))
    }

    /// Starts a program with its arguments, which says when it is ready.
    pub(crate) fn of_command(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut starting = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        assert_eq!(starting.line(), "ready");
        starting
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn does(&mut self, command: &str, answer: &str) {
        writeln!(self.input, "{command}").unwrap();
        assert_eq!(self.line(), answer);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

pub(crate) fn opened(session: &Path, process: &Starting) -> Window {
    let start = Start {
        session: Some(session.to_path_buf()),
        pid: Some(process.pid()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is open", |state| {
        state.document.path().is_some()
    });
    read(&mut harness);
    until_within(&mut harness, PATIENCE, "it can be run", |state| {
        state.run_hindrance().is_none()
    });
    harness.run_steps(3);
    harness
}

/// Chooses from a list among the options of the session.
pub(crate) fn choose(harness: &mut Window, list: &str, choice: &str) {
    // A message may cover the list.
    while harness.query_by_label("Dismiss message").is_some() {
        click(harness, "Dismiss message");
    }
    scroll_to(harness, list);
    click(harness, list);
    click(harness, choice);
    harness.run_steps(2);
}

fn choices(harness: &Window) -> ProcessChoices {
    harness.state().state().document.choices()
}

pub(crate) fn no_trouble(state: &State) {
    let bad = state.notices.iter().find(|one| one.kind == NoticeKind::Bad);
    assert!(bad.is_none(), "{bad:?}");
}

/// Begins a run.
pub(crate) fn begin(harness: &mut Window, recording: &Path) {
    scroll_to(harness, "Recording path");
    fill(harness, "Recording path", &recording.display().to_string());
    // A field that was left may have changed the session.
    until_within(harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    press(harness, Modifiers::NONE, Key::F5);
    until_within(harness, PATIENCE, "it is instrumented", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_some())
    });
}

/// Waits until the lanes of a running session have so many hits.
pub(crate) fn until_counts(harness: &mut Window, expected: &[u64]) {
    until_within(
        harness,
        PATIENCE,
        "all lanes are shown while it runs",
        |state| {
            no_trouble(state);
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| {
                let (index, all) = (record.index.look(), &record.metadata.instruments);
                let hits = |one: &InstrumentInfo| {
                    index.part(None).hits(one.id, one.meaning, (0, u64::MAX))
                };
                let mut hits: Vec<u64> = all.iter().map(hits).collect();
                hits.sort_unstable();
                record.now.is_some() && hits == expected
            })
        },
    );
    harness.run_steps(3);
}

/// Ends a run. Returns the calls that each instrument has counted, with its label, and the words about the end.
pub(crate) fn end(harness: &mut Window) -> (Vec<(u64, String)>, String) {
    run_command(harness, "stop run");
    until_within(harness, PATIENCE, "it is left", |state| {
        no_trouble(state);
        state.run.active.is_none()
    });
    let last = harness.state().state().run.last.as_ref().unwrap();
    let counted = last.instruments.iter();
    let mut counted: Vec<_> = counted
        .filter_map(|one| Some((one.total?, one.label.clone())))
        .collect();
    counted.sort();
    (counted, last.ended.clone())
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect()
}

#[test]
fn forked_children_count_with_their_parent_or_alone_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("calls.ron");
    std::fs::write(&session, SESSION).unwrap();
    let mut process = Starting::start(folder.path());
    let pid = process.pid();
    let mut harness = opened(&session, &process);
    let measured = |harness: &mut Window, process: &mut Starting, name: &str| {
        begin(harness, &folder.path().join(name));
        for command in ["c", "f", "f"] {
            process.does(command, "done");
        }
        end(harness)
    };
    let (counted, ended) = measured(&mut harness, &mut process, "shared.arrow");
    assert_eq!((counted.len(), counted[0].0), (1, 210));
    assert_eq!(ended, "");

    scroll_to(&mut harness, "Session options");
    click(&mut harness, "Session options");
    choose(&mut harness, "Forked children", "are left clean");
    assert_eq!(choices(&harness).children, Children::Clean);
    let (counted, ended) = measured(&mut harness, &mut process, "clean.arrow");
    assert_eq!((counted.len(), counted[0].0), (1, 10));
    assert_eq!(ended, "2 forked children were left without instruments.");
    let notices = &harness.state().state().notices;
    assert!(notices.iter().any(|one| one.words.ends_with(&ended)));

    choose(&mut harness, "Forked children", "have counts of their own");
    begin(&mut harness, &folder.path().join("own.arrow"));
    for command in ["c", "f", "f"] {
        process.does(command, "done");
    }
    // While it runs, each child has a lane.
    until_counts(&mut harness, &[10, 100, 100]);
    harness.get_by_label_contains(&format!(
        "lane process {pid}: counter pre counted block 0: 10"
    ));
    let (counted, ended) = end(&mut harness);
    let numbers: Vec<u64> = counted.iter().map(|(calls, _)| *calls).collect();
    assert_eq!(numbers, [10, 100, 100]);
    let parent = format!("process {pid}: counter pre counted block 0");
    assert_eq!(counted[0].1, parent);
    assert_ne!(counted[1].1, counted[2].1);
    assert_eq!(ended, "2 forked children have counts of their own.");
    // The recording is one, whose lanes are shown.
    until(&mut harness, "all lanes are shown", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.lanes().len() == 3)
    });
    let recording = Recording::open(folder.path().join("own.arrow")).unwrap();
    assert_eq!(recording.metadata().instruments.len(), 3);
    assert!(files(folder.path(), ".parts").is_empty());

    // Nothing remains in the process.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("memfd:gilk"), "{maps}");

    // Both choices are steps, and the saved session has the last.
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(choices(&harness).children, Children::Clean);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(choices(&harness).children, Children::Shared);
    assert!(!harness.state().state().document.unsaved());
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    assert_eq!(choices(&harness).children, Children::Clean);
    choose(&mut harness, "Executed programs", "is measured, too");
    assert!(harness.state().state().document.unsaved());
    press(&mut harness, Modifiers::COMMAND, Key::S);
    until(&mut harness, "it is saved", |state| {
        !state.document.unsaved()
    });
    let mut again = window_of_session(session);
    again.run_steps(3);
    let expected = ProcessChoices {
        children: Children::Clean,
        exec: Exec::Follows,
        ..ProcessChoices::default()
    };
    assert_eq!(choices(&again), expected);
    assert!(!again.state().state().document.unsaved());
    // Without a process, too, both are shown.
    scroll_to(&mut again, "Session options");
    click(&mut again, "Session options");
    scroll_to(&mut again, "Executed programs");
}

#[test]
fn a_program_that_the_process_executes_is_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("calls.ron");
    std::fs::write(&session, SESSION).unwrap();
    let mut process = Starting::start(folder.path());
    let mut harness = opened(&session, &process);
    scroll_to(&mut harness, "Session options");
    click(&mut harness, "Session options");
    choose(&mut harness, "Executed programs", "is measured, too");
    let recording = folder.path().join("calls.arrow");
    begin(&mut harness, &recording);
    process.does("c", "done");
    process.does("e", "ready");
    // It is recorded once it is instrumented.
    let next = recording.with_extension("parts").join("1.arrow");
    until_within(
        &mut harness,
        PATIENCE,
        "it is instrumented again",
        |state| {
            no_trouble(state);
            next.exists()
        },
    );
    process.does("c", "done");
    process.does("c", "done");
    until_counts(&mut harness, &[10, 20]);
    let (counted, ended) = end(&mut harness);
    let numbers: Vec<u64> = counted.iter().map(|(calls, _)| *calls).collect();
    assert_eq!(numbers, [10, 20]);
    assert_eq!(
        ended,
        "The process executed another program, which was measured, too."
    );
    let recording = Recording::open(recording).unwrap();
    assert_eq!(recording.metadata().instruments.len(), 2);
    assert!(files(folder.path(), ".parts").is_empty());
    process.does("c", "done");
}

#[test]
fn children_are_not_met_where_instruments_stand() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("forks.ron");
    std::fs::write(&session, SESSION.replace("counted", "libc.so.6:_Fork")).unwrap();
    let mut process = Starting::start(folder.path());
    let mut harness = opened(&session, &process);
    scroll_to(&mut harness, "Session options");
    click(&mut harness, "Session options");
    choose(&mut harness, "Forked children", "are left clean");
    scroll_to(&mut harness, "Recording path");
    let recording = folder.path().join("forks.arrow");
    fill(
        &mut harness,
        "Recording path",
        &recording.display().to_string(),
    );
    press(&mut harness, Modifiers::NONE, Key::F5);
    until_within(&mut harness, PATIENCE, "it is refused", |state| {
        let mut notices = state.notices.iter();
        notices
            .any(|one| one.words.contains("libc.so.6:_Fork") && one.words.contains("rule probed"))
    });
    assert!(!recording.exists());
    process.does("f", "done");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap();
    assert!(!maps.contains("memfd:gilk"), "{maps}");
}

/// The library's instrument that times calls, whose start each call keeps in a variable of its own.
#[test]
fn the_time_of_each_call_is_sampled_also_in_forked_children() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("times.ron");
    std::fs::write(&session, SESSION.replace("counter", "elapsed")).unwrap();
    let mut process = Starting::start(folder.path());
    let mut harness = opened(&session, &process);
    let recording = folder.path().join("times.arrow");
    begin(&mut harness, &recording);
    for command in ["c", "f", "f"] {
        process.does(command, "done");
    }
    end(&mut harness);
    let recording = Recording::open(&recording).unwrap();
    let batches = recording.batches().map(|batch| batch.unwrap().samples);
    let samples: Vec<_> = batches.flatten().collect();
    assert_eq!(samples.len(), 210);
    // A call takes some ticks, and less than a second.
    let hz = clock().tsc_hz;
    assert!(samples.iter().all(|one| (1..hz).contains(&one.value)));
    assert_eq!(recording.metadata().instruments[0].unit, "ticks");
}
