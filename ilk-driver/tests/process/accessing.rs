//! Accesses of memory that a program in the cache records are those that it makes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::cloned::ProgramOfCases;

/// A kind, an address and bytes.
type Access = (char, u64, u32);

/// Its instructions: others are of the dynamic linker, or of the end of the program.
const TEXT: std::ops::Range<u64> = 0x40_1000..0x40_2000;

/// The program of known accesses, assembled.
fn assembled(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("accessing.S"), folder.join("accessing"));
    std::fs::write(&source, include_str!("accessing.S")).unwrap();
    super::compile(
        Command::new("gcc")
            .args(["-nostartfiles", "-no-pie", "-Wl,--no-as-needed", "-o"])
            .arg(&program)
            .arg(&source),
    );
    program
}

fn ilk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .args(arguments)
        .output()
        .unwrap()
}

/// Records a program's accesses; returns the program's output and what `ilk` says.
fn recorded(folder: &Path, file: &Path, options: &[&str], program: &[&str]) -> (Output, String) {
    let file = file.to_str().unwrap();
    let mut arguments = vec!["clone", "--accesses", file];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(program);
    let done = ilk(folder, &arguments);
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    (done, errors)
}

/// The accesses of a file, one that reads and writes as two.
fn accesses(folder: &Path, file: &Path) -> Vec<Access> {
    let shown = ilk(folder, &["accesses", "--csv", file.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(shown.stdout).unwrap();
    let mut all = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, _, kind, at, size, ..] = fields[..] else {
            panic!("{line}");
        };
        let at = u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap();
        let size = size.parse().unwrap();
        all.extend(kind.chars().map(|kind| (kind, at, size)));
    }
    all
}

/// The accesses that valgrind sees.
fn reference(folder: &Path, program: &Path) -> Vec<Access> {
    let log = folder.join("lackey");
    let done = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--vex-iropt-level=0"])
        .arg(format!("--log-file={}", log.display()))
        .arg(program)
        .output()
        .expect("valgrind is installed");
    assert_eq!(done.status.code(), Some(7));
    let text = std::fs::read_to_string(&log).unwrap();
    let mut all = Vec::new();
    let mut is_program = false;
    for line in text.lines() {
        if let Some(instruction) = line.strip_prefix("I  ") {
            let (at, _) = instruction.split_once(',').unwrap();
            is_program = TEXT.contains(&u64::from_str_radix(at, 16).unwrap());
        }
        if !is_program {
            continue;
        }
        let kinds = match line.get(..3) {
            Some(" L ") => "R",
            Some(" S ") => "W",
            Some(" M ") => "RW",
            _ => continue,
        };
        let (at, size) = line[3..].split_once(',').unwrap();
        let at = u64::from_str_radix(at, 16).unwrap();
        let size = size.parse().unwrap();
        all.extend(kinds.chars().map(|kind| (kind, at, size)));
    }
    // It makes two reads of an exchange.
    let mut exchanged: Vec<Access> = Vec::new();
    for access in all {
        if let [.., one, other] = exchanged[..]
            && one == other
            && access == ('W', one.1, one.2)
            && one.0 == 'R'
        {
            exchanged.pop();
        }
        exchanged.push(access);
    }
    exchanged
}

/// Every access of a program with implicit ones, strings in both directions and blocks that name all registers, in order:
/// as valgrind reports them.
#[test]
fn accesses_are_those_that_another_tool_sees() {
    let folder = tempfile::tempdir().unwrap();
    let program = assembled(folder.path());
    let file = folder.path().join("accesses");
    let (done, errors) = recorded(folder.path(), &file, &[], &[program.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(7), "{errors}");
    assert_eq!(done.stdout, b"done\n", "{errors}");
    assert!(errors.contains("0 bytes were lost"), "{errors}");
    let (ours, theirs) = (
        accesses(folder.path(), &file),
        reference(folder.path(), &program),
    );
    let differs = ours
        .iter()
        .zip(&theirs)
        .position(|(one, other)| one != other);
    let near = |all: &[Access]| {
        let first = differs.unwrap_or(0).saturating_sub(5);
        format!("{:x?}", all.iter().skip(first).take(12).collect::<Vec<_>>())
    };
    assert_eq!(differs, None, "{}\n{}", near(&ours), near(&theirs));
    assert_eq!(ours.len(), theirs.len());
    // The same numbers in the summaries.
    let reads = ours.iter().filter(|(kind, _, _)| *kind == 'R').count();
    let bytes: u64 = ours.iter().map(|(_, _, size)| u64::from(*size)).sum();
    for by in ["function", "page", "line"] {
        let shown = ilk(
            folder.path(),
            &["accesses", "--all", "--by", by, file.to_str().unwrap()],
        );
        let text = String::from_utf8(shown.stdout).unwrap();
        let last = text.lines().last().unwrap().replace(',', "");
        let numbers: Vec<&str> = last.split_whitespace().collect();
        let [reads, writes, bytes] =
            [reads as u64, (ours.len() - reads) as u64, bytes].map(|number| number.to_string());
        assert_eq!(numbers[..3], [&reads, &writes, &bytes], "{by}: {text}");
    }
}

/// Records beyond the limit of a file are lost, and counted.
#[test]
fn records_that_are_too_many_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = assembled(folder.path());
    let program = [program.to_str().unwrap()];
    let bytes = |errors: &str, what: &str| -> u64 {
        let (before, _) = errors.split_once(what).unwrap();
        let number = before.rsplit(['\n', ';']).next().unwrap().trim();
        number.replace(',', "").parse().unwrap()
    };
    let mut sums = Vec::new();
    for most in ["1000000000", "0"] {
        let file = folder.path().join(most);
        let (done, errors) = recorded(folder.path(), &file, &["--most", most], &program);
        assert_eq!(done.status.code(), Some(7), "{errors}");
        let kept = bytes(&errors, " bytes of records of accesses");
        let lost = bytes(&errors, " bytes were lost");
        assert_eq!(kept == 0, most == "0", "{errors}");
        let shown = ilk(folder.path(), &["accesses", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert_eq!(said.contains("were lost"), lost > 0, "{said}");
        sums.push(kept + lost);
    }
    assert_eq!(sums[0], sums[1]);
    // A file that exists is kept, unless it may be replaced.
    let file = folder.path().join("0");
    let kept = std::fs::read(&file).unwrap();
    let (done, errors) = recorded(folder.path(), &file, &[], &program);
    assert!(!done.status.success());
    assert!(errors.contains("exists"), "{errors}");
    assert!(errors.contains("--force"), "{errors}");
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    let (done, errors) = recorded(folder.path(), &file, &["--force"], &program);
    assert_eq!(done.status.code(), Some(7), "{errors}");
    assert!(std::fs::read(&file).unwrap().len() > kept.len());
}

/// Programs with signals, faults, threads, children and changing code, whose accesses are recorded, print what they print
/// without.
#[test]
fn programs_that_record_print_what_they_print_without() {
    let folder = tempfile::tempdir().unwrap();
    let cloned = super::cloned::compiled(folder.path(), &[]);
    let programs = [ProgramOfCases::changing(), ProgramOfCases::observing()];
    let names = [
        "written-by-another-thread",
        "changes-itself",
        "own-faults",
        "on-the-stack",
        "registers",
        "faults",
        "raw-clone",
        "children",
        "short-stacks",
        "faulting-calls",
        "alternate-stack",
        "switched",
        "killed",
    ];
    let all = ProgramOfCases::cases(&programs).filter(|(_, name)| names.contains(name));
    let all = all.map(|(program, name)| (program, vec![name]));
    let cases: Vec<_> = all.chain([(cloned.as_path(), vec![])]).collect();
    assert_eq!(cases.len(), names.len() + 1);
    for (number, (program, arguments)) in cases.iter().enumerate() {
        let alone = Command::new(program).args(arguments).output().unwrap();
        let file = folder.path().join(number.to_string());
        let command = [&[program.to_str().unwrap()], arguments.as_slice()].concat();
        let (done, errors) = recorded(folder.path(), &file, &["--most", "4000000"], &command);
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&done), text(&alone), "{arguments:?}: {errors}");
        let expected = alone.status.code().unwrap_or(1);
        assert_eq!(
            done.status.code(),
            Some(expected),
            "{arguments:?}: {errors}"
        );
        let is_refused = *arguments == ["on-the-stack"];
        let is_released = errors.contains("was let go");
        assert_eq!(is_released, is_refused, "{arguments:?}: {errors}");
        let shown = ilk(folder.path(), &["accesses", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success(), "{arguments:?}: {said}");
        assert!(!said.contains("has no end"), "{arguments:?}: {said}");
    }
}

/// Accesses of a loop that signals and faults interrupt at any instruction, on another stack: each once and in order,
/// those that fault too.
#[test]
fn accesses_of_interrupted_blocks_are_recorded_once() {
    const ROUNDS: u64 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("interrupted.c");
    let program = super::cloned::compiled_from(folder.path(), source, &["-no-pie"]);
    let file = folder.path().join("accesses");
    let (done, errors) = recorded(folder.path(), &file, &[], &[program.to_str().unwrap()]);
    assert!(done.status.success(), "{errors}");
    let text = String::from_utf8(done.stdout).unwrap();
    let (places, calls) = text.trim().rsplit_once(' ').unwrap();
    let places: Vec<u64> = places
        .split(' ')
        .map(|place| u64::from_str_radix(place, 16).unwrap())
        .collect();
    let [first, half, quarter, faulting, last, table] = places[..] else {
        panic!("{text}");
    };
    let calls: u64 = calls.parse().unwrap();
    let mut expected = Vec::new();
    for round in (0..calls).flat_map(|_| (1..=ROUNDS).rev()) {
        expected.push((first, table));
        if round & 1 != 0 {
            expected.push((half, table + 16));
            // On a stack at an address that is not known.
            expected.extend((round & 2 != 0).then_some((quarter, 0)));
        }
        expected.extend((round & 63 == 0).then_some((faulting, 4096 + 24)));
        expected.push((faulting, table + 24));
        expected.push((last, table + 32 + 8 * round));
    }
    let shown = ilk(
        folder.path(),
        &["accesses", "--csv", file.to_str().unwrap()],
    );
    let text = String::from_utf8(shown.stdout).unwrap();
    let number = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).unwrap();
    let recorded = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let instruction = number(fields[1]);
        let at = match instruction == quarter {
            true => 0,
            false => number(fields[3]),
        };
        let is_named = [first, half, quarter, faulting, last].contains(&instruction);
        is_named.then_some((instruction, at))
    });
    // A signal that is delivered between a fault and its repetition in the original code has the access recorded again.
    let mut recorded: Vec<(u64, u64)> = recorded.collect();
    recorded.dedup_by(|one, before| one == before && *one == (faulting, 4096 + 24));
    let differs = recorded
        .iter()
        .zip(&expected)
        .position(|(one, other)| one != other);
    let near = |all: &[(u64, u64)]| {
        all.iter()
            .skip(differs.unwrap_or(0))
            .take(5)
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        differs,
        None,
        "{:x?} {:x?}",
        near(&recorded),
        near(&expected)
    );
    assert_eq!(recorded.len(), expected.len());
}
