//! Forked children of an instrumented process, by choice: they count with it, or nothing is left in them before they
//! execute an instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;

use super::killed::{cleaned, is_alive, kill, supervisor_of};
use super::launched::{counters, ilk, text_of};
use super::loaded::Following;
use super::probes::interrupt;
use super::{Counted, compiled_from, maps, text};

fn forking() -> Counted {
    forking_with(&[])
}

fn forking_with(options: &[&str]) -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("forking.c"), options);
    Counted::of(Command::new(program), folder)
}

fn following(program: &Counted, choice: &str) -> Following {
    Following::start(program.pid(), &["counted", "--children", choice])
}

/// Ends a measurement; returns the hits and the text that it shows.
fn ended(following: Following) -> (u64, String) {
    interrupt(following.client.id());
    let shown = following.end();
    let hits = counters(&shown).get("counted block 0").copied();
    (hits.unwrap_or_default(), shown)
}

/// The number of children that were left without instruments.
fn left_clean(shown: &str) -> u64 {
    let mut lines = shown.lines();
    let line = lines.find(|line| line.contains("left without instruments."));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    line.split(' ')
        .next()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap()
}

fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(done.unwrap().success());
}

/// Waits for something.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
    let lists: Vec<String> = lists.map(Result::unwrap_or_default).collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    numbers.map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn clean_children_are_as_before_the_attachment_and_only_their_parent_is_counted() {
    let mut program = forking();
    let before = program.text();
    // The dynamic linker is watched, too.
    let arguments = ["counted,later.so:work", "--children", "clean"];
    let following = Following::start(program.pid(), &arguments);
    for command in ["forks", "threads", "nested", "sharing", "instructions"] {
        program.does(command);
        assert_eq!(program.does("found"), (0, 0), "{command}");
    }
    let (parent, _) = program.does("nothing");
    let (hits, shown) = ended(following);
    assert_eq!(hits, parent, "{shown}");
    // Those of `nested` are a child, and one of a clean child.
    assert_eq!(left_clean(&shown), 20 + 4 * 15 + 1 + 3, "{shown}");
    assert!(!shown.contains("counted with its parent"), "{shown}");
    assert!(!shown.contains("remain"), "{shown}");
    assert_eq!(program.text(), before);
    assert!(!program.maps().contains("memfd:gilk"));
    program.does("forks");
    program.end();
}

#[test]
fn shared_children_count_with_their_parent() {
    let mut program = forking();
    for choice in [Some("shared"), None] {
        let (parent, forked) = program.does("nothing");
        let arguments = ["counted", "--children", choice.unwrap_or_default()];
        let arguments = &arguments[..choice.map_or(1, |_| 3)];
        let following = Following::start(program.pid(), arguments);
        program.does("forks");
        program.does("nested");
        let (later, more) = program.does("threads");
        let (hits, shown) = ended(following);
        assert_eq!(hits, later - parent + more - forked, "{shown}");
        let (changed, mapped) = program.does("found");
        assert!(changed > 0 && mapped > 0, "{changed} {mapped}");
    }
    program.end();
}

/// The parts of a report: of the process, and of its children with their numbers.
fn parts(shown: &str) -> (&str, Vec<(u32, &str)>) {
    let mut parts = shown.split("Forked child, process ");
    let first = parts.next().unwrap();
    let children = parts.map(|part| {
        let (pid, report) = part.split_once(":\n").unwrap();
        (pid.parse().unwrap(), report)
    });
    (first, children.collect())
}

#[test]
fn children_have_counts_of_their_own() {
    let mut program = forking();
    let before = program.text();
    let following = following(&program, "own");
    for command in ["forks", "threads", "nested", "sharing"] {
        program.does(command);
    }
    program.does("stay");
    let living = children(program.pid());
    assert_eq!(living.len(), 1);
    let (parent, forked) = {
        let begun = Instant::now();
        loop {
            let (parent, forked) = program.does("nothing");
            // Those of `forks`, `threads`, `nested` and `stay`; more if a handler was executed in one.
            if forked >= 80 * 1000 + 200 + 1000 {
                break (parent, forked);
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    };
    let (_, shown) = ended(following);
    let (first, children) = parts(&shown);
    let hits = |report: &str| counters(report).get("counted block 0").copied();
    assert_eq!(hits(first), Some(parent), "{shown}");
    assert_eq!(children.len(), 83, "{shown}");
    assert!(first.contains("83 forked children have counts of their own."));
    let numbers: BTreeSet<u32> = children.iter().map(|(pid, _)| *pid).collect();
    assert!(numbers.contains(&living[0]));
    let all: u64 = children.iter().filter_map(|(_, report)| hits(report)).sum();
    assert_eq!(all, forked, "{shown}");
    assert!(!shown.contains("counted with its parent"), "{shown}");
    for pid in [program.pid(), living[0]] {
        assert_eq!(text(pid), before);
        assert!(!maps(pid).contains("memfd:gilk"), "{}", maps(pid));
    }
    program.does("join");
    program.end();
}

#[test]
fn samples_of_children_have_lanes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("forking.c"), &[]);
    let recording = folder.path().join("own.arrow");
    let script = "entry:counted / (u32)arg0 < 5 / { sample((u32)arg0); @most = max((u32)arg0) }";
    let output = ilk(
        &[
            "-e",
            script,
            "--children",
            "own",
            "-o",
            recording.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
        ],
        "forks\n",
    );
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    let (_, children) = parts(&shown);
    assert_eq!(children.len(), 20, "{shown}");
    let recording = Recording::open(&recording).unwrap();
    let instruments = &recording.metadata().instruments;
    let mut samples: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for sample in recording.batches().flat_map(|batch| batch.unwrap().samples) {
        samples.entry(sample.id).or_default().push(sample.value);
    }
    for (pid, _) in children {
        let label = format!("process {pid}: ");
        let mut of_child = instruments
            .iter()
            .filter(|one| one.label.starts_with(&label));
        let taken = of_child.find_map(|one| samples.get(&one.id));
        assert_eq!(taken, Some(&vec![0, 1, 2, 3, 4]), "{pid} {shown}");
    }
}

#[test]
fn a_client_with_children_of_their_own_is_killed_at_any_moment() {
    let mut program = forking();
    let before = program.text();
    program.does("begin");
    for delay_ms in [0, 5, 20, 100] {
        let mut following = following(&program, "own");
        std::thread::sleep(Duration::from_millis(delay_ms));
        let supervisor = supervisor_of(following.client.id());
        following.client.kill().unwrap();
        following.client.wait().unwrap();
        until("the supervisor ends", || !is_alive(supervisor));
        until("the program is clean", || {
            !program.maps().contains("memfd:gilk")
        });
    }
    let shown = Following::start(
        program.pid(),
        &["counted", "--children", "own", "--for", "1s"],
    )
    .end();
    assert!(parts(&shown).1.len() > 1, "{shown}");
    assert!(!shown.contains("counted with its parent"), "{shown}");
    program.does("end");
    assert_eq!(program.text(), before);
    program.end();
}

#[test]
fn blocks_of_forks_themselves_are_counted_in_the_parent_and_none_in_its_children() {
    let mut program = forking();
    let functions = "*fork*,*clone*,*malloc*,*free*,*pthread*,*sig*,*wait*,*exit*,*read*,*write*";
    let of_libc = functions.split(',').map(|one| format!("libc.so.6:{one}"));
    let functions = std::iter::once("counted".to_owned()).chain(of_libc);
    let functions = functions.collect::<Vec<_>>().join(",");
    let arguments = [&functions, "--blocks", "--children", "clean"];
    let following = Following::start(program.pid(), &arguments);
    program.does("forks");
    program.does("threads");
    let (parent, _) = program.does("nested");
    assert_eq!(program.does("found"), (0, 0));
    let (hits, shown) = ended(following);
    assert_eq!(hits, parent);
    assert_eq!(left_clean(&shown), 81, "{shown}");
    program.end();
}

#[test]
fn a_program_that_is_linked_statically_has_clean_children_and_such_with_counts() {
    let mut program = forking_with(&["-static"]);
    for (choice, forked) in [("clean", 0), ("own", 23)] {
        let (before, _) = program.does("nothing");
        let following = following(&program, choice);
        program.does("forks");
        let (parent, _) = program.does("instructions");
        assert_eq!(program.does("found").0, forked, "{choice}");
        let (_, shown) = ended(following);
        let (first, children) = parts(&shown);
        let hits = counters(first).get("counted block 0").copied();
        assert_eq!(hits, Some(parent - before), "{shown}");
        assert_eq!(children.len() as u64, forked, "{shown}");
    }
    program.end();
}

#[test]
fn memory_is_read_in_the_parent_of_clean_children() {
    let mut program = forking();
    let script = "entry:counted { @sizes = count() } entry:libc.so.6:fgets / *(u8 *)arg0 == 0 / { @reads = count() }";
    let following = Following::start(program.pid(), &["-e", script, "--children", "clean"]);
    program.does("forks");
    assert_eq!(program.does("found"), (0, 0));
    let (_, shown) = ended(following);
    assert_eq!(left_clean(&shown), 20, "{shown}");
    program.end();
}

#[test]
fn a_started_program_has_clean_children() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("forking.c"), &["-no-pie"]);
    let program = program.to_str().unwrap();
    let output = ilk(
        &["counted", "--children", "clean", "--", program],
        "forks\n",
    );
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    let hits = counters(&shown).get("counted block 0").copied();
    assert_eq!(hits, Some(200), "{shown}");
    assert_eq!(left_clean(&shown), 20, "{shown}");
}

#[test]
fn a_program_under_load_that_forks_is_attached_to_and_left_many_times() {
    let times = std::env::var("GILK_ATTACHED").map_or(6, |times| times.parse().unwrap());
    let mut program = forking();
    let before = program.text();
    program.does("begin");
    let mut clean = 0;
    for _ in 0..times {
        let arguments = ["counted", "--children", "clean", "--for", "60ms"];
        let shown = Following::start(program.pid(), &arguments).end();
        clean += left_clean(&shown);
        assert!(!shown.contains("counted with its parent"), "{shown}");
        assert!(!shown.contains("remain"), "{shown}");
    }
    program.does("end");
    let (changed, _) = program.does("found");
    assert_eq!(changed, 0);
    assert!(clean > 0);
    assert_eq!(program.text(), before);
    assert!(!program.maps().contains("memfd:gilk"));
    program.end();
}

#[test]
fn children_outlive_the_measurement_and_their_parent() {
    let mut program = forking();
    let before = program.text();
    let following = following(&program, "clean");
    program.does("stay");
    let forked = children(program.pid());
    assert_eq!(forked.len(), 1);
    until("the child is clean", || {
        !maps(forked[0]).contains("memfd:gilk")
    });
    assert_eq!(text(forked[0]), before);
    let (hits, shown) = ended(following);
    assert_eq!((hits, left_clean(&shown)), (0, 1), "{shown}");
    assert!(is_alive(forked[0]));
    program.does("join");
    assert_eq!(program.does("found"), (0, 0));
    // The parent is killed while it is instrumented, and its child lives.
    let following = self::following(&program, "clean");
    program.does("stay");
    let forked = children(program.pid());
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let shown = following.end();
    assert!(shown.contains("The process has ended."), "{shown}");
    assert_eq!(left_clean(&shown), 1, "{shown}");
    assert_eq!(text(forked[0]), before);
    assert!(!maps(forked[0]).contains("memfd:gilk"));
    kill(forked[0]);
}

/// Stops all threads of a process.
fn stop(pid: u32) {
    signal(pid, "-STOP");
    until("all threads are stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut stats = threads.map(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.to_owned()
        });
        stats.all(|after_name| after_name.starts_with('T'))
    });
}

/// Has a child wait for an `ilk` that is stopped.
fn waiting(program: &mut Counted, client: u32) -> u32 {
    stop(client);
    writeln!(program.input, "stay").unwrap();
    program.line();
    let forked = children(program.pid());
    assert_eq!(forked.len(), 1);
    std::thread::sleep(Duration::from_millis(100));
    assert!(maps(forked[0]).contains("memfd:gilk"));
    forked[0]
}

#[test]
fn a_child_that_waits_is_clean_when_its_parent_is_left() {
    let mut program = forking();
    let before = program.text();
    let following = following(&program, "clean");
    let client = following.client.id();
    let child = waiting(&mut program, client);
    interrupt(client);
    signal(client, "-CONT");
    let shown = following.end();
    assert_eq!(left_clean(&shown), 1, "{shown}");
    assert!(shown.contains("No place was hit."), "{shown}");
    assert_eq!(text(child), before);
    assert!(!maps(child).contains("memfd:gilk"));
    program.does("join");
    assert_eq!(program.does("found"), (0, 0));
    program.end();
}

#[test]
fn children_that_wait_continue_when_the_client_is_killed() {
    for with_supervisor in [false, true] {
        let mut program = forking();
        let before = program.text();
        let mut following = following(&program, "clean");
        let client = following.client.id();
        let supervisor = supervisor_of(client);
        let child = waiting(&mut program, client);
        if with_supervisor {
            kill(supervisor);
        }
        following.client.kill().unwrap();
        following.client.wait().unwrap();
        if with_supervisor {
            let (done, said) = cleaned(program.pid());
            assert!(done, "{said}");
        }
        until("the supervisor ends", || !is_alive(supervisor));
        until("all are clean", || {
            [program.pid(), child]
                .iter()
                .all(|pid| !maps(*pid).contains("memfd:gilk"))
        });
        for pid in [program.pid(), child] {
            assert_eq!(text(pid), before);
        }
        program.does("join");
        assert_eq!(program.does("found"), (0, 0));
        program.end();
    }
}

#[test]
fn a_client_is_killed_at_any_moment_while_children_are_forked() {
    let mut program = forking();
    let before = program.text();
    program.does("begin");
    for delay_ms in [0, 2, 5, 20, 50] {
        let mut following = following(&program, "clean");
        std::thread::sleep(Duration::from_millis(delay_ms));
        let supervisor = supervisor_of(following.client.id());
        following.client.kill().unwrap();
        following.client.wait().unwrap();
        until("the supervisor ends", || !is_alive(supervisor));
        until("the program is clean", || {
            !program.maps().contains("memfd:gilk")
        });
    }
    program.does("end");
    assert_eq!(program.text(), before);
    program.end();
}

#[test]
fn a_child_that_is_forked_without_the_library_is_reported_and_counts_with_its_parent() {
    let mut program = forking();
    let before = program.text();
    let following = following(&program, "clean");
    program.does("raw");
    let forked = children(program.pid());
    assert_eq!(forked.len(), 1);
    let begun = Instant::now();
    let mut children = 0;
    while children < 1000 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        children = program.does("nothing").1;
    }
    let (hits, shown) = ended(following);
    assert_eq!((hits, left_clean(&shown)), (children, 0), "{shown}");
    let unmet = format!("Process {} was forked in another way", forked[0]);
    assert!(shown.contains(&unmet), "{shown}");
    assert_eq!(text(forked[0]), before);
    program.does("join");
    program.end();
}

#[test]
fn a_choice_without_meaning_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        text_of(&output.stderr)
    };
    let every = refused(&["process", "counted", "-x", "sh", "--children", "clean"]);
    assert!(every.contains("cannot be used with"), "{every}");
    let unknown = refused(&["process", "counted", "-p", "1", "--children", "gone"]);
    assert!(unknown.contains("shared, clean, own"), "{unknown}");
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session.ron");
    let empty = gilk_engine::Session::empty().to_ron().unwrap();
    std::fs::write(&session, empty).unwrap();
    let recording = folder.path().join("x.arrow");
    let (session, recording) = (session.to_str().unwrap(), recording.to_str().unwrap());
    let kernel = refused(&["run", session, "-o", recording, "--children", "clean"]);
    assert!(kernel.contains("--children is for a process"), "{kernel}");
    let kernel = refused(&["run", session, "-o", recording, "--exec", "follows"]);
    assert!(kernel.contains("--exec is for a process"), "{kernel}");
    let both = [
        "process",
        "counted",
        "-p",
        "1",
        "--kernel",
        "entry:vfs_write { sample(arg2) }",
        "--children",
        "own",
    ];
    let both = refused(&both);
    assert!(both.contains("leave out --children own"), "{both}");
    // A second client cannot watch where the process forks.
    let program = forking();
    let following = following(&program, "clean");
    let pid = program.pid().to_string();
    let second = refused(&["process", "counted", "-p", &pid, "--children", "clean"]);
    assert!(
        second.contains("no place is known where it forks"),
        "{second}"
    );
    ended(following);
    program.end();
}
