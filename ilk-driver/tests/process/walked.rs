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
}
