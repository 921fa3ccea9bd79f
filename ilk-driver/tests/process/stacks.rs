//! Stacks of a process: each call has the frames that the compiler's own unwinder finds, without frame pointers, through
//! handlers of signals, callbacks of the C library, and functions whose frames have no constant size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gilk_samples::recording::Recording;

use super::cache_instruments::in_cache;
use super::launched::{ilk, text_of};
use super::{compile, compiled_from};

const SOURCE: &str = include_str!("stacks.c");
const SCRIPT: &str = "entry:work { @by[ustack] = count() }";
/// Frames of a stack, at most.
const DEPTH: usize = 126;

fn program(folder: &Path) -> PathBuf {
    let options = ["-rdynamic", "-fno-optimize-sibling-calls"];
    compiled_from(folder, SOURCE, &options)
}

/// Stacks without their first frame, with the number of calls of each.
type Ways = BTreeMap<Vec<String>, u64>;

/// The ways that the program has printed, of at most as many frames as are counted.
fn printed(shown: &str) -> Ways {
    let lines = shown.lines().filter_map(|line| line.strip_prefix("way: "));
    let mut ways = Ways::new();
    for line in lines {
        let (count, frames) = line.split_once(' ').unwrap();
        let frames = frames.split(';').take(DEPTH - 1).map(str::to_owned);
        *ways.entry(frames.collect()).or_default() += count.parse::<u64>().unwrap();
    }
    ways
}

/// Returns a frame as the program prints it.
fn frame(name: &str) -> String {
    match name.strip_suffix(" (counted)") {
        Some(name) => name.to_owned(),
        None => "*".to_owned(),
    }
}

/// The stacks in a report of totals.
fn reported(shown: &str) -> Ways {
    let mut ways = Ways::new();
    let mut lines = shown.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((count, rest)) = line.trim().split_once("  stack of ") else {
            continue;
        };
        let frames = rest.strip_suffix(" frames").unwrap().parse().unwrap();
        let stack: Vec<String> = lines
            .by_ref()
            .take(frames)
            .map(|line| frame(line.trim()))
            .collect();
        assert_eq!(stack[0], "work+0x0", "{shown}");
        let count = count.replace(',', "").parse::<u64>().unwrap();
        *ways.entry(stack[1..].to_vec()).or_default() += count;
    }
    ways
}

fn judged(output: &Output) -> Ways {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let (expected, found) = (printed(&shown), reported(&shown));
    assert!(expected.len() >= 12, "{shown}");
    assert_eq!(found, expected, "{shown}");
    found
}

#[test]
fn stacks_are_those_of_another_unwinder_also_in_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let recording = folder.path().join("stacks.arrow");
    let output = ilk(
        &[
            "-e",
            SCRIPT,
            "-o",
            recording.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
        ],
        "",
    );
    let ways = judged(&output);
    let recording = Recording::open(&recording).unwrap();
    let stacks = &recording.totals().stacks;
    let kept = stacks.frames.values().map(|frames| {
        let frames = frames.iter().skip(1);
        frames.map(|name| frame(name)).collect::<Vec<_>>()
    });
    let mut kept: Vec<Vec<String>> = kept.collect();
    kept.sort();
    // Returns into the C library have other addresses, and one form here.
    kept.dedup();
    assert!(kept.iter().eq(ways.keys()), "{kept:?}");
    assert_eq!(stacks.lost, 0);
}

#[test]
fn stacks_are_those_of_another_unwinder_in_forked_children() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let program = program.to_str().unwrap();
    for children in ["shared", "own"] {
        let options = ["-e", SCRIPT, "--children", children, "--", program, "fork"];
        judged(&ilk(&options, ""));
    }
}

#[test]
fn stacks_are_those_of_another_unwinder_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    judged(&in_cache(&["-e", SCRIPT], &program, &[]));
}

/// Its callers are found with its first call: the thread that loads it waits until its unwind table is read.
#[test]
fn stacks_have_frames_of_libraries_that_are_loaded_later() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let source = folder.path().join("passing.c");
    let passing = "int passing(int (*f)(int), int n) { char *space = __builtin_alloca(16 * n + 16); __asm__ volatile(\"\" ::\"r\"(space) : \"memory\"); return f(n) + 1; }";
    std::fs::write(&source, passing).unwrap();
    let mut compiler = Command::new("cc");
    let options = ["-O2", "-shared", "-fPIC", "-o"];
    compile(
        compiler
            .args(options)
            .arg(folder.path().join("libpassing.so"))
            .arg(&source),
    );
    let script = format!("{SCRIPT} entry:libpassing.so:passing {{ @passed = count() }}");
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "-e", &script, "--"])
        .arg(program)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let ways = judged(&output);
    let through = ways.iter().filter(|(frames, _)| {
        let after_plain = frames.get(1..3).unwrap_or_default();
        after_plain.first().is_some_and(|frame| frame == "*")
            && after_plain
                .last()
                .is_some_and(|frame| frame.starts_with("main+"))
    });
    let calls: u64 = through.map(|(_, calls)| calls).sum();
    assert_eq!(calls, 100, "{ways:?}");
}

/// Numbers of addresses, and stacks in samples and of few frames.
#[test]
fn addresses_have_the_names_of_their_functions() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let script = "entry:work { @to[usym(*(u64 *)reg(\"sp\"))] = count(); @two[ustack(2)] = count(); sample(ustack(3)) }";
    let recording = folder.path().join("stacks.arrow");
    let output = ilk(
        &[
            "-e",
            script,
            "-o",
            recording.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
        ],
        "",
    );
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let mut callers: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, count) in printed(&shown) {
        *callers.entry(frames[0].clone()).or_default() += count;
    }
    let mut of_stacks: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, count) in reported(&shown) {
        assert_eq!(frames.len(), 1, "{shown}");
        *of_stacks.entry(frames[0].clone()).or_default() += count;
    }
    assert_eq!(of_stacks, callers, "{shown}");
    for (caller, count) in &callers {
        let line = format!("{count}  {caller} (counted)");
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    let recording = Recording::open(&recording).unwrap();
    let stacks = &recording.totals().stacks;
    let mut samples = 0;
    for batch in recording.batches() {
        for sample in batch.unwrap().samples {
            let frames = stacks.get(sample.value.into()).unwrap();
            assert_eq!(frames.len(), 3, "{frames:?}");
            assert_eq!(frames[0], "work+0x0 (counted)");
            samples += 1;
        }
    }
    assert_eq!(samples, callers.values().sum::<u64>());
}

/// Lines have the names at once.
#[test]
fn lines_have_the_names_of_stacks_and_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let script = "entry:work { printf(\"by %s from %s\", ustack(1), usym(*(u64 *)reg(\"sp\"))) }";
    let output = ilk(&["-e", script, "--", program.to_str().unwrap()], "");
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let mut callers: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, count) in printed(&shown) {
        let line = format!("by work+0x0 (counted) from {} (counted)", frames[0]);
        *callers.entry(line).or_default() += count;
    }
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for line in shown.lines().filter(|line| line.starts_with("by ")) {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    assert_eq!(lines, callers, "{shown}");
}
