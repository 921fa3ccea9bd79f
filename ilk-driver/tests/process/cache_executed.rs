//! A process in the code cache that executes other programs: it is left at the first, or is in the cache in all of them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use gilk_samples::recording::Recording;

use super::cloned::{self, is_in_cache};
use super::compiled_from;
use super::executions::EXECUTING as EXECUTING_AT_LINES;
use super::forks::until;
use super::probes::interrupt;

/// Calls `work` as often as its first argument says, and executes the program that is named by the others.
const EXECUTING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
int main(int count, char **words) {
    int done = 0, all = atoi(words[1]);
    while (done < all)
        done = work(done);
    printf("%d\n", done);
    fflush(stdout);
    if (count > 2)
        execvp(words[2], words + 2);
    return 5;
}
"#;

fn clone(folder: &Path, options: &[&str], program: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .arg("clone")
        .args(options)
        .arg("--")
        .args(program)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Executions of the entry of `work`, by the programs in their order.
pub(super) fn worked(recording: &Recording) -> Vec<u64> {
    let mut last = BTreeMap::new();
    for batch in recording.batches() {
        last.extend(batch.unwrap().samples.iter().map(|one| (one.id, one.value)));
    }
    let counters = recording.metadata().instruments.iter();
    let entries = counters.filter(|one| one.label.ends_with(" work block 0"));
    entries.map(|one| last[&one.id]).collect()
}

#[test]
fn the_programs_that_a_process_executes_are_in_the_cache_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING, &[]);
    let program = program.to_str().unwrap();
    let file = folder.path().join("counts.arrow");
    let path = file.to_str().unwrap();
    let chain = [program, "300", "sh", "-c", "exec \"$0\" 500", program];
    let options = ["--count", "--all", "--exec", "follows", "-o", path];
    let done = clone(folder.path(), &options, &chain);
    let errors = text(&done.stderr);
    assert_eq!(text(&done.stdout), "300\n500\n", "{errors}");
    assert_eq!(done.status.code(), Some(5), "{errors}");
    let parts: Vec<&str> = errors.split("Process ").skip(1).collect();
    assert_eq!(parts.len(), 3, "{errors}");
    for (part, name, calls) in [(0, "", "300 "), (2, program, "500 ")] {
        let part = parts[part];
        assert!(part.contains(name), "{part}");
        let line = part
            .lines()
            .find(|line| line.contains(" work+0x0 "))
            .unwrap();
        assert!(line.trim().starts_with(calls), "{line}");
    }
    let recording = Recording::open(&file).unwrap();
    assert_eq!(worked(&recording), [300, 500]);
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let shell = shell.file_name().unwrap().to_str().unwrap();
    for name in ["counted", shell] {
        let mut labels = recording.metadata().instruments.iter();
        let is_there = labels.any(|one| one.label.contains(&format!(" {name}: ")));
        assert!(is_there, "{name}");
    }

    // Instruments are those of each program.
    let script = "entry:work { @calls = count() }";
    let options = ["-e", script, "--exec", "follows", "-o", path, "--force"];
    let done = clone(folder.path(), &options, &[program, "300", program, "500"]);
    let errors = text(&done.stderr);
    assert_eq!(text(&done.stdout), "300\n500\n", "{errors}");
    let counted = |calls: &str| {
        let mut lines = errors.lines().map(str::trim);
        lines.any(|line| line.starts_with(calls) && line.contains("@calls of "))
    };
    assert!(counted("300 ") && counted("500 "), "{errors}");
}

#[test]
fn a_program_that_a_process_executes_is_left_alone_by_default_and_where_it_has_no_such_function() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING, &[]);
    let program = program.to_str().unwrap();
    let done = clone(
        folder.path(),
        &["--count"],
        &[program, "300", "echo", "later"],
    );
    let errors = text(&done.stderr);
    assert_eq!(text(&done.stdout), "300\nlater\n", "{errors}");
    assert_eq!(done.status.code(), Some(0), "{errors}");
    assert!(errors.contains("With --exec follows"), "{errors}");

    let options = ["-e", "entry:work { @calls = count() }", "--exec", "follows"];
    let done = clone(folder.path(), &options, &[program, "300", "echo", "later"]);
    let errors = text(&done.stderr);
    assert_eq!(text(&done.stdout), "300\nlater\n", "{errors}");
    assert_eq!(done.status.code(), Some(0), "{errors}");
    assert!(
        errors.contains("continues outside of the cache"),
        "{errors}"
    );
}

/// A process that executes the same program again is taken again, and let go at the end of the time.
#[test]
fn an_attached_process_is_in_the_cache_in_the_program_that_it_executes() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), EXECUTING_AT_LINES, &[]);
    let (mut child, mut input, mut output, line) = cloned::started(&program, "r");
    assert_eq!(line, "ready\n");
    let pid = child.id();
    let mut does = |line: &str, answer: &str| {
        writeln!(input, "{line}").unwrap();
        let mut answered = String::new();
        output.read_line(&mut answered).unwrap();
        assert_eq!(answered.trim(), answer);
    };
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args([
            "clone",
            "--count",
            "--exec",
            "follows",
            "-p",
            &pid.to_string(),
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("in the cache", || is_in_cache(pid));
    for _ in 0..3 {
        does("execute", "ready");
        until("in the cache", || is_in_cache(pid));
        does("answer", "1000 0");
    }
    interrupt(ilk.id());
    let mut errors = String::new();
    let said = ilk.stderr.as_mut().unwrap();
    said.read_to_string(&mut errors).unwrap();
    assert!(ilk.wait().unwrap().success(), "{errors}");
    assert_eq!(errors.matches("blocks executed").count(), 4, "{errors}");
    assert!(!super::maps(pid).contains("memfd:gilk"), "{errors}");
    does("answer", "1000 0");
    does("execute", "ready");
    drop(input);
    assert!(child.wait().unwrap().success());
}
