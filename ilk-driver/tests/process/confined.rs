//! Programs that begin to filter their system calls while they are instrumented: none is ended by it.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gilk_engine::verify::verify;
use gilk_engine::{Session, VerifiedPlan};
use gilk_instruments::Library;
use gilk_samples::totals::TotalValue;
use ilk_driver::client::totals;
use ilk_driver::process::{Attached, Removed, Reserved, Subject};
use ilk_driver::script::{Filter, Script, resolve};

use super::launched::{ilk, text_of};
use super::{Counted, compiled_from, compiled_with_musl, maps, subject};

const READS: &str = "entry:handle { @calls = count(); @sizes = sum(*(u64 *)arg0) }";

/// Rounds of the threads; a long run has several.
fn rounds() -> u32 {
    let rounds = std::env::var("GILK_CONFINED");
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}

/// The program, with glibc.
fn confined() -> Counted {
    confined_with(compiled_from)
}

/// The program, compiled with a C library.
fn confined_with(compile: fn(&Path, &str, &[&str]) -> PathBuf) -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), include_str!("confined.c"), &[]);
    Counted::of(Command::new(program), folder)
}

fn planned(subject: &Subject, reserved: &Reserved, script: &str) -> VerifiedPlan {
    let script = Script::parse(script).unwrap();
    let filter = Filter {
        duration: 10.0,
        pid: None,
    };
    let query = resolve(&script, subject.image(), filter, None);
    let session: Session = query.unwrap_or_else(|faults| panic!("{faults}")).session;
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    verify(subject.image(), plan.unwrap()).unwrap()
}

/// A program that is instrumented by a script, and the plan.
fn instrumented(counted: &Counted, script: &str) -> (Attached, VerifiedPlan) {
    let (subject, reserved) = subject(counted.pid(), "confined", 64);
    let plan = planned(&subject, &reserved, script);
    (Attached::attach(&subject, reserved, &plan).unwrap(), plan)
}

/// The totals of a removal by name, and the number of failed reads.
fn results(removed: &Removed, plan: &VerifiedPlan) -> (BTreeMap<String, i128>, u64) {
    let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let all = totals(plan.plan(), &words);
    let numbers = all.added_up.iter().map(|total| match total.value {
        TotalValue::Number(number) => (total.name.clone(), number),
        ref other => panic!("{}: {other:?}", total.name),
    });
    (
        numbers.collect(),
        all.failed_reads.iter().map(|one| one.count).sum(),
    )
}

/// Gives a command; returns the number that follows its name in the answer.
fn answer(counted: &mut Counted, command: &str) -> u64 {
    writeln!(counted.input, "{command}").unwrap();
    let line = counted.line();
    let number = line
        .strip_prefix(command)
        .unwrap_or_else(|| panic!("{command}: {line:?}"));
    number.trim().parse().unwrap()
}

/// Its system calls are filtered, so the mappings stay; the text is the original.
fn left(counted: &Counted, removed: &Removed, text: &[(String, Vec<u8>)]) {
    assert!(!removed.ended);
    let [remains] = removed.cleaned.remains.as_slice() else {
        panic!("{:?}", removed.cleaned);
    };
    assert!(remains.contains("seccomp"), "{remains}");
    assert!(maps(counted.pid()).contains("/memfd:gilk:"));
    let now = counted.text();
    let now: Vec<_> = now
        .iter()
        .filter(|(name, _)| !name.contains("memfd:gilk"))
        .collect();
    assert_eq!(now, text.iter().collect::<Vec<_>>());
}

/// The numbers of processes and names of threads are requested by system calls, too.
#[test]
fn numbers_and_names_end_before_the_process_filters_its_system_calls() {
    for way in ["syscall", "strict"] {
        let mut counted = confined();
        let text = counted.text();
        let script = format!(
            "entry:handle {{ @calls = count(); @numbers = sum(pid == {}); @names = sum(comm == \"counted\") }}",
            counted.pid()
        );
        let (attached, plan) = instrumented(&counted, &script);
        assert_eq!(answer(&mut counted, "calls"), 4000);
        assert_eq!(answer(&mut counted, way), 4000, "{way}");
        assert_eq!(answer(&mut counted, "calls"), 4000, "{way}");
        let removed = attached.remove().unwrap();
        assert!(removed.reads_ended, "{way}");
        let (totals, failed) = results(&removed, &plan);
        let all = ["calls", "numbers", "names"].map(|name| totals[name]);
        assert_eq!(all, [3000, 1000, 1000], "{way}");
        // A number, and two halves of a name.
        assert_eq!(failed, 3 * 2000, "{way}");
        left(&counted, &removed, &text);
        counted.end();
    }
}

#[test]
fn reads_of_memory_end_before_the_process_filters_its_system_calls() {
    reads_end_with(compiled_from);
}

#[test]
fn reads_of_memory_end_before_a_process_of_another_c_library_filters_its_system_calls() {
    reads_end_with(compiled_with_musl);
}

fn reads_end_with(compile: fn(&Path, &str, &[&str]) -> PathBuf) {
    let ways = ["syscall", "inline", "stacked", "strict", "prctl", "threads"];
    // The strict mode is set by prctl, too, and the next test filters all threads.
    let ways = if rounds() == 1 { &ways[..4] } else { &ways };
    for &way in ways {
        let mut counted = confined_with(compile);
        let text = counted.text();
        let (attached, plan) = instrumented(&counted, READS);
        assert_eq!(answer(&mut counted, "calls"), 4000);
        assert_eq!(answer(&mut counted, way), 4000, "{way}");
        assert_eq!(answer(&mut counted, "calls"), 4000, "{way}");
        let removed = attached.remove().unwrap();
        assert!(removed.reads_ended, "{way}");
        let (totals, failed) = results(&removed, &plan);
        assert_eq!((totals["calls"], totals["sizes"]), (3000, 3000), "{way}");
        assert_eq!(failed, 2000, "{way}");
        left(&counted, &removed, &text);
        assert_eq!(answer(&mut counted, "calls"), 4000, "{way}");
        counted.end();
    }
}

/// The C library's handler decides by the address at which it interrupts a thread whether a system call is still to begin.
#[test]
fn a_process_that_may_cancel_threads_is_not_read_where_a_guard_would_hide_its_place() {
    const CANCELLING: &str = "
#include <pthread.h>
#include <unistd.h>
__attribute__((noipa)) long handle(const long *value) { return *value; }
static void *waits(void *argument) { for (;;) pause(); return argument; }
int main(int count, char **arguments)
{
    long value = count;
    pthread_t thread;
    pthread_create(&thread, 0, waits, arguments);
    pthread_cancel(thread);
    pthread_join(thread, 0);
    return (int)handle(&value);
}
";
    for options in [&[][..], &["-static", "-Wl,-u,sigaction"]] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_with_musl(folder.path(), CANCELLING, options);
        let program = program.to_str().unwrap();
        let output = ilk(&["-e", READS, "--", program], "");
        let errors = text_of(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        assert!(
            errors.contains("unguarded") && errors.contains("pthread_cancel"),
            "{errors}"
        );
        // Registers are read.
        let registers = "entry:handle { @calls = count(); @addresses = values(arg0) }";
        let output = ilk(&["-e", registers, "--", program], "");
        let shown = text_of(&output.stdout) + &text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
    }
}

#[test]
fn threads_that_read_while_another_filters_all_of_them_are_not_ended() {
    for _ in 0..rounds() {
        let mut counted = confined();
        let (attached, plan) = instrumented(&counted, READS);
        answer(&mut counted, "others");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        assert_eq!(answer(&mut counted, "threads"), 4000);
        let calls = answer(&mut counted, "join") + 1000;
        let removed = attached.remove().unwrap();
        let (totals, failed) = results(&removed, &plan);
        assert_eq!(totals["calls"], i128::from(calls));
        // Those of this thread failed, and all others read 5 or failed.
        let read = totals["sizes"];
        assert_eq!(read % 5, 0);
        assert_eq!(i128::from(failed) + read / 5, i128::from(calls));
        assert!(read > 0 && failed >= 1000, "{read} {failed}");
        counted.end();
    }
}

#[test]
fn counters_are_removed_from_a_process_that_forbids_removals() {
    for way in ["prctl", "strict"] {
        let mut counted = confined();
        let text = counted.text();
        let (attached, plan) = instrumented(&counted, "entry:handle { @calls = count() }");
        assert_eq!(answer(&mut counted, way), 4000);
        let removed = attached.remove().unwrap();
        assert!(!removed.reads_ended);
        let hits: u64 = removed.counts.iter().map(|(_, hits)| hits).sum();
        assert_eq!(hits, 1000, "{:?}", plan.plan().instruments);
        left(&counted, &removed, &text);
        assert_eq!(answer(&mut counted, "calls"), 4000);
        counted.end();
    }
}

#[test]
fn without_guards_the_filter_would_end_the_program() {
    // The filter is real: a system call that it forbids ends the process.
    let mut counted = confined();
    assert_eq!(answer(&mut counted, "prctl"), 4000);
    writeln!(counted.input, "forbidden").unwrap();
    assert_eq!(counted.line(), "");
    let status = counted.child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
}

#[test]
fn functions_with_guards_are_not_instrumented_by_a_plan_that_reads() {
    let counted = confined();
    let (subject, reserved) = subject(counted.pid(), "libc.so.6:prctl", 64);
    let script = "entry:libc.so.6:prctl { @options = sum(*(u64 *)arg2) }";
    let plan = planned(&subject, &reserved, script);
    let before = maps(counted.pid());
    let error = Attached::attach(&subject, reserved, &plan).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("seccomp") && error.contains("libc.so.6:prctl"),
        "{error}"
    );
    assert_eq!(maps(counted.pid()), before);
    counted.end();
}
