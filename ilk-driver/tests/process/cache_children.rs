//! Children of a process in the code cache are in caches of their own, if that is chosen, and count exactly.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use gilk_samples::recording::Recording;

use super::cache_executed::worked;
use super::compiled_from;

/// Children that are forked, one after the other and by three threads at once, a grandchild, one by `posix_spawn`, and one
/// that outlives its parent: each calls `work` a number of times.
const FORKING: &str = r#"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
__attribute__((noipa)) int work(int value) { return value + 1; }
static int works(int count) {
    int done = 0;
    while (done < count)
        done = work(done);
    return done;
}
static int ended(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}
static void *forks(void *unused) {
    long wrong = 0;
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(works(100 + i));
        wrong += ended(child) != 100 + i;
    }
    return (void *)wrong;
}
int main(int count, char **words) {
    if (count > 1) {
        printf("spawned %d\n", works(atoi(words[1])));
        return 0;
    }
    works(10);
    pid_t child = fork();
    if (child == 0) {
        works(1000);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            works(7);
            _exit(9);
        }
        _exit(ended(grandchild));
    }
    printf("%d\n", ended(child));
    fflush(stdout);
    char *arguments[] = {words[0], "77", NULL};
    posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    printf("%d\n", ended(child));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, forks, NULL);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        printf("%ld\n", (long)wrong);
    }
    fflush(stdout);
    if (fork() == 0) {
        usleep(100000);
        works(55);
        printf("later\n");
        fflush(stdout);
    }
    return 0;
}
"#;
const PRINTED: &str = "9\nspawned 77\n0\n0\n0\n0\nlater\n";

fn clone(folder: &Path, options: &[&str], program: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .arg("clone")
        .args(options)
        .arg("--")
        .arg(program)
        .output()
        .unwrap()
}

/// Calls of `work`, and the processes with so many.
fn meant(spawned: bool) -> BTreeMap<u64, usize> {
    let mut calls: BTreeMap<u64, usize> = (100..110).map(|calls| (calls, 3)).collect();
    calls.extend([10, 1000, 7, 55].map(|calls| (calls, 1)));
    calls.extend(spawned.then_some((77, 1)));
    calls
}

fn grouped(calls: impl Iterator<Item = u64>) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for calls in calls {
        *found.entry(calls).or_default() += 1;
    }
    found
}

/// The numbers before the lines of a report that contain a text.
fn numbers(report: &str, text: &str) -> BTreeMap<u64, usize> {
    let lines = report.lines().filter(|line| line.contains(text));
    let first = lines.map(|line| line.split_whitespace().next().unwrap().replace(',', ""));
    grouped(first.map(|number| number.parse().unwrap()))
}

#[test]
fn children_have_counts_of_their_own_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), FORKING, &[]);
    let file = folder.path().join("counts.arrow");
    let path = file.to_str().unwrap();
    let options = [
        "--count",
        "--all",
        "--children",
        "own",
        "-o",
        path,
        "--force",
    ];
    for follows in [false, true] {
        let exec: &[&str] = if follows { &["--exec", "follows"] } else { &[] };
        let done = clone(folder.path(), &[&options, exec].concat(), &program);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(String::from_utf8_lossy(&done.stdout), PRINTED, "{errors}");
        assert_eq!(done.status.code(), Some(0), "{errors}");
        assert!(!errors.contains("ilk: "), "{errors}");
        assert_eq!(numbers(&errors, " work+0x0 "), meant(follows), "{errors}");
        let recording = Recording::open(&file).unwrap();
        assert_eq!(grouped(worked(&recording).into_iter()), meant(follows));
    }
}

#[test]
fn children_have_instruments_of_their_own_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), FORKING, &[]);
    let script = "entry:work { @calls = count() }";
    let options = ["-e", script, "--children", "own", "--exec", "follows"];
    let done = clone(folder.path(), &options, &program);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!(String::from_utf8_lossy(&done.stdout), PRINTED, "{errors}");
    assert_eq!(numbers(&errors, "@calls of "), meant(true), "{errors}");
}

/// A compiler executes others, none of which is a copy of it that lives: all of them are counted.
#[test]
fn a_compiler_and_what_it_executes_are_counted_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let compiled = |first: &[&str], output: &str| {
        let output = folder.path().join(output);
        let mut command = Command::new(first[0]);
        command.env("XDG_CACHE_HOME", folder.path());
        command
            .args(&first[1..])
            .arg(&source)
            .arg("-o")
            .arg(&output);
        let done = command.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        (std::fs::read(output).unwrap(), done)
    };
    let ilk = env!("CARGO_BIN_EXE_ilk");
    let options = ["clone", "--count", "--children", "own", "--exec", "follows"];
    let (alone, _) = compiled(&["gcc"], "alone");
    let cached = [&[ilk], options.as_slice(), &["--", "gcc"]].concat();
    let (cached, done) = compiled(&cached, "cached");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(alone == cached, "{errors}");
    for name in ["gcc", "cc1", "as", "collect2", "ld"] {
        let is_it = |line: &str| {
            let program = line.strip_prefix("Process ")?.strip_suffix(':')?;
            let file = program.rsplit('/').next()?;
            file.split(['-', '.'])
                .any(|part| part == name)
                .then_some(())
        };
        assert!(
            errors.lines().any(|line| is_it(line).is_some()),
            "{name}: {errors}"
        );
    }
}
