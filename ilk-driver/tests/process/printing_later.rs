//! Lines of libraries that a process loads later are printed as they come, and recorded, beside those of its program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::cache_instruments::in_cache;
use super::launched::{ilk, text_of};
use super::printing::recorded;
use super::{compile, compiled_from, compiled_with_musl};

const SOURCE: &str = include_str!("printing_later.c");

const LIBRARY: &str = "__attribute__((noipa)) long line(long writer, long serial, const char *name) \
                       { return 3 * writer + serial + *name; }";

/// A line of the library alone, and those of both, with texts and without.
const SCRIPTS: [&str; 3] = [
    "entry:libline.so:line { printf(\"%d %d %s;\", arg0, arg1, str(arg2)) }",
    "entry:libline.so:line { printf(\"%d %d %s;\", arg0, arg1, str(arg2)) }
     entry:own { printf(\"own %d %d;\", arg0, arg1) }",
    "entry:libline.so:line { printf(\"%d %d %d;\", arg0, arg1, arg1 * 5) }
     entry:own { printf(\"own %d %d;\", arg0, arg1) }",
];

const NAMES: [&str; 3] = ["a", "seven b", "more than fifte…"];

/// Returns the lines of all calls by a script, of a child if it is measured, too.
fn meant(script: &str, with_child: bool) -> Vec<String> {
    let (with_own, has_texts) = (script.contains("own"), script.contains("str("));
    let threads = (0..3).flat_map(|load| [10 * load, 10 * load + 1]);
    let writers = threads.chain(with_child.then_some(100));
    let of_writer = |writer: usize| {
        let lines = (0..500).map(move |serial| {
            let name = match has_texts {
                true => NAMES[(writer + serial) % 3].to_owned(),
                false => (serial * 5).to_string(),
            };
            format!("{writer} {serial} {name};")
        });
        let own = (0..50).map(move |call| format!("own {writer} {};", 10 * call));
        lines.chain(own.filter(move |_| with_own))
    };
    let mut meant: Vec<String> = writers.flat_map(of_writer).collect();
    meant.sort_unstable();
    meant
}

fn shown(output: &Output) -> String {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    shown
}

fn judged(output: &Output, meant: &[String]) {
    let shown = shown(output);
    assert!(shown.contains(" 0 lost"), "{shown}");
    let lines = shown.lines().filter(|line| line.ends_with(';'));
    let mut printed: Vec<&str> = lines.collect();
    printed.sort_unstable();
    assert!(printed.iter().eq(meant), "{shown}");
}

/// The program and the library, compiled.
fn compiled(musl: bool, folder: &Path) -> [PathBuf; 2] {
    let (program, compiler) = match musl {
        true => (compiled_with_musl(folder, SOURCE, &[]), "musl-gcc"),
        false => (compiled_from(folder, SOURCE, &[]), "cc"),
    };
    let (source, library) = (folder.join("line.c"), folder.join("libline.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let options = ["-O2", "-shared", "-fPIC", "-o"];
    compile(
        Command::new(compiler)
            .args(options)
            .args([&library, &source]),
    );
    [program, library]
}

#[test]
fn lines_of_libraries_that_are_loaded_later_are_whole() {
    for musl in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [program, library] = compiled(musl, folder.path());
        let [program, library] = [&program, &library].map(|path| path.to_str().unwrap());
        for script in SCRIPTS {
            let output = ilk(&["-e", script, "--", program, library], "");
            judged(&output, &meant(script, true));
        }
        let recording = folder.path().join("lines.arrow");
        let file = recording.to_str().unwrap();
        let script = SCRIPTS[2];
        let output = ilk(&["-e", script, "-o", file, "--", program, library], "");
        assert!(shown(&output).contains(" 0 lost"));
        let (mut lines, others) = recorded(&recording);
        lines.sort_unstable();
        assert_eq!((lines, others), (meant(script, true), 0));
    }
}

/// A forked child leaves the cache.
#[test]
fn lines_of_libraries_that_are_loaded_later_are_whole_in_the_code_cache() {
    for musl in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [program, library] = compiled(musl, folder.path());
        let library = library.to_str().unwrap();
        for script in SCRIPTS {
            let output = in_cache(&["-e", script], &program, &[library]);
            judged(&output, &meant(script, false));
        }
    }
}
