//! Accesses of a process that is attached to are those that it makes while it is in the cache, to the last one: that of a
//! block which the end has cut.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use ilk_driver::accesses::{self, MemoryUse, RecordedExecution};

use super::EndedChild;
use super::cloned::{compiled_from, is_in_cache};
use super::probes::interrupt;

/// A process, and the command that has taken it into the cache.
pub(super) struct Recorded {
    pub(super) child: EndedChild,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    ilk: Child,
}

impl Recorded {
    /// Starts a program, and records its accesses from its first line on, which is returned.
    pub(super) fn begin(folder: &Path, command: &mut Command, file: &Path) -> (Self, String) {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = EndedChild(command.spawn().unwrap());
        let input = child.0.stdin.take().unwrap();
        let mut output = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let pid = child.0.id();
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let mut ilk = ilk
            .env("XDG_CACHE_HOME", folder)
            .args(["clone", "-p", &pid.to_string(), "--most", "4000000000"])
            .arg("--accesses")
            .arg(file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The thread that waits for its input is in the cache as soon as it is scheduled.
        while !is_in_cache(pid) {
            assert!(ilk.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        let recorded = Self {
            child,
            input,
            output,
            ilk,
        };
        (recorded, line)
    }

    /// Writes a line.
    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Writes a line, and returns the answer.
    pub(super) fn answer(&mut self, line: &str) -> String {
        self.say(line);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer
    }

    /// Has the process let go.
    pub(super) fn let_go(&self) {
        interrupt(self.ilk.id());
    }

    /// Waits until the records are complete; returns the words about them.
    pub(super) fn recorded(&mut self) -> String {
        let mut said = String::new();
        let mut errors = self.ilk.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        assert!(self.ilk.wait().unwrap().success(), "{said}");
        assert!(said.contains("; 0 bytes were lost."), "{said}");
        assert!(!said.contains("left out"), "{said}");
        said
    }
}

/// Reads the accesses of a file that is complete, of one process.
pub(super) fn read(file: &Path, mut each: impl FnMut(MemoryUse)) -> RecordedExecution {
    let mut found = accesses::read(file, &mut |access, _| each(access)).unwrap();
    let execution = found.executions.pop().unwrap();
    assert!(found.executions.is_empty());
    assert_eq!(execution.totals.unwrap().bytes_lost, 0);
    execution
}

/// Numbers of a line.
pub(super) fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let words = line.split_whitespace();
    let all = words.map(|word| u64::from_str_radix(word, 16).unwrap());
    all.collect::<Vec<_>>().try_into().unwrap()
}

/// Calls `work` as often as a line states: each adds to 100 words of a table, one after the other, and to a word of the
/// stack.
const WORKING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned long table[100];
extern char adds[], reads[];
void work(unsigned long *table);
__asm__(".type work, @function\n"
        "work:  push %rdi\n"
        "       xor %eax, %eax\n"
        "1:\n"
        "adds:  add %rax, (%rdi, %rax, 8)\n"
        "       inc %eax\n"
        "       cmp $100, %eax\n"
        "       jne 1b\n"
        "reads: pop %rdi\n"
        "       ret\n");
int main(void) {
    char line[64];
    setvbuf(stdin, NULL, _IONBF, 0);
    printf("%lx %lx %lx\n", (long)adds, (long)reads, (long)table);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        int count = atoi(line);
        for (int i = 0; i < count; i++)
            work(table);
        printf("%lu\n", table[99]);
        fflush(stdout);
    }
    return 0;
}
"#;

#[test]
fn accesses_of_a_process_are_recorded_from_its_attachment_until_it_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), WORKING, &[]);
    let file = folder.path().join("accesses");
    let mut command = Command::new(&program);
    let (mut recorded, line) = Recorded::begin(folder.path(), &mut command, &file);
    let [adds, reads, table] = numbers(&line);
    let mut sum = 0;
    for calls in [1, 1000, 37] {
        sum += 99 * calls;
        assert_eq!(recorded.answer(&calls.to_string()), format!("{sum}\n"));
    }
    recorded.let_go();
    let said = recorded.recorded();
    assert!(!is_in_cache(recorded.child.0.id()), "{said}");
    // It is not recorded any more.
    assert_eq!(recorded.answer("5"), format!("{}\n", sum + 99 * 5));
    let (mut next, mut popped) = (0, 0);
    let found = read(&file, |access| {
        if access.instruction == adds {
            assert!(access.reads && access.writes && access.size == 8);
            assert_eq!(access.at, table + 8 * (next % 100), "{next}");
            next += 1;
        }
        popped += u64::from(access.instruction == reads);
    });
    assert_eq!((next, popped), (100 * 1038, 1038));
    let is_named = |name: &String| name.starts_with("work+0x");
    assert!(found.names.values().any(is_named), "{:?}", found.names);
}

/// However the process ends, or is let go, in the middle of a block: the accesses of a thread are those of the instructions
/// that it has executed.
#[test]
fn accesses_of_a_block_that_an_end_cuts_are_those_that_were_made() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("filling.c"), &[]);
    for (number, end) in ["kill", "stop", "exit"].repeat(3).iter().enumerate() {
        let [cells, file] = ["cells", "accesses"].map(|name| {
            let name = format!("{name}{number}");
            folder.path().join(name)
        });
        let mut command = Command::new(&program);
        let command = command.arg(&cells);
        let (mut recorded, line) = Recorded::begin(folder.path(), command, &file);
        let [table, stores, stored] = numbers(&line);
        let pid = recorded.child.0.id().to_string();
        let send = |signal: &str| {
            let sent = Command::new("kill").args([signal, &pid]).status();
            assert!(sent.unwrap().success());
        };
        recorded.say("begin");
        let until_filled = |count: usize| {
            let file = File::open(&cells).unwrap();
            let mut last = [0];
            while last == [0] {
                std::thread::sleep(Duration::from_millis(5));
                file.read_exact_at(&mut last, count as u64).unwrap();
            }
        };
        until_filled(100);
        std::thread::sleep(Duration::from_micros(1700 * number as u64));
        match *end {
            "kill" => send("-KILL"),
            "exit" => recorded.say("end"),
            _ => {
                send("-STOP");
                recorded.let_go();
            }
        }
        let said = recorded.recorded();
        // One that is stopped has stored nothing since.
        let bytes = std::fs::read(&cells).unwrap();
        let count = bytes.iter().position(|byte| *byte == 0).unwrap();
        assert!(bytes[count..].iter().all(|byte| *byte == 0));
        let mut next = 0;
        read(&file, |access| {
            if (stores..stored).contains(&access.instruction) {
                assert!(access.writes && access.size == 1, "{access:?}");
                assert_eq!(access.at, table + next, "{end}: {said}");
                next += 1;
            }
        });
        assert_eq!(next, count as u64, "{end}: {said}");
        if *end == "stop" {
            send("-CONT");
            until_filled(count);
        }
    }
}
