//! Recordings up to now have the children of a process in the code cache, and the programs that it has executed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;

use super::compiled_from;

/// Calls `work` 10 times for each line, and 100 times in a child that it has forked before; executes itself at the end, where it
/// calls it 55 times, and waits for the end of its input.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
static void works(int count) {
    for (int done = 0; done < count; done = work(done))
        ;
}
int main(int count, char **words) {
    char line[64], byte = 0;
    int to[2], from[2];
    setvbuf(stdin, NULL, _IONBF, 0);
    if (count > 1) {
        works(55);
        puts("executed");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        return 0;
    }
    if (pipe(to) || pipe(from))
        return 1;
    if (fork() == 0) {
        close(to[1]);
        while (read(to[0], &byte, 1) == 1) {
            works(100);
            if (write(from[1], &byte, 1) != 1)
                return 1;
        }
        return 0;
    }
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "execute\n")) {
        works(10);
        if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
            return 1;
        fputs(line, stdout);
        fflush(stdout);
    }
    close(to[1]);
    execl("/proc/self/exe", words[0], "again", NULL);
    return 1;
}
"#;

/// The calls of `work` in the programs of each process, the fewest first: those that were counted, or totals.
fn worked(file: &Path, is_counted: bool) -> Vec<Vec<u64>> {
    let recording = Recording::open(file).unwrap();
    assert!(recording.recovered().is_none());
    let mut all = BTreeMap::<String, Vec<u64>>::new();
    let mut add = |label: &str, calls| {
        let number = label.split_whitespace().nth(1).unwrap();
        all.entry(number.to_owned()).or_default().push(calls);
    };
    if is_counted {
        let mut last = BTreeMap::new();
        for batch in recording.batches() {
            last.extend(batch.unwrap().samples.iter().map(|one| (one.id, one.value)));
        }
        let instruments = recording.metadata().instruments.iter();
        let blocks = instruments.filter(|one| one.placed.is_none());
        for one in blocks.filter(|one| one.label.ends_with(" work block 0")) {
            add(&one.label, last[&one.id]);
        }
    } else {
        for total in &recording.totals().added_up {
            add(&total.instrument, total.value.hits());
        }
    }
    let mut calls: Vec<_> = all.into_values().collect();
    calls.sort();
    calls
}

fn follow(measured: &[&str], is_counted: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let [file, live] = ["work.arrow", "work.arrow.live"].map(|name| folder.path().join(name));
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let options = [
        "clone",
        "--live",
        "--children",
        "own",
        "--exec",
        "follows",
        "-o",
    ];
    let ilk = ilk
        .env("XDG_CACHE_HOME", folder.path())
        .args(options)
        .arg(&file)
        .args(measured)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut ilk = ilk.spawn().unwrap();
    let mut input = ilk.stdin.take().unwrap();
    let mut output = BufReader::new(ilk.stdout.take().unwrap());
    let mut say = |line: &str, answer: &str| {
        writeln!(input, "{line}").unwrap();
        let mut answered = String::new();
        output.read_line(&mut answered).unwrap();
        assert_eq!(answered.trim(), answer);
    };
    let until = |wanted: &[&[u64]]| {
        let begun = Instant::now();
        loop {
            let now = match live.exists() {
                true => worked(&live, is_counted),
                false => Vec::new(),
            };
            if now == wanted {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{now:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for round in 1..3 {
        say("a", "a");
        until(&[&[10 * round], &[100 * round]]);
    }
    // What has ended stays.
    say("execute", "executed");
    until(&[&[20, 55], &[200]]);
    drop(input);
    assert!(ilk.wait().unwrap().success());
    assert_eq!(worked(&file, is_counted), [vec![20, 55], vec![200]]);
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let mut files = files.map(|file| file.file_name().into_string().unwrap());
    assert!(!files.any(|name| name.contains("live")));
}

#[test]
fn blocks_of_children_are_recorded_while_they_run() {
    follow(&["--count"], true);
}

#[test]
fn blocks_of_children_are_recorded_beside_totals_while_they_run() {
    let script = "entry:work { @calls = hist(arg0) }";
    follow(&["--count", "-e", script], true);
    follow(&["--count", "-e", script], false);
}

#[test]
fn totals_of_children_are_recorded_while_they_run() {
    follow(&["-e", "entry:work { @calls = hist(arg0) }"], false);
}
