//! Instruments in the code cache: hits are those that the program knows of, in all threads, in one, and while a function
//! is called.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;

use super::cloned::ProgramOfCases;

/// Calls of `counted` by thread `number` in `outer`, and outside of it.
const CALLS: u64 = 2_000_000;
const OTHERS: u64 = 1000;

/// The program, executing.
struct Chosen {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    threads: Vec<u32>,
    folder: tempfile::TempDir,
}

/// The results of a round.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    results: u64,
    /// Signals whose handler has called `counted`.
    handled: u64,
    /// The results of `faulting`, and the faults.
    sum: u64,
    repaired: u64,
}

impl Chosen {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled(folder.path(), options);
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut chosen = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            threads: Vec::new(),
            folder,
        };
        let line = chosen.line();
        let numbers = line.strip_prefix("ready ").unwrap().split(' ');
        chosen.threads = numbers.map(|number| number.parse().unwrap()).collect();
        chosen
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn round(&mut self) -> Round {
        writeln!(self.input).unwrap();
        let line = self.line();
        let mut words = line.split(' ');
        let results = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let mut number = || words.next().unwrap().parse().unwrap();
        Round {
            results,
            handled: number(),
            sum: number(),
            repaired: number(),
        }
    }

    /// Executes a round in the cache with some options; returns it, and what the command printed.
    fn cached(&mut self, options: &[&str]) -> (Round, String) {
        let pid = self.child.id();
        let before = super::maps(pid);
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        ilk.env("XDG_CACHE_HOME", self.folder.path())
            .args(["clone", "--numbers"])
            .args(options)
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::piped());
        let mut ilk = ilk.spawn().unwrap();
        let mut lines = BufReader::new(ilk.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while !said.contains("is ready") {
            let line = lines.next().unwrap_or_else(|| panic!("{said}")).unwrap();
            said += &format!("{line}\n");
        }
        let round = self.round();
        // Of the agent, which is its child.
        let mut killer = Command::new("kill");
        let done = killer.args(["-INT", &ilk.id().to_string()]).status();
        assert!(done.unwrap().success());
        for line in lines {
            said += &format!("{}\n", line.unwrap());
        }
        assert!(ilk.wait().unwrap().success(), "{said}");
        assert!(!said.contains("let go"), "{said}");
        let begun = Instant::now();
        while super::maps(pid) != before {
            let waited = begun.elapsed() < Duration::from_secs(5);
            assert!(waited, "{before}{}", super::maps(pid));
            std::thread::sleep(Duration::from_millis(5));
        }
        (round, said)
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

fn compiled(folder: &Path, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("chosen.c"), folder.join("chosen"));
    std::fs::write(&source, include_str!("chosen.c")).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O2", "-pthread", "-w", "-o"]).arg(&program);
    super::compile(compiler.args(options).arg(&source));
    program
}

/// The number in the line of a total, without its separators.
pub(super) fn total(said: &str, name: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
    let first = line.split_whitespace().next().unwrap();
    let digits: String = first.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{line}"))
}

/// All threads: calls under signals, whose handlers call the function, too.
#[test]
fn every_call_in_the_cache_is_counted_once() {
    for options in [&[][..], &["-no-pie"], &["-O0"]] {
        let mut chosen = Chosen::start(options);
        let alone = chosen.round();
        let script = "entry:counted { @calls = count(); @arguments = sum(arg0) } \
                      return:counted { @results = sum((u32)retval) } \
                      entry:faulting { @faulting = count() }";
        let (round, said) = chosen.cached(&["-e", script]);
        let calls = (1..=3).map(|number| CALLS * number + OTHERS).sum::<u64>() + round.handled;
        assert!(round.handled > 5, "{round:?}");
        assert_eq!(total(&said, "@calls"), calls, "{said}");
        let arguments = (0..3).map(|number| number * CALLS * (number + 1) + (50 + number) * OTHERS);
        let arguments = arguments.sum::<u64>() + 100 * round.handled;
        assert_eq!(total(&said, "@arguments"), arguments, "{said}");
        let result = |x: u64| if x % 3 == 1 { x * 3 + 1 } else { x / 2 + 7 };
        let results = (0..3)
            .map(|number| result(number) * CALLS * (number + 1) + result(50 + number) * OTHERS);
        let results = results.sum::<u64>() + 301 * round.handled;
        assert_eq!(total(&said, "@results"), results, "{said}");
        // Control comes back to an instruction that has faulted, and is no other call.
        assert_eq!(total(&said, "@faulting"), 100, "{said}");
        assert_eq!((round.sum, round.repaired), (700, 200));
        assert_eq!(round.results, 2 * alone.results);
        chosen.end();
    }
}

/// A session's file, in which each block of the function has a counter.
#[test]
fn a_session_runs_in_the_cache() {
    let mut chosen = Chosen::start(&[]);
    let (subject, _) = super::subject(chosen.child.id(), "counted", 64);
    let session = super::every_block(subject.image(), &["counted"]);
    let file = chosen.folder.path().join("blocks.ron");
    std::fs::write(&file, session.to_ron().unwrap()).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let (round, said) = chosen.cached(&["--session", &file]);
    let calls = (1..=3).map(|number| CALLS * number + OTHERS).sum::<u64>() + round.handled;
    assert_eq!(total(&said, "pre counted block 0"), calls, "{said}");
    // It is read, and no output.
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let pid = chosen.child.id().to_string();
    let options = ["--session", &file, "-o", &file, "-p", &pid];
    let refused = ilk.arg("clone").args(options).output().unwrap();
    assert!(!refused.status.success());
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        session.to_ron().unwrap()
    );
    chosen.end();
}

/// One thread, or those that are in a function, with samples.
#[test]
fn samples_are_of_the_chosen_threads_and_calls() {
    let mut chosen = Chosen::start(&[]);
    let file = chosen.folder.path().join("calls.arrow");
    let output = file.to_str().unwrap().to_owned();
    // One of 1,024 calls by the clock, and all that are not in `outer`.
    let script = "entry:counted / arg0 < 3 && tsc % 1024 == 0 / { sample(arg0) } \
                  entry:counted / arg0 < 3 / { @inside = count() } \
                  entry:counted / arg0 > 49 && arg0 < 60 / { sample(arg0) }";
    let options = ["-o", &output, "--force", "-e", script];
    let values = || -> Vec<u64> {
        let recording = Recording::open(&file).unwrap();
        let batches = recording.batches().map(|batch| batch.unwrap().samples);
        // Counters are in it, too.
        let values = batches.flatten().map(|sample| sample.value);
        values.filter(|value| *value < 60).collect()
    };
    let of = |value: u64, values: &[u64]| values.iter().filter(|one| **one == value).count() as u64;
    let thread = chosen.threads[1].to_string();
    let (_, said) = chosen.cached(&[&["--thread", &thread], &options[..]].concat());
    let all = values();
    assert_eq!(total(&said, "@inside"), 2 * CALLS, "{said}");
    assert_eq!(of(51, &all), OTHERS, "{said}");
    assert!(of(1, &all) > 100, "{said}");
    assert_eq!(of(1, &all) + of(51, &all), all.len() as u64, "{said}");

    let (_, said) = chosen.cached(&[&["--while", "outer"], &options[..]].concat());
    let all = values();
    assert_eq!(total(&said, "@inside"), 6 * CALLS, "{said}");
    assert!(said.contains("3 calls of outer"), "{said}");
    assert!((0..3).all(|number| of(number, &all) > 100), "{said}");
    assert!(all.iter().all(|value| *value < 3), "{said}");

    let chosen_calls = ["--while", "outer", "--if", "arg0 == 2"];
    let (_, said) = chosen.cached(&[&chosen_calls, &options[..]].concat());
    let all = values();
    assert_eq!(total(&said, "@inside"), 3 * CALLS, "{said}");
    assert!(
        all.len() > 100 && all.iter().all(|value| *value == 2),
        "{said}"
    );
    chosen.end();
}

pub(super) fn in_cache(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", program.parent().unwrap())
        .arg("clone")
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap()
}

fn refused(options: &[&str], program: &Path) -> String {
    let Output { status, stderr, .. } = in_cache(options, program, &[]);
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "{said}");
    said
}

/// Returns whether a thread of a process has a tracer.
pub(super) fn is_traced(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path()).any(|thread| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let mut lines = status.lines();
        let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    })
}

/// The end of the command, by SIGKILL too, lets the process go from among its instruments.
#[test]
fn a_process_is_let_go_from_its_instruments() {
    let mut counted = super::Counted::start(&[], |_| {});
    let pid = counted.pid();
    let maps = super::maps(pid);
    counted.does("begin");
    for round in 0..8 {
        let script = "entry:counted { @n = count() } return:counted { sample(retval) }";
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let ilk = ilk.args(["clone", "-e", script, "-p", &pid.to_string()]);
        let mut ilk = ilk.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(ilk.stderr.take().unwrap()).lines();
        let said: Vec<String> = lines
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| !line.contains("is ready"))
            .collect();
        assert_eq!(said, [""; 0], "round {round}");
        std::thread::sleep(Duration::from_millis(30 + 10 * round));
        match round % 2 {
            0 => ilk.kill().unwrap(),
            _ => {
                let mut killer = Command::new("kill");
                let done = killer.args(["-INT", &ilk.id().to_string()]).status();
                assert!(done.unwrap().success());
            }
        }
        ilk.wait().unwrap();
        let begun = Instant::now();
        // Its threads are traced until after the last mapping is removed.
        while super::maps(pid).contains("memfd:gilk") || is_traced(pid) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "{}",
                super::maps(pid)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    counted.does("end");
    assert!(maps.lines().all(|line| counted.maps().contains(line)));
    counted.end();
}

/// Each is refused before the program begins.
#[test]
fn instruments_that_the_cache_does_not_run_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    for (script, why) in [
        ("post:falling+0x0 { @n = count() }", "not-in-cache"),
        ("usdt:a:b { @n = count() }", "Static probes"),
        ("entry:nowhere { @n = count() }", "nowhere"),
        ("entry:counted { @n = ", "not closed"),
    ] {
        let said = refused(&["-e", script], &program);
        assert!(said.contains(why), "{script}: {said}");
        assert!(!said.contains("ready"), "{script}: {said}");
    }
    let counter = ["-e", "entry:counted { @n = count() }"];
    for other in [
        &["--accesses", "accesses"][..],
        &["--session", "session.ron"],
    ] {
        let said = refused(&[&counter[..], other].concat(), &program);
        assert!(said.contains("cannot be used with"), "{other:?}: {said}");
    }
    let program = compiled(folder.path(), &["-static"]);
    let said = refused(&counter, &program);
    assert!(said.contains("statically"), "{said}");
}

/// A call at the end of a stack is executed without an instrument, and its fault is handled as ever.
#[test]
fn stack_overflows_are_handled_as_without_instruments() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&[][..], &["-O1", "-fno-omit-frame-pointer"]] {
        let program = super::cloned::compiled_from(folder.path(), include_str!("deep.c"), options);
        let alone = Command::new(&program).output().unwrap();
        let script = "entry:deep { @calls = hist(arg0); @n = count() }";
        let cached = in_cache(&["-e", script], &program, &[]);
        let said = String::from_utf8_lossy(&cached.stderr);
        let text = String::from_utf8(alone.stdout).unwrap();
        assert_eq!(String::from_utf8_lossy(&cached.stdout), text, "{said}");
        let (caught, deep) = text.split_once(" caught, ").unwrap();
        let deep: u64 = deep.strip_suffix(" deep\n").unwrap().parse().unwrap();
        assert_eq!(caught, "50");
        // The last calls of each round have no space for it.
        let counted = total(&said, "@n");
        assert!(
            (deep - 50 * 8..=deep + 50).contains(&counted),
            "{deep}: {said}"
        );
    }
}

/// With a counter at each block of the program.
#[test]
fn programs_that_observe_themselves_see_what_they_see_without() {
    let programs = [ProgramOfCases::changing(), ProgramOfCases::observing()];
    for (program, name) in ProgramOfCases::cases(&programs) {
        let alone = Command::new(program).arg(name).output().unwrap();
        let cached = in_cache(&["-e", "block:*:* { @n = count() }"], program, &[name]);
        let said = String::from_utf8_lossy(&cached.stderr);
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&cached), text(&alone), "{name}: {said}");
        let expected = alone.status.code().unwrap_or(1);
        assert_eq!(cached.status.code(), Some(expected), "{name}: {said}");
        assert!(said.contains("@n of"), "{name}: {said}");
    }
}
