//! Source lines in scripts of processes, by debug information in the program or in a file of its own.

use std::path::Path;
use std::process::Command;

use super::compiled_from;
use super::launched::{ilk, text_of};

const SOURCE: &str = "
#include <stdio.h>
static volatile long odd, all;
int main(void)
{
    for (long i = 0; i < 9000; i++) {
        all += i;
        if (i % 3 == 1)
            odd += i; // here
    }
    printf(\"%ld\\n\", odd);
    return 0;
}
";

/// Counts the hits of the marked line.
fn counted(program: &Path) -> (bool, String) {
    let mut lines = (1..).zip(SOURCE.lines());
    let (line, _) = lines.find(|(_, line)| line.contains("// here")).unwrap();
    let script = format!("counted.c:{line} {{ @hits = count() }}");
    let output = ilk(&["-e", &script, "--", program.to_str().unwrap()], "");
    let all = text_of(&output.stdout) + &text_of(&output.stderr);
    (output.status.success(), all)
}

#[test]
fn hits_of_a_source_line_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for options in [["-g", "-O0"], ["-g", "-O2"], ["-gdwarf-4", "-no-pie"]] {
        let program = compiled_from(folder.path(), SOURCE, &options);
        let (done, shown) = counted(&program);
        assert!(done, "{shown}");
        assert!(
            shown
                .lines()
                .any(|line| line.trim().starts_with("3,000  @hits of ")),
            "{options:?}: {shown}"
        );
    }
}

#[test]
fn debug_information_may_be_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &["-g", "-Wl,--build-id"]);
    let debug = folder.path().join("counted.debug");
    let run = |name: &str, arguments: &[&str], paths: &[&Path]| {
        let mut command = match name {
            "strip" => Command::new("strip"),
            _ => Command::new("objcopy"),
        };
        command.current_dir(folder.path());
        let done = command.args(arguments).args(paths).status().unwrap();
        assert!(done.success(), "{name} {arguments:?}");
    };
    run("objcopy", &["--only-keep-debug"], &[&program, &debug]);
    run("strip", &["-g"], &[&program]);
    let (done, shown) = counted(&program);
    assert!(
        !done && shown.contains("need the debug information of"),
        "{shown}"
    );
    run(
        "objcopy",
        &["--add-gnu-debuglink=counted.debug"],
        &[&program],
    );
    let (done, shown) = counted(&program);
    assert!(done && shown.contains("3,000  @hits of "), "{shown}");
    // A file of another build has lines of other addresses.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let changed = SOURCE.replace("9000", "9001");
    let other = compiled_from(&other, &changed, &["-g", "-Wl,--build-id"]);
    std::fs::rename(other, debug).unwrap();
    let (done, shown) = counted(&program);
    assert!(!done && shown.contains("It is of another build"), "{shown}");
}
