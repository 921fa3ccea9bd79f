//! Numbers of threads and processes in PID namespaces, as containers have them: those that the process knows.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use super::compiled_from;
use super::every::instrumented;

const SOURCE: &str = include_str!("contained.c");
/// Sums are 0 if all numbers are those that the program passes.
const SCRIPT: &str = "entry:work {
    @calls = count(); @others = sum(tid != arg0); @foreign = sum(pid != arg1); @pids[pid] = count() }";

/// Returns the child that a process has forked last.
fn last_child(pid: u32) -> Option<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path).unwrap();
    let last = children.split_whitespace().last();
    last.map(|one| one.parse().unwrap())
}

/// Counts the calls of a process, which is in a namespace after some others, and has further threads.
fn counted(earlier: u32, threads: u32) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &["-pthread"]);
    let mut command = Command::new(program);
    command.args([earlier.to_string(), threads.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut outer = command.spawn().unwrap();
    let mut input = outer.stdin.take().unwrap();
    let mut output = BufReader::new(outer.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let ready = line();
    if ready == "not permitted" {
        eprintln!("PID namespaces are not permitted here, so nothing is tested in one");
        assert!(outer.wait().unwrap().success());
        return;
    }
    // It is the first process of its namespace, or one after that and the others.
    let number = 1 + earlier;
    assert_eq!(ready, format!("ready {number}"));
    let first = last_child(outer.id()).unwrap();
    let pid = last_child(first).unwrap_or(first);
    assert_ne!(pid, number);

    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let ilk = ilk.args(["process", "-p", &pid.to_string(), "-e", SCRIPT]);
    let ilk = ilk.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ilk = ilk.spawn().unwrap();
    let mut messages = BufReader::new(ilk.stderr.take().unwrap());
    instrumented(&mut messages, 1);
    writeln!(input, "work").unwrap();
    assert_eq!(line(), "done");
    // It ends, and so does the measurement.
    drop(input);
    assert!(outer.wait().unwrap().success());
    let mut shown = String::new();
    ilk.stdout
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    messages.read_to_string(&mut shown).unwrap();
    assert!(ilk.wait().unwrap().success(), "{shown}");
    let calls = 100 * (1 + threads);
    assert!(shown.contains(&format!("{calls}  @calls")), "{shown}");
    for sum in ["others", "foreign"] {
        assert!(shown.contains(&format!(" 0  @{sum}")), "{shown}");
    }
    let mut lines = shown.lines().skip_while(|line| !line.contains("@pids"));
    let row: Vec<&str> = lines.nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        [&calls.to_string(), "×", &number.to_string()],
        "{shown}"
    );
}

#[test]
fn numbers_of_the_first_process_of_a_namespace_are_its_own() {
    counted(0, 0);
}

#[test]
fn numbers_of_threads_in_a_namespace_are_those_that_they_know() {
    counted(0, 3);
    counted(3, 2);
}
