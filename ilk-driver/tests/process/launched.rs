//! Programs that `ilk process` starts: they are instrumented from their entry on, and their exit status is its own.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gilk_engine::session::Placement;
use gilk_engine::{HookType, Session};
use gilk_samples::profile::profiles;
use gilk_samples::recording::Recording;

use super::compiled;

/// Executes `ilk process` with arguments, and gives its program lines.
pub(super) fn ilk(arguments: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .arg("process")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

pub(super) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Actions of signals are those that the shell has set, whatever the client makes of its own.
#[test]
fn a_started_program_ignores_the_signals_that_it_does_otherwise() {
    let program = "/bin/grep SigIgn /proc/self/status";
    let ilk = env!("CARGO_BIN_EXE_ilk");
    for trap in ["true", "trap '' INT HUP XFSZ"] {
        let ignored = |command: &str| {
            let script = format!("{trap}; exec {command}{program}");
            let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
            let shown = text_of(&shell.stdout) + &text_of(&shell.stderr);
            let mut lines = shown.lines();
            let bits = lines.find_map(|line| line.strip_prefix("SigIgn:"));
            let bits = bits.unwrap_or_else(|| panic!("{shown}"));
            // The C library has two signals for itself, 32 and 33, in each program with threads.
            u64::from_str_radix(bits.trim(), 16).unwrap() & !(0b11 << 31)
        };
        let native = ignored("");
        for way in ["process libc.so.6:write --", "clone --"] {
            assert_eq!(ignored(&format!("{ilk} {way} ")), native, "{trap}; {way}");
        }
    }
}

#[test]
fn a_started_program_is_counted_from_its_first_call_to_its_last() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let program = program.to_str().unwrap();
    let script = "entry:counted { @calls = count() } entry:main { @starts = count(); sample(1) }";
    let recording = folder.path().join("x.arrow");
    let recording = recording.to_str().unwrap();
    let output = ilk(&["-e", script, "-o", recording, "--", program], "load\n");
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    let calls = shown
        .lines()
        .find_map(|line| line.split_once(' ')?.0.parse::<u64>().ok());
    let calls = calls.unwrap_or_else(|| panic!("{shown}"));
    let counted = shown
        .lines()
        .find(|line| line.contains("@calls of "))
        .unwrap();
    let counted = counted.trim().split(' ').next().unwrap().replace(',', "");
    assert_eq!(counted, calls.to_string(), "{shown}");
    assert!(shown.contains("1 sample, 0 lost"), "{shown}");
    assert!(
        shown.contains("The program has ended: exit status: 0."),
        "{shown}"
    );
    // The recording ends with the program, and not after the day that was planned.
    let recording = Recording::open(std::path::Path::new(recording)).unwrap();
    let (start, end) = recording.whole().unwrap();
    let clock = &recording.metadata().clock;
    assert!(clock.seconds(end) - clock.seconds(start) < 12.0 * 3600.0);
    // What only counts has as many hits there.
    let measured = profiles(&recording, None, 1, |_| true);
    let mut measured = measured.instruments.into_iter();
    let hits = measured
        .find(|one| one.label.ends_with(" pre counted block 0"))
        .map(|one| one.hits);
    assert_eq!(hits, Some(calls));
}

#[test]
fn a_library_without_its_whole_version_is_awaited_and_its_file_is_named() {
    let output = ilk(&["libc.so:write", "--", "/bin/true"], "");
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("The file of libc.so is libc.so.6: write libc.so.6, or 'libc.so*'."),
        "{shown}"
    );
}

#[test]
fn the_exit_status_of_a_program_is_that_of_the_command() {
    let output = ilk(&["--all", "main", "--", "/bin/sh", "-c", "exit 7"], "");
    // A stripped shell has no main: the program does not start then.
    assert!(!output.status.success());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("seven.c");
    std::fs::write(&source, "int main(void) { return 7; }").unwrap();
    let program = folder.path().join("seven");
    let build = |options: &[&str]| {
        let cc = Command::new("cc")
            .args(options)
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .status();
        assert!(cc.unwrap().success());
    };
    build(&[]);
    let output = ilk(&["main", "--", program.to_str().unwrap()], "");
    let shown = text_of(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(7),
        "{shown}{}",
        text_of(&output.stderr)
    );
    assert!(shown.contains("1  counter pre main block 0"), "{shown}");
    build(&["-static"]);
    let output = ilk(&["main", "--", program.to_str().unwrap()], "");
    let errors = text_of(&output.stderr);
    assert!(
        errors.contains("linked statically") && errors.contains("with -p"),
        "{errors}"
    );
    let output = ilk(&["main", "--", "/no/such/program"], "");
    let errors = text_of(&output.stderr);
    assert!(errors.contains("/no/such/program"), "{errors}");
}

/// Its handler of breakpoints changes a register, and continues after the breakpoint.
const TRAPPING: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
static unsigned long traps, elsewhere;
extern char after_trap[];
static void handle(int signal, siginfo_t *info, void *context) {
    ucontext_t *user = context;
    traps++;
    elsewhere += user->uc_mcontext.gregs[REG_RIP] != (long)after_trap;
    user->uc_mcontext.gregs[REG_RAX] += 100;
}
__attribute__((noinline)) long checked(long value) {
    if (value & 1)
        __asm__ volatile("xor $8, %0; int3; .globl after_trap; after_trap: add $40, %0" : "+a"(value));
    return value * 5 + 1;
}
int main(void) {
    struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
    sigaction(SIGTRAP, &action, 0);
    unsigned long sum = 0;
    for (long n = 0; n < 1000; n++)
        sum = sum * 31 + checked(n);
    printf("%lu traps, %lu elsewhere, %lu\n", traps, elsewhere, sum);
    return traps != 500 || elsewhere != 0;
}
"#;

#[test]
fn breakpoints_of_a_programs_own_reach_its_handler() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("trapping.c");
    std::fs::write(&source, TRAPPING).unwrap();
    let program = folder.path().join("trapping");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-O2", "-o"]).args([&program, &source]).status();
    assert!(cc.unwrap().success());
    let native = Command::new(&program).output().unwrap();
    assert!(native.status.success(), "{}", text_of(&native.stdout));
    let said = text_of(&native.stdout);
    let name = program.to_str().unwrap();
    let output = ilk(&["--blocks", "*", "--", name], "");
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    assert!(shown.contains(&said), "{said}{shown}");
    let counted = counters(&shown);
    assert_eq!(counted.get("checked block 0"), Some(&1000), "{shown}");
    let mut odd = counted
        .iter()
        .filter(|(label, hits)| label.starts_with("checked block ") && **hits == 500);
    assert!(odd.next().is_some(), "{shown}");
    // The code cache leaves the breakpoint in the original, and takes the thread again after it.
    let mut cached = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let cached = cached.args(["clone", "--count", "--", name]);
    let cached = cached.env("XDG_CACHE_HOME", folder.path());
    let output = cached.stdin(Stdio::null()).output().unwrap();
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    assert!(shown.contains(&said), "{said}{shown}");
}

/// The lines of counters: hits by label.
pub(super) fn counters(shown: &str) -> BTreeMap<String, u64> {
    let counters = shown.lines().filter_map(|line| {
        let (hits, label) = line.trim_start().split_once("  counter pre ")?;
        Some((label.to_owned(), hits.replace(',', "").parse().unwrap()))
    });
    counters.collect()
}

#[test]
fn sparing_counters_give_the_counts_of_every_block_in_the_program_and_its_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("steady.c");
    // No thread, no signal, no environment: two runs are alike.
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        static int order(const void *a, const void *b) { return *(int *)a < *(int *)b; }\n\
        int main(void) { int all[300]; unsigned seed = 1;\n\
        for (int n = 0; n < 300; n++) all[n] = (seed = seed * 1103515245 + 12345) >> 8;\n\
        qsort(all, 300, sizeof *all, order); char text[64];\n\
        for (int n = 0; n < 300; n++) snprintf(text, 64, \"%d %x\", all[n], n);\n\
        return text[0] == 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("steady");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-O2", "-o"]).args([&program, &source]).status();
    assert!(cc.unwrap().success());
    let recording = folder.path().join("blocks.arrow");
    let run = |options: &[&str]| {
        let functions = "*,libc.so.6:*qsort*,libc.so.6:*printf*";
        let program = ["--", program.to_str().unwrap()];
        let output = ilk(&[&["--blocks", functions], options, &program].concat(), "");
        let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
        assert!(output.status.success(), "{shown}{errors}");
        let placed = errors.split(' ').next().unwrap().replace(',', "");
        (counters(&shown), placed.parse::<u32>().unwrap())
    };
    let (each, all) = run(&[]);
    let (sparing, some) = run(&["--sparing", "-o", recording.to_str().unwrap()]);
    assert!(some < all, "{some} {all}");
    assert!(each.contains_key("main block 0") && each.len() > 15);
    let of_library = each.keys().filter(|label| label.starts_with("libc.so.6:"));
    assert!(of_library.clone().count() > 5);
    for label in of_library {
        assert!(
            label.contains("qsort") || label.contains("printf"),
            "{label}"
        );
    }
    for (label, hits) in &each {
        assert_eq!(sparing.get(label), Some(hits), "{label}");
    }
    assert_eq!(each, sparing);
    let recorded = Recording::open(&recording).unwrap();
    let names = recorded.metadata().instruments.iter();
    let labels: Vec<&str> = names.map(|one| one.label.as_str()).collect();
    for label in each.keys() {
        assert!(
            labels.contains(&format!("counter pre {label}").as_str()),
            "{label}"
        );
    }
}

#[test]
fn a_session_is_run_in_a_started_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let session = folder.path().join("calls.ron");
    let mut placed = Session::empty();
    for function in ["counted", "libc.so.6:fgets"] {
        placed.placements.push(Placement {
            function: function.into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: placed.duration,
        });
    }
    std::fs::write(&session, placed.to_ron().unwrap()).unwrap();
    let recording = folder.path().join("calls.arrow");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ilk"));
    let output = child
        .args([
            "run",
            session.to_str().unwrap(),
            "-o",
            recording.to_str().unwrap(),
            "--",
        ])
        .arg(&program)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    // It reads once, and finds the end.
    assert_eq!(
        counters(&shown).get("libc.so.6:fgets block 0"),
        Some(&1),
        "{shown}"
    );
    let recorded = Recording::open(&recording).unwrap();
    assert_eq!(recorded.metadata().instruments.len(), 2);
}

#[test]
fn a_program_that_was_not_released_ends_with_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), &[]);
    let name = program.to_str().unwrap();
    for delay_ms in [0, 1, 5, 20, 50, 100, 200] {
        let mut client = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let mut client = client
            .args(["process", "--blocks", "*,*:*", "--", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let executes = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let links = processes.map(|one| std::fs::read_link(one.path().join("exe")));
            links.flatten().any(|link| link == program)
        };
        while !executes() && client.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        client.kill().unwrap();
        client.wait().unwrap();
        // A released one ends by itself: it has nothing to read.
        let killed = Instant::now();
        while executes() {
            assert!(killed.elapsed() < Duration::from_secs(60), "{delay_ms} ms");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
