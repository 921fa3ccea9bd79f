//! A walk through every path that a command accepts: no output destroys anything.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Recording, Writer};
use gilk_samples::{Batch, HookType, InstrumentId, Sample};

use crate::Ilk;

/// Roles of a path in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Reads the file.
    Input,
    /// Connects to it, or passes it to another program.
    Other,
    /// Writes it. The words of a command in which `OUT` is the path; `DIR/` precedes its inputs.
    Output(&'static [&'static str]),
}
use Role::{Input, Other, Output};

/// Every path of every command; the test below compares this with the parser.
const PATHS: &[(&str, &str, Role)] = &[
    (
        "",
        "save",
        Output(&["-e", SCRIPT, "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "",
        "output",
        Output(&["-e", SCRIPT, "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("", "debug", Input),
    ("", "socket", Other),
    ("agent", "port", Other),
    ("agent", "socket", Other),
    (
        "count",
        "save",
        Output(&["count", "x", "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "count",
        "output",
        Output(&["count", "x", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("count", "debug", Input),
    ("count", "socket", Other),
    (
        "top",
        "save",
        Output(&["top", "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "top",
        "output",
        Output(&["top", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("top", "debug", Input),
    ("top", "socket", Other),
    (
        "trace",
        "save",
        Output(&["trace", "x", "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "trace",
        "output",
        Output(&["trace", "x", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("trace", "debug", Input),
    ("trace", "socket", Other),
    (
        "latency",
        "save",
        Output(&["latency", "x", "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "latency",
        "output",
        Output(&["latency", "x", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("latency", "debug", Input),
    ("latency", "socket", Other),
    (
        "callers",
        "save",
        Output(&["callers", "x", "--socket", "DIR/none", "--save", "OUT"]),
    ),
    (
        "callers",
        "output",
        Output(&["callers", "x", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("callers", "debug", Input),
    ("callers", "socket", Other),
    (
        "process",
        "output",
        Output(&["process", "x", "-p", "4294967295", "-o", "OUT"]),
    ),
    (
        "process",
        "save",
        Output(&["process", "x", "-p", "4294967295", "--save", "OUT"]),
    ),
    ("doctor", "root", Input),
    ("process", "socket", Other),
    ("process", "executable", Input),
    ("process", "files", Input),
    ("status", "socket", Other),
    ("stop", "socket", Other),
    ("lab", "kernel", Input),
    ("lab", "headers", Input),
    ("lab", "session", Input),
    (
        "lab",
        "output",
        Output(&[
            "lab",
            "--machine",
            "bochs",
            "--session",
            "DIR/session.ron",
            "-o",
            "OUT",
        ]),
    ),
    ("functions", "socket", Other),
    ("functions", "image", Input),
    ("cfg", "debug", Input),
    ("cfg", "socket", Other),
    ("cfg", "image", Input),
    ("coverage", "images", Input),
    ("coverage", "socket", Other),
    ("instrument check", "file", Input),
    ("instrument check", "socket", Other),
    ("instrument check", "image", Input),
    // Rewritten in place with --write, as its help says.
    ("instrument format", "file", Input),
    ("script", "file", Input),
    (
        "script",
        "output",
        Output(&["script", "syscount", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    (
        "script",
        "save",
        Output(&[
            "script", "syscount", "--socket", "DIR/none", "--save", "OUT",
        ]),
    ),
    ("script", "debug", Input),
    ("script", "socket", Other),
    ("plan", "session", Input),
    ("plan", "files", Input),
    ("plan", "socket", Other),
    ("plan", "image", Input),
    ("run", "session", Input),
    ("run", "executable", Input),
    (
        "run",
        "output",
        Output(&[
            "run",
            "DIR/session.ron",
            "--socket",
            "DIR/none",
            "--native",
            "DIR/native.o",
            "-o",
            "OUT",
        ]),
    ),
    (
        "run",
        "png",
        Output(&[
            "run",
            "DIR/session.ron",
            "--socket",
            "DIR/none",
            "-o",
            "DIR/new",
            "--png",
            "OUT",
        ]),
    ),
    ("run", "files", Input),
    ("run", "socket", Other),
    ("resume", "recording", Input),
    (
        "resume",
        "png",
        Output(&["resume", "DIR/a.arrow", "--png", "OUT"]),
    ),
    ("resume", "socket", Other),
    ("show", "recordings", Input),
    (
        "show",
        "png",
        Output(&["show", "DIR/a.arrow", "DIR/b.arrow", "--png", "OUT"]),
    ),
    ("stats", "recording", Input),
    (
        "stats",
        "picture",
        Output(&["stats", "DIR/a.arrow", "--graph", "f", "--picture", "OUT"]),
    ),
    ("diff", "before", Input),
    ("diff", "after", Input),
    ("export", "recordings", Input),
    (
        "export",
        "output",
        Output(&["export", "DIR/a.arrow", "--to", "csv", "-o", "OUT"]),
    ),
    ("import", "text", Input),
    (
        "import",
        "output",
        Output(&[
            "import",
            "DIR/trace.txt",
            "--beside",
            "DIR/b.arrow",
            "--tsc",
            "-o",
            "OUT",
        ]),
    ),
    ("import", "beside", Input),
    ("join", "recordings", Input),
    (
        "join",
        "output",
        Output(&["join", "DIR/a.arrow", "DIR/b.arrow", "-o", "OUT"]),
    ),
    (
        "dump",
        "output",
        Output(&["dump", "--socket", "DIR/none", "-o", "OUT"]),
    ),
    ("dump", "socket", Other),
    ("accesses", "file", Input),
    (
        "clone",
        "accesses",
        Output(&["clone", "-p", "4194305", "--accesses", "OUT"]),
    ),
    ("clone", "session", Input),
    // No process has that number.
    (
        "clone",
        "output",
        Output(&["clone", "--count", "-p", "4194305", "-o", "OUT"]),
    ),
];
const SCRIPT: &str = "entry:x { @n = count() }";

fn roles() -> impl Iterator<Item = (&'static str, &'static str, Role)> {
    PATHS.iter().copied()
}

/// Returns the names of all arguments that are paths, by command.
fn paths_of(command: &clap::Command, name: &str, paths: &mut BTreeSet<(String, String)>) {
    for argument in command.get_arguments() {
        if argument.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
            paths.insert((name.to_owned(), argument.get_id().to_string()));
        }
    }
    for command in command.get_subcommands() {
        let name = format!("{name} {}", command.get_name());
        paths_of(command, name.trim(), paths);
    }
}

#[test]
fn every_path_of_every_command_has_a_role() {
    let mut found = BTreeSet::new();
    let mut command = Ilk::command();
    command.build();
    paths_of(&command, "", &mut found);
    let known = roles().map(|(command, name, _)| (command.to_owned(), name.to_owned()));
    assert_eq!(found, known.collect());
}

fn recording(path: &Path, id: u64) {
    let mut writer = Writer::create(path, &Metadata::default()).unwrap();
    let samples = vec![Sample {
        id,
        value: 7,
        tsc: 100,
    }];
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
}

/// Creates a folder with an input of each kind.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, major) in [("a.arrow", 1), ("b.arrow", 2)] {
        let id = InstrumentId::new(major, HookType::Pre, 0, 0).unwrap();
        recording(&at(name), id.pack());
    }
    fs::write(
        at("session.ron"),
        gilk_engine::Session::empty().to_ron().unwrap(),
    )
    .unwrap();
    fs::write(
        at("trace.txt"),
        "x-1 [000] 123.456789: sched_waking: pid=15\n",
    )
    .unwrap();
    fs::write(at("precious.txt"), "precious").unwrap();
    let library = std::process::Command::new("cc")
        .args(["-x", "c", "-c", "/dev/null", "-o"])
        .arg(at("native.o"))
        .status();
    assert!(library.unwrap().success());
    folder
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// Runs a command in this process, and returns its error.
fn run(words: &[&str], folder: &Path, out: &Path, force: bool) -> Option<String> {
    let words = words.iter().map(|word| match *word {
        "OUT" => out.display().to_string(),
        word => word.replace("DIR", &folder.display().to_string()),
    });
    let mut words: Vec<String> = ["ilk".to_owned()].into_iter().chain(words).collect();
    if force {
        words.push("--force".to_owned());
    }
    let parsed = Ilk::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    parsed.run().err().map(|error| crate::sentence(&error))
}

#[test]
fn no_output_destroys_an_input_or_a_file_of_another_program() {
    let folder = folder();
    let before = contents(folder.path());
    let mut outputs = 0;
    for (_, _, role) in roles() {
        let Output(words) = role else { continue };
        let inputs = words.iter().filter_map(|word| word.strip_prefix("DIR/"));
        let inputs = inputs.filter(|name| before.contains_key(&folder.path().join(name)));
        for name in inputs.chain(["precious.txt"]) {
            let error = run(words, folder.path(), &folder.path().join(name), false);
            let error = error.unwrap_or_else(|| panic!("{words:?} has replaced {name}"));
            assert!(
                error.contains("is not written")
                    && error.contains(name)
                    && error.contains("--force"),
                "{words:?} with {name}: {error}"
            );
            outputs += 1;
        }
        assert!(
            contents(folder.path()) == before,
            "{words:?} has changed a file"
        );
    }
    assert!(outputs > 20, "{outputs}");
}

#[test]
fn a_forced_output_is_whole_although_it_replaces_its_own_input() {
    let out = |words: &[&str], name: &str, expected: &dyn Fn(&Path)| {
        let folder = folder();
        let path = folder.path().join(name);
        assert_eq!(run(words, folder.path(), &path, true), None, "{words:?}");
        expected(&path);
        let others = contents(folder.path()).into_keys();
        let parts = others.filter(|path| path.extension().is_some_and(|end| end == "part"));
        assert_eq!(parts.count(), 0);
    };
    let is_csv = |path: &Path| assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 2);
    out(
        &["export", "DIR/a.arrow", "--to", "csv", "-o", "OUT"],
        "a.arrow",
        &is_csv,
    );
    let has =
        |samples| move |path: &Path| assert_eq!(Recording::open(path).unwrap().samples(), samples);
    out(
        &["join", "DIR/a.arrow", "DIR/b.arrow", "-o", "OUT"],
        "b.arrow",
        &has(2),
    );
    out(
        &["import", "DIR/trace.txt", "-o", "OUT"],
        "trace.txt",
        &has(1),
    );
    let is_png = |path: &Path| assert!(fs::read(path).unwrap().starts_with(b"\x89PNG"));
    out(&["show", "DIR/a.arrow", "--png", "OUT"], "a.arrow", &is_png);
}

#[test]
fn a_file_that_never_ends_is_refused() {
    let folder = folder();
    let zero = Path::new("/dev/zero");
    for words in [
        &["plan", "OUT"][..],
        &["run", "OUT", "-o", "DIR/new"],
        &["run", "DIR/session.ron", "--native", "OUT", "-o", "DIR/new"],
        &["import", "OUT", "-o", "DIR/new"],
        &["instrument", "check", "OUT"],
        &["instrument", "format", "OUT"],
        &["functions", "--image", "OUT"],
        &["coverage", "OUT"],
        &["show", "OUT"],
        &["stats", "OUT"],
        &["export", "OUT", "-o", "DIR/new.csv"],
    ] {
        let error = run(words, folder.path(), zero, false);
        let error = error.unwrap_or_else(|| panic!("{words:?} has read /dev/zero"));
        assert!(error.contains("/dev/zero"), "{words:?}: {error}");
    }
}
