//! Variables of threads and calls in a process: in recursive calls, in threads, in forked children and in handlers of
//! signals each has its own. Numbers of threads are their own, too, and the
//! time is the kernel's.

use std::path::Path;
use std::process::{Command, Output};

use super::cache_instruments::in_cache;
use super::launched::{ilk, text_of};
use super::probes::totals;
use super::types::expected;
use super::{compile, compiled_from, compiled_with_musl};

const SOURCE: &str = include_str!("variables.c");

const SCRIPT: &str = "
    call @n;
    thread @depth;
    entry:work { @n = arg0 + 1; @depth += 1; @depths = sum(@depth) }
    return:work / @n != 0 / { @calls = count(); @arguments = sum(@n - 1); @depth -= 1 }
    entry:handled { @n = arg0 }
    return:handled { @handled = sum(@n) }
    entry:named / arg0 == tid / { @named = count() }
    entry:timed { @first = min(nsecs - arg0 + 1000000); @last = max(nsecs - arg0 + 1000000) }";

/// Compares what was printed with what the program has printed.
fn judged(output: &Output) {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let (expected, mut found) = (expected(&shown), totals(&shown));
    // Threads lose their processors between the program's reading and the instrument's, and the clock leaves the kernel's
    // between two corrections.
    let (first, last) = (found["first"], found["last"]);
    assert!(
        (900_000..1_100_000).contains(&first) && (first..1_000_000_000).contains(&last),
        "{shown}"
    );
    found.retain(|name, _| expected.contains_key(name));
    assert_eq!(expected.len(), 5, "{shown}");
    // Two of some fifty variables that are kept at a time may have the same of 65,536 entries.
    match shown.contains("were lost for want of storage") {
        false => assert_eq!(found, expected, "{shown}"),
        true => assert!(found["arguments"] < expected["arguments"], "{shown}"),
    }
}

fn in_process(program: &Path) {
    let program = program.to_str().unwrap();
    judged(&ilk(&["-e", SCRIPT, "--", program, "3"], ""));
}

#[test]
fn each_call_and_each_thread_has_its_own_also_in_forked_children() {
    let folder = tempfile::tempdir().unwrap();
    in_process(&compiled_from(folder.path(), SOURCE, &[]));
}

#[test]
fn variables_need_no_restartable_sequences() {
    let folder = tempfile::tempdir().unwrap();
    in_process(&compiled_with_musl(folder.path(), SOURCE, &["-pie"]));
}

#[test]
fn variables_are_kept_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    judged(&in_cache(&["-e", SCRIPT], &program, &[]));
}

/// A program that is linked statically makes the control block of its first thread itself.
#[test]
fn variables_of_threads_without_a_control_block_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_with_musl(folder.path(), SOURCE, &["-static"]);
    let program = program.to_str().unwrap();
    let output = ilk(&["-e", SCRIPT, "--", program], "");
    let shown = text_of(&output.stderr);
    assert!(
        !output.status.success() && shown.contains("no control block"),
        "{shown}"
    );
    let script = "call @n; entry:work { @n = arg0 + 1 } return:work / @n != 0 / { @calls = count(); @arguments = sum(@n - 1) }";
    let output = ilk(&["-e", script, "--", program], "");
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    let (expected, found) = (expected(&shown), totals(&shown));
    for name in ["calls", "arguments"] {
        assert_eq!(found[name], expected[name], "{shown}");
    }
}

/// A library that is loaded later has variables of its own, so that none may be those of the program.
#[test]
fn variables_of_a_library_that_is_loaded_later_are_not_shared_with_the_program() {
    const PROGRAM: &str = "
#include <dlfcn.h>
__attribute__((noipa)) int begun(int value) { return value; }
int main(int count, char **arguments)
{
    begun(count);
    for (int load = 0; load < 3; load++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        ((int (*)(int))dlsym(library, \"work\"))(load);
        dlclose(library);
    }
    return 0;
}
";
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let (source, library) = (
        folder.path().join("work.c"),
        folder.path().join("libwork.so"),
    );
    let text = "__attribute__((noipa)) int work(int value) { return value + 1; }";
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O2", "-shared", "-fPIC", "-o"]);
    compile(compiler.args([&library, &source]));
    let [program, library] = [&program, &library].map(|path| path.to_str().unwrap());
    let shown = |script: &str| {
        let output = ilk(&["-e", script, "--", program, library], "");
        let shown = text_of(&output.stdout) + &text_of(&output.stderr);
        assert!(output.status.success(), "{shown}");
        shown
    };
    for scope in ["global", "thread"] {
        let both = shown(&format!(
            "{scope} @from; entry:begun {{ @from = 7 }} entry:libwork.so:work {{ @seen = sum(@from) }}"
        ));
        assert!(both.contains("share the variable @from"), "{both}");
        assert!(!both.contains("@seen"), "{both}");
        let alone = shown(&format!(
            "{scope} @from; entry:libwork.so:work {{ @from = 7 }} return:libwork.so:work {{ @seen = sum(@from) }}"
        ));
        assert!(alone.contains(" 21  @seen"), "{alone}");
    }
}
