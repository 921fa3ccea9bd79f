//! Instruments that read memory in the code cache: at valid addresses and others, they have the answers of splices; no
//! handler of the program sees a read; and they end before system calls are filtered.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::cache_instruments::{in_cache, total};
use super::{Counted, compiled_from};

const SCRIPT: &str = "entry:handle { @n = count(); @sizes = sum(request->size); @order = sum(number); \
                      @seventh = sum(arg6) } \
                      entry:handle / str(request->path) == \"/index\" / { @index = count() }";
/// Calls of each of three threads, for eight kinds of pointers.
const CALLS: u64 = 20_000;

/// Executes a line of a program's commands while it is instrumented by a command of `ilk`; returns the answers and the
/// report.
fn measured(counted: &mut Counted, options: &[&str], lines: &[&str]) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
    ilk.env("XDG_CACHE_HOME", folder.path())
        .args(options)
        .args(["-p", &counted.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut ilk = ilk.spawn().unwrap();
    let mut said = String::new();
    let mut messages = BufReader::new(ilk.stderr.take().unwrap()).lines();
    while !said.contains("Ctrl-C") {
        let line = messages.next().unwrap_or_else(|| panic!("{said}"));
        said += &format!("{}\n", line.unwrap());
    }
    let mut answers = Vec::new();
    for line in lines {
        writeln!(counted.input, "{line}").unwrap();
        answers.push(counted.line());
    }
    let mut killer = Command::new("kill");
    let done = killer.args(["-INT", &ilk.id().to_string()]).status();
    assert!(done.unwrap().success());
    for line in messages {
        said += &format!("{}\n", line.unwrap());
    }
    let output = ilk.wait_with_output().unwrap();
    said += std::str::from_utf8(&output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("let go"), "{said}");
    (answers, said)
}

#[test]
fn reads_have_the_answers_of_splices_and_no_handler_sees_them() {
    for options in [&["-g"][..], &["-g", "-O0", "-no-pie"]] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_from(folder.path(), include_str!("reading.c"), options);
        let mut counted = Counted::of(Command::new(program), folder);
        let ways = ["process", "clone"].map(|way| {
            let (answers, said) = measured(&mut counted, &[way, "-e", SCRIPT], &[""]);
            let mut words = answers[0].split(' ').map(str::to_owned);
            let results = words.next().unwrap();
            let [handled, faults] = [(); 2].map(|()| words.next().unwrap().parse::<u64>().unwrap());
            // The handler saw the faults of the program, and no other.
            assert_eq!(faults, 200, "{said}");
            assert!(handled > 5, "{said}");
            // Of eight pointers five are of no request, or of half of one; each call of the timer's handler reads one.
            assert_eq!(total(&said, "@n"), 3 * CALLS + handled, "{said}");
            let sizes = 3 * CALLS / 8 * (10 + 11 + 17) + 10 * handled;
            assert_eq!(total(&said, "@sizes"), sizes, "{said}");
            assert_eq!(total(&said, "@index"), 3 * CALLS / 8 * 2, "{said}");
            let numbers = 3 * (CALLS * (CALLS - 1) / 2);
            assert_eq!(total(&said, "@order"), numbers, "{said}");
            let seventh = 3 * CALLS * 15 / 2 + handled;
            assert_eq!(total(&said, "@seventh"), seventh, "{said}");
            (results, total(&said, "failed and yielded 0"))
        });
        // At the size and the path of each, and at the text that no path points to.
        assert_eq!(ways[0], ways[1]);
        assert_eq!(ways[0].1, 3 * CALLS / 8 * 15);
        counted.end();
    }
}

/// Only while a function is called, with a condition that reads memory, too.
#[test]
fn reads_are_those_of_the_chosen_calls() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("reading.c"), &["-g"]);
    let mut counted = Counted::of(Command::new(program), folder);
    let options = [
        "clone",
        "--while",
        "load",
        "--if",
        "*(u64 *)arg0 == 0",
        "-e",
    ];
    let script = "block:load:* { @n = sum(*(u64 *)arg0 + 1) }";
    let (answers, said) = measured(&mut counted, &[&options[..], &[script]].concat(), &[""]);
    assert!(answers[0].ends_with(" 200"), "{answers:?} {said}");
    assert!(said.contains("200 calls of load"), "{said}");
    assert_eq!(total(&said, "@n"), 200, "{said}");
    counted.end();
}

/// A filter that ends the process for a read, in each of the ways to install one.
#[test]
fn reads_end_before_system_calls_are_filtered() {
    for way in ["prctl", "strict", "syscall", "threads", "stacked", "inline"] {
        let folder = tempfile::tempdir().unwrap();
        let source = include_str!("confined.c");
        let program = compiled_from(folder.path(), source, &["-g"]);
        let mut counted = Counted::of(Command::new(program), folder);
        let script = "entry:handle { @n = count(); @sizes = sum(request->size) }";
        let lines = ["calls", "others", way, "calls"];
        let lines = if way == "strict" {
            &lines[2..3]
        } else {
            &lines
        };
        let (answers, said) = measured(&mut counted, &["clone", "-e", script], lines);
        let last = answers.last().unwrap();
        assert!(last.ends_with(" 4000"), "{way}: {answers:?} {said}");
        assert!(said.contains("its memory was not read"), "{way}: {said}");
        assert!(total(&said, "@n") >= 1000, "{way}: {said}");
        assert!(
            total(&said, "failed and yielded 0") >= 1000,
            "{way}: {said}"
        );
        let sizes = said.lines().any(|line| line.contains("@sizes"));
        assert!(sizes || way == "strict", "{way}: {said}");
        counted.child.kill().unwrap();
        counted.child.wait().unwrap();
    }
}

/// The end of a stack: calls without the space for a read are executed without one.
#[test]
fn stack_overflows_are_handled_as_without_reads() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-g"][..], &["-g", "-O1", "-fno-omit-frame-pointer"]] {
        let program = super::cloned::compiled_from(folder.path(), include_str!("deep.c"), options);
        let alone = Command::new(&program).output().unwrap();
        let script = "entry:deep { @n = count(); @read = sum(*(u8 *)reg(\"sp\") >= 0) } \
                      entry:deep / arg0 > 3000000 / { sample(*(u64 *)arg0) }";
        let cached = in_cache(&["-e", script], &program, &[]);
        let said = String::from_utf8_lossy(&cached.stderr);
        let text = String::from_utf8(alone.stdout).unwrap();
        assert_eq!(String::from_utf8_lossy(&cached.stdout), text, "{said}");
        let (caught, deep) = text.split_once(" caught, ").unwrap();
        let deep: u64 = deep.strip_suffix(" deep\n").unwrap().parse().unwrap();
        assert_eq!(caught, "50");
        let counted = total(&said, "@n");
        assert!(
            (deep - 50 * 16..=deep + 50).contains(&counted),
            "{deep}: {said}"
        );
        assert_eq!(total(&said, "@read"), counted, "{said}");
        assert!(!said.contains("failed"), "{said}");
    }
}
