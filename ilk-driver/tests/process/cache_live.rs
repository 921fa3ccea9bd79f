//! Totals of instruments in the code cache are in a file while they run, and grow to those of the end.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::process_end::EndWay;
use gilk_samples::recording::Recording;
use gilk_samples::totals::{TotalValue, Totals};

use super::compiled_from;

/// Calls `work` as often as each line says, from one of two functions in turns.
const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
__attribute__((noipa)) int even(int value) { return work(value) - 1; }
__attribute__((noipa)) int odd(int value) { return work(value) - 2; }
int main(void) {
    int calls, sum = 0;
    while (scanf("%d", &calls) == 1) {
        for (int i = 0; i < calls; i++)
            sum += i % 2 ? odd(i) : even(i);
        printf("%d\n", calls);
        fflush(stdout);
    }
    return 0;
}
"#;
const SCRIPT: &str = "entry:work { @calls = count(); @sum = sum(arg0); @sizes = hist(arg0); @rests[arg0 % 5] = count(); \
                      @stacks[ustack] = count(); sample(arg0) } \
                      entry:even { @evens = count() }";

/// A program in the cache, with `--live`.
struct Running {
    ilk: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(folder: &Path, file: &Path, options: &[&str], program: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let command = command
            .env("XDG_CACHE_HOME", folder)
            .args(["clone", "--live", "-e", SCRIPT, "-o"])
            .arg(file)
            .args(options)
            .arg("--")
            .arg(program);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ilk = command.spawn().unwrap();
        Self {
            input: ilk.stdin.take().unwrap(),
            output: BufReader::new(ilk.stdout.take().unwrap()),
            ilk,
        }
    }

    fn call(&mut self, calls: u64) {
        writeln!(self.input, "{calls}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), calls.to_string());
    }
}

/// Returns the value of an aggregate.
fn value<'t>(totals: &'t Totals, name: &str) -> &'t TotalValue {
    let all = &totals.added_up;
    let found = all.iter().find(|total| total.name == name);
    &found
        .unwrap_or_else(|| panic!("no {name} in {all:?}"))
        .value
}

/// Compares the totals of a recording with calls of so many lines.
fn compare(totals: &Totals, lines: &[u64]) {
    let calls: u64 = lines.iter().sum();
    let arguments = || lines.iter().flat_map(|calls| 0..*calls);
    assert_eq!(
        value(totals, "sum"),
        &TotalValue::Number(arguments().sum::<u64>().into())
    );
    assert_eq!(value(totals, "sizes").hits(), calls);
    let TotalValue::Values(rests, 0) = value(totals, "rests") else {
        panic!("{totals:?}")
    };
    for (rest, count) in rests {
        let with = arguments().filter(|one| i128::from(one % 5) == *rest);
        assert_eq!(*count, with.count() as u64, "{rests:?}");
    }
    assert_eq!(rests.len(), 5);
    // Each of both functions has its stack.
    let TotalValue::Map(rows, 0) = value(totals, "stacks") else {
        panic!("{totals:?}")
    };
    assert_eq!(rows.iter().map(|row| row.value.hits()).sum::<u64>(), calls);
    for row in rows {
        let number = row.numbers().next().unwrap();
        let frames = totals.stacks.get(number).unwrap();
        assert!(
            frames[1].starts_with("even+") || frames[1].starts_with("odd+"),
            "{frames:?}"
        );
    }
    assert_eq!(rows.len(), 2);
}

/// The values of samples by the labels of their instruments, the last of each.
fn last_values(recording: &Recording) -> BTreeMap<String, u64> {
    let mut last = BTreeMap::new();
    for sample in recording.merged().map(|sample| sample.unwrap().1) {
        last.insert(sample.id, sample.value);
    }
    let instruments = recording.metadata().instruments.iter();
    let values = instruments.filter_map(|one| Some((one.label.clone(), *last.get(&one.id)?)));
    values.collect()
}

#[test]
fn totals_up_to_now_grow_to_those_of_the_end() {
    follow(&[]);
}

#[test]
fn totals_and_executions_of_blocks_up_to_now_grow_to_those_of_the_end() {
    follow(&["--count"]);
}

fn follow(options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let [file, live] = ["work.arrow", "work.arrow.live"].map(|name| folder.path().join(name));
    let mut running = Running::start(folder.path(), &file, options, &program);
    let mut lines = Vec::new();
    let mut before = 0;
    for calls in [100, 250, 7] {
        running.call(calls);
        lines.push(calls);
        let meant: u64 = lines.iter().sum();
        let begun = Instant::now();
        let recording = loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "{lines:?}");
            std::thread::sleep(Duration::from_millis(20));
            // There is none at first; then each is whole.
            if !live.exists() {
                continue;
            }
            let recording = Recording::open(&live).unwrap();
            assert!(recording.recovered().is_none());
            let now = value(recording.totals(), "sizes").hits();
            assert!((before..=meant).contains(&now), "{now} after {before}");
            before = now;
            // Those that only count are samples.
            let values = last_values(&recording);
            let (blocks, counts): (BTreeMap<_, _>, BTreeMap<_, _>) =
                (values.iter()).partition(|(label, _)| label.starts_with("blocks: "));
            let evens: u64 = lines.iter().map(|calls| calls.div_ceil(2)).sum();
            // The first may be written before a block was executed.
            assert!(blocks.is_empty() || !options.is_empty(), "{blocks:?}");
            let of = |function: &str| {
                let label = format!("blocks: counter pre {function} block 0");
                blocks.get(&label).map(|count| **count)
            };
            let are_counted = of("work") == Some(meant) && of("even") == Some(evens);
            let is_counted = options.is_empty() || are_counted;
            if now == meant && is_counted && counts.into_values().eq([&evens]) {
                break recording;
            }
        };
        compare(recording.totals(), &lines);
    }
    drop(running.input);
    assert!(running.ilk.wait().unwrap().success());
    let recording = Recording::open(&file).unwrap();
    compare(recording.totals(), &lines);
    assert_eq!(recording.totals().ends[0].way, EndWay::Ended(0));
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let mut files = files.map(|file| file.file_name().into_string().unwrap());
    assert!(!files.any(|name| name.contains("live") || name.contains("blocks")));
}
