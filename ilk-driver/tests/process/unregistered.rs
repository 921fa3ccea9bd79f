//! Processes of which no thread registers for restartable sequences: older C libraries, and others.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gilk_engine::Plan;
use gilk_instruments::Library;
use gilk_samples::Sample;
use gilk_samples::recording::Recording;
use iced_x86::{Code, Decoder, DecoderOptions};
use ilk_driver::client::Event;
use ilk_driver::process::{Attached, FollowedProcess, Recorder};
use ilk_driver::protocol::CpuLosses;

use super::launched::{counters, ilk, text_of};
use super::programs::session;
use super::{
    Counted, clean, compile, compiled_from, compiled_with_musl, planned_session, subject,
    without_area,
};

#[test]
fn words_of_a_cpu_are_refused() {
    let counted = Counted::start(&[], without_area);
    let (subject, reserved) = subject(counted.pid(), "counted", 8192);
    let library = Library::builtin().unwrap();
    for script in [
        "cpu @seen; entry:counted { @seen += 1 }",
        "entry:counted / cpu < 4 / { @n = count() }",
    ] {
        let session = session(&subject, script);
        let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
        let error = plan.unwrap_err().to_string();
        assert!(error.contains("ring-owner"), "{script}: {error}");
        assert!(error.contains("glibc from 2.35"), "{script}: {error}");
    }
    counted.end();
}

/// Adds in four threads, and calls itself.
const SOURCE: &str = "
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
static __thread unsigned own;
__attribute__((noinline)) unsigned counted(unsigned n)
{
    own += n;
    return n % 3 == 0 ? own : n;
}
static void *calls(void *argument)
{
    for (unsigned n = 0; n < 30000; n++)
        own ^= counted(n);
    return argument;
}
int main(int count, char **arguments)
{
    signal(SIGPIPE, SIG_IGN);
    pthread_t all[4];
    for (int n = 0; n < 4; n++)
        pthread_create(&all[n], 0, calls, 0);
    for (int n = 0; n < 4; n++)
        pthread_join(all[n], 0);
    printf(\"%zu\\n\", strlen(arguments[count - 1]));
    return 7;
}
";

#[test]
fn programs_of_another_c_library_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("own.c"), folder.path().join("own"));
    std::fs::write(&source, SOURCE).unwrap();
    let name = program.to_str().unwrap();
    for linked in ["-static", "-s", "-static-pie", "-pie"] {
        let mut compiler = Command::new("musl-gcc");
        let compiler = compiler.args(["-O2", linked, "-rdynamic", "-o"]);
        compile(compiler.arg(&program).arg(&source));
        let output = ilk(&["--blocks", "counted", "--", name, "argument"], "");
        let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
        assert_eq!(output.status.code(), Some(7), "{linked}: {shown}{errors}");
        assert!(shown.starts_with("8\n"), "{linked}: {shown}");
        let counted = counters(&shown);
        let hits = counted.get("counted block 0");
        assert_eq!(hits, Some(&120_000), "{linked}: {shown}");
    }
    // The C library is the dynamic linker.
    let output = ilk(&["libc.so:strlen", "--", name, "argument"], "");
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{shown}{errors}");
    let counted = counters(&shown);
    let hits = counted.get("libc.so:strlen block 0");
    assert!(hits.is_some_and(|&hits| hits > 0), "{shown}");
}

#[test]
fn programs_of_another_c_library_are_sampled_into_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("samples.arrow");
    for (way, linked) in [
        ("process", "-static"),
        ("process", "-pie"),
        // In the code cache.
        ("clone", "-pie"),
    ] {
        let program = compiled_with_musl(folder.path(), SOURCE, &[linked]);
        let name = program.to_str().unwrap();
        let script = "entry:counted / arg0 % 3 == 0 / { sample(arg0) }";
        let file = recording.to_str().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ilk"));
        let command = command.env("XDG_CACHE_HOME", folder.path());
        let command = command.args([way, "-e", script, "-o", file, "--", name, "argument"]);
        let output = command.output().unwrap();
        let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
        let status = output.status.code();
        assert_eq!(status, Some(7), "{way}, {linked}: {shown}{errors}");
        let said = format!("{shown}{errors}");
        assert!(said.contains("40,000 samples, 0 lost."), "{way}: {said}");
        let opened = Recording::open(&recording).unwrap();
        let (mut values, mut last) = (0, 0);
        for sample in opened.merged() {
            let (cpu, sample) = sample.unwrap();
            assert!(cpu < 4096 && last <= sample.tsc, "CPU {cpu}");
            last = sample.tsc;
            values += sample.value;
        }
        assert_eq!(values, 4 * (0..30_000).step_by(3).sum::<u64>());
        let exported = folder.path().join("samples.csv");
        let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .args(["export", file, "-o", exported.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text_of(&output.stderr));
        let rows = std::fs::read_to_string(&exported).unwrap();
        assert!(rows.lines().count() > 40_000, "{}", rows.lines().count());
        for file in [&recording, &exported] {
            std::fs::remove_file(file).unwrap();
        }
    }
}

/// Leaves a hit where an `int3` is, by a handler that does not return, or by the end of the thread there; or returns to it
/// late; a forked child leaves it, too. And calls.
const LEAVING: &str = include_str!("leaving.c");

/// The address of the store of the mark in a plan of one sample or line: the last one to the slot.
fn mark(plan: &Plan) -> u64 {
    let patch = &plan.patches[0];
    let decoder = Decoder::with_ip(64, &patch.code, patch.address.0, DecoderOptions::NONE);
    let mut stores = decoder.into_iter().filter(|one| {
        one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == plan.layout.rings.base.0
    });
    stores.next().unwrap().ip()
}

#[test]
fn a_sample_that_its_thread_has_left_is_lost_and_holds_no_other_up() {
    left("entry:counted { sample(arg0) }", &|samples| {
        samples.iter().map(|sample| sample.value).collect()
    });
}

/// A line of six words is left whole.
#[test]
fn a_line_that_its_thread_has_left_is_lost_and_holds_no_other_up() {
    let script =
        "entry:counted { printf(\"%d %d %d %d %d\", arg0, arg0 + 1, 7, arg0 * 9, arg0 ^ 1) }";
    left(script, &|samples| {
        let (lines, rest) = samples.as_chunks::<6>();
        assert!(rest.is_empty(), "{rest:?}");
        let value = |line: &[Sample; 6]| {
            let [head, words @ ..] = line;
            assert!(!head.is_word() && head.value == 0, "{line:?}");
            let is_next = |word: &Sample| word.is_word() && word.tsc == head.tsc;
            assert!(words.iter().all(is_next), "{line:?}");
            let value = words[0].value;
            let meant = [value, value + 1, 7, value * 9, value ^ 1];
            assert_eq!(words.map(|word| word.value), meant);
            value
        };
        lines.iter().map(value).collect()
    });
}

/// Calls of the program at once: fewer than a ring of lines has slots.
const CALLS: usize = 50_000;

/// Has threads leave hits of a script; the values of the calls whose samples have arrived are those of `values`.
fn left(script: &str, values_of: &dyn Fn(&[Sample]) -> Vec<u64>) {
    for musl in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = match musl {
            true => Command::new(compiled_with_musl(folder.path(), LEAVING, &[])),
            false => Command::new(compiled_from(folder.path(), LEAVING, &[])),
        };
        without_area(&mut command);
        let mut counted = Counted::of(command, folder);
        let (subject, reserved) = subject(counted.pid(), "counted", 64);
        let session = session(&subject, script);
        let reserved = reserved.for_session(&session, &Library::builtin().unwrap());
        let plan = planned_session(&subject, &reserved, &session);
        let attached = Attached::attach(&subject, reserved, &plan).unwrap();
        let at = mark(plan.plan());
        let memory = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{}/mem", counted.pid()))
            .unwrap();
        let (sender, events) = crossbeam_channel::unbounded();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let plan = plan.plan();
            let recorded = scope.spawn(|| {
                let process = FollowedProcess::<()>::alone(attached);
                let mut recorder = Recorder::new(None, Some(sender));
                let stopped = || is_over.load(Ordering::Acquire);
                let end = recorder.follow(process, plan, Duration::from_secs(60), stopped);
                end.unwrap().removed
            });
            let (mut values, mut losses) = (BTreeMap::new(), Vec::new());
            // Until so many samples have arrived, and so many are lost.
            let mut arrived = |calls: usize, unfinished: u64| {
                let begun = Instant::now();
                let lost = |losses: &[CpuLosses]| losses.iter().map(|one| one.unfinished).sum();
                while values.values().sum::<usize>() < calls || unfinished > lost(&losses) {
                    assert!(begun.elapsed() < Duration::from_secs(30), "{values:?}");
                    match events.recv_timeout(Duration::from_secs(30)).unwrap() {
                        Event::Samples(batch) => {
                            for value in values_of(&batch.samples) {
                                *values.entry(value).or_default() += 1;
                            }
                        }
                        Event::Losses(now) => losses = now,
                        _ => {}
                    }
                }
                assert_eq!(lost(&losses), unfinished);
                values.clone()
            };
            let original = {
                let mut byte = [0];
                memory.read_exact_at(&mut byte, at).unwrap();
                byte
            };
            counted.does("call");
            arrived(CALLS, 0);
            for (number, command) in (1..).zip(["jump", "end", "fork"]) {
                memory.write_all_at(&[0xcc], at).unwrap();
                counted.does(command);
                std::thread::sleep(Duration::from_millis(50));
                memory.write_all_at(&original, at).unwrap();
                counted.does("call");
                let calls = (number + 1) * CALLS;
                // Nothing of the samples that were left.
                let values = arrived(calls, number as u64);
                assert_eq!(values, BTreeMap::from([(3, calls)]));
            }
            counted.does("kill");
            // One that its thread returns to is waited for.
            memory.write_all_at(&[0xcc], at).unwrap();
            writeln!(counted.input, "wait").unwrap();
            std::thread::sleep(Duration::from_millis(300));
            memory.write_all_at(&original, at).unwrap();
            counted.line();
            counted.does("call");
            let values = arrived(5 * CALLS + 1, 3);
            assert_eq!(values, BTreeMap::from([(3, 5 * CALLS), (4, 1)]));
            // At the end, too, what is not written is lost.
            memory.write_all_at(&[0xcc], at).unwrap();
            counted.does("jump");
            memory.write_all_at(&original, at).unwrap();
            is_over.store(true, Ordering::Release);
            clean(&recorded.join().unwrap());
            let mut last = Vec::new();
            for event in events.try_iter() {
                match event {
                    Event::Losses(now) => last = now,
                    Event::Samples(batch) => panic!("{batch:?}"),
                    _ => {}
                }
            }
            assert_eq!(last.iter().map(CpuLosses::lost).sum::<u64>(), 4);
        });
        counted.end();
    }
}

#[test]
fn a_program_of_go_is_refused() {
    // With C in it, its C library registers its threads.
    for change in [without_area as fn(&mut Command), |_| {}] {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("counted.c").to_owned()
            + "\n__attribute__((used, section(\".go.buildinfo\"))) static const char go[32] = {1};\n";
        let program = compiled_from(folder.path(), &text, &[]);
        let mut command = Command::new(program);
        change(&mut command);
        let mut counted = Counted::of(command, folder);
        let (maps, text) = (counted.maps(), counted.text());
        let pid = counted.pid().to_string();
        let output = ilk(&["-p", &pid, "counted", "--for", "100ms"], "");
        let errors = text_of(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        for words in ["no-runtime", "written in Go", "ilk clone"] {
            assert!(errors.contains(words), "{errors}");
        }
        counted.does("nothing");
        assert_eq!((counted.maps(), counted.text()), (maps, text));
        counted.end();
    }
}
