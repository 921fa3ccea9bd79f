//! Commands as a person at a terminal types them: what is printed has no gap, and names what is missing.

use std::path::Path;
use std::process::{Command, Output};

fn ilk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A library that never appears is named at the end, with splices and in the code cache; the status is the program's.
#[test]
fn a_library_that_is_never_loaded_is_named_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = "entry:libnone.so.7:work { @calls = count() }";
    for arguments in [
        &["process", "libnone.so.7:work"][..],
        &["process", "-e", script],
        &["clone", "-e", script],
    ] {
        let program = ["--", "sh", "-c", "exit 5"];
        let done = ilk(folder, &[arguments, &program[..]].concat());
        assert_eq!(done.status.code(), Some(5), "{arguments:?}: {done:?}");
        let errors = text(&done.stderr);
        let last = errors.lines().rfind(|line| line.contains("has not loaded"));
        let last = last.unwrap_or_else(|| panic!("{arguments:?}: {errors}"));
        assert!(last.starts_with("ilk: Process "), "{last}");
        let end = " has not loaded libnone.so.7: nothing was counted there.";
        assert!(last.ends_with(end), "{last}");
    }
    // One that is loaded, and others that are mapped from the start, are not.
    let done = ilk(folder, &["process", "libc.so.6:exit", "--", "true"]);
    assert!(!text(&done.stderr).contains("has not loaded"), "{done:?}");
}

/// The hits of each process of a recording of several add up to those of all.
#[test]
fn statistics_of_several_processes_have_a_total_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = ["--", "sh", "-c", "env true; env true; exit 3"];
    let options = [
        "clone",
        "--count",
        "--children",
        "own",
        "--exec",
        "follows",
        "-o",
        "all.arrow",
    ];
    let done = ilk(folder, &[&options[..], &program].concat());
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let shown = ilk(folder, &["stats", "all.arrow"]);
    let shown = text(&shown.stdout);
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let (all, _) = shown.split_once(" hits between ").unwrap();
    let all = number(all.rsplit('\n').next().unwrap());
    let mut lines = shown.lines();
    lines
        .by_ref()
        .find(|line| line.trim() == "hits  instruments hit  process")
        .unwrap();
    let each = lines.map_while(|line| {
        let (numbers, name) = line.split_once("  process ")?;
        let hits = numbers.split_whitespace().next()?;
        (numbers.starts_with(' ')).then(|| (number(hits), name.to_owned()))
    });
    let each: Vec<(u64, String)> = each.collect();
    assert_eq!(
        each.iter().map(|(hits, _)| hits).sum::<u64>(),
        all,
        "{shown}"
    );
    for name in ["dash", "env", "true"] {
        assert!(
            each.iter().any(|(_, one)| one.ends_with(name)),
            "{name}: {each:?}"
        );
    }
    assert!(each.is_sorted_by(|one, other| one.0 >= other.0), "{each:?}");
    let json = ilk(folder, &["stats", "all.arrow", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let processes = json["processes"].as_array().unwrap();
    let hits = processes.iter().map(|one| one["hits"].as_u64().unwrap());
    assert_eq!(hits.sum::<u64>(), all);
    // One process has no such table.
    let done = ilk(
        folder,
        &["clone", "--count", "-o", "one.arrow", "--", "true"],
    );
    assert!(done.status.success(), "{done:?}");
    let shown = text(&ilk(folder, &["stats", "one.arrow"]).stdout);
    assert!(!shown.contains("instruments hit"), "{shown}");
}

/// A program with a loop in a function, on the lines that the test names.
const LINES: &str = "int volatile total;
__attribute__((noinline)) void add(int times)
{
    for (int i = 0; i < times; i++)
        total += i;
}
int main(void)
{
    add(1000);
    return total == 499500 ? 0 : 1;
}
";

/// Counted blocks have their source lines where the program has debug information: in the report, and in the recording of
/// one process and of several.
#[test]
fn counted_blocks_have_their_source_lines() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("lines.c"), LINES).unwrap();
    let compiled = |name: &str, options: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler
            .current_dir(folder)
            .args(["-O1", "-o", name, "lines.c"]);
        super::compile(compiler.args(options));
    };
    compiled("lines", &["-g"]);
    compiled("none", &[]);
    let counted = |options: &[&str], program: &str| {
        let program = ["--", program];
        let done = ilk(folder, &[&["clone", "--count"], options, &program].concat());
        assert!(done.status.success(), "{done:?}");
        text(&done.stderr)
    };
    let report = counted(&["-o", "lines.arrow"], "./lines");
    let lines = report.lines();
    let block: Vec<&str> = lines.filter(|line| line.contains("add+")).collect();
    let is_at = |line: &&&str| {
        line.contains(" (lines) at lines.c:4,") || line.contains(" (lines) at lines.c:5,")
    };
    assert!(
        !block.is_empty() && block.iter().all(|line| is_at(&line)),
        "{report}"
    );
    assert!(!report.contains("are not known"), "{report}");
    let shown = text(&ilk(folder, &["stats", "lines.arrow"]).stdout);
    let line = shown
        .lines()
        .find(|line| line.contains("counter pre add block"));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    assert!(
        line.ends_with("at lines.c:4") || line.ends_with("at lines.c:5"),
        "{line}"
    );
    // Of several processes.
    let several = ["--children", "own", "--exec", "follows", "-o", "all.arrow"];
    counted(&several, "./lines");
    let shown = text(&ilk(folder, &["stats", "all.arrow"]).stdout);
    let line = shown
        .lines()
        .find(|line| line.contains(" lines: counter pre add block"));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains(" at lines.c:"), "{line}");
    // A program without debug information has none.
    let report = counted(&["-o", "none.arrow"], "./none");
    let block = report.lines().find(|line| line.contains("add+")).unwrap();
    assert!(block.contains(" (none), "), "{block}");
    // That of a program may be in a file of its own; that of a library may not, as it takes longer to read.
    compiled("library.so", &["-g", "-shared", "-fPIC", "-Dmain=run"]);
    std::fs::write(
        folder.join("caller.c"),
        "int run(void); int main(void) { return run(); }",
    )
    .unwrap();
    super::compile(Command::new("cc").current_dir(folder).args([
        "-g",
        "-o",
        "caller",
        "caller.c",
        "./library.so",
    ]));
    let separate = |name: &str| {
        let debug = format!("{name}.debug");
        let link = format!("--add-gnu-debuglink={debug}");
        for options in [
            vec!["--only-keep-debug", name, &debug],
            vec!["--strip-debug", &link, name],
        ] {
            super::compile(Command::new("objcopy").current_dir(folder).args(options));
        }
    };
    let places = |recording: &str| {
        counted(&["-o", recording], "./caller");
        let shown = text(&ilk(folder, &["stats", recording]).stdout);
        ["library.so:add block", " main block"].map(|block| {
            let line = shown.lines().find(|line| line.contains(block));
            line.unwrap_or_else(|| panic!("{shown}")).contains(" at ")
        })
    };
    assert_eq!(places("own.arrow"), [true; 2]);
    separate("library.so");
    separate("caller");
    assert_eq!(places("other.arrow"), [false, true]);
}

/// A program that calls a function of assembly, whose debug information says nothing of its arguments, and executes what its
/// first argument names.
const ASSEMBLED: &str = "
	.globl twice
	.type twice, @function
twice:
	.cfi_startproc
	lea (%rdi,%rdi), %rax
	ret
	.cfi_endproc
	.size twice, .-twice
	.section .note.GNU-stack,\"\",@progbits
";
const CALLER: &str = "#include <unistd.h>
#include <stdlib.h>
long twice(long);
int main(int count, char **arguments)
{
    if (twice(21) != 42)
        return 1;
    if (count > 1)
        execvp(arguments[1], arguments + 1);
    free(malloc(7));
    return 0;
}
";

/// The caller and its function, in this folder.
fn assembled(folder: &Path) {
    std::fs::write(folder.join("twice.s"), ASSEMBLED).unwrap();
    std::fs::write(folder.join("caller.c"), CALLER).unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder);
    super::compile(compiler.args(["-g", "-O1", "-o", "caller", "caller.c", "twice.s"]));
}

/// A name that the program does not have is answered with that of a library, or with one that is like it.
#[test]
fn a_name_that_no_function_has_is_answered_with_one_that_a_library_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assembled(folder);
    let refused = |arguments: &[&str]| {
        let done = ilk(folder, &[arguments, &["--", "./caller"]].concat());
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {done:?}");
        text(&done.stderr)
    };
    let of_library = "library has it: write libc.so.6:malloc.";
    let script = "entry:malloc { @calls = count() }";
    for arguments in [
        &["process", "malloc"][..],
        &["process", "-e", script],
        &["clone", "--count", "--while", "malloc"],
    ] {
        let said = refused(arguments);
        assert!(said.contains(of_library), "{arguments:?}: {said}");
    }
    let near = refused(&["process", "twise"]);
    assert!(near.contains("Did you mean twice?"), "{near}");
    let near = refused(&["process", "libc.so.6:malloca"]);
    assert!(near.contains("Did you mean libc.so.6:mallo"), "{near}");
    let longer = refused(&["process", "art"]);
    assert!(longer.contains("Names that contain it: _start"), "{longer}");
    let none = refused(&["process", "nothing_like_it_at_all"]);
    let end = "matches \"nothing_like_it_at_all\".";
    assert!(none.trim_end().ends_with(end), "{none}");
}

/// An assembler's functions have the arguments of the calling convention: nothing is known of theirs.
#[test]
fn functions_of_assembly_have_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assembled(folder);
    let script = "entry:twice { @given = values(arg0) }";
    let done = ilk(folder, &["process", "-e", script, "--", "./caller"]);
    let shown = text(&done.stdout);
    assert!(
        done.status.success() && shown.contains("@given"),
        "{done:?}"
    );
    assert!(shown.contains(" 21"), "{shown}");
}

/// A process that executes another program has not ended, and the option for that program is named.
#[test]
fn a_process_that_executes_another_program_is_said_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assembled(folder);
    let program = ["--", "./caller", "sleep", "1"];
    let done = ilk(folder, &[&["process", "twice"], &program[..]].concat());
    let (shown, said) = (text(&done.stdout), text(&done.stderr));
    assert!(
        shown.contains("The process has executed another program."),
        "{shown}"
    );
    assert!(!shown.contains("The process has ended."), "{shown}");
    assert!(
        said.contains("With --exec follows, that is measured, too."),
        "{said}"
    );
    let done = ilk(folder, &["process", "twice", "--", "./caller"]);
    assert!(
        text(&done.stdout).contains("The process has ended."),
        "{done:?}"
    );
    assert!(!text(&done.stderr).contains("--exec"), "{done:?}");
}

/// A file that cannot be created is refused before the program begins.
#[test]
fn an_output_that_cannot_be_created_is_refused_before_the_program_begins() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for arguments in [
        &["process", "libc.so.6:exit", "-o", "absent/x.arrow"][..],
        &["clone", "--count", "-o", "absent/x.arrow"],
        &["clone", "--accesses", "absent/x"],
    ] {
        let program = ["--", "touch", "begun"];
        let done = ilk(folder, &[arguments, &program[..]].concat());
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {done:?}");
        let said = text(&done.stderr);
        assert!(
            said.contains("absent/x") && said.contains("No such file"),
            "{said}"
        );
        assert!(!folder.join("begun").exists(), "{arguments:?}: {said}");
    }
}

/// Functions without symbols have names of their own in counts and in accesses, not all that of their file.
#[test]
fn functions_without_symbols_have_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assembled(folder);
    let strip = Command::new("strip")
        .current_dir(folder)
        .arg("caller")
        .status();
    assert!(strip.unwrap().success());
    let done = ilk(folder, &["clone", "--count", "--all", "--", "./caller"]);
    let said = text(&done.stderr);
    let names = said.lines().filter_map(|line| line.split_once("  sub_"));
    let names: Vec<&str> = names
        .filter(|(_, name)| name.contains(" (caller)"))
        .filter_map(|(_, name)| name.split('+').next())
        .collect();
    assert!(names.len() > 1, "{said}");
    let done = ilk(folder, &["clone", "--accesses", "file", "--", "./caller"]);
    assert!(done.status.success(), "{done:?}");
    let shown = |arguments: &[&str]| {
        let done = ilk(
            folder,
            &[&["accesses", "file", "--all"], arguments].concat(),
        );
        assert!(done.status.success(), "{done:?}");
        text(&done.stdout)
    };
    let all = shown(&[]);
    assert!(
        names
            .iter()
            .any(|name| all.contains(&format!("sub_{name} (caller)"))),
        "{all}"
    );
    // Writes alone, by their bytes.
    let writes = shown(&["--only", "writes", "--sort", "bytes"]);
    let rows = writes.lines().skip(1).map(|line| {
        let numbers = line.split_whitespace().take(3);
        let numbers: Vec<u64> = numbers
            .map(|one| one.replace(',', "").parse().unwrap())
            .collect();
        (numbers[0], numbers[1], numbers[2])
    });
    let mut rows: Vec<(u64, u64, u64)> = rows.collect();
    let (reads, _, bytes) = rows.pop().unwrap();
    assert_eq!(reads, 0, "{writes}");
    assert_eq!(
        rows.iter().map(|(_, _, bytes)| bytes).sum::<u64>(),
        bytes,
        "{writes}"
    );
    assert!(rows.is_sorted_by(|one, other| one.2 >= other.2), "{writes}");
    let csv = ilk(folder, &["accesses", "file", "--csv", "--only", "writes"]);
    let csv = text(&csv.stdout);
    let kinds = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2).unwrap());
    assert!(
        kinds.clone().count() > 1 && kinds.clone().all(|kind| kind.contains('W')),
        "{csv}"
    );
}

/// Names some of many instruments that only one of two recordings has, and counts the others.
#[test]
fn a_comparison_names_some_of_the_instruments_that_only_one_recording_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (file, program) in [("one.arrow", "true"), ("other.arrow", "ls")] {
        let done = ilk(folder, &["clone", "--count", "-o", file, "--", program]);
        assert!(done.status.success(), "{done:?}");
    }
    let compared = |arguments: &[&str]| {
        let done = ilk(
            folder,
            &[&["diff", "one.arrow", "other.arrow"], arguments].concat(),
        );
        assert!(done.status.success(), "{done:?}");
        let text = text(&done.stdout);
        let line = text
            .lines()
            .find(|line| line.starts_with("Only in the second: "));
        line.unwrap().to_owned()
    };
    let (some, all) = (compared(&[]), compared(&["--all"]));
    let (named, others) = some
        .trim_end_matches(" others.")
        .rsplit_once("; and ")
        .unwrap();
    let others: usize = others.replace(',', "").parse().unwrap();
    assert_eq!(named.split("; ").count(), 8, "{some}");
    assert_eq!(all.split("; ").count(), 8 + others, "{some}");
}
