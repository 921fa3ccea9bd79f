//! Accesses of a process, of its children and of the programs that they execute are in one file, each under its process.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ilk_driver::accesses;

use super::compiled_from;

/// Stores a number of times to an address that all processes have: the process 10 times, two children at once 1,000 and 1,100
/// times, a grandchild 7 times, and a program that the last child executes 77 times. The parent stores on while they do.
const STORING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static long cell;
extern char stored[];
void stores(long count, long *cell);
__asm__(".globl stored\n"
        "stores: test %rdi, %rdi\n"
        "        jz 2f\n"
        "1:\n"
        "stored: mov %rdi, (%rsi)\n"
        "        dec %rdi\n"
        "        jnz 1b\n"
        "2:      ret\n");
int main(int count, char **words) {
    if (count > 1) {
        stores(atoi(words[1]), &cell);
        return 0;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("%lx %lx\n", (long)stored, (long)&cell);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            stores(1000 + 100 * i, &cell);
            if (i == 1)
                execl("/proc/self/exe", "again", "77", NULL);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                stores(7, &cell);
                _exit(0);
            }
            waitpid(grandchild, NULL, 0);
            _exit(0);
        }
    }
    stores(10, &cell);
    for (int i = 0; i < 2; i++)
        waitpid(children[i], NULL, 0);
    return 0;
}
"#;

#[test]
fn accesses_of_children_and_of_their_programs_are_under_their_processes() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), STORING, &["-no-pie"]);
    for (name, exec, meant) in [
        ("ends", "ends", &[7, 10, 1000, 1100][..]),
        ("follows", "follows", &[7, 10, 77, 1000, 1100]),
    ] {
        let file = folder.path().join(name);
        let path = file.to_str().unwrap();
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        ilk.env("XDG_CACHE_HOME", folder.path());
        let options = ["clone", "--children", "own", "--exec", exec];
        ilk.args(options).args(["--accesses", path, "--"]);
        let done = ilk.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        let printed = String::from_utf8(done.stdout).unwrap();
        let words = printed.split_whitespace();
        let numbers: Vec<u64> = words
            .map(|word| u64::from_str_radix(word, 16).unwrap())
            .collect();
        let [stored, cell] = numbers[..] else {
            panic!("{printed} {said}");
        };
        let mut counts = BTreeMap::<usize, u64>::new();
        let mut each = |access: accesses::MemoryUse, _: &accesses::RecordedExecution| {
            if access.instruction == stored {
                assert_eq!((access.at, access.size), (cell, 8));
                *counts.entry(access.execution).or_default() += 1;
            }
        };
        let found = accesses::read(&file, &mut each).unwrap().executions;
        let mut stores: Vec<u64> = counts.values().copied().collect();
        stores.sort_unstable();
        assert_eq!(stores, meant, "{said}");
        assert_eq!(found.len(), meant.len());
        assert!(
            found
                .iter()
                .all(|one| one.totals.is_some_and(|totals| totals.bytes_lost == 0))
        );
        let processes: BTreeSet<u32> = found.iter().map(|one| one.pid).collect();
        assert_eq!(processes.len(), 4);
        // Each is shown alone.
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let shown = ilk.args(["accesses", path]).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        for one in &found {
            let line = format!("Process {}, {}:", one.pid, one.program);
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
    }
}
