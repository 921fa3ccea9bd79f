//! Programs in the code cache do what they do without it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, compiled.
fn compiled(folder: &Path, options: &[&str]) -> PathBuf {
    compiled_from(folder, include_str!("cloned.c"), options)
}

fn compiled_from(folder: &Path, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("cloned.c"), folder.join("cloned"));
    std::fs::write(&source, text).unwrap();
    let done = Command::new("cc")
        .args(["-O2", "-pthread", "-w", "-o"])
        .arg(&program)
        .args(options)
        .arg(&source)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    program
}

fn ilk(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .arg("clone")
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap()
}

/// Signals, faults, threads, forked children, and checksums of the program's own text.
#[test]
fn a_program_in_the_cache_prints_what_it_prints_without() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&[][..], &["-no-pie", "-O0"]] {
        let program = compiled(folder.path(), options);
        for arguments in [&[][..], &["c"]] {
            let alone = Command::new(&program).args(arguments).output().unwrap();
            assert_eq!(alone.status.code(), Some(3));
            for choice in [&[][..], &["--count", "--all"]] {
                let cached = ilk(choice, &program, arguments);
                let errors = String::from_utf8_lossy(&cached.stderr);
                assert_eq!(
                    String::from_utf8_lossy(&cached.stdout),
                    String::from_utf8_lossy(&alone.stdout),
                    "{choice:?} {arguments:?}: {errors}"
                );
                assert_eq!(cached.status.code(), Some(3), "{errors}");
                // Code that is written stays in the cache.
                assert!(!errors.contains("was let go"), "{errors}");
                assert_eq!(
                    errors.contains("instructions in"),
                    !choice.is_empty(),
                    "{errors}"
                );
                // Blocks have the names of functions, in the program and in its libraries.
                let named = |function: &str| errors.contains(&format!("  {function}+0x"));
                assert_eq!(named("main"), !choice.is_empty(), "{errors}");
            }
        }
    }
}

/// Cases of observing.c that the cache lets go, and the rules.
const LET_GO: [(&str, &str); 2] = [("often", "written-often"), ("on-the-stack", "may-change")];

/// Changed code, registers and addresses in handlers of signals, restarted system calls, raw threads, and the like.
#[test]
fn programs_that_observe_themselves_see_what_they_see_without() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("observing.c"), &[]);
    let names = Command::new(&program).output().unwrap();
    let names = String::from_utf8(names.stdout).unwrap();
    assert!(
        LET_GO
            .iter()
            .all(|(name, _)| names.lines().any(|one| one == *name))
    );
    for name in names.lines() {
        let alone = Command::new(&program).arg(name).output().unwrap();
        let cached = ilk(&["--count"], &program, &[name]);
        let errors = String::from_utf8_lossy(&cached.stderr);
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&cached), text(&alone), "{name}: {errors}");
        // A program that a signal ends has no exit status of its own.
        let expected = alone.status.code().unwrap_or(1);
        assert_eq!(cached.status.code(), Some(expected), "{name}: {errors}");
        let by_signal = alone.status.code().is_none();
        assert_eq!(
            by_signal,
            errors.contains("has ended: signal"),
            "{name}: {errors}"
        );
        let rule = LET_GO.iter().find(|(one, _)| *one == name);
        assert_eq!(
            errors.contains("was let go"),
            rule.is_some(),
            "{name}: {errors}"
        );
        let is_named = rule.is_none_or(|(_, rule)| errors.contains(rule));
        assert!(is_named, "{name}: {errors}");
    }
}

/// A process is taken into the cache while it executes, and let go; nothing is left in it.
#[test]
fn a_process_enters_the_cache_and_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let mut child = Command::new(&program)
        .arg("r")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let maps = || super::maps(child.id());
    let before = maps();
    let mut results = Vec::new();
    for _ in 0..3 {
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .args([
                "clone",
                "--count",
                "--for",
                "300ms",
                "-p",
                &child.id().to_string(),
            ])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = ilk.stderr.take().unwrap();
        for _ in 0..20 {
            input.write_all(b"a").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            results.push(line);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        assert!(ilk.wait().unwrap().success(), "{text}");
        assert!(text.contains("instructions in"), "{text}");
    }
    results.dedup();
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(maps(), before);
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// A process with code that can be written is refused before anything is written.
#[test]
fn a_process_with_code_that_may_change_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let mut child = Command::new(&program)
        .arg("w")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let before = super::maps(child.id());
    let refused = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["clone", "-p", &child.id().to_string()])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && errors.contains("may-change"),
        "{errors}"
    );
    assert_eq!(super::maps(child.id()), before);
    drop(input);
    assert!(child.wait().unwrap().success());
}
