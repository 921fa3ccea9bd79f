use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::recording::Recording;

/// Output of `cat trace`, with and without the column of flags, of tasks with unusual names.
const FTRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 4/4   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
          <idle>-0       [001] d.h2.   123.456789: sched_waking: comm=rcu_sched pid=15 prio=120
 kworker/u4:1 [x]-77     [000] ...1.   123.456790: sys_enter: NR 56 (1200011, 0)
            bash-1234    [000]   123.5: __x64_sys_clone <-do_syscall_64
CPU:1 [LOST 34 EVENTS]
            bash-1234    [001] .....   124.000000001: sched_waking: comm=a pid=3
";
/// Output of `perf script`, with and without the process's number next to the thread's.
const PERF: &str = "\
pulsar  1234 [003]  8123.000001:          1  syscalls:sys_enter_clone: flags: 0x11, tls: 0x0
pulsar  1234/1235  [002]  8123.000500:     250000 cpu-clock:pppH:  ffffffff8100 do_fork+0x11 ([kernel.kallsyms])
";

fn imported(text: &str, aligned: Aligned) -> (Imported, Recording, TempDir) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("imported.arrow");
    let done = import(
        || Ok(text.as_bytes()),
        Path::new("trace.txt"),
        aligned,
        &path,
    )
    .unwrap();
    (done, Recording::open(path).unwrap(), dir)
}

/// Returns name, CPU and ticks from the start of every event.
fn events(recording: &Recording) -> Vec<(String, u16, i64)> {
    let metadata = recording.metadata();
    let name = |id| {
        let known = metadata.instruments.iter().find(|known| known.id == id);
        known.unwrap().label.clone()
    };
    let samples = recording.merged().map(Result::unwrap);
    samples
        .map(|(cpu, sample)| {
            (
                name(sample.id),
                cpu,
                sample.tsc.wrapping_sub(metadata.clock.start).cast_signed(),
            )
        })
        .collect()
}

fn of(name: &str, cpu: u16, at: i64) -> (String, u16, i64) {
    (name.to_owned(), cpu, at)
}

#[test]
fn the_text_of_ftrace_is_read() {
    let (done, recording, _dir) = imported(FTRACE, Aligned::Alone);
    assert_eq!(
        events(&recording),
        [
            of("sched_waking", 1, 0),
            of("sys_enter", 0, 1000),
            of("__x64_sys_clone", 0, 43_211_000),
            of("sched_waking", 1, 543_211_001),
        ]
    );
    assert_eq!((done.summary.samples, done.skipped), (4, 1));
    assert_eq!(
        done.first_skipped.as_deref(),
        Some("CPU:1 [LOST 34 EVENTS]")
    );
    assert_eq!(recording.metadata().cpus, 2);
}

#[test]
fn the_text_of_perf_is_read_and_aligned_with_a_recording() {
    let clock = Clock {
        hz: 2_000_000_000,
        start: 5_000_000_000,
        start_unix_ns: 7,
    };
    let (done, recording, _dir) = imported(
        PERF,
        Aligned::At {
            clock,
            seconds: 8123.0,
        },
    );
    let wanted = [
        of("syscalls:sys_enter_clone", 3, 2000),
        of("cpu-clock:pppH", 2, 1_000_000),
    ];
    assert_eq!(events(&recording), wanted);
    assert_eq!((recording.metadata().clock, done.skipped), (clock, 0));
}

#[test]
fn times_of_the_counter_itself_are_ticks() {
    let clock = Clock {
        hz: 2_400_000_000,
        start: 1000,
        start_unix_ns: 0,
    };
    let text = "  a-1 [000] ..... 123456789012: one: x\n  a-1 [000] ..... 123456789099: two: x\n";
    let (_, recording, _dir) = imported(text, Aligned::Tsc(clock));
    assert_eq!(
        events(&recording),
        [of("one", 0, 123_456_788_012), of("two", 0, 123_456_788_099)]
    );
}

#[test]
fn a_text_without_events_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("none.arrow");
    let text = "# nothing\nbut [words] in 1.5: brackets\n";
    let error = import(
        || Ok(text.as_bytes()),
        Path::new("notes.txt"),
        Aligned::Alone,
        &path,
    );
    let said = error.unwrap_err().to_string();
    assert!(
        said.starts_with("notes.txt cannot be imported: no line of it"),
        "{said}"
    );
    assert!(!path.exists());
}

proptest! {
    #[test]
    fn no_line_panics_and_every_event_is_parsed(
        junk in "[\\[\\]0-9a-z:. ]{0,60}", task in "[a-z\\[\\]/]{1,12}", cpu: u16, whole in 0u64..1 << 40, nanos in 0u32..1_000_000_000,
    ) {
        let _ = event(&junk);
        let line = format!("{task}-12 [{cpu:03}] d..2. {whole}.{nanos:09}: sched_switch: prev={task}");
        let found = Event { cpu, whole, nanoseconds: Some(nanos), name: "sched_switch" };
        // A task called [7] is indistinguishable from a CPU.
        prop_assert_eq!(event(&line), Some(found));
    }
}

#[test]
fn binary_traces_are_refused_with_the_command_that_converts_them() {
    let dir = TempDir::new().unwrap();
    for (bytes, program) in [
        (
            b"\x17\x08\x44tracing6\0\0\x08".as_slice(),
            "trace-cmd report FILE",
        ),
        (b"PERFILE2h\0\0\0", "perf script -i FILE"),
    ] {
        let path = dir.path().join("imported.arrow");
        let refused = import(|| Ok(bytes), Path::new("trace.dat"), Aligned::Alone, &path);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains(program) && said.contains("trace.dat"),
            "{said}"
        );
        assert!(!path.exists());
    }
}
