//! Commands whose readers are gone before the first line: `ilk … 2>&1 | head`.

use std::process::{Command, Stdio};

use super::{Counted, text};

/// Returns the exit status of a command whose output and errors have no reader.
fn status(words: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    child.wait().unwrap().code()
}

#[test]
fn a_command_without_a_reader_ends_quietly_by_the_documented_status() {
    for (words, expected) in [
        (&["help", "reference"][..], 0),
        (&["help"], 0),
        (&["help", "hist"], 0),
        (&["man", "run"], 0),
        (&["completions", "bash"], 0),
        (&["script"], 0),
        (&["script", "opensnoop", "--print"], 0),
        (&["functions", "--image", "/bin/true"], 0),
        (&["help", "nothing_of_ours"], 1),
        (&["-e", "entry:vfs_read { @n = cuont() }"], 1),
        (&["stop", "--socket", "/run/no-agent.sock"], 1),
        (&["no-command"], 2),
    ] {
        assert_eq!(status(words), Some(expected), "{words:?}");
    }
}

#[test]
fn a_measurement_without_a_reader_leaves_nothing() {
    let counted = Counted::start(&[], |_| {});
    let before = counted.text();
    let pid = counted.pid().to_string();
    // Its threads wait: one that executes the code may have to be stopped again and again on a busy machine.
    let words = [
        "process", "-p", &pid, "counted", "--blocks", "--for", "200ms",
    ];
    assert_eq!(status(&words), Some(0));
    assert_eq!(text(counted.pid()), before);
    counted.end();
}
