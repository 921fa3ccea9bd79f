//! Translations of a library are dropped when it is unloaded, and no others.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::cloned::compiled_from;

/// Calls of the library's function after each load.
const CALLS: u64 = 40;
/// The library: some functions, one of which calls the program.
const LIBRARY: &str = "
__attribute__((noipa)) static unsigned odd(unsigned x) { return x * 3; }
__attribute__((noipa)) static unsigned even(unsigned x) { return x / 2; }
unsigned work(unsigned x, unsigned (*step)(unsigned))
{
	return step(x & 1 ? odd(x) : even(x)) + 7;
}
";

fn in_cache(folder: &Path, options: &[&str], arguments: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .args(["clone", "--numbers"])
        .args(options)
        .arg("--")
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

/// A number of the cache.
fn number(said: &str, words: &str) -> u64 {
    let line = said.lines().find(|line| line.starts_with("Code cache: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let line = line
        .trim_start_matches("Code cache: ")
        .trim_end_matches('.');
    let mut all = line.split(", ");
    let found = all.find_map(|one| one.strip_suffix(words)?.strip_suffix(' '));
    let found = found.unwrap_or_else(|| panic!("{words}: {line}"));
    found.replace(',', "").parse().unwrap()
}

/// Executions of the block at the entry of a function.
fn entered(said: &str, function: &str) -> u64 {
    let name = format!("  {function}+0x0 ");
    let lines = said.lines().filter(|line| line.contains(&name));
    let counts = lines.map(|line| {
        let count = line.split_whitespace().next().unwrap();
        count.replace(',', "").parse::<u64>().unwrap()
    });
    counts.sum()
}

fn library(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (source, library) = (folder.join("library.c"), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]);
    super::compile(compiler.arg(&library).arg(&source));
    library
}

#[test]
fn translations_of_an_unloaded_library_are_dropped_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-rdynamic"];
    let program = compiled_from(folder.path(), include_str!("unloading.c"), &options);
    let library = library(folder.path(), "libplugin.so", LIBRARY);
    let [program, library] = [&program, &library].map(|path| path.to_str().unwrap());
    let script = "entry:libplugin.so:work { @calls = count() } entry:step { @steps = count() }";
    for options in [
        &["--count", "--all"][..],
        &["--count", "--all", "-e", script],
        &[],
    ] {
        let counts = options.contains(&"--count");
        // The second start knows the blocks of the first, so that both translate the same.
        let runs = [2_u64, 2, 22].map(|rounds| {
            let rounds_text = rounds.to_string();
            let arguments = [program, library, &rounds_text];
            let native = Command::new(program).args(&arguments[1..]).output();
            let (cached, said) = in_cache(folder.path(), options, &arguments);
            assert!(cached.status.success(), "{said}");
            assert_eq!(cached.stdout, native.unwrap().stdout, "{said}");
            assert!(!said.contains("let go"), "{said}");
            if counts {
                for function in ["step", "work"] {
                    assert_eq!(entered(&said, function), rounds * CALLS, "{said}");
                }
                for function in ["odd", "even"] {
                    assert_eq!(entered(&said, function), rounds * CALLS / 2, "{said}");
                }
                assert_eq!(entered(&said, "round_trip"), rounds, "{said}");
            }
            said
        });
        let [_, few, many] = &runs;
        let grown = |words| {
            let [few, many] = [few, many].map(|said| number(said, words));
            many.checked_sub(few)
                .unwrap_or_else(|| panic!("{words}: {few} {many}"))
        };
        // Blocks count with locks once there is a second thread; nothing else drops all.
        let flushes = number(many, "flushes");
        assert_eq!(flushes, u64::from(counts), "{many}");
        assert!(grown("translations dropped") >= 20, "{few}{many}");
        let (blocks, whole) = (grown("blocks translated"), number(few, "blocks translated"));
        // A load translates the library, which has some twenty blocks, and is a small part of the rest.
        assert!(blocks <= 20 * 60, "{blocks} more blocks: {few}{many}");
        assert!(whole > 1000, "{few}");
    }
}

/// Between two calls of the function, the thread is not in the cache, and maps another library at the same addresses.
#[test]
fn calls_of_a_function_execute_the_library_that_is_mapped_then() {
    const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noipa)) unsigned inside(unsigned (*work)(unsigned))
{
	return work(3);
}
int main(int count, char **arguments)
{
	for (int i = 0; i < 12; i++) {
		void *library = dlopen(arguments[1 + (i & 1)], RTLD_NOW);
		unsigned (*work)(unsigned) = dlsym(library, "work");
		printf("%u\n", inside(work));
		dlclose(library);
	}
	return 0;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let libraries = [3, 5].map(|factor| {
        let text = format!("unsigned work(unsigned x) {{ return x * {factor} + 1; }}");
        library(folder.path(), &format!("lib{factor}.so"), &text)
    });
    let [program, one, other] =
        [&program, &libraries[0], &libraries[1]].map(|path| path.to_str().unwrap());
    let options = ["--while", "inside"];
    let (cached, said) = in_cache(folder.path(), &options, &[program, one, other]);
    assert!(cached.status.success(), "{said}");
    assert_eq!(
        String::from_utf8(cached.stdout).unwrap(),
        "10\n16\n".repeat(6)
    );
    assert_eq!(number(&said, "calls executed in the cache"), 12, "{said}");
    // Each load but the last was noticed to be gone.
    assert!(number(&said, "translations dropped") >= 11, "{said}");
}
