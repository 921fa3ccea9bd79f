//! Programs in the code cache do what they do without it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// The program, compiled.
pub(super) fn compiled(folder: &Path, options: &[&str]) -> PathBuf {
    compiled_from(folder, include_str!("cloned.c"), options)
}

pub(super) fn compiled_from(folder: &Path, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("cloned.c"), folder.join("cloned"));
    std::fs::write(&source, text).unwrap();
    super::compile(
        Command::new("cc")
            .args(["-O2", "-pthread", "-w", "-I"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process"))
            .arg("-o")
            .arg(&program)
            .args(options)
            .arg(&source),
    );
    program
}

/// A program of cases that change their code, or observe themselves.
pub(super) struct ProgramOfCases {
    pub(super) path: PathBuf,
    pub(super) names: Vec<String>,
    _folder: tempfile::TempDir,
}

impl ProgramOfCases {
    fn compiled(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = compiled_from(folder.path(), text, &[]);
        let names = Command::new(&path).output().unwrap();
        let names = String::from_utf8(names.stdout).unwrap();
        assert!(names.lines().count() > 10);
        Self {
            path,
            names: names.lines().map(str::to_owned).collect(),
            _folder: folder,
        }
    }

    pub(super) fn changing() -> Self {
        Self::compiled(include_str!("changing.c"))
    }

    pub(super) fn observing() -> Self {
        Self::compiled(include_str!("observing.c"))
    }

    /// All of them, with each of their cases.
    pub(super) fn cases(all: &[Self]) -> impl Iterator<Item = (&Path, &str)> {
        all.iter().flat_map(|one| {
            let names = one.names.iter();
            names.map(|name| (one.path.as_path(), name.as_str()))
        })
    }
}

fn ilk(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        // The second start of a program finds the blocks of the first.
        .env("XDG_CACHE_HOME", program.parent().unwrap())
        .arg("clone")
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap()
}

/// Signals, faults, threads, forked children, and checksums of the program's own text.
#[test]
fn a_program_in_the_cache_prints_what_it_prints_without() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&[][..], &["-no-pie", "-O0"], &["-static"], &["-static-pie"]] {
        let program = compiled(folder.path(), options);
        for arguments in [&[][..], &["c"]] {
            let alone = Command::new(&program).args(arguments).output().unwrap();
            assert_eq!(alone.status.code(), Some(3));
            for choice in [&[][..], &["--count", "--all"]] {
                // How it is linked matters for its begin; one way to execute it is enough then.
                let is_static = options.iter().any(|one| one.starts_with("-static"));
                if is_static && (choice.is_empty() || !arguments.is_empty()) {
                    continue;
                }
                let cached = ilk(choice, &program, arguments);
                let errors = String::from_utf8_lossy(&cached.stderr);
                assert_eq!(
                    String::from_utf8_lossy(&cached.stdout),
                    String::from_utf8_lossy(&alone.stdout),
                    "{choice:?} {arguments:?}: {errors}"
                );
                assert_eq!(cached.status.code(), Some(3), "{errors}");
                // Code that is written stays in the cache.
                assert!(!errors.contains("was let go"), "{errors}");
                assert_eq!(
                    errors.contains("instructions in"),
                    !choice.is_empty(),
                    "{errors}"
                );
                // Blocks have the names of functions, in the program and in its libraries.
                let named = |function: &str| errors.contains(&format!("  {function}+0x"));
                assert_eq!(named("main"), !choice.is_empty(), "{errors}");
            }
        }
    }
}

/// The cache has no restartable sequences, so it needs no C library that registers them.
#[test]
fn programs_of_another_c_library_print_what_they_print_without() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("cloned.c"), folder.path().join("cloned"));
    std::fs::write(&source, include_str!("cloned.c")).unwrap();
    for options in [&[][..], &["-static"]] {
        let mut compiler = Command::new("musl-gcc");
        let compiler = compiler.args(["-O2", "-w", "-o"]).arg(&program);
        super::compile(compiler.args(options).arg(&source));
        let alone = Command::new(&program).output().unwrap();
        assert_eq!(alone.status.code(), Some(3));
        let cached = ilk(&["--count"], &program, &[]);
        let errors = String::from_utf8_lossy(&cached.stderr);
        assert_eq!(
            String::from_utf8_lossy(&cached.stdout),
            String::from_utf8_lossy(&alone.stdout),
            "{options:?}: {errors}"
        );
        assert_eq!(cached.status.code(), Some(3), "{errors}");
        assert!(
            errors.contains("instructions in") && !errors.contains("let go"),
            "{errors}"
        );
    }
}

/// Cases of changing.c that the cache lets go, and the rules.
const LET_GO: [(&str, &str); 2] = [("often", "written-often"), ("on-the-stack", "may-change")];

/// Changed code, registers and addresses in handlers of signals, restarted system calls, raw threads, and the like.
#[test]
fn programs_that_observe_themselves_see_what_they_see_without() {
    let programs = [ProgramOfCases::changing(), ProgramOfCases::observing()];
    for (rule_of, _) in LET_GO {
        assert!(
            programs
                .iter()
                .any(|one| one.names.iter().any(|name| name == rule_of))
        );
    }
    for (program, name) in ProgramOfCases::cases(&programs) {
        let alone = Command::new(program).arg(name).output().unwrap();
        let cached = ilk(&["--count"], program, &[name]);
        let errors = String::from_utf8_lossy(&cached.stderr);
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&cached), text(&alone), "{name}: {errors}");
        // A program that a signal ends has no exit status of its own.
        let expected = alone.status.code().unwrap_or(1);
        assert_eq!(cached.status.code(), Some(expected), "{name}: {errors}");
        let by_signal = alone.status.code().is_none();
        assert_eq!(
            by_signal,
            errors.contains("has ended: signal"),
            "{name}: {errors}"
        );
        let rule = LET_GO.iter().find(|(one, _)| *one == name);
        assert_eq!(
            errors.contains("was let go"),
            rule.is_some(),
            "{name}: {errors}"
        );
        let is_named = rule.is_none_or(|(_, rule)| errors.contains(rule));
        assert!(is_named, "{name}: {errors}");
    }
}

/// Threads execute one function in the cache, with all that it calls, and nothing else.
#[test]
fn a_function_alone_executes_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let alone = Command::new(&program).arg("f").output().unwrap();
    let options = ["--count", "--all", "--while", "recursive"];
    let cached = ilk(&options, &program, &["f"]);
    let errors = String::from_utf8_lossy(&cached.stderr);
    assert_eq!(cached.stdout, alone.stdout, "{errors}");
    assert!(cached.status.success(), "{errors}");
    assert!(
        errors.contains("6 calls of recursive were executed in the cache."),
        "{errors}"
    );
    let names = errors.lines().filter_map(|line| {
        let (_, rest) = line.split_once("  ")?;
        let (name, _) = rest.trim().rsplit_once("+0x")?;
        name.rsplit(' ').next()
    });
    let names: BTreeSet<&str> = names.collect();
    assert!(names.contains("recursive"), "{errors}");
    for other in ["main", "work", "function_alone", "printf"] {
        assert!(!names.contains(other), "{other}: {errors}");
    }
    // A call that is left in its middle is over at the next stop above its frame.
    let alone = Command::new(&program).arg("l").output().unwrap();
    let left = ilk(&options, &program, &["l"]);
    let errors = String::from_utf8_lossy(&left.stderr);
    assert_eq!(left.stdout, alone.stdout, "{errors}");
    assert!(left.status.success(), "{errors}");
    for (function, why) in [
        ("no_such", "its program has no function \"no_such\""),
        ("libc.so.6:no_such", "libc.so.6 has no function"),
    ] {
        let refused = ilk(&["--while", function], &program, &["f"]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(errors.contains(why), "{errors}");
        assert!(!refused.status.success());
    }
}

/// Calls are in the cache if a condition holds at the entry of the function: by name, by register, by memory. What cannot be read is 0, and is counted.
#[test]
fn calls_are_chosen_by_a_condition() {
    let folder = tempfile::tempdir().unwrap();
    // Without the option a loop replaces one of its two calls.
    let program = compiled(folder.path(), &["-g", "-fno-optimize-sibling-calls"]);
    let alone = Command::new(&program).arg("f").output().unwrap();
    let with = |condition: &str| {
        let options = ["--count", "--while", "recursive", "--if", condition];
        let cached = ilk(&options, &program, &["f"]);
        let errors = String::from_utf8_lossy(&cached.stderr).into_owned();
        (cached, errors)
    };
    // Calls with 3, and all others that are in none of these.
    let (calls, others) = (344, "1,186");
    for condition in [
        "n == 3",
        "reg(\"di\") == 3 && *(u64 *)reg(\"sp\") != 0",
        "arg0 == 3 && comm == \"cloned\" && pid == tid",
    ] {
        let (cached, errors) = with(condition);
        assert_eq!(cached.stdout, alone.stdout, "{errors}");
        assert!(cached.status.success(), "{errors}");
        for line in [
            format!("{calls} calls of recursive were executed in the cache."),
            format!("For {others} other calls, {condition} did not hold."),
        ] {
            assert!(errors.contains(&line), "{line}: {errors}");
        }
        assert!(!errors.contains("failed, and yielded 0"), "{errors}");
    }
    let (cached, errors) = with("n == 3 && *(u64 *)8 == 0");
    assert_eq!(cached.stdout, alone.stdout, "{errors}");
    let failed = format!("Of the reads of memory for the condition {calls} failed, and yielded 0.");
    assert!(errors.contains(&failed), "{errors}");
    for (condition, why) in [
        ("nonsense > 3", "There is no value named nonsense."),
        ("n >", "the condition of calls of recursive is wrong"),
        (
            "cpu == 0",
            "needs more than a thread has at the function's entry",
        ),
        (
            "n) / { sample(1) } leave / (1",
            "is more than one condition",
        ),
    ] {
        let (refused, errors) = with(condition);
        assert!(errors.contains(why), "{condition}: {errors}");
        assert!(!refused.status.success(), "{condition}");
        assert!(refused.stdout.is_empty(), "{condition}: it was not begun");
    }
}

/// A call is over at its return, even if its thread leaves the cache there for another reason: the next one is counted,
/// and what is between them is the original code.
#[test]
fn calls_that_return_as_all_threads_leave_the_cache_are_over() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("returned.c"), &[]);
    let options = ["--count", "--all", "--while", "chosen"];
    let cached = ilk(&options, &program, &[]);
    let errors = String::from_utf8_lossy(&cached.stderr);
    assert!(cached.status.success(), "{errors}");
    let text = String::from_utf8(cached.stdout).unwrap();
    let called = text.strip_prefix("1 1 ").unwrap().trim_end();
    let (before, _) = errors.split_once(" calls of chosen were executed").unwrap();
    let counted = before.lines().last().unwrap().replace(',', "");
    assert_eq!(counted, called, "{errors}");
    assert!(!errors.contains("  main+0x"), "{errors}");
}

/// A call is counted once if the function's first instruction is stepped in the original code, where the breakpoint is.
#[test]
fn calls_begin_once_if_the_first_instruction_is_stepped() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("stepped.c"), &[]);
    let accesses = folder.path().join("accesses");
    let options = [
        "--accesses",
        accesses.to_str().unwrap(),
        "--while",
        "stepped",
        "--for",
        "20s",
    ];
    let cached = ilk(&options, &program, &[]);
    let errors = String::from_utf8_lossy(&cached.stderr);
    assert!(cached.status.success(), "{errors}");
    assert_eq!(cached.stdout, b"190\n", "{errors}");
    let line = "20 calls of stepped were executed in the cache.";
    assert!(errors.lines().any(|one| one.starts_with(line)), "{errors}");
}

/// Eight threads are in the cache while they are in a function; one alone is, if it is chosen.
#[test]
fn chosen_threads_execute_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let alone = Command::new(&program).output().unwrap();
    let options = ["--count", "--while", "thread"];
    let cached = ilk(&options, &program, &[]);
    let errors = String::from_utf8_lossy(&cached.stderr);
    assert_eq!(cached.stdout, alone.stdout, "{errors}");
    assert_eq!(cached.status.code(), Some(3), "{errors}");
    assert!(errors.contains("8 calls of thread"), "{errors}");

    let (mut child, mut input, mut output, _) = started(&program, "r");
    let pid = child.id().to_string();
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--count", "--thread", &pid, "-p", &pid])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !is_in_cache(child.id()) {
        assert!(ilk.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut line = String::new();
    input.write_all(b"a").unwrap();
    output.read_line(&mut line).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let errors = ilk.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&errors.stderr).into_owned();
    assert!(errors.contains("  work+0x"), "{errors}");
}

/// Starts the program with an argument, and waits for its first line.
pub(super) fn started(
    program: &Path,
    argument: &str,
) -> (Child, ChildStdin, BufReader<ChildStdout>, String) {
    let mut child = Command::new(program)
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, input, output, line)
}

/// A process is taken into the cache while it executes, and let go; nothing is left in it.
#[test]
fn a_process_enters_the_cache_and_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let (mut child, mut input, mut output, _) = started(&program, "r");
    let maps = || super::maps(child.id());
    let before = maps();
    let mut results = Vec::new();
    for _ in 0..3 {
        let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .env("XDG_CACHE_HOME", folder.path())
            .args([
                "clone",
                "--count",
                "--for",
                "300ms",
                "-p",
                &child.id().to_string(),
            ])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = ilk.stderr.take().unwrap();
        for _ in 0..20 {
            input.write_all(b"a").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            results.push(line);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        assert!(ilk.wait().unwrap().success(), "{text}");
        assert!(text.contains("instructions in"), "{text}");
    }
    results.dedup();
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(maps(), before);
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Returns whether the instruction that a process waits at is in the code cache.
pub(super) fn is_in_cache(pid: u32) -> bool {
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    let at = call.split_whitespace().next_back().and_then(address);
    let mapped = super::maps(pid);
    let mut ours = mapped.lines().filter(|line| line.contains("memfd:gilk"));
    at.is_some_and(|at| {
        ours.any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split(' ').next().unwrap();
            (address(start).unwrap()..address(end).unwrap()).contains(&at)
        })
    })
}

/// The thread that traces a process, or 0.
fn tracer(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.unwrap().trim().parse().unwrap()
}

/// The agent outlives a command that is killed at any moment: the process executes its code as it is, and has the
/// memory that it had.
#[test]
fn a_killed_command_lets_the_process_go() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    for (argument, options) in [("j", &[][..]), ("r", &["--count"]), ("w", &["--count"])] {
        let (mut child, mut input, mut output, _) = started(&program, argument);
        let pid = child.id();
        let mut answers = Vec::new();
        let mut call = || {
            if argument != "j" {
                let mut line = String::new();
                input.write_all(b"a").unwrap();
                output.read_line(&mut line).unwrap();
                answers.push(line);
            }
        };
        call();
        let before = super::maps(pid);
        for round in 0..6 {
            let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
                .env("XDG_CACHE_HOME", folder.path())
                .arg("clone")
                .args(options)
                .args(["-p", &pid.to_string()])
                .spawn()
                .unwrap();
            while super::maps(pid) == before {
                assert!(ilk.try_wait().unwrap().is_none());
            }
            for _ in 0..round {
                call();
                std::thread::sleep(std::time::Duration::from_millis(7));
            }
            ilk.kill().unwrap();
            ilk.wait().unwrap();
            while tracer(pid) != 0 || super::maps(pid) != before {
                let ended = child.try_wait().unwrap();
                assert_eq!(ended, None, "{argument} {round}");
                call();
            }
        }
        call();
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        match argument {
            "j" => assert_eq!(rest, "0 wrong\n"),
            "w" => {
                let expected = (0..answers.len()).map(|call| format!("{}\n", call % 256));
                assert_eq!(answers, expected.collect::<Vec<_>>());
            }
            _ => {
                answers.dedup();
                assert_eq!(answers.len(), 1, "{answers:?}");
            }
        }
    }
}

/// The end of the agent and of its program leaves other processes of the command's group as they are, in an orphaned group,
/// as that of a service or of CI, too.
#[test]
fn a_stopped_process_next_to_the_command_stays_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap '' HUP; sleep 60 & kill -STOP $!; \"$0\" clone -- true; sleep 0.1; \
                  cut -d ' ' -f 3 /proc/$!/stat; kill -9 $!";
    let output = Command::new("sh")
        .env("XDG_CACHE_HOME", folder.path())
        .args(["-c", "setsid --wait sh -c \"$1\" \"$0\""])
        .args([env!("CARGO_BIN_EXE_ilk"), script])
        .output()
        .unwrap();
    let (states, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        String::from_utf8_lossy(&states).lines().last(),
        Some("T"),
        "{errors}"
    );
}

/// Without an agent a process would execute its code as it was before it wrote it: the kernel ends it.
#[test]
fn a_process_that_writes_its_code_ends_with_a_killed_agent() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let (mut child, mut input, mut output, mut line) = started(&program, "w");
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "-p", &child.id().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !is_in_cache(child.id()) {
        assert!(ilk.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    input.write_all(b"a").unwrap();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n0\n");
    let killed = Command::new("kill")
        .args(["-9", &tracer(child.id()).to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert!(!ilk.wait().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

/// A process that writes its code enters the cache and leaves it, and finds its code as it wrote it, and its memory as
/// it was.
#[test]
fn a_process_that_writes_its_code_enters_the_cache_and_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let (mut child, mut input, mut output, _) = started(&program, "w");
    let mut calls = 0_u8;
    let mut call = || {
        input.write_all(b"a").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), calls.to_string());
        calls += 1;
    };
    call();
    let before = super::maps(child.id());
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--numbers", "-p", &child.id().to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It waits for its input in the cache.
    while !is_in_cache(child.id()) {
        assert!(ilk.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for _ in 0..20 {
        call();
    }
    super::probes::interrupt(ilk.id());
    let mut errors = String::new();
    let mut pipe = ilk.stderr.take().unwrap();
    pipe.read_to_string(&mut errors).unwrap();
    assert!(ilk.wait().unwrap().success(), "{errors}");
    assert!(!errors.contains("was let go"), "{errors}");
    let writes = errors.split_once(" writes of translated code").unwrap().0;
    let writes = writes.rsplit(' ').next().unwrap();
    assert!(writes.parse::<u32>().unwrap() > 0, "{errors}");
    call();
    assert_eq!(super::maps(child.id()), before);
    drop(input);
    assert!(child.wait().unwrap().success());
}
