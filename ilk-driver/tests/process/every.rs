//! Every process of a program is instrumented: those of the start, those that begin later, and forked children once.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use gilk_samples::recording::Recording;

use super::probes::interrupt;
use super::{Counted, compiled};

#[test]
fn the_counts_of_all_processes_of_a_program_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let start = || Counted::of(Command::new(&program), tempfile::tempdir().unwrap());
    let mut processes = vec![start(), start()];
    let recording = folder.path().join("all.arrow");
    let script = "entry:counted { @calls = count(); @most = max((u32)arg0); @sizes = lhist((u32)arg0 % 3, 0, 3, 1) } \
                  return:counted / retval == 7 / { sample(1) }";
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "-e", script, "-o"])
        .arg(&recording)
        .arg("-x")
        .arg(&program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(ilk.stderr.take().unwrap());
    let mut instrumented = |processes: &[Counted]| {
        let mut line = String::new();
        for _ in processes {
            while !line.contains("places in process") {
                line.clear();
                assert!(messages.read_line(&mut line).unwrap() > 0);
            }
            line.clear();
        }
    };
    instrumented(&processes);
    // It begins later.
    processes.push(start());
    instrumented(&processes[2..]);
    let mut calls = 0;
    for process in &mut processes {
        // Among others in forked children, which have their parent's instruments.
        calls += process.does("load").0;
    }
    let numbers: Vec<u32> = processes.iter().map(Counted::pid).collect();
    for process in processes {
        process.end();
    }
    interrupt(ilk.id());
    let mut shown = String::new();
    let mut output = ilk.stdout.take().unwrap();
    output.read_to_string(&mut shown).unwrap();
    let mut rest = String::new();
    messages.read_to_string(&mut rest).unwrap();
    assert!(ilk.wait().unwrap().success(), "{shown}{rest}");
    assert!(shown.contains("3 processes of "), "{shown}");
    let counted = shown
        .lines()
        .find(|line| line.contains("@calls of "))
        .unwrap();
    let counted = counted.trim().split(' ').next().unwrap().replace(',', "");
    assert_eq!(counted, calls.to_string(), "{shown}");
    let recorded = Recording::open(&recording).unwrap();
    for number in numbers {
        let label = format!("process {number}: ");
        let mut instruments = recorded.metadata().instruments.iter();
        assert!(
            instruments.any(|one| one.label.starts_with(&label)),
            "{label}"
        );
    }
}

#[test]
fn a_program_without_processes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let every = |arguments: &[&str]| {
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let output = ilk.arg("process").args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let name = program.to_str().unwrap();
    let errors = every(&["counted", "--for", "100ms", "-x", name]);
    assert!(errors.contains("No process executes "), "{errors}");
    assert!(errors.contains("was instrumented"), "{errors}");
    // What is wrong with the measurement is no reason to wait for other processes.
    let waiting = Counted::of(Command::new(&program), tempfile::tempdir().unwrap());
    let script = "return:counted { sample(arg0) }";
    let errors = every(&["-e", script, "-x", name]);
    assert!(errors.contains("overwritten its arguments"), "{errors}");
    waiting.end();
    let errors = every(&["counted", "-x", "/no/such/program"]);
    assert!(errors.contains("/no/such/program"), "{errors}");
    let errors = every(&["counted", "-x", "no-such-program"]);
    assert!(errors.contains("PATH"), "{errors}");
}
