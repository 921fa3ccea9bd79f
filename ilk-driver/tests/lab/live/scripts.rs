//! Scripts of one line: the answers of the terminal program about a live kernel.

use crate::support::{answer, printed, shared};

/// Returns the number in the line of a function.
fn number(text: &str, function: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!("  {function}")))?;
    line.split_whitespace()
        .next()?
        .replace(',', "")
        .parse()
        .ok()
}

/// Forks 160 times: five rounds of 32.
const PULSAR: &str = "/bin/pulsar 100 5";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_count_of_a_programs_own_calls_is_exact_and_its_exit_status_is_passed_on() {
    let shared = shared();
    let turn = shared.turn();
    let script =
        "entry:__do_sys_clone { @calls = count() } entry:__x64_sys_acct { @never = count() }";
    let output = answer(&turn, &["-e", script, "-c", PULSAR]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(number(&out, "__do_sys_clone"), Some(160), "{out}{err}");
    assert!(out.contains("@never\n  1 place: 0"), "{out}{err}");
    let output = answer(&turn, &["count", "__x64_sys_umask", "-c", "sh -c 'exit 3'"]);
    let (out, err) = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    let output = answer(&turn, &["count", "__x64_sys_umask", "-c", "/bin/absent"]);
    let (out, err) = printed(&output);
    assert!(
        !output.status.success() && err.contains("could not be started"),
        "{out}{err}"
    );
    // A line for each call that is counted, with its time, processor, function and thread.
    let calls = "sh -c 'umask 22; umask 23'";
    let (counts, _) = printed(&answer(&turn, &["count", "__x64_sys_umask", "-c", calls]));
    let (out, err) = printed(&answer(&turn, &["trace", "__x64_sys_umask", "-c", calls]));
    let of_shell = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, "cpu", _, "__x64_sys_umask", thread] if thread.starts_with("sh["))
    };
    let lines = out.lines().filter(of_shell).count();
    assert_eq!(
        number(&counts, "__x64_sys_umask"),
        Some(lines as u64),
        "{counts}{out}{err}"
    );
    let unknown = ["count", "vfs_read", "-p", "99999", "--for", "300ms"];
    let (out, err) = printed(&answer(&turn, &unknown));
    assert!(err.contains("Nothing was of process 99999"), "{out}{err}");
    turn.assert_untouched();
}

/// Two programs, one of which calls kill(2) seven times, and the other five times: with signal 0, to itself.
const CALLERS: &str = "for of in first:7 second:5; do \
     printf '#!/bin/sh\nfor i in $(seq %s); do kill -0 $$; done\n' ${of#*:} > /tmp/${of%:*}; \
     chmod +x /tmp/${of%:*}; /tmp/${of%:*}; done";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn totals_by_key_are_those_of_each_process() {
    let shared = shared();
    let turn = shared.turn();
    // The second argument of the system call is its second register, 104 bytes into `struct pt_regs`.
    let script = "entry:__x64_sys_kill / comm == \"first\" || comm == \"second\" / { @calls[comm] = count(); \
                  @sums[comm, *(u64 *)((u64)arg0 + 104)] = sum(10); @sizes[comm] = hist(10) }";
    let output = answer(&turn, &["-e", script, "-c", CALLERS]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    for line in ["7  first", "5  second", "70  first, 0", "50  second, 0"] {
        assert!(
            out.lines().any(|printed| printed.trim() == line),
            "no {line:?}: {out}{err}"
        );
    }
    assert!(
        out.contains("first: 7 values") && out.contains("second: 5 values"),
        "{out}{err}"
    );
    assert!(!out.contains("other keys"), "{out}{err}");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn refused_placements_are_named_and_the_others_answer() {
    let shared = shared();
    let turn = shared.turn();
    // The entry code of traps is noinstr.
    let script = "entry:__do_sys_clone,entry:exc_* { @calls = count() }";
    let output = answer(&turn, &["-e", script, "-c", PULSAR]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(number(&out, "__do_sys_clone"), Some(160), "{out}{err}");
    assert!(
        err.contains("Left out, ") && err.contains("blacklisted: "),
        "{out}{err}"
    );
    let output = answer(&turn, &["-e", script, "-c", PULSAR, "--strict"]);
    let (out, err) = printed(&output);
    assert!(
        !output.status.success() && err.contains("blacklisted: "),
        "{out}{err}"
    );
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn latencies_of_sleeps_are_no_shorter_than_requested() {
    let shared = shared();
    let turn = shared.turn();
    let output = answer(
        &turn,
        &[
            "latency",
            "__x64_sys_nanosleep,__x64_sys_clock_nanosleep",
            "-c",
            "for i in 1 2 3; do sleep 0.2; done",
        ],
    );
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("3 values"), "{out}{err}");
    // 0.2 s is in the bucket from 2^27 ns, and nothing below it.
    let buckets: Vec<&str> = out.lines().filter(|line| line.contains(" to ")).collect();
    let (first, rest) = buckets.split_first().unwrap();
    assert!(first.contains("134 ms to 268 ms"), "{out}{err}");
    assert!(
        rest.iter()
            .all(|line| line.contains(" ms") || line.contains(" s")),
        "{out}"
    );
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_saved_script_is_a_session_and_a_wrong_one_names_its_column() {
    let shared = shared();
    let turn = shared.turn();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.ron");
    let name = file.to_str().unwrap();
    let script = "thread @t; entry:__x64_sys_umask { @t = nsecs } \
                  return:__x64_sys_umask / @t != 0 / { @ns = max(nsecs - @t); sample(retval) }";
    let output = answer(
        &turn,
        &["-e", script, "-c", "umask 0; umask 0", "--save", name],
    );
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("@ns"), "{out}{err}");
    assert!(
        out.matches("cpu ").count() >= 2,
        "each return is sampled: {out}{err}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let session = gilk_engine::Session::from_ron(&text).unwrap();
    assert_eq!(session.placements.len(), 1);
    // It is not written over.
    let output = answer(&turn, &["-e", script, "-c", "umask 0", "--save", name]);
    assert!(!output.status.success());
    let output = answer(&turn, &["-e", "entry:vfs_raed { @n = count() }"]);
    let (_, err) = printed(&output);
    assert!(!output.status.success());
    assert!(err.contains("1:1: ") && err.contains("vfs_read"), "{err}");
    turn.assert_untouched();
}

/// A program of the name `reader` opens one file three times and another one once, and sends itself the signal 0.
const READER: &str = "printf '#!/bin/sh\nfor i in 1 2 3; do : < /proc/version; done\n\
     : < /proc/sys/kernel/hostname\nkill -0 $$\n' > /tmp/reader; chmod +x /tmp/reader; /tmp/reader; /bin/pulsar 100 5";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn tracepoints_texts_and_enumerations_are_in_one_answer() {
    let shared = shared();
    let turn = shared.turn();
    let script = "tracepoint:sched:sched_process_fork / comm == \"pulsar\" / { @forks[str(child->comm)] = count() } \
         tracepoint:sched_process_exit / comm == \"pulsar\" / { sample(p->pid) } \
         entry:do_filp_open / comm == \"reader\" / { @files[comm, str(pathname->name)] = count() } \
         entry:__x64_sys_kill / comm == \"reader\" / { @kinds[(enum pid_type)regs->si] = count() } \
         entry:__x64_sys_acct, entry:function_of_no_kernel { @never = count() }";
    let output = answer(&turn, &["-e", script, "-c", READER]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    for line in [
        "160  pulsar",
        "3  reader, /proc/version",
        "1  reader, /proc/sys/kerne…",
        "1  PIDTYPE_PID",
    ] {
        assert!(
            out.lines().any(|printed| printed.trim() == line),
            "no {line:?}: {out}{err}"
        );
    }
    // The 160 children, and the program itself.
    let exits = out.matches("tracepoint:sched_process_exit").count();
    assert_eq!(exits, 161, "{out}{err}");
    assert!(
        err.contains("not in this kernel: function_of_no_kernel"),
        "{err}"
    );
    // Switched off again, the tracepoint's code is as before.
    turn.assert_same_text();
    turn.assert_untouched();
    let output = answer(
        &turn,
        &["-e", "tracepoint:sched:sched_swich { @n = count() }"],
    );
    let (_, err) = printed(&output);
    assert!(
        !output.status.success() && err.contains("Write `tracepoint:sched_switch`."),
        "{err}"
    );
}
