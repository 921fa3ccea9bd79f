//! sqlite3's own tests, some 255,000, which its authors run before each check-in: each has the same verdict with every
//! block of the program and its libraries counted, in the code cache and by splices.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::super::compile;
use super::{WAYS, compared, make, source};

/// The folder in which Debian has what programs need that extend Tcl.
const TCL: &str = "--with-tcl=/usr/lib/tcl8.6";
/// The number of passes of each test, and the line about all.
#[derive(Debug, PartialEq, Eq)]
struct Verdicts {
    passed: BTreeMap<String, u32>,
    all: String,
}

/// Runs the tests by a command in a folder of their own.
fn verdicts(folder: &Path, source: &Path, command: &[&str]) -> (Verdicts, String) {
    let run = tempfile::tempdir_in(folder).unwrap();
    let fixture = source.join("testfixture");
    let mut all: Vec<&str> = command.to_vec();
    all.push(fixture.to_str().unwrap());
    let output = Command::new(all[0])
        .args(&all[1..])
        .arg(source.join("test/permutations.test"))
        .arg("veryquick")
        .env("XDG_CACHE_HOME", folder)
        .current_dir(run.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = String::from_utf8_lossy(&output.stdout);
    let mut passed = BTreeMap::new();
    // Some have their time before the verdict.
    let of_tests = shown.lines().filter(|line| line.ends_with(" Ok"));
    for (test, _) in of_tests.filter_map(|line| line.split_once("... ")) {
        *passed.entry(test.to_owned()).or_default() += 1;
    }
    let mut lines = shown.lines();
    let last = lines.find(|line| line.contains(" errors out of "));
    let all = last.unwrap_or_else(|| panic!("{command:?}: {errors}"));
    let all = all.to_owned();
    (Verdicts { passed, all }, errors)
}

#[test]
#[ignore = "takes half an hour, Debian's archive and tcl-dev; cargo xtask test --long"]
fn sqlites_tests_have_the_same_verdicts_with_every_block_counted() {
    let folder = tempfile::tempdir().unwrap();
    let source = source("sqlite3", folder.path());
    let mut configure = Command::new("sh");
    compile(
        configure
            .current_dir(&source)
            .args(["./configure", "-q", TCL]),
    );
    make(&source, &["testfixture"]);
    // It refuses to be run by root, and all others with it.
    std::fs::remove_file(source.join("test/attach.test")).unwrap();
    let (native, _) = verdicts(folder.path(), &source, &[]);
    println!("natively {}", native.all);
    assert!(native.passed.len() > 100_000, "{}", native.passed.len());
    for way in WAYS {
        let (counted, errors) = verdicts(folder.path(), &source, way);
        compared(&native.passed, &counted.passed, way, &errors);
        assert_eq!(counted.all, native.all);
    }
}
