//! Every process of a program is instrumented: those of the start, those that begin later, and forked children once.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use gilk_samples::recording::Recording;

use super::probes::interrupt;
use super::{Counted, compiled, compiled_from};

/// Waits until so many further processes are instrumented.
pub(super) fn instrumented(messages: &mut impl BufRead, processes: usize) {
    let mut line = String::new();
    for _ in 0..processes {
        while !line.contains(" instrumented; its threads were stopped") {
            line.clear();
            assert!(messages.read_line(&mut line).unwrap() > 0);
        }
        line.clear();
    }
}

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
    let mut instrumented = |processes: &[Counted]| instrumented(&mut messages, processes.len());
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
    assert!(shown.contains("The process has ended.\n"), "{shown}");
    assert!(shown.contains("Their threads were stopped for "), "{shown}");
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

/// Works at a line, and executes itself at another.
const AGAIN: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == 'e')
            execl("/proc/self/exe", "again", NULL);
        int done = 0;
        while (done < 1000)
            done = work(done);
        printf("%d\n", done);
        fflush(stdout);
    }
    return 0;
}
"#;

#[test]
fn a_process_that_executes_its_program_again_is_instrumented_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), AGAIN, &[]);
    let mut process = Counted::of(Command::new(&program), tempfile::tempdir().unwrap());
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "work", "-x"])
        .arg(&program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(ilk.stderr.take().unwrap());
    for command in ["w", "e", "w"] {
        let expected = match command {
            "e" => "ready",
            _ => {
                instrumented(&mut messages, 1);
                "1000"
            }
        };
        writeln!(process.input, "{command}").unwrap();
        assert_eq!(process.line(), expected);
    }
    process.end();
    interrupt(ilk.id());
    let mut shown = String::new();
    let mut output = ilk.stdout.take().unwrap();
    output.read_to_string(&mut shown).unwrap();
    assert!(ilk.wait().unwrap().success(), "{shown}");
    assert!(shown.contains("(2 executions)"), "{shown}");
    assert!(shown.contains("2,000  counter pre work block 0"), "{shown}");
}
