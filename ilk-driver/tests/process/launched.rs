//! Programs that `ilk process` starts: they are instrumented from their entry on, and their exit status is its own.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::compiled;

/// Executes `ilk process` with arguments, and gives its program lines.
fn ilk(arguments: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .arg("process")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_started_program_is_counted_from_its_first_call_to_its_last() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let program = program.to_str().unwrap();
    let script = "entry:counted { @calls = count() } entry:main { @starts = count(); sample(1) }";
    let recording = folder.path().join("x.arrow");
    let recording = recording.to_str().unwrap();
    let output = ilk(&["-e", script, "-o", recording, "--", program], "load\n");
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    let calls = shown
        .lines()
        .find_map(|line| line.split_once(' ')?.0.parse::<u64>().ok());
    let calls = calls.unwrap_or_else(|| panic!("{shown}"));
    let counted = shown
        .lines()
        .find(|line| line.contains("@calls of "))
        .unwrap();
    let counted = counted.trim().split(' ').next().unwrap().replace(',', "");
    assert_eq!(counted, calls.to_string(), "{shown}");
    assert!(shown.contains("1 samples, 0 lost"), "{shown}");
    assert!(
        shown.contains("The program has ended: exit status: 0."),
        "{shown}"
    );
    assert!(std::path::Path::new(recording).exists());
}

#[test]
fn the_exit_status_of_a_program_is_that_of_the_command() {
    let output = ilk(&["--all", "main", "--", "/bin/sh", "-c", "exit 7"], "");
    // A stripped shell has no main: the program does not start then.
    assert!(!output.status.success());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("seven.c");
    std::fs::write(&source, "int main(void) { return 7; }").unwrap();
    let program = folder.path().join("seven");
    let build = |options: &[&str]| {
        let cc = Command::new("cc")
            .args(options)
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .status();
        assert!(cc.unwrap().success());
    };
    build(&[]);
    let output = ilk(&["main", "--", program.to_str().unwrap()], "");
    let shown = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(7),
        "{shown}{}",
        text(&output.stderr)
    );
    assert!(shown.contains("1  counter pre main block 0"), "{shown}");
    build(&["-static"]);
    let output = ilk(&["main", "--", program.to_str().unwrap()], "");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("linked statically") && errors.contains("with -p"),
        "{errors}"
    );
    let output = ilk(&["main", "--", "/no/such/program"], "");
    let errors = text(&output.stderr);
    assert!(errors.contains("/no/such/program"), "{errors}");
}
