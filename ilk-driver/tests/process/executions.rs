//! A process that executes another program, by choice: its measurement ends, or is made in that, too.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;

use super::forks::{children, until};
use super::launched::counters;
use super::loaded::Following;
use super::probes::interrupt;
use super::{Counted, compiled_from, compiled_with_musl};

/// Works at a line, and executes the program of its argument, or itself, at another.
pub(super) const EXECUTING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
int main(int count, char **words) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 'e')
            execl("/proc/self/exe", "again", NULL);
        if (line[0] == 'c')
            execlp("cat", "cat", NULL);
        int done = 0;
        while (done < 1000)
            done = work(done);
        printf("%d 0\n", done);
        fflush(stdout);
    }
    return 0;
}
"#;

/// Waits until the next program of a process is instrumented.
fn instrumented(following: &mut Following) {
    let mut line = String::new();
    while !line.contains("instrumented; its threads") {
        line.clear();
        assert!(following.errors.read_line(&mut line).unwrap() > 0);
    }
}

/// Has a process work in two programs, and execute a third.
fn work_and_execute(process: &mut Counted, following: &mut Following) {
    for _ in 0..2 {
        process.does("work");
        writeln!(process.input, "e").unwrap();
        assert_eq!(process.line(), "ready");
        instrumented(following);
    }
}

#[test]
fn the_programs_that_a_process_executes_are_counted_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING, &[]);
    let mut process = Counted::of(Command::new(program), folder);
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("executions.arrow");
    let script = "entry:work / (u32)arg0 < 3 / { sample((u32)arg0) } entry:work { @all = count() }";
    let arguments = [
        "-e",
        script,
        "--exec",
        "follows",
        "-o",
        recording.to_str().unwrap(),
    ];
    let mut following = Following::start(process.pid(), &arguments);
    work_and_execute(&mut process, &mut following);
    process.does("work");
    process.does("work");
    interrupt(following.client.id());
    let shown = following.end();
    let all: Vec<&str> = shown.split("After it executed a program:").collect();
    assert_eq!(all.len(), 3, "{shown}");
    for (part, calls) in all.iter().zip(["1,000", "1,000", "2,000"]) {
        let mut lines = part.lines();
        let line = lines.find(|line| line.contains("@all of ")).unwrap();
        assert!(line.trim().starts_with(calls), "{shown}");
    }
    assert!(!process.maps().contains("memfd:gilk"));
    process.does("work");
    process.end();
    let recording = Recording::open(&recording).unwrap();
    let samples = recording.batches().flat_map(|batch| batch.unwrap().samples);
    let samples: Vec<(u64, u64)> = samples.map(|one| (one.id, one.value)).collect();
    let samples: Vec<(u64, u64)> = {
        let sampled: BTreeSet<u64> = recording
            .metadata()
            .instruments
            .iter()
            .filter(|one| one.label.contains("work") && !one.label.contains("@all"))
            .map(|one| one.id)
            .collect();
        samples
            .into_iter()
            .filter(|(id, value)| sampled.contains(id) && *value < 3)
            .collect()
    };
    assert_eq!(samples.len(), 4 * 3, "{samples:?}");
    let lanes: BTreeSet<u64> = samples.iter().map(|(id, _)| *id).collect();
    assert_eq!(lanes.len(), 3, "{samples:?}");
}

#[test]
fn lines_of_the_programs_that_a_process_executes_are_printed() {
    for musl in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let program = match musl {
            true => compiled_with_musl(folder.path(), EXECUTING, &[]),
            false => compiled_from(folder.path(), EXECUTING, &[]),
        };
        let mut process = Counted::of(Command::new(program), folder);
        let script = "entry:work { printf(\"%d %d;\", (u32)arg0, 3 * (u32)arg0) }";
        let arguments = ["-e", script, "--exec", "follows"];
        let mut following = Following::start(process.pid(), &arguments);
        work_and_execute(&mut process, &mut following);
        process.does("work");
        interrupt(following.client.id());
        let shown = following.end();
        let lines = shown.lines().filter(|line| line.ends_with(';'));
        let mut lines: Vec<&str> = lines.collect();
        lines.sort_unstable();
        let meant = (0..1000).map(|value| format!("{value} {};", 3 * value));
        let mut meant: Vec<String> = meant
            .flat_map(|line| [line.clone(), line.clone(), line])
            .collect();
        meant.sort_unstable();
        assert_eq!(lines, meant);
        process.end();
    }
}

#[test]
fn a_process_that_executes_a_program_without_the_functions_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING, &[]);
    for (choice, says) in [("follows", true), ("ends", false)] {
        let arguments = ["work", "--exec", choice, "--", program.to_str().unwrap()];
        let mut child = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .arg("process")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        // A line at a time, since the program reads ahead.
        for command in ["w", "w", "c"] {
            output.read_line(&mut shown).unwrap();
            writeln!(input, "{command}").unwrap();
        }
        until("the program executes cat", || {
            let names = children(child.id()).into_iter();
            let names = names.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")));
            names.flatten().any(|name| name == "cat\n")
        });
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let note = "is not instrumented in the program that it executes now";
        while says && !said.contains(note) {
            assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
        }
        writeln!(input, "copied").unwrap();
        drop(input);
        output.read_to_string(&mut shown).unwrap();
        errors.read_to_string(&mut said).unwrap();
        let (status, errors) = (child.wait().unwrap(), said);
        assert!(status.success(), "{shown}{errors}");
        assert!(shown.contains("copied"), "{shown}{errors}");
        let hits = counters(&shown).get("work block 0").copied();
        assert_eq!(hits, Some(2000), "{shown}{errors}");
        assert_eq!(errors.contains(note), says, "{shown}{errors}");
        assert!(
            shown.contains("The program has ended: exit status: 0."),
            "{shown}"
        );
    }
}

#[test]
fn a_time_is_that_of_all_executions() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING, &[]);
    let mut process = Counted::of(Command::new(program), folder);
    let arguments = ["work", "--exec", "follows", "--for", "4s"];
    let mut following = Following::start(process.pid(), &arguments);
    let begun = Instant::now();
    process.does("work");
    writeln!(process.input, "e").unwrap();
    assert_eq!(process.line(), "ready");
    instrumented(&mut following);
    let shown = following.end();
    // Planning is part of the time of all.
    assert!(begun.elapsed() < Duration::from_secs(7), "{shown}");
    let executions: Vec<&str> = shown.split("After it executed a program:").collect();
    assert_eq!(executions.len(), 2, "{shown}");
    assert!(executions[1].contains("No place was hit."), "{shown}");
    assert!(!process.maps().contains("memfd:gilk"));
    process.does("work");
    process.end();
}
