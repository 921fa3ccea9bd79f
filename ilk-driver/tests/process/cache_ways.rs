//! Instruments on the two ways of conditional branches in the code cache, and at ends of blocks without a branch: each
//! counts as often as control passes it, under signals and at the ends of stacks, and beside other instruments.

use std::process::Command;

use super::cache_instruments::{in_cache, total};
use super::cloned::compiled_from;

/// Calls of each of three threads: three of five are below 3, which the branch compares with.
const CALLS: u64 = 300_000;

#[test]
fn each_way_of_a_branch_counts_as_often_as_it_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("branching.c");
    let program = compiled_from(folder.path(), source, &[]);
    let alone = Command::new(&program).output().unwrap();
    let alone = String::from_utf8(alone.stdout).unwrap();
    // All registers are saved, too, and a way that reads memory.
    let reading = "taken:branching:0 { @below = sum(*(u8 *)reg(\"sp\") >= 0) }";
    for below in ["taken:branching:0 { @below = count() }", reading] {
        let script = format!(
            "entry:branching {{ @calls = count() }} post:branching+0x4 {{ @branches = count() }} {below} \
             untaken:branching:0 {{ @above = count() }} \
             untaken:deeper:0 {{ @deep = count(); @most = max(reg(\"di\")) }}"
        );
        let cached = in_cache(&["-e", &script], &program, &[]);
        let said = String::from_utf8_lossy(&cached.stderr);
        let text = String::from_utf8_lossy(&cached.stdout).into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let [results, handled, _, caught, _, deep, "deep"] = words[..] else {
            panic!("{text}: {said}");
        };
        assert_eq!(alone.split(' ').next(), Some(results), "{said}");
        let [handled, deep]: [u64; 2] = [handled, deep].map(|number| number.parse().unwrap());
        assert!(handled > 5, "{text}");
        assert_eq!(caught, "50");
        assert_eq!(total(&said, "@calls"), 3 * CALLS + handled, "{said}");
        assert_eq!(total(&said, "@branches"), 3 * CALLS + handled, "{said}");
        let expected = 3 * CALLS / 5 * 3 + handled;
        assert_eq!(total(&said, "@below"), expected, "{said}");
        assert_eq!(total(&said, "@above"), 3 * CALLS / 5 * 2, "{said}");
        // The last calls of each round have no space for it.
        let counted = total(&said, "@deep");
        assert!((deep - 50 * 40..=deep).contains(&counted), "{deep}: {said}");
        assert_eq!(total(&said, "@most"), 1, "{said}");
    }
}

/// A thread that leaves the cache there has executed the instruction, and must not execute it again.
#[test]
fn ways_of_loop_and_ends_without_a_branch_count_as_often_as_control_passes_them() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("turning.c"), &[]);
    let alone = Command::new(&program).output().unwrap();
    let alone = String::from_utf8(alone.stdout).unwrap();
    // All registers are saved, too, and instruments that read memory.
    let plain = "count()";
    let reading = "sum(*(u8 *)reg(\"sp\") >= 0)";
    // Splices count the same.
    for (hit, way) in [
        (plain, &["clone"][..]),
        (plain, &["clone", "--count"][..]),
        (reading, &["clone"][..]),
        (plain, &["process"][..]),
    ] {
        let script = format!(
            "entry:turning {{ @calls = count() }} taken:turning:0 {{ @none = {hit} }} \
             untaken:turning:0 {{ @some = count() }} taken:turning:1 {{ @again = count() }} \
             untaken:turning:1 {{ @over = count() }} post:turning+0x10 {{ @falls = {hit} }} \
             post:deeper+0x0 {{ @deep = {hit} }}"
        );
        let cached = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .env("XDG_CACHE_HOME", folder.path())
            .args(way)
            .args(["-e", &script, "--"])
            .arg(&program)
            .output()
            .unwrap();
        // `ilk process` prints the totals after what the program does.
        let [text, errors] =
            [cached.stdout, cached.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let said = format!("{text}{errors}");
        let line = text.lines().next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [results, handled, _, caught, _, deep, "deep"] = words[..] else {
            panic!("{text}: {said}");
        };
        assert_eq!(alone.split(' ').next(), Some(results), "{said}");
        let [handled, deep]: [u64; 2] = [handled, deep].map(|number| number.parse().unwrap());
        assert!(handled > 5 || way == ["process"], "{text}");
        assert_eq!(caught, "50");
        // Of five numbers from 0, whose turns are 1, 2, 3 and 4.
        let fifth = 3 * CALLS / 5;
        for (name, expected) in [
            ("@calls", 5 * fifth + handled),
            ("@none", fifth),
            ("@some", 4 * fifth + handled),
            ("@again", 6 * fifth + handled),
            ("@over", 4 * fifth + handled),
            ("@falls", 4 * fifth + handled),
        ] {
            assert_eq!(total(&said, name), expected, "{name}: {said}");
        }
        // The last calls of each round, of eight bytes each, have no space for it: 400 bytes where it reads memory.
        let counted = total(&said, "@deep");
        assert!((deep - 50 * 60..=deep).contains(&counted), "{deep}: {said}");
    }
}
