//! Instruments on the two ways of conditional branches in the code cache: each way counts as often as it is taken, under
//! signals and at the ends of stacks, and beside instruments before the branch.

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
