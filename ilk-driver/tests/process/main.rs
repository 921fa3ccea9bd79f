//! Processes of this machine as targets: a program that counts its own calls is counted.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

mod accessing;
mod accessing_attached;
mod accessing_children;
mod accessing_chosen;
mod accessing_generated;
mod cache_both;
mod cache_children;
mod cache_dropped;
mod cache_executed;
mod cache_instruments;
mod cache_later;
mod cache_live;
mod cache_live_children;
mod cache_reads;
mod cache_recording;
mod cache_stopped;
mod cache_unloaded;
mod cache_ways;
#[path = "../lab/circulation.rs"]
mod circulation;
mod cloned;
mod closed;
mod confined;
mod contained;
mod covered;
mod every;
mod executions;
mod forks;
mod killed;
mod launched;
mod lines;
mod loaded;
mod naming;
mod prefixes;
mod printing;
mod printing_later;
mod probes;
mod programs;
mod refused;
mod replaced;
mod separate;
mod stack_limits;
mod stacks;
mod suites;
mod sums;
mod types;
mod unregistered;
mod variables;
mod walked;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use std::collections::BTreeMap;

use gilk_engine::cfg::Cfg;
use gilk_engine::plan::plan_possible;
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{HookType, Image, Session, VerifiedPlan};
use gilk_instruments::Library;
use ilk_driver::process::{Attached, ObjectChoice, Removed, Reserved, Subject, objects};
use ilk_driver::script::Designations;

/// The program, compiled.
fn compiled(folder: &Path, options: &[&str]) -> PathBuf {
    compiled_from(folder, include_str!("counted.c"), options)
}

/// A program of this source, compiled.
fn compiled_from(folder: &Path, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("counted.c"), folder.join("counted"));
    std::fs::write(&source, text).unwrap();
    compile(
        Command::new("cc")
            .args(["-O2", "-pthread", "-o"])
            .arg(&program)
            .args(options)
            .arg(&source),
    );
    program
}

/// A program of this source, compiled with musl, whose own headers precede those of the kernel.
fn compiled_with_musl(folder: &Path, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("counted.c"), folder.join("counted"));
    std::fs::write(&source, text).unwrap();
    let headers = ["/usr/include", "/usr/include/x86_64-linux-gnu"];
    let headers = headers.iter().flat_map(|folder| ["-idirafter", folder]);
    compile(
        Command::new("musl-gcc")
            .args(["-O2", "-o"])
            .arg(&program)
            .args(headers)
            .args(options)
            .arg(&source),
    );
    program
}

/// Runs a compiler, and fails with its messages.
fn compile(compiler: &mut Command) {
    let done = compiler.output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A program that ends with its test, also if that fails: its threads would execute for ever.
struct EndedChild(Child);

impl Drop for EndedChild {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

impl std::ops::Deref for EndedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for EndedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// The program, executing.
struct Counted {
    child: EndedChild,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Counted {
    fn start(options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(compiled(folder.path(), options));
        change(&mut command);
        Self::of(command, folder)
    }

    /// Starts a program, of which a folder has the file, that is ready when it says so.
    fn of(mut command: Command, folder: tempfile::TempDir) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut counted = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child: EndedChild(child),
            _folder: folder,
        };
        assert_eq!(counted.line(), "ready");
        counted
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Gives a command; returns the calls up to its end, and those with the first result.
    fn does(&mut self, command: &str) -> (u64, u64) {
        writeln!(self.input, "{command}").unwrap();
        let line = self.line();
        let (calls, odd) = line
            .split_once(' ')
            .unwrap_or_else(|| panic!("{command}: {line:?}"));
        (calls.parse().unwrap(), odd.parse().unwrap())
    }

    /// The code of all its objects.
    fn text(&self) -> Vec<(String, Vec<u8>)> {
        text(self.pid())
    }

    fn maps(&self) -> String {
        maps(self.pid())
    }

    /// Ends it: its results were right.
    fn end(mut self) {
        drop(self.input);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

/// The code of all objects of a process.
fn text(pid: u32) -> Vec<(String, Vec<u8>)> {
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = maps(pid);
    let code = maps.lines().filter(|line| line.contains(" r-xp "));
    code.map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (number(end) - number(start)) as usize];
        memory.read_exact_at(&mut bytes, number(start)).unwrap();
        (line.to_owned(), bytes)
    })
    .collect()
}

fn maps(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
}

/// A counter before every block of functions.
fn every_block(image: &Image, functions: &[&str]) -> Session {
    let mut session = Session::empty();
    for name in functions {
        let function = image.function_named(name).unwrap();
        for block in 0..Cfg::of(image, function.id).blocks.len() {
            session.placements.push(Placement {
                function: (*name).into(),
                block: u32::try_from(block).unwrap(),
                hook: HookType::Pre,
                instrument: "counter".into(),
                launch: 0.0,
                splash: session.duration,
            });
        }
    }
    session
}

/// An object of a process, that of a function, and addresses for so many words.
fn subject(pid: u32, function: &str, words: u32) -> (Subject, Reserved) {
    let choice = ObjectChoice::of(std::iter::once(function));
    let subject = Subject::read(pid, &choice).unwrap();
    let reserved = subject.reserve(words).unwrap();
    (subject, reserved)
}

fn planned(subject: &Subject, reserved: &Reserved, functions: &[&str]) -> VerifiedPlan {
    let session = every_block(subject.image(), functions);
    planned_session(subject, reserved, &session)
}

fn planned_session(subject: &Subject, reserved: &Reserved, session: &Session) -> VerifiedPlan {
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), session, &library, &reserved.layout);
    verify(subject.image(), plan.unwrap()).unwrap()
}

fn attached(pid: u32) -> Attached {
    let (subject, reserved) = subject(pid, "counted", 64);
    let plan = planned(&subject, &reserved, &["counted"]);
    Attached::attach(&subject, reserved, &plan).unwrap()
}

/// The hits of the entry of `counted`, and of its other blocks.
fn hits(counts: &[(u64, u64)]) -> (u64, Vec<u64>) {
    let all: Vec<u64> = counts.iter().map(|count| count.1).collect();
    (all[0], all[1..].to_vec())
}

fn clean(removed: &Removed) {
    assert_eq!(removed.cleaned.remains, [""; 0]);
    assert_eq!(removed.cleaned.failed, [""; 0]);
    assert_eq!(removed.cleaned.overwritten, 0);
    assert!(!removed.ended);
}

/// Has the C library register no thread for restartable sequences, as versions before 2.35 do.
fn without_area(command: &mut Command) {
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
}

#[test]
fn every_call_is_counted_and_nothing_remains() {
    type Change = fn(&mut Command);
    let ways: [(&[&str], Change); 4] = [
        (&[], |_| {}),
        (&["-no-pie"], |_| {}),
        (&["-O0"], |_| {}),
        (&[], without_area),
    ];
    for (options, change) in ways {
        let mut counted = Counted::start(options, change);
        let text = counted.text();
        let attached = attached(counted.pid());
        assert!(counted.maps().contains("memfd:gilk"));
        assert_ne!(counted.text(), text);
        let (calls, odd) = counted.does("load");
        assert!(calls > 12_000_000 && odd > 4_000_000, "{calls} {odd}");
        assert_eq!(hits(&attached.counts().unwrap()).0, calls);
        let removed = attached.remove().unwrap();
        clean(&removed);
        let (entry, others) = hits(&removed.counts);
        assert_eq!(entry, calls);
        assert!(
            others.contains(&odd) && others.contains(&(calls - odd)),
            "{others:?} {odd}"
        );
        assert_eq!(counted.text(), text);
        assert!(!counted.maps().contains("memfd:gilk"), "{}", counted.maps());
        let (more, _) = counted.does("load");
        assert!(more > calls);
        counted.end();
    }
}

#[test]
fn a_program_under_load_is_attached_to_and_left_many_times() {
    // `GILK_ATTACHED` times, as a long run has it.
    let times = std::env::var("GILK_ATTACHED").map_or(60, |times| times.parse().unwrap());
    let mut counted = Counted::start(&[], |_| {});
    let text = counted.text();
    counted.does("begin");
    let (mut total, mut longest, mut remained) = (0, Duration::ZERO, 0);
    for _ in 0..times {
        let attached = attached(counted.pid());
        std::thread::sleep(Duration::from_millis(2));
        let removed = attached.remove().unwrap();
        assert_eq!(removed.cleaned.overwritten, 0);
        remained += removed.cleaned.remains.len();
        longest = longest.max(removed.cleaned.stopped);
        total += hits(&removed.counts).0;
    }
    let (calls, _) = counted.does("end");
    println!(
        "{total} of {calls} calls counted, {longest:?} stopped at most, {remained} arenas remain"
    );
    assert!(0 < total && total < calls, "{total} {calls}");
    assert_eq!(remained, 0);
    assert_eq!(counted.text(), text);
    counted.end();
}

#[test]
fn a_library_is_counted_at_its_own_calls_too() {
    let mut counted = Counted::start(&[], |_| {});
    let names: Vec<String> = objects(counted.pid())
        .unwrap()
        .iter()
        .map(|one| one.name().to_owned())
        .collect();
    assert!(names.contains(&"libc.so.6".to_owned()), "{names:?}");
    let (subject, reserved) = subject(counted.pid(), "libc.so.6:fgets", 64);
    let mut session = every_block(subject.image(), &["libc.so.6:fgets"]);
    session.placements.truncate(1);
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let attached = Attached::attach(&subject, reserved, &plan).unwrap();
    for _ in 0..5 {
        counted.does("nothing");
    }
    // The program has answered, and enters its next call soon.
    let entered = || {
        attached
            .counts()
            .unwrap()
            .iter()
            .map(|count| count.1)
            .sum::<u64>()
    };
    let begun = std::time::Instant::now();
    while entered() < 5 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let removed = attached.remove().unwrap();
    clean(&removed);
    // The call that waited is in its middle; after five lines it waits again.
    assert_eq!(
        removed
            .counts
            .iter()
            .map(|count| count.1)
            .collect::<Vec<_>>(),
        [5]
    );
    counted.end();
}

#[test]
fn every_block_of_a_program_and_its_libraries_is_counted_under_load() {
    let mut counted = Counted::start(&[], |_| {});
    let text = counted.text();
    let choice = ObjectChoice::of(["counted", "*:*"].into_iter());
    let subject = Subject::read(counted.pid(), &choice).unwrap();
    let image = subject.image().clone();
    let designations = Designations::new(&image);
    let names: Vec<_> = image
        .functions()
        .iter()
        .map(|one| designations.of(one))
        .collect();
    for library in ["libc.so.6:", "ld-linux-x86-64.so.2:"] {
        assert!(names.iter().any(|name| name.starts_with(library)));
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let session = every_block(&image, &names);
    let words = u32::try_from(session.placements.len()).unwrap();
    let reserved = subject.reserve(words).unwrap();
    let (library, layout) = (Library::builtin().unwrap(), &reserved.layout);
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let possible = plan_possible(&image, &session, &library, layout, watch).unwrap();
    assert!(possible.plan.instruments.len() * 100 > session.placements.len() * 97);
    let plan = verify(&image, possible.plan).unwrap();
    let attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let (calls, odd) = counted.does("load");
    let removed = attached.remove().unwrap();
    clean(&removed);
    let hits: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let of = |name: &str| -> Vec<u64> {
        let plan = plan.plan();
        let of_function = plan.instruments.iter().filter(|one| {
            let function = plan.function(one.id.major).unwrap();
            function.name == name
        });
        of_function.map(|one| hits[&one.id.pack()]).collect()
    };
    let (entry, others) = (of("counted")[0], of("counted"));
    assert_eq!(entry, calls);
    assert!(
        others.contains(&odd) && others.contains(&(calls - odd)),
        "{others:?} {odd}"
    );
    // The threads of a load.
    assert!(
        of("libc.so.6:pthread_create")
            .iter()
            .any(|hits| *hits >= 400)
    );
    assert_eq!(counted.text(), text);
    counted.does("load");
    counted.end();
}

#[test]
fn the_counts_of_a_program_that_ends_are_kept() {
    let mut counted = Counted::start(&[], |_| {});
    let attached = attached(counted.pid());
    let (calls, _) = counted.does("load");
    counted.end();
    assert!(attached.has_ended());
    let removed = attached.remove().unwrap();
    assert!(removed.ended);
    assert_eq!(hits(&removed.counts).0, calls);
}

#[test]
fn a_drop_takes_everything_out() {
    let mut counted = Counted::start(&[], |_| {});
    let text = counted.text();
    drop(attached(counted.pid()));
    assert_eq!(counted.text(), text);
    counted.does("load");
    counted.end();
}

/// A plan that was verified before the text changed is not written.
#[test]
fn text_that_has_changed_is_not_written() {
    let counted = Counted::start(&[], |_| {});
    let (subject, reserved) = subject(counted.pid(), "counted", 64);
    let plan = planned(&subject, &reserved, &["counted"]);
    let at = subject
        .image()
        .function_named("counted")
        .unwrap()
        .span
        .start
        .0;
    let memory = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{}/mem", counted.pid()));
    memory.unwrap().write_all_at(&[0xcc], at).unwrap();
    let changed = counted.text();
    let error = Attached::attach(&subject, reserved, &plan)
        .unwrap_err()
        .to_string();
    assert!(error.contains("has changed"), "{error}");
    assert_eq!(counted.text(), changed);
    counted.end();
}
