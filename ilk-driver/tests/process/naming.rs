//! `pid` and `comm` in a process: those that the program itself reads, in threads that change their names, and in forked
//! children.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use super::cache_instruments::in_cache;
use super::launched::{ilk, text_of};
use super::printing::recorded;
use super::{compiled_from, compiled_with_musl, without_area};

const SOURCE: &str = include_str!("naming.c");

const SCRIPT: &str = "
    entry:work { @pids[pid] = count(); @names[comm] = count(); @others = sum(pid != arg0) }
    entry:work / comm == \"renamed thread1\" && pid == arg0 / { @renamed = count() }";

/// The rows of a table of a listing.
fn rows(shown: &str, table: &str) -> BTreeMap<String, u64> {
    let title = format!("@{table} of ");
    let lines = shown.lines().skip_while(|line| !line.contains(&title));
    let lines = lines.skip(1).take_while(|line| !line.contains('@'));
    let rows = lines.filter_map(|line| {
        let (count, key) = line.trim().split_once("  ")?;
        let key = key.trim_start_matches("× ").replace(',', "");
        Some((key, count.replace(',', "").parse().ok()?))
    });
    rows.collect()
}

/// The numbers that the program has printed of one kind.
fn expected(shown: &str, kind: &str) -> BTreeMap<String, u64> {
    let before = format!("expected {kind} ");
    let lines = shown.lines().filter_map(|line| line.strip_prefix(&before));
    let numbers = lines.map(|line| {
        let (key, count) = line.rsplit_once(' ').unwrap();
        (key.to_owned(), count.parse().unwrap())
    });
    numbers.collect()
}

fn shown(output: &Output) -> String {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    shown
}

fn judged(shown: &str) {
    let (pids, names) = (expected(shown, "pid"), expected(shown, "comm"));
    assert_eq!((pids.len(), names.len()), (5, 8), "{shown}");
    assert_eq!(rows(shown, "pids"), pids, "{shown}");
    assert_eq!(rows(shown, "names"), names, "{shown}");
    assert!(shown.contains("201  @renamed"), "{shown}");
    // The sum of calls by others.
    assert!(shown.contains(" 0  @others"), "{shown}");
}

#[test]
fn numbers_and_names_are_those_of_the_process_that_executes() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let program = program.to_str().unwrap();
    judged(&shown(&ilk(&["-e", SCRIPT, "--", program], "")));
}

#[test]
fn numbers_and_names_need_no_restartable_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ilk"));
    without_area(&mut command);
    let command = command.args(["process", "-e", SCRIPT, "--"]).arg(program);
    judged(&shown(&command.output().unwrap()));
}

/// That of a program that is linked statically has a return from handlers of signals if it can set one.
#[test]
fn numbers_and_names_are_read_with_another_c_library() {
    for options in [&[][..], &["-static", "-Wl,-u,sigaction"]] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_with_musl(folder.path(), SOURCE, options);
        let name = program.to_str().unwrap();
        judged(&shown(&ilk(&["-e", SCRIPT, "--", name], "")));
        let attached = "entry:work { @threads[tid] = count(); @same = sum(tid == arg0) }";
        let output = ilk(&["-e", attached, "--", name], "");
        if options.is_empty() {
            let shown = shown(&output);
            assert_eq!(rows(&shown, "threads").len(), 8, "{shown}");
            // Those of the first thread and of the children, which are the first threads of theirs.
            assert!(shown.contains(" 103  @same"), "{shown}");
        } else {
            let errors = text_of(&output.stderr);
            assert!(errors.contains("program-unsupported"), "{errors}");
            assert!(errors.contains("attach to it later"), "{errors}");
        }
    }
}

#[test]
fn a_program_without_a_return_from_handlers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_with_musl(folder.path(), SOURCE, &["-static"]);
    let output = ilk(&["-e", SCRIPT, "--", program.to_str().unwrap()], "");
    let errors = text_of(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(
        errors.contains("no return from handlers of signals"),
        "{errors}"
    );
}

/// Forked children leave the cache.
#[test]
fn numbers_and_names_are_read_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let shown = shown(&in_cache(&["-e", SCRIPT], &program, &[]));
    let mut pids = expected(&shown, "pid");
    pids.retain(|_, calls| *calls > 100);
    let mut names = expected(&shown, "comm");
    names.remove("child");
    assert_eq!(rows(&shown, "pids"), pids, "{shown}");
    assert_eq!(rows(&shown, "names"), names, "{shown}");
}

/// A sample of a name is a line, and so is one with the number beside it.
#[test]
fn names_are_sampled_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let recording = folder.path().join("names.arrow");
    let script = "entry:work { printf(\"%s of %d is %s;\", comm, pid - arg0, str(arg1)) }";
    let (file, program) = (recording.to_str().unwrap(), program.to_str().unwrap());
    let shown = shown(&ilk(&["-e", script, "-o", file, "--", program], ""));
    let mut names = BTreeMap::new();
    for line in recorded(&recording).0 {
        let (name, rest) = line.split_once(" of 0 is ").unwrap();
        assert_eq!(rest.trim_end_matches(';'), name, "{line}");
        *names.entry(name.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(names, expected(&shown, "comm"), "{shown}");
}
