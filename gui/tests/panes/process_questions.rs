//! Questions about a process: each is answered by a click and a run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::desk::Pane;
use gilk_gui::questions::Question;
use gilk_gui::statistics::Column;
use gilk_instruments::program::Summary;

use crate::processes::{PATIENCE, read};
use crate::starting::{Starting, begin, end};
use crate::support::{Window, click, run_command, settle, until, window};

/// Calls `short` 1,000 times, calls `waits` twice, which sleeps, and requests memory in `requests` and `grows`.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
__attribute__((noipa)) int small(int value) { return value + 1; }
__attribute__((noipa)) int waits(int value) {
    struct timespec pause = { 0, 20000000 };
    nanosleep(&pause, NULL);
    return value + 1;
}
__attribute__((noipa)) void *requests(int size) { void *block = malloc(size); return small(1) ? block : NULL; }
__attribute__((noipa)) void *grows(void *block) { block = realloc(block, 5000); return small(1) ? block : NULL; }
__attribute__((noipa)) int copies(char *to, const char *from) {
    // It does not begin in this object, and the process chooses it from several.
    memcpy(to, from, strlen(from) + 1);
    return small(to[0]) + 1;
}
int main(void) {
    char line[16], copy[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 'c')
            for (int done = 0; done < 1000;) done = small(done);
        if (line[0] == 's')
            for (int done = 0; done < 2;) done = waits(done);
        if (line[0] == 'm') {
            void *block = requests(3000);
            free(grows(block));
        }
        if (line[0] == 'w')
            for (int done = 0; done < 3; done++) copies(copy, line);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"#;

/// Compiles the program.
fn started(folder: &Path) -> Starting {
    started_with(folder, &[])
}

fn started_with(folder: &Path, options: &[&str]) -> Starting {
    started_by("cc", folder, options)
}

fn started_by(compiler: &str, folder: &Path, options: &[&str]) -> Starting {
    let (source, program) = (folder.join("questions.c"), folder.join("questions"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compiler = Command::new(compiler);
    let compiler = compiler.args(["-O2", "-o"]).args([&program, &source]);
    let compiler = compiler.args(options);
    assert!(compiler.status().unwrap().success());
    Starting::of(&program)
}

fn opened(process: &Starting) -> Window {
    let start = Start {
        pid: Some(process.pid()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    read(&mut harness);
    harness.run_steps(3);
    harness
}

/// Opens a process, and a function of it.
fn opened_at(process: &Starting, function: &str) -> Window {
    let start = Start {
        pid: Some(process.pid()),
        function: Some(function.to_owned()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    read(&mut harness);
    until(&mut harness, "the function is open", |state| {
        state.graph.scene.is_some()
    });
    harness
}

/// Poses a question on the start page, which makes a session of that name.
fn pose(harness: &mut Window, question: Question, name: &str) {
    while harness.query_by_label("Dismiss message").is_some() {
        click(harness, "Dismiss message");
    }
    click(harness, question.text());
    until(harness, &format!("the session {name}"), |state| {
        state.document.session().name == name
    });
    settle(harness);
}

/// Poses a question about the open function by its command, and begins a run of its session.
fn ask(harness: &mut Window, command: &str, name: &str, folder: &Path) {
    run_command(harness, command);
    until(harness, "the session is made", |state| {
        state.document.session().name == name
    });
    settle(harness);
    begin(harness, &folder.join(name).with_extension("arrow"));
}

/// Waits for the totals of the recording of a run that has ended.
fn until_read(harness: &mut Window) {
    until(harness, "the recording is read", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_none() && !record.totals.is_empty())
    });
    // Names of stacks are those of the last frame.
    settle(harness);
    harness.run_steps(3);
}

/// Waits until a label with these words is shown.
fn shows(harness: &mut Window, words: &str) {
    let begun = Instant::now();
    while harness.query_all_by_label_contains(words).next().is_none() {
        assert!(begun.elapsed() < PATIENCE, "{words:?} is not shown");
        std::thread::sleep(Duration::from_millis(20));
        harness.run_steps(3);
    }
}

/// Returns the rows of the table of statistics with hits: function, instrument and count.
fn rows(harness: &mut Window) -> Vec<(String, String, u64)> {
    settle(harness);
    until(harness, "the rows are computed", |state| {
        !state.statistics.rows.is_empty()
    });
    let rows = &harness.state().state().statistics.rows;
    let rows = rows.iter().filter(|row| row.count > 0);
    rows.map(|row| (row.function.clone(), row.instrument.clone(), row.count))
        .collect()
}

#[test]
fn the_start_page_has_the_questions_of_what_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let process = started(folder.path());
    let harness = opened(&process);
    for question in Question::ALL {
        let is_shown = harness.query_by_label(question.text()).is_some();
        let is_offered = question.fits(true) && !question.is_about_function();
        assert_eq!(is_shown, is_offered, "{question:?}");
    }
    let state = harness.state().state();
    let why = Question::SlowCalls.hindrance(state).unwrap();
    assert!(why.contains("about a kernel"), "{why}");
}

#[test]
fn frequent_functions_calls_that_wait_and_memory_are_found_by_a_click_and_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = started(folder.path());
    let mut harness = opened(&process);
    let mut runs = |harness: &mut Window, question, name: &str, command: &str| {
        pose(harness, question, name);
        begin(harness, &folder.path().join(name).with_extension("arrow"));
        process.does(command, "done");
        end(harness);
    };

    runs(
        &mut harness,
        Question::FrequentFunctions,
        "frequent-functions",
        "c",
    );
    let state = harness.state().state();
    assert!(state.desk.sees(Pane::Statistics));
    assert_eq!(state.statistics.column, Column::Count);
    let counted = rows(&mut harness);
    assert_eq!(
        counted[0],
        ("small".to_owned(), "counter".to_owned(), 1000),
        "{counted:?}"
    );
    assert!(counted.iter().all(|(function, ..)| !function.contains(':')));

    runs(&mut harness, Question::SlowFunctions, "slow-functions", "s");
    let slow = rows(&mut harness);
    let waits = slow.iter().find(|(function, ..)| function == "waits");
    assert_eq!(waits.unwrap().2, 2, "{slow:?}");

    runs(&mut harness, Question::Waits, "waits", "s");
    assert_eq!(harness.state().state().statistics.column, Column::Sum);
    let waits = rows(&mut harness);
    let sleeps = waits
        .iter()
        .find(|(function, ..)| function.ends_with("nanosleep"));
    assert_eq!(sleeps.unwrap().2, 2, "{waits:?}");
    assert!(
        waits
            .iter()
            .all(|(function, ..)| function.starts_with("libc.so.6:"))
    );

    runs(&mut harness, Question::Allocations, "allocations", "m");
    until_read(&mut harness);
    assert!(harness.state().state().desk.sees(Pane::Timeline));
    let record = harness.state().state().timeline.record.as_ref().unwrap();
    let stacks = &record.named.stacks;
    let requested = |instrument: &str, function: &str| {
        let of_instrument = |one: &&_| {
            let one: &ilk_driver::client::AggregateSummary = one;
            one.instrument == instrument && one.name == "callers"
        };
        let totals = record.totals.iter().filter(of_instrument);
        let mut requested = Vec::new();
        for total in totals {
            let Summary::Map(rows, _) = &total.value else {
                panic!("{total:?}");
            };
            for row in rows {
                let caller = row.key_by(|number| stacks.line(number).unwrap_or_default());
                if let Summary::Number(bytes) = row.value
                    && caller.contains(function)
                {
                    requested.push(bytes);
                }
            }
        }
        requested
    };
    assert_eq!(requested("allocations", "requests;"), [3000]);
    assert_eq!(requested("reallocations", "grows;"), [5000]);
    shows(&mut harness, "requests;");
}

/// The C library registers no thread for restartable sequences.
#[test]
fn questions_about_a_process_of_another_c_library_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = started_by("musl-gcc", folder.path(), &[]);
    let mut harness = opened_at(&process, "grows");
    for (question, name, command, expected) in [
        (
            Question::FrequentFunctions,
            "frequent-functions",
            "c",
            ("small", "counter", 1000),
        ),
        (
            Question::SlowFunctions,
            "slow-functions",
            "s",
            ("waits", "long-calls", 2),
        ),
        (
            Question::Waits,
            "waits",
            "s",
            ("libc.so:clock_nanosleep", "long-calls", 2),
        ),
        (
            Question::TimeInside,
            "time-inside",
            "m",
            ("libc.so:realloc", "elapsed-when-called", 1),
        ),
    ] {
        let text = question.text().trim_end_matches('?');
        ask(&mut harness, text, name, folder.path());
        process.does(command, "done");
        end(&mut harness);
        let found = rows(&mut harness);
        let mut found_rows = found.iter();
        let has = found_rows.any(|row| (row.0.as_str(), row.1.as_str(), row.2) == expected);
        assert!(has, "{question:?}: {found:?}");
    }
    for (question, name) in [
        (Question::Allocations, "allocations"),
        (Question::Callers, "callers"),
    ] {
        let text = question.text().trim_end_matches('?');
        ask(&mut harness, text, name, folder.path());
        process.does("m", "done");
        end(&mut harness);
        until_read(&mut harness);
        // Debian's musl has no unwind tables, so that the callers of its functions are not known.
        if question == Question::Callers {
            shows(&mut harness, "main;grows");
        }
    }
}

#[test]
fn questions_about_the_open_function_are_answered_of_a_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = started(folder.path());
    let mut harness = opened_at(&process, "small");
    ask(
        &mut harness,
        "which functions call this",
        "callers",
        folder.path(),
    );
    process.does("c", "done");
    process.does("m", "done");
    end(&mut harness);
    until_read(&mut harness);
    for caller in ["main;small", "requests;small", "grows;small"] {
        shows(&mut harness, caller);
    }
}

#[test]
fn the_time_inside_of_a_function_of_a_process_is_that_of_the_functions_that_it_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = started(folder.path());
    let mut harness = opened_at(&process, "grows");
    ask(
        &mut harness,
        "where does this function",
        "time-inside",
        folder.path(),
    );
    process.does("m", "done");
    // Not called by the function.
    process.does("c", "done");
    end(&mut harness);
    let inside = rows(&mut harness);
    let count = |function: &str, instrument: &str| {
        let mut rows = inside.iter();
        let row = rows.find(|row| (row.0.as_str(), row.1.as_str()) == (function, instrument));
        row.map(|row| row.2)
    };
    assert_eq!(count("grows", "elapsed"), Some(1), "{inside:?}");
    let small = count("small", "elapsed-when-called");
    assert_eq!(small, Some(1), "{inside:?}");
    let realloc = count("libc.so.6:realloc", "elapsed-when-called");
    assert_eq!(realloc, Some(1), "{inside:?}");
}

/// The words of the linkage table are bound when they are first used, when the program begins, or there are none.
#[test]
fn the_time_inside_is_also_that_of_functions_that_are_called_through_the_linkage_table() {
    for options in [
        &["-Wl,-z,lazy", "-fcf-protection=none"][..],
        &["-Wl,-z,lazy", "-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-Wl,-z,now"],
        &["-fno-plt", "-Wl,-z,relro"],
        &["-no-pie", "-Wl,-z,lazy"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started_with(folder.path(), options);
        let mut harness = opened_at(&process, "copies");
        ask(
            &mut harness,
            "where does this function",
            "time-inside",
            folder.path(),
        );
        process.does("w", "done");
        end(&mut harness);
        let inside = rows(&mut harness);
        let called = inside.iter().filter(|row| row.1 == "elapsed-when-called");
        let called: Vec<_> = called.map(|row| (row.0.as_str(), row.2)).collect();
        // The names of implementations are not those of the symbols, and are not exported.
        let of_library = called.iter().filter(|row| row.0.starts_with("libc.so.6:"));
        assert_eq!(of_library.count(), 2, "{options:?}: {inside:?}");
        assert_eq!(called.len(), 3, "{options:?}: {inside:?}");
        let is_each = called.iter().all(|row| row.1 == 3);
        assert!(is_each, "{options:?}: {inside:?}");
    }
}
