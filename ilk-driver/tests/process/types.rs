//! Names and types in scripts of processes, by debug information: a program prints what a script has to add up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::compiled_from;
use super::launched::{ilk, text_of};
use super::probes::totals;

const CALLS: i64 = 3000;
const OTHER: &str = "
#include <stdlib.h>
struct node { struct node *before; long weight; };
struct node *node_of(long weight)
{
    struct node *node = malloc(sizeof *node);
    node->weight = weight;
    return node;
}
long weight_of(const struct node *node) { return node->weight; }
";

fn typed(folder: &Path, options: &[&str]) -> PathBuf {
    let other = folder.join("other.c");
    std::fs::write(&other, OTHER).unwrap();
    let mut all = options.to_vec();
    all.push(other.to_str().unwrap());
    compiled_from(folder, include_str!("typed.c"), &all)
}

/// Runs a script in the program; returns all that was printed.
fn shown(program: &Path, script: &str) -> (bool, String) {
    let output = ilk(&["-e", script, "--", program.to_str().unwrap()], "");
    let all = text_of(&output.stdout) + &text_of(&output.stderr);
    (output.status.success(), all)
}

/// The sums that the program prints.
pub(super) fn expected(shown: &str) -> BTreeMap<String, i64> {
    let lines = shown
        .lines()
        .filter_map(|line| line.strip_prefix("expected "));
    let sums = lines.map(|line| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    sums.collect()
}

const SCRIPT: &str = "entry:handle {
    @length = sum(request->length);
    @low = sum(request->low);
    @middle = sum(request->middle);
    @high = sum(request->high);
    @colour = sum(request->colour);
    @large = sum(request->large);
    @places = sum(request->places[2].y);
    @grid = sum(request->grid[1][2]);
    @title = sum(request->title[0]);
    @second = sum(request->both.second);
    @weight = sum(request->next->weight);
    @none = sum(request->next == 0);
    @amount = sum(amount);
    @both = sum(both->first);
    @fourth = sum(fourth);
    @fifth = sum(fifth);
    @sixth = sum(sixth);
    @stacked = sum(stacked);
}
entry:handle / request->name == \"fifth\" / { @named = count() }
return:touch { @touched = sum(retval) }";

#[test]
fn names_and_fields_are_those_of_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    for options in [
        &["-g", "-O0"][..],
        &["-gdwarf-5", "-fdebug-types-section", "-O2"],
        &["-gdwarf-4", "-fdebug-types-section", "-O1", "-no-pie"],
        &["-gdwarf-3", "-gstrict-dwarf", "-O2"],
    ] {
        let program = typed(folder.path(), options);
        let (done, shown) = shown(&program, SCRIPT);
        assert!(done, "{options:?}: {shown}");
        let expected = expected(&shown);
        assert_eq!(expected.len(), 20, "{shown}");
        assert_eq!(totals(&shown), expected, "{options:?}: {shown}");
        // A quarter of the requests have no next one, so that a read fails.
        let failed = format!("{}", CALLS / 4);
        assert!(
            shown
                .lines()
                .any(|line| line.contains(&failed) && line.contains("read")),
            "{options:?}: {shown}"
        );
    }
}

/// Distributions keep types that several programs have in common in a file of its own.
#[test]
fn types_may_be_in_a_supplementary_file() {
    let folder = tempfile::tempdir().unwrap();
    let program = typed(folder.path(), &["-g", "-O2"]);
    let other = folder.path().join("other");
    std::fs::copy(&program, &other).unwrap();
    let common = folder.path().join("common.debug");
    let made = Command::new("dwz")
        .args(["-r", "-m"])
        .args([&common, &program, &other])
        .status()
        .expect("dwz is installed");
    assert!(made.success());
    let (done, whole) = shown(&program, SCRIPT);
    assert!(done, "{whole}");
    assert_eq!(totals(&whole), expected(&whole), "{whole}");
    std::fs::remove_file(&common).unwrap();
    let (done, missing) = shown(&program, SCRIPT);
    let why = "common.debug (dwz), which was not found";
    assert!(!done && missing.contains(why), "{missing}");
}

#[test]
fn casts_and_texts_work_in_functions_that_know_no_type() {
    let folder = tempfile::tempdir().unwrap();
    let program = typed(folder.path(), &["-g", "-O2"]);
    let script = "entry:touch {
        @length = sum(((struct request *)opaque)->length);
        @weight = sum(((struct node *)arg1)->weight);
        @second = sum(((struct request *)arg0)->both.second);
    }
    entry:touch {
        @names[str(((struct request *)opaque)->title)] = count();
    }
    entry:touch / ((struct pair *)(&((struct request *)arg0)->both))->first == 8 && ((struct request *)opaque)->colour == BLUE /
    { @one = count() }";
    let (done, shown) = shown(&program, script);
    assert!(done, "{shown}");
    let (found, expected) = (totals(&shown), expected(&shown));
    for name in ["length", "weight", "second"] {
        assert_eq!(found[name], expected[name], "{shown}");
    }
    assert_eq!(found["one"], 1, "{shown}");
    for name in ["odd", "even"] {
        let of_name = |line: &str| line.contains(name) && line.contains("1,500");
        assert!(shown.lines().any(of_name), "{shown}");
    }
}

#[test]
fn types_may_be_in_a_file_of_its_own_and_what_is_not_known_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = typed(folder.path(), &["-g", "-O2", "-Wl,--build-id"]);
    for (script, said) in [
        (
            "entry:handle { sample(ratio) }",
            "1:23: ratio is in a register of floating-point numbers.",
        ),
        (
            "entry:handle { sample(last->none) }",
            "There are no fields in",
        ),
        (
            "entry:handle { sample(request->lenght) }",
            "struct request has no field lenght.",
        ),
        (
            "entry:handle { sample(((struct reqest *)arg0)->length) }",
            "The process has no struct reqest.",
        ),
        (
            "entry:handle { sample(requst) }",
            "There is no value named requst.",
        ),
    ] {
        let (done, shown) = shown(&program, script);
        assert!(!done && shown.contains(said), "{script}: {shown}");
    }
    let run = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(name);
        command.current_dir(folder.path()).args(arguments);
        assert!(command.status().unwrap().success(), "{name} {arguments:?}");
    };
    run(
        "objcopy",
        &["--only-keep-debug", "counted", "counted.debug"],
    );
    run("strip", &["-g", "counted"]);
    let script = "entry:handle { @length = sum(request->length) }";
    let (done, all) = shown(&program, script);
    assert!(
        !done && all.contains("counted has no debug information, which names of arguments need"),
        "{all}"
    );
    // Numbers of arguments need none.
    let (done, all) = shown(
        &program,
        "entry:handle { @length = sum(*(u32 *)(arg0 + 8)) }",
    );
    assert!(done, "{all}");
    assert_eq!(totals(&all)["length"], expected(&all)["length"], "{all}");
    run("objcopy", &["--add-gnu-debuglink=counted.debug", "counted"]);
    let (done, all) = shown(&program, script);
    assert!(done, "{all}");
    assert_eq!(totals(&all)["length"], expected(&all)["length"], "{all}");
}
