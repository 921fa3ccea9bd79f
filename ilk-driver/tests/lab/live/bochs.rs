//! Sessions on a processor with indirect branch tracking, in Bochs: an emulator that shares no code with QEMU.
//!
//! Takes a quarter of an hour: `cargo xtask test --long` runs it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gilk_samples::Sample;
use gilk_samples::recording::Recording;
use ilk_driver::lab::{Lab, Options, Prepared, console_in_bochs, prepare, session_in_bochs};

use super::natives::object_of_c;
use crate::support::{DRIVER, placement, pulsar};

/// Time limit of a machine.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// The lab's files with a kernel that tracks indirect branches: 6.1 does not. A module of the kernel's own is loaded first:
/// on this processor 6.12 reports once, at the first module with indirect branches, that its own `apply_retpolines` makes
/// pages writable and executable ("CPA detected W^X violation").
fn tracking() -> Prepared {
    let options = Options {
        series: Some("6.12".into()),
        cpus: 1,
        drivers: vec![DRIVER.to_owned()],
        ..Options::default()
    };
    prepare(&options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "boots Bochs; cargo xtask test --long runs it"]
fn the_demonstration_samples_every_fork() {
    let session = pulsar(
        10.0,
        1000,
        vec![
            placement("__x64_sys_clone", 0, "timestamp", (0.0, 10.0)),
            placement("copy_process", 0, "counter", (0.0, 10.0)),
        ],
    );
    let text = session.to_ron().unwrap();
    let ran = session_in_bochs(&tracking(), &text, LIMIT, &mut |line| println!("{line}"));
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.status, 0, "{:#?}", ran.said);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bochs.arrow");
    fs::write(&path, ran.recording.unwrap()).unwrap();
    let recording = Recording::open(&path).unwrap();
    let id = recording.metadata().instruments[0].id;
    let batches = recording.batches().map(Result::unwrap);
    let samples: Vec<Sample> = batches.flat_map(|batch| batch.samples).collect();
    let forks = samples.iter().filter(|sample| sample.id == id).count();
    assert_eq!(forks as u64, FORKS, "{:#?}", ran.said);
}

/// The counters at all blocks of a function, on both emulators, by the same script.
#[test]
#[ignore = "boots Bochs; cargo xtask test --long runs it"]
fn all_blocks_of_copy_process_are_counted_as_in_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../instruments/native/example.c"
    );
    let placements = NATIVELY.map(|name| placement(name, 0, "count-natively", (0.0, 10.0)));
    let session = pulsar(10.0, 1000, placements.into()).to_ron().unwrap();
    let files = [
        ("run", SCRIPT.as_bytes().to_vec()),
        ("native.ron", session.into_bytes()),
        ("native.o", object_of_c(Path::new(example))),
    ];
    let files = files.map(|(name, bytes)| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        (format!("lab/{name}"), path)
    });
    let prepared = tracking().with(|options| options.files = files.into());
    let bochs = console_in_bochs(&prepared, LIMIT, &mut |line| println!("{line}"));
    let bochs = Counts::of(&bochs.unwrap_or_else(|error| panic!("{error}")));
    let qemu = Counts::of(&in_qemu(&prepared));
    println!("Bochs: {bochs:?}\nQEMU: {qemu:?}");
    assert!(bochs.tracks, "the kernel does not track indirect branches");
    for counts in [&bochs, &qemu] {
        let [calls, entries] = counts.natively;
        assert_eq!([counts.calls, calls], [FORKS; 2], "{counts:?}");
        for entries in [counts.entries, entries] {
            assert!((FORKS..FORKS + 20).contains(&entries), "{counts:?}");
        }
        assert!(counts.placed > 300 && counts.hit > 150, "{counts:?}");
        assert!(counts.is_clean, "{counts:?}");
    }
    assert!(bochs.placed.abs_diff(qemu.placed) * 50 < qemu.placed);
    assert!(bochs.hit.abs_diff(qemu.hit) * 20 < qemu.hit);
}

/// Functions whose calls a native function counts: where clone(2) enters, and the one that does its work. The kernel calls
/// that one by its name alone, and so has sealed its `endbr64`.
const NATIVELY: [&str; 2] = ["__x64_sys_clone", "kernel_clone"];

/// Counts every block of `copy_process`, and the calls of clone(2), whose number is known: Pulsar's forks. Then counts them
/// by a native function.
const SCRIPT: &str = r"#!/bin/busybox sh
dmesg -n 1
echo tracked: $(grep -cw ibt /proc/cpuinfo)
ilk agent --socket /run/ilk.sock --allow-run --allow-native --unknown-kernel > /tmp/agent 2>&1 &
while [ ! -S /run/ilk.sock ]; do usleep 100000; done
ilk -e 'entry:__do_sys_clone { @calls = count() } block:copy_process:* { @blocks = count() }' \
	-c '/bin/pulsar 100 5' --socket /run/ilk.sock < /dev/null 2>&1
ilk run /lab/native.ron --native /lab/native.o --socket /run/ilk.sock -o /tmp/native.arrow < /dev/null > /tmp/said 2>&1 ||
	cat /tmp/said
ilk stats /tmp/native.arrow | sed -n 's/^ *\([0-9,]*\) .*  count-natively pre /natively: \1 /p'
echo splices: $(wc -l < /sys/kernel/debug/ilk/splices)
dmesg | sed -n '/ilk: loading/,$p' | grep -E 'BUG|WARNING|Oops|Missing ENDBR|general protection' | sed 's/^/bad: /'
rmmod ilk && echo removed
";
/// Pulsar's forks: five rounds of 32.
const FORKS: u64 = 160;

/// The script's results.
#[derive(Debug)]
struct Counts {
    /// The processor and the kernel track indirect branches.
    tracks: bool,
    /// Hooks with a counter.
    placed: u64,
    /// Blocks that were executed.
    hit: u64,
    /// Calls of clone(2), and of the function with the counters, which others call a few times too.
    calls: u64,
    entries: u64,
    /// Calls that the native function counted.
    natively: [u64; 2],
    /// No splice was left, the module could be unloaded, and the kernel reported nothing.
    is_clean: bool,
}

impl Counts {
    fn of(console: &str) -> Self {
        let number = |text: &str| text.trim().replace(',', "").parse::<u64>().ok();
        let lines = || console.lines();
        let of = |end: &str| {
            let mut counted = lines().filter_map(|line| number(line.strip_suffix(end)?));
            counted
                .next()
                .unwrap_or_else(|| panic!("no {end:?} in:\n{console}"))
        };
        let natively = |function: &str| {
            let end = format!(" {function} block 0");
            let mut counted = lines()
                .filter_map(|line| number(line.strip_prefix("natively: ")?.strip_suffix(&end)?));
            counted
                .next()
                .unwrap_or_else(|| panic!("no {end:?} in:\n{console}"))
        };
        let blocks = lines().filter(|line| line.contains("  copy_process block "));
        let hit = blocks.count() as u64;
        Self {
            tracks: lines().any(|line| line == "tracked: 1"),
            placed: hit + of(" others: 0"),
            hit,
            calls: of("  __do_sys_clone"),
            entries: of("  copy_process block 0 pre"),
            natively: NATIVELY.map(natively),
            is_clean: ["splices: 0", "removed"].map(|text| lines().any(|line| line == text))
                == [true; 2]
                && !lines().any(|line| line.starts_with("bad: ")),
        }
    }
}

/// The console of the same lab in QEMU, up to the end of its script.
fn in_qemu(prepared: &Prepared) -> String {
    let lab = Lab::boot(prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    while lab.end().is_none() {
        assert!(begun.elapsed() < LIMIT, "{}", lab.console().unwrap());
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.console().unwrap()
}
