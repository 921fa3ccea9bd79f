//! Names of functions of stripped programs, by the symbols in their separate debug files: the same everywhere, and those of
//! the program that is not stripped.

use std::collections::BTreeSet;
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::every::instrumented;
use super::launched::text_of;
use super::{EndedChild, compiled_from};

const SOURCE: &str = include_str!("separate.c");
const STACKS: &str = "entry:work { @by[ustack(3)] = count() }";

/// Runs a tool in the folder of a program.
fn run(program: &Path, tool: &str, arguments: &[&str]) {
    let mut command = match tool {
        "strip" => Command::new("strip"),
        _ => Command::new("objcopy"),
    };
    command.current_dir(program.parent().unwrap());
    let done = command.args(arguments).status().unwrap();
    assert!(done.success(), "{tool} {arguments:?}");
}

/// Compiles the program.
fn whole(folder: &Path) -> PathBuf {
    compiled_from(folder, SOURCE, &["-g", "-Wl,--build-id"])
}

/// Compiles the program, and moves all that names its functions into a debug file.
fn split(folder: &Path) -> PathBuf {
    let program = whole(folder);
    run(
        &program,
        "objcopy",
        &["--only-keep-debug", "counted", "counted.debug"],
    );
    run(&program, "strip", &["--strip-all", "counted"]);
    let link = "--add-gnu-debuglink=counted.debug";
    run(&program, "objcopy", &[link, "counted"]);
    program
}

/// Runs `ilk` with a program that works twice.
fn ilk(arguments: &[&str], program: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let command = command
        .current_dir(program.parent().unwrap())
        .env("XDG_CACHE_HOME", program.parent().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that is refused reads nothing.
    let _refused = child.stdin.take().unwrap().write_all(b"work\nwork\n");
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    let said = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

/// The functions of the file, with their addresses and sizes.
fn functions(program: &Path) -> String {
    let output = ilk(&["functions", "--image", "counted"], program);
    said(&output)
}

/// The names of the program's addresses in a report.
fn named(said: &str) -> BTreeSet<String> {
    let lines = said
        .lines()
        .filter_map(|line| line.split_once(" (counted)"));
    let names = lines.filter_map(|(before, _)| before.split_whitespace().next_back());
    names.map(str::to_owned).collect()
}

/// Counts functions of the program while it executes.
fn counted(program: &Path) -> String {
    let mut command = Command::new(program);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = EndedChild(command.spawn().unwrap());
    let pid = child.id().to_string();
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let ilk = ilk.args(["process", "-p", &pid, "work,calls,in_thread"]);
    let ilk = ilk.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ilk = ilk.spawn().unwrap();
    let mut messages = BufReader::new(ilk.stderr.take().unwrap());
    instrumented(&mut messages, 1);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"work\nwork\n").unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let mut shown = String::new();
    let mut output = ilk.stdout.take().unwrap();
    output.read_to_string(&mut shown).unwrap();
    messages.read_to_string(&mut shown).unwrap();
    assert!(ilk.wait().unwrap().success(), "{shown}");
    shown
}

/// The rows of counts.
fn rows(shown: &str) -> BTreeSet<Vec<String>> {
    let rows = shown.lines().filter(|line| {
        ["work", "calls", "in_thread"]
            .iter()
            .any(|name| line.contains(name))
    });
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
fn a_separate_debug_file_names_the_functions_everywhere() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [whole, split] = [whole(folders[0].path()), split(folders[1].path())];

    let listed = functions(&split);
    assert_eq!(listed, functions(&whole));
    for name in ["work", "calls", "in_thread"] {
        let is_it = |line: &&str| line.split_whitespace().any(|word| word == name);
        assert_eq!(listed.lines().filter(is_it).count(), 1, "{name}: {listed}");
    }

    let shown = counted(&split);
    assert_eq!(rows(&shown), rows(&counted(&whole)), "{shown}");
    for count in ["20", "2"] {
        let is_it = |line: &str| line.split_whitespace().next() == Some(count);
        assert!(shown.lines().any(is_it), "{count}: {shown}");
    }

    let blocks = ["clone", "--count", "--all", "--", "./counted"];
    let [of_whole, of_split] = [&whole, &split].map(|program| said(&ilk(&blocks, program)));
    assert_eq!(named(&of_split), named(&of_whole), "{of_split}");
    for name in ["work+0x0", "calls+0x0", "in_thread+0x0", "main+0x0"] {
        assert!(named(&of_split).contains(name), "{name}: {of_split}");
    }

    let inside = [
        "clone",
        "--while",
        "work",
        "--count",
        "--all",
        "--",
        "./counted",
    ];
    let inside = said(&ilk(&inside, &split));
    assert_eq!(named(&inside), ["work+0x0".to_owned()].into(), "{inside}");

    for way in ["process", "clone"] {
        let stacks = [way, "-e", STACKS, "--", "./counted"];
        let [of_whole, of_split] = [&whole, &split].map(|program| said(&ilk(&stacks, program)));
        let names = named(&of_split);
        assert_eq!(names, named(&of_whole), "{of_split}");
        let functions = names.iter().filter_map(|name| name.split('+').next());
        let functions: Vec<&str> = functions.collect();
        assert_eq!(functions, ["calls", "in_thread", "work"], "{of_split}");
    }
}

#[test]
fn a_debug_file_of_another_build_names_nothing_and_a_damaged_one_is_named() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let program = split(folders[0].path());
    let debug = folders[0].path().join("counted.debug");
    let whole_debug = std::fs::read(&debug).unwrap();
    let blocks = ["clone", "--count", "--all", "--", "./counted"];
    let stacks = ["process", "-e", STACKS, "--", "./counted"];

    let other = SOURCE.replace("sum++", "sum--");
    let other = compiled_from(folders[1].path(), &other, &["-Wl,--build-id"]);
    std::fs::copy(other, &debug).unwrap();
    let listed = functions(&program);
    assert!(
        listed.contains("sub_") && !listed.contains("work"),
        "{listed}"
    );
    assert!(said(&ilk(&blocks, &program)).contains("sub_"));

    // A file that is cut off has no section headers, and names at an end that is not its own cannot be read.
    std::fs::write(&debug, &whole_debug[..whole_debug.len() - 100]).unwrap();
    for arguments in [&["functions", "--image", "counted"][..], &stacks] {
        let output = ilk(arguments, &program);
        let said = text_of(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("counted.debug are damaged"), "{said}");
    }
    // What was executed is known all the same.
    let all = said(&ilk(&blocks, &program));
    assert!(
        all.contains("sub_") && all.contains("counted.debug are damaged"),
        "{all}"
    );

    std::fs::write(&debug, &whole_debug).unwrap();
    assert!(functions(&program).contains("work"));
}
