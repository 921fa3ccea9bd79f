//! Children of a process in the code cache are in caches of their own, if that is chosen, and count exactly.

use std::collections::{BTreeMap, BTreeSet};
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

/// Forks a child, which calls `work` 1,000 times once its parent has ended. Before, the parent does one of these: by `files`,
/// a folder takes the place of its recording; by `words`, it writes over the words of its instruments until it is let go.
const FAILING: &str = r#"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
__attribute__((noipa)) int work(int value) { return value + 1; }
static void take_place(void) {
    struct dirent *entry;
    DIR *folder = opendir(getenv("TMPDIR"));
    while ((entry = readdir(folder)))
        if (!strncmp(entry->d_name, "ilk-", 4)) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s/0.arrow", getenv("TMPDIR"), entry->d_name);
            mkdir(path, 0700);
        }
}
/* Those of instruments are shared, and a table that is not follows them in the same file. */
static int write_over(void) {
    char line[4096], access[8];
    unsigned long start, end, words = 0, table = 0;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps)) {
        sscanf(line, "%lx-%lx %7s", &start, &end, access);
        if (!strstr(line, "memfd:gilk:"))
            continue;
        if (!strcmp(access, "rw-p") && start == table) {
            memset((void *)words, 0x55, table - words);
            found = 1;
        }
        words = start;
        table = end;
    }
    fclose(maps);
    return found;
}
int main(int count, char **words) {
    int line[2];
    (void)!pipe(line);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(line[1]);
        (void)!read(line[0], &byte, 1);
        for (int done = 0; done < 1000; done = work(done))
            ;
        printf("worked\n");
        return 0;
    }
    close(line[0]);
    if (!strcmp(words[1], "files")) {
        take_place();
        work(1);
        return 0;
    }
    work(1);
    int times = 0;
    while (write_over())
        times++;
    return times == 0;
}
"#;

#[test]
fn children_are_recorded_even_if_their_parent_is_not() {
    for (way, measured, reason) in [
        ("files", ["--count", "--all"], "0.arrow"),
        (
            "words",
            ["-e", "entry:work { sample(arg0) }"],
            "The process has written over",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_from(folder.path(), FAILING, &[]);
        let [file, temporary] = ["counts.arrow", "temporary"].map(|name| folder.path().join(name));
        std::fs::create_dir(&temporary).unwrap();
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let done = ilk
            .env("XDG_CACHE_HOME", folder.path())
            .env("TMPDIR", &temporary)
            .args(["clone", "--children", "own", "-o"])
            .arg(&file)
            .args(measured)
            .arg("--")
            .args([&program, Path::new(way)])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(
            String::from_utf8_lossy(&done.stdout),
            "worked\n",
            "{errors}"
        );
        assert_eq!(done.status.code(), Some(1), "{errors}");
        assert!(errors.contains(reason), "{errors}");
        let recorded = format!("The others are recorded in {}.", file.display());
        assert!(errors.contains(&recorded), "{errors}");
        let recording = Recording::open(&file).unwrap();
        let processes = recording.metadata().instruments.iter();
        let processes = processes.map(|one| one.label.split(':').next().unwrap());
        assert_eq!(processes.collect::<BTreeSet<_>>().len(), 1);
        let calls = match way {
            "files" => worked(&recording),
            _ => vec![recording.samples()],
        };
        assert_eq!(calls, [1000], "{errors}");
        // Nothing is left.
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    }
}
