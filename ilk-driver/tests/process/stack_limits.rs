//! Stacks that end early, and what is said of them: unwind tables that cannot be read, and more than there is room for.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gilk_samples::recording::Recording;
use object::{Object, ObjectSection};

use super::launched::text_of;
use super::{compile, compiled_from};

/// Calls `work` directly, through a library that it loads, and directly again.
const PROGRAM: &str = "
#include <dlfcn.h>
#include <stdlib.h>
__attribute__((noipa)) int work(int n) { return n + 1; }
__attribute__((noipa)) int direct(int n) { return work(n) * 3; }
static void *opened(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);
    if (!library)
        abort();
    return library;
}
int main(void)
{
    int n = direct(1);
    int (*through)(int (*)(int), int) = dlsym(opened(\"./libthrough.so\"), \"through\");
    // The tables have all objects before this one executes.
    int (*next)(int) = dlsym(opened(\"./libnext.so\"), \"next\");
    n += through(work, 2);
    return (next(n) + direct(3)) * 0;
}
";

const THROUGH: &str = "int through(int (*work)(int), int n) { return work(n) + 1; }";

const SCRIPT: &str =
    "entry:work { @by[ustack] = count() } entry:libnext.so:next { @next = count() }";

fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (text, library) = (folder.join("library.c"), folder.join(name));
    std::fs::write(&text, source).unwrap();
    let mut compiler = Command::new("cc");
    let options = [
        "-O2",
        "-shared",
        "-fPIC",
        "-fno-optimize-sibling-calls",
        "-o",
    ];
    compile(compiler.args(options).args([&library, &text]));
    library
}

/// Counts the stacks of the program; returns what is shown, and the recording.
fn counted(folder: &Path) -> (String, Recording) {
    library(folder, "libnext.so", "int next(int n) { return n; }");
    let program = compiled_from(folder, PROGRAM, &["-fno-optimize-sibling-calls", "-ldl"]);
    let recording = folder.join("stacks.arrow");
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["process", "-e", SCRIPT, "-o"])
        .arg(&recording)
        .arg("--")
        .arg(program)
        .current_dir(folder)
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap();
    let shown = text_of(&stdout) + &text_of(&stderr);
    assert!(status.success(), "{shown}");
    (shown, Recording::open(&recording).unwrap())
}

/// Compares the stacks of a recording: those of direct calls are whole, the other one has `work` and the library's function.
fn judged(recording: &Recording) {
    let stacks = recording.totals().stacks.frames.values();
    let (direct, others): (Vec<_>, Vec<_>) =
        stacks.partition(|frames| frames[1].starts_with("direct+"));
    assert_eq!(
        (direct.len(), others.len()),
        (2, 1),
        "{direct:?} {others:?}"
    );
    for frames in direct {
        assert!(frames[2].starts_with("main+"), "{frames:?}");
        // The C library calls `main`, the dynamic linker's start the C library.
        assert!(frames.len() > 4, "{frames:?}");
    }
    let through = others[0];
    assert!(through[0].starts_with("work+0x0 "), "{through:?}");
    assert!(through[1].starts_with("through+"), "{through:?}");
}

#[test]
fn an_unwind_table_that_cannot_be_read_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path(), "libthrough.so", THROUGH);
    let mut bytes = std::fs::read(&library).unwrap();
    let (at, _) = {
        let elf = object::File::parse(&*bytes).unwrap();
        let section = elf.section_by_name(".eh_frame").unwrap();
        section.file_range().unwrap()
    };
    // The version of the first entry.
    bytes[at as usize + 8] = 0xff;
    std::fs::write(&library, bytes).unwrap();
    let (shown, recording) = counted(folder.path());
    judged(&recording);
    let limits: Vec<&String> = recording.totals().stacks.limits.iter().collect();
    assert_eq!(limits.len(), 1, "{limits:?}");
    for words in [
        "Stacks may end in ",
        "libthrough.so",
        ".eh_frame is damaged",
    ] {
        assert!(limits[0].contains(words), "{limits:?}");
    }
    assert_eq!(shown.matches(limits[0].as_str()).count(), 1, "{shown}");
    // The recording alone says so, too.
    let stats = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["stats", "stacks.arrow"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(text_of(&stats.stdout).contains(limits[0].as_str()));
}

#[test]
fn stacks_end_in_a_library_with_more_rows_than_there_is_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "__asm__(\".text\\n.rept 400000\\n.cfi_startproc\\nnop\\n.cfi_def_cfa_offset 16\\nnop\\n.cfi_endproc\\n.endr\\n\");";
    library(
        folder.path(),
        "libthrough.so",
        &format!("{THROUGH}\n{rows}"),
    );
    let (shown, recording) = counted(folder.path());
    judged(&recording);
    let stacks = &recording.totals().stacks;
    let through = stacks
        .frames
        .values()
        .find(|frames| frames[1].starts_with("through+"));
    assert_eq!(through.unwrap().len(), 2, "{through:?}");
    let limits: Vec<&String> = stacks.limits.iter().collect();
    assert_eq!(limits.len(), 1, "{limits:?}");
    for words in ["Stacks end in ", "libthrough.so: ", "unwind rows"] {
        assert!(limits[0].contains(words), "{limits:?}");
    }
    assert_eq!(shown.matches(limits[0].as_str()).count(), 1, "{shown}");
}
