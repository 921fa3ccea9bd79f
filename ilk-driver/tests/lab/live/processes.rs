//! Memory and stacks of processes in the kernel's hooks, held against a program whose calls are known
//! (`ilk-driver/workload/frames.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use gilk_samples::kept_stacks::function;
use gilk_samples::recording::Recording;

use crate::support::{Turn, exported, ilk, printed, shared};

const ROUNDS: usize = 40;
/// Stacks of 3 frames, paths and their first four bytes, of one round.
const LINES: [(&str, &str, &str); 5] = [
    ("outer;middle;inner", "/etc/inner", "6374652f"),
    ("first;outer;inner", "/etc/a-path-of-…", "6374652f"),
    ("first;edge;inner", "/etc/edge", "6374652f"),
    ("first;nowhere;inner", "", "0"),
    ("deep_from;deep_from;inner", "/etc/deep", "6374652f"),
];
/// Whole chains, without the one that is longer than a stack may be.
const CHAINS: [&str; 4] = [
    "inner;middle;outer;first",
    "inner;outer;first",
    "inner;edge;first",
    "inner;nowhere;first",
];

/// Runs a script beside the program until it has printed all lines, since a process is named while it lives. Returns
/// what was printed, and the errors.
fn lines_of(turn: &Turn<'_>, script: &str, recording: &str) -> (String, String) {
    let command = format!("/bin/frames {ROUNDS} wait");
    let mut child = ilk()
        .args(["-e", script, "-c", &command, "-o", recording])
        .arg("--socket")
        .arg(turn.shared.lab.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    while out.matches('|').count() < 2 * LINES.len() * ROUNDS {
        let read = reader.read_line(&mut out).unwrap();
        assert!(read > 0, "it ended: {out}");
    }
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: the child is not waited for yet, so the number is its own.
    #[allow(unsafe_code, reason = "kill(2)")]
    let outcome = unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(outcome, 0);
    reader.read_to_string(&mut out).unwrap();
    let (_, err) = printed(&child.wait_with_output().unwrap());
    (out, err)
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn paths_and_stacks_of_a_program_are_those_that_it_has() {
    let shared = shared();
    let turn = shared.turn();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.arrow");
    let script = r#"
        entry:do_sys_openat2 / comm == "frames" / {
            @by[ustack] = count();
            @both[kstack(1), ustack(2)] = count();
            printf("%s|%s|%x\n", ustack(3), str(uptr(filename)), *(u32 *)uptr(filename));
        }
        entry:__x64_sys_openat / comm == "frames" && str(uptr(((struct pt_regs *)arg0)->si)) == "/etc/inner" / {
            @at[usym(((struct pt_regs *)arg0)->ip)] = count();
        }
        entry:schedule / curtask->mm == 0 / { @kernel[ustack] = count() }
    "#;
    let (out, err) = lines_of(&turn, script, recording.to_str().unwrap());

    let mut lines: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for line in out.lines().filter(|line| line.contains('|')) {
        let parts: Vec<&str> = line.split('|').collect();
        let [stack, path, bytes] = parts[..] else {
            panic!("{line}")
        };
        *lines.entry((stack, path, bytes)).or_default() += 1;
    }
    assert_eq!(lines, LINES.map(|line| (line, ROUNDS)).into(), "{out}{err}");
    // Of what is not mapped: the text's halves, the number, and the first bytes that the predicate compares. All else
    // could be read.
    let failed = format!("{} reads of memory failed", 4 * ROUNDS);
    assert!(err.contains(&failed), "{out}{err}");

    let totals = Recording::open(&recording).unwrap().totals().clone();
    let stacks = totals.stacks.of_processes.iter();
    let stacks = stacks.map(|number| &totals.stacks.frames[number]);
    let chains: BTreeSet<String> = stacks
        .clone()
        .filter(|frames| frames.len() > 2)
        .map(|frames| {
            assert!(
                frames.iter().all(|frame| frame.ends_with(" (frames)")),
                "{frames:?}"
            );
            let functions: Vec<&str> = frames.iter().map(|frame| function(frame)).collect();
            functions.join(";")
        })
        .collect();
    for chain in CHAINS {
        assert!(chains.contains(chain), "no {chain} in {chains:?}");
    }
    let deepest = stacks.max_by_key(|frames| frames.len()).unwrap();
    let mut functions = deepest.iter().map(|frame| function(frame));
    assert_eq!((deepest.len(), functions.next()), (126, Some("inner")));
    assert!(functions.all(|function| function == "deep_from"));
    for text in ["inner+0x", "[kernel thread]"] {
        assert!(out.contains(text), "no {text} in {out}{err}");
    }

    let folded = folder.path().join("run.folded");
    let text = exported(&recording, &["--to", "folded"], &folded);
    for (root, stack) in [
        ("@by ", "first;outer;middle;inner"),
        ("@both ", "middle;inner;do_sys_openat2"),
    ] {
        let line = text
            .lines()
            .find(|line| line.starts_with(root) && line.contains(stack));
        let line = line.unwrap_or_else(|| panic!("no {stack} in {text}"));
        assert!(line.ends_with(&format!("{stack} {ROUNDS}")), "{line}");
    }
    turn.assert_untouched();
}
