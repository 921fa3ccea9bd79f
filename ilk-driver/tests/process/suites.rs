//! Test suites of other projects with every block of their programs counted: the same verdicts as without.

mod gcov;
mod glibc;
mod sqlite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::compile;

/// Modules of CPython's test suite: threads, signals, forks, memory, exceptions, generators and numbers.
const MODULES: [&str; 13] = [
    "test_thread",
    "test_threadsignals",
    "test_signal",
    "test_fork1",
    "test_mmap",
    "test_exceptions",
    "test_generators",
    "test_gc",
    "test_json",
    "test_struct",
    "test_context",
    "test_queue",
    "test_memoryview",
];
/// Commands that count every block of a program and of its libraries: by splices, and in the code cache.
const WAYS: [&[&str]; 2] = [
    &[
        env!("CARGO_BIN_EXE_ilk"),
        "process",
        "--blocks",
        "*,*:*",
        "--",
    ],
    &[env!("CARGO_BIN_EXE_ilk"), "clone", "--count", "--"],
];
/// The program: a shell may find a script by its name.
const PYTHON: &str = "/usr/bin/python3";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Passed,
    Skipped,
    Failed,
}

/// Runs the modules by a command, and returns the verdict of each test.
fn verdicts(folder: &Path, command: &[&str]) -> (BTreeMap<String, Verdict>, Output) {
    let file = folder.join("verdicts.xml");
    let (program, arguments) = command.split_first().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .args(["-m", "test", "--timeout", "600", "--junit-xml"])
        .arg(&file)
        .args(MODULES)
        .env("XDG_CACHE_HOME", folder)
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = std::fs::read_to_string(&file);
    let report = report.unwrap_or_else(|error| panic!("{command:?}: {error}: {errors}"));
    std::fs::remove_file(&file).unwrap();
    let cases = report.split("<testcase ").skip(1).map(|case| {
        let name = case.split("name=\"").nth(1).unwrap().split('"').next();
        let verdict = match case {
            _ if case.contains("<failure") || case.contains("<error") => Verdict::Failed,
            _ if case.contains("<skipped") => Verdict::Skipped,
            _ => Verdict::Passed,
        };
        (name.unwrap().to_owned(), verdict)
    });
    (cases.collect(), output)
}

/// Downloads a source package of Debian's by this machine's archive, and unpacks what its authors publish.
fn source(package: &str, folder: &Path) -> PathBuf {
    let known = Command::new("apt-get")
        .args(["indextargets", "--format"])
        .arg("$(ORIGIN) $(REPO_URI) $(CODENAME) $(COMPONENT)")
        .arg("Created-By: Packages")
        .output();
    let known = String::from_utf8(known.unwrap().stdout).unwrap();
    let lines: BTreeSet<String> = known
        .lines()
        .filter_map(|line| line.strip_prefix("Debian "))
        .map(|archive| format!("deb-src {archive}\n"))
        .collect();
    assert!(!lines.is_empty(), "apt knows no archive of Debian's");
    let list = folder.join("sources.list");
    let lists = folder.join("lists");
    std::fs::write(&list, lines.into_iter().collect::<String>()).unwrap();
    std::fs::create_dir_all(lists.join("partial")).unwrap();
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.current_dir(folder).arg("-q");
        for (name, value) in [
            ("Dir::Etc::sourcelist", list.as_path()),
            ("Dir::Etc::sourceparts", Path::new("-")),
            ("Dir::State::lists", &lists),
        ] {
            apt.arg("-o").arg(format!("{name}={}", value.display()));
        }
        compile(apt.args(arguments));
    };
    apt(&["update"]);
    apt(&["source", "--download-only", package]);
    let mut files = std::fs::read_dir(folder).unwrap();
    let archive = files.find_map(|file| {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_it =
            name.starts_with(package) && name.contains(".orig.tar.") && !name.ends_with("asc");
        is_it.then_some(name)
    });
    let unpacked = folder.join("source");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.current_dir(folder)
        .args(["xf", &archive.unwrap(), "--strip-components=1", "-C"])
        .arg(&unpacked);
    compile(&mut tar);
    unpacked
}

fn make(folder: &Path, targets: &[&str]) {
    compile(
        Command::new("make")
            .current_dir(folder)
            .arg("-s")
            .args(targets),
    );
}

#[test]
#[ignore = "takes minutes, and the test suite of Python; cargo xtask test --long"]
fn cpythons_tests_have_the_same_verdicts_with_every_block_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (native, _) = verdicts(folder.path(), &[PYTHON]);
    let count = |verdict| native.values().filter(|one| **one == verdict).count();
    let [passed, skipped, failed] = [Verdict::Passed, Verdict::Skipped, Verdict::Failed].map(count);
    println!("natively {passed} passed, {skipped} were skipped, {failed} failed");
    assert!(
        passed > 700,
        "{passed} passed; is the test suite of Python installed?"
    );
    for way in WAYS {
        let command = [way, &[PYTHON]].concat();
        let (counted, output) = verdicts(folder.path(), &command);
        let errors = String::from_utf8_lossy(&output.stderr);
        compared(&native, &counted, way, &errors);
    }
}

/// Compares what was found of each test with every block counted with what was found natively.
fn compared<V: PartialEq>(
    native: &BTreeMap<String, V>,
    counted: &BTreeMap<String, V>,
    way: &[&str],
    errors: &str,
) {
    let differ = |name: &&String| counted.get(*name) != native.get(*name);
    let names = native.keys().chain(counted.keys());
    let different: Vec<_> = names.filter(differ).collect();
    assert!(different.is_empty(), "{way:?}: {different:?}: {errors}");
    // It has not ended early, and continued natively.
    assert!(!errors.contains("let go"), "{errors}");
    println!("{}", errors.lines().last().unwrap_or_default());
}
