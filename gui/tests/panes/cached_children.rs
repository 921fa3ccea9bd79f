//! A program in the code cache that forks children and executes other programs: by choice they are measured, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use egui::{Key, Modifiers};
use gilk_gui::args::Start;
use gilk_gui::state::State;
use gilk_samples::recording::Recording;
use ilk_driver::process::{CachedChildren, Exec};

use crate::cached::{
    attach_to, begin, no_trouble, open, place_in, run, run_planned, start_at, start_with,
    with_instruments,
};
use crate::processes::{Cat, PATIENCE};
use crate::support::{
    Window, click, fill, press, run_command, save_as, until_measured, until_within,
    window_of_session,
};

/// Calls `work` 10 times, 1,000 times in a child, 77 times in a program that this child executes, and 55 times in one that
/// another child executes at once.
const PROGRAM: &str = r#"
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
__attribute__((noipa)) int work(int value) { return value + 1; }
static void works(int count) {
    for (int done = 0; done < count; done = work(done))
        ;
}
int main(int count, char **words) {
    if (count > 1) {
        works(atoi(words[1]));
        return 0;
    }
    works(10);
    pid_t child = fork();
    if (child == 0) {
        works(1000);
        execl("/proc/self/exe", "again", "77", NULL);
    }
    waitpid(child, NULL, 0);
    char *arguments[] = {words[0], "55", NULL};
    posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    waitpid(child, NULL, 0);
    return 0;
}
"#;

/// Copies lines; for each `calls`, it calls `work` 10 times, and a child that it forks at the first one calls it 100 times.
const COPYING: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
static void works(int count) {
    for (int done = 0; done < count; done = work(done))
        ;
}
int main(void) {
    char line[64], byte = 0;
    int to[2], from[2], child = -1;
    if (pipe(to) || pipe(from))
        return 1;
    while (fgets(line, sizeof(line), stdin)) {
        fputs(line, stdout);
        fflush(stdout);
        if (line[0] != 'c')
            continue;
        if (child == -1 && (child = fork()) == 0) {
            close(to[1]);
            while (read(to[0], &byte, 1) == 1) {
                works(100);
                if (write(from[1], &byte, 1) != 1)
                    return 1;
            }
            return 0;
        }
        works(10);
        if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
            return 1;
    }
    return 0;
}
"#;

fn compiled(folder: &Path, text: &str) -> PathBuf {
    let (source, program) = (folder.join("forks.c"), folder.join("forks"));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O2", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    program
}

fn choose(harness: &mut Window, list: &str, words: &str) {
    click(harness, list);
    click(harness, words);
    harness.run_steps(2);
}

/// The hits of the entry of `work`, by the names of the processes that its lanes have.
fn worked(state: &State) -> BTreeMap<u64, String> {
    let record = state.timeline.record.as_ref().unwrap();
    let lanes = record.lanes().iter();
    let lanes = lanes.filter(|lane| {
        let mut labels = ["counter", "timestamp"].into_iter();
        labels.any(|one| lane.label.ends_with(&format!("{one} pre work block 0")))
    });
    lanes
        .map(|lane| {
            let name = lane.label.split_once(": ").map_or("", |(name, _)| name);
            (record.hits(lane), name.to_owned())
        })
        .collect()
}

/// Waits until the recording of all processes is shown.
fn until_worked(harness: &mut Window, wanted: &[u64]) -> Vec<String> {
    until_within(harness, PATIENCE, "all is shown", |state| {
        no_trouble(state);
        state.run.active.is_none() && state.reading.is_none()
    });
    harness.run_steps(3);
    let worked = worked(harness.state().state());
    let hits: Vec<u64> = worked.keys().copied().collect();
    assert_eq!(hits, wanted, "{worked:?}");
    worked.into_values().collect()
}

#[test]
fn children_and_executed_programs_in_the_code_cache_are_counted_by_choice() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let mut harness = start_at(&program, "work");
    run(&mut harness, &folder.path().join("clean.arrow"));
    assert_eq!(until_worked(&mut harness, &[10]), [""]);

    let mut harness = start_at(&program, "work");
    choose(&mut harness, "Forked children", "have counts of their own");
    // One thread has no children.
    choose(&mut harness, "Threads in the cache", "only thread");
    fill(&mut harness, "Thread of the cache", "1");
    let hindrance = harness.state().state().run_hindrance().unwrap();
    assert!(
        hindrance.starts_with("Forked children are in the cache beside"),
        "{hindrance}"
    );
    choose(&mut harness, "Threads in the cache", "all threads");
    assert_eq!(harness.state().state().run_hindrance(), None);
    let recording = folder.path().join("own.arrow");
    run(&mut harness, &recording);
    let names = until_worked(&mut harness, &[10, 1000]);
    // They have the names of the recording.
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("process ") && name.ends_with(" forks"))
    );
    until_measured(&mut harness, &Recording::open(&recording).unwrap());

    let mut harness = start_at(&program, "work");
    choose(&mut harness, "Forked children", "have counts of their own");
    choose(&mut harness, "Executed programs", "is measured, too");
    run(&mut harness, &folder.path().join("all.arrow"));
    until_worked(&mut harness, &[10, 55, 77, 1000]);
    let last = harness.state().state().run.last.as_ref().unwrap();
    assert_eq!(last.ended, "", "{last:?}");
    let end = last.workload.as_deref().unwrap_or_default();
    assert!(end.ends_with("exit status: 0"), "{end:?}");
}

#[test]
fn instruments_of_children_in_the_code_cache_have_lanes_and_totals_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let session = folder.path().join("calls.ron");
    let placement = |instrument: &str| {
        format!(
            r#"(function: "work", block: 0, hook: Pre, instrument: "{instrument}", launch: 0.0, splash: 60.0)"#
        )
    };
    let placements = ["counter", "histogram"].map(placement).join(", ");
    let text =
        format!(r#"(version: 1, name: "calls", duration: 60.0, placements: [{placements}])"#);
    std::fs::write(&session, text).unwrap();
    let start = Start {
        session: Some(session),
        ..Start::default()
    };
    let mut harness = start_with(start, &program, "work");
    with_instruments(&mut harness);
    choose(&mut harness, "Forked children", "have counts of their own");
    choose(&mut harness, "Executed programs", "is measured, too");
    run_planned(&mut harness, &folder.path().join("own.arrow"));
    until_worked(&mut harness, &[10, 55, 77, 1000]);
    let record = harness.state().state().timeline.record.as_ref().unwrap();
    let totals = record.totals.iter();
    let mut totals: Vec<u64> = totals.map(|total| total.value.hits()).collect();
    totals.sort_unstable();
    assert_eq!(totals, [10, 55, 77, 1000]);

    // The choices are steps, and the session's sidecar has them.
    let choices = |harness: &Window| {
        let choices = harness.state().state().document.choices();
        (choices.cached_children, choices.exec)
    };
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(choices(&harness), (CachedChildren::Own, Exec::Ends));
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    assert_eq!(choices(&harness), (CachedChildren::Own, Exec::Follows));
    let session = folder.path().join("session.ron");
    save_as(&mut harness, &session);
    let again = window_of_session(session);
    assert_eq!(choices(&again), (CachedChildren::Own, Exec::Follows));
}

#[test]
fn counts_and_samples_of_children_in_the_code_cache_are_shown_while_they_run() {
    for instrument in [None, Some("counter"), Some("timestamp")] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled(folder.path(), COPYING);
        let mut cat = Cat::of(Command::new(&program));
        let mut harness = attach_to(&cat, &program.display().to_string());
        choose(&mut harness, "Forked children", "have counts of their own");
        if let Some(instrument) = instrument {
            with_instruments(&mut harness);
            open(&mut harness, "work");
            place_in(&mut harness, "work", 0, instrument);
            until_within(&mut harness, PATIENCE, "it can be run", |state| {
                no_trouble(state);
                state.run_hindrance().is_none()
            });
        }
        let recording = folder.path().join("calls.arrow");
        begin(&mut harness, &recording);
        for round in 1..3 {
            cat.copy("calls");
            until_within(&mut harness, PATIENCE, "they are shown", |state| {
                no_trouble(state);
                assert!(state.run.active.is_some());
                worked(state).into_keys().eq([10 * round, 100 * round])
            });
        }
        run_command(&mut harness, "stop run");
        until_worked(&mut harness, &[20, 200]);
        cat.copy("still the same program");
        until_measured(&mut harness, &Recording::open(&recording).unwrap());
    }
}
