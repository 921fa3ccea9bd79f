//! Objects that a process loads and unloads while it is instrumented: no call of them is missed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gilk_samples::recording::Recording;
use gilk_samples::totals::TotalValue;

use super::killed::{cleaned, is_alive, kill, supervisor_of};
use super::launched::{counters, ilk, text_of};
use super::{Counted, compiled_from, compiled_with_musl};

const WORK: &str = "libwork.so:work";

/// The library, compiled.
fn library(folder: &Path) -> String {
    library_by("cc", folder)
}

fn library_by(compiler: &str, folder: &Path) -> String {
    let (source, library) = (folder.join("loaded.c"), folder.join("libwork.so"));
    std::fs::write(&source, include_str!("loaded.c")).unwrap();
    let mut compiler = Command::new(compiler);
    let compiler = compiler.args(["-O2", "-shared", "-fPIC", "-o"]);
    let done = compiler.args([&library, &source]).status();
    assert!(done.unwrap().success());
    library.to_str().unwrap().to_owned()
}

/// The program, executing; it holds the library, or not.
pub(super) fn loading(holds: bool) -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("loading.c"), &["-rdynamic"]);
    let mut command = Command::new(program);
    command.arg(library(folder.path()));
    command.args(holds.then_some("held"));
    Counted::of(command, folder)
}

/// `ilk process`, and its errors up to the sentence that says that the process is instrumented.
pub(super) struct Following {
    pub(super) client: Child,
    pub(super) errors: BufReader<ChildStderr>,
    begun: String,
}

impl Following {
    pub(super) fn start(pid: u32, arguments: &[&str]) -> Self {
        let mut client = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .args(["process", "-p", &pid.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(client.stderr.take().unwrap());
        let mut begun = String::new();
        while !begun.contains("instrumented; its threads") {
            let line = errors.read_line(&mut begun).unwrap();
            assert!(line > 0, "{begun}");
        }
        Self {
            client,
            errors,
            begun,
        }
    }

    /// Waits for its end; returns what it shows.
    pub(super) fn end(mut self) -> String {
        let Output { status, stdout, .. } = self.client.wait_with_output().unwrap();
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        let shown = text_of(&stdout);
        assert!(status.success(), "{shown}{rest}");
        shown
    }
}

/// The loads of the library that were instrumented.
fn loads(shown: &str) -> u64 {
    let line = shown
        .lines()
        .find(|line| line.contains("libwork.so was loaded"));
    let words = line.unwrap_or_else(|| panic!("{shown}"));
    let number = words.split("was loaded ").nth(1).unwrap();
    number.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_call_of_a_library_is_counted_from_its_first_instruction_to_its_unloading() {
    let mut program = loading(false);
    let before = program.text();
    let following = Following::start(program.pid(), &[WORK]);
    assert!(
        following.begun.contains("has not mapped libwork.so"),
        "{}",
        following.begun
    );
    // A second client cannot watch the dynamic linker, and says so.
    let second = Following::start(program.pid(), &["libc.so.6:fgets", "--for", "10ms"]);
    let begun = &second.begun;
    assert!(
        begun.contains("loads later are not instrumented"),
        "{begun}"
    );
    second.end();
    program.does("alone");
    program.does("fork");
    let (calls, loaded) = program.does("together");
    let mut interrupted = Command::new("kill");
    let pid = following.client.id().to_string();
    assert!(interrupted.args(["-INT", &pid]).status().unwrap().success());
    let shown = following.end();
    assert!(loaded > 3, "{loaded}");
    let of_work = format!("{WORK} block 0");
    assert_eq!(counters(&shown).get(&of_work), Some(&calls), "{shown}");
    assert_eq!(loads(&shown), loaded, "{shown}");
    assert!(!shown.contains("Not instrumented"), "{shown}");
    assert!(!program.maps().contains("memfd:gilk"), "{}", program.maps());
    assert_eq!(program.text(), before);
    program.does("together");
    program.end();
}

/// A pattern that has the function in which threads wait for the client leaves it out; a session that names it has its
/// instruments there, and says that libraries are not followed.
#[test]
fn libraries_are_followed_where_the_dynamic_linker_is_instrumented_too() {
    let linker = "ld-linux-x86-64.so.2:";
    let patterns = format!("{linker}_dl_*,libwork.so:*");
    let mut program = loading(false);
    let following = Following::start(program.pid(), &["--blocks", &patterns]);
    let begun = following.begun.clone();
    assert!(!begun.contains("are not instrumented:"), "{begun}");
    let (calls, loaded) = program.does("alone");
    let mut interrupted = Command::new("kill");
    let pid = following.client.id().to_string();
    assert!(interrupted.args(["-INT", &pid]).status().unwrap().success());
    let shown = following.end();
    assert!(loaded > 0 && loads(&shown) > 0, "{shown}");
    let counts = counters(&shown);
    assert_eq!(counts.get(&format!("{WORK} block 0")), Some(&calls));
    let of_linker = counts.iter().filter(|(name, _)| name.starts_with(linker));
    assert!(of_linker.map(|(_, count)| count).sum::<u64>() > loaded);
    assert!(
        shown.contains(&format!("probed: {linker}_dl_debug_state")),
        "{shown}"
    );

    let named = format!("{linker}_dl_debug_state,libwork.so:*");
    let following = Following::start(program.pid(), &["--blocks", &named, "--for", "10ms"]);
    let begun = following.begun.clone();
    assert!(
        begun.contains("loads later are not instrumented"),
        "{begun}"
    );
    following.end();
    program.end();
}

#[test]
fn a_library_that_a_program_of_musl_loads_is_counted_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_with_musl(folder.path(), include_str!("loading.c"), &["-rdynamic"]);
    let mut command = Command::new(program);
    command.arg(library_by("musl-gcc", folder.path()));
    let mut program = Counted::of(command, folder);
    let before = program.text();
    let script = format!("entry:{WORK} {{ @calls = count(); sample(arg0) }}");
    let following = Following::start(program.pid(), &["-e", &script]);
    assert!(
        following.begun.contains("has not mapped libwork.so"),
        "{}",
        following.begun
    );
    program.does("fork");
    program.does("alone");
    let (calls, loaded) = program.does("together");
    // musl unloads nothing.
    assert_eq!((calls, loaded), (2303, 1));
    let pid = following.client.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &pid]).status();
    assert!(interrupted.unwrap().success());
    let shown = following.end();
    assert!(shown.contains("2,303 samples, 0 lost."), "{shown}");
    assert!(shown.contains("libwork.so was loaded once"), "{shown}");
    assert!(!program.maps().contains("memfd:gilk"), "{}", program.maps());
    let is_there = |part: &(String, Vec<u8>)| before.contains(part);
    let parts = program.text().into_iter();
    let changed: Vec<String> = parts
        .filter(|part| !is_there(part))
        .map(|part| part.0)
        .collect();
    assert!(
        changed.iter().all(|name| name.contains("libwork.so")),
        "{changed:?}"
    );
    program.does("together");
    program.end();
}

#[test]
fn a_library_that_is_mapped_at_the_start_is_unloaded_and_loaded() {
    let mut program = loading(true);
    let (before, _) = program.does("nothing");
    let following = Following::start(program.pid(), &["--blocks", "libwork.so:work,main"]);
    program.does("use");
    program.does("alone");
    program.does("release");
    program.does("alone");
    let (calls, loaded) = program.does("together");
    program.end();
    let shown = following.end();
    let counts = counters(&shown);
    let of_block = |block: u32| counts.get(&format!("{WORK} block {block}")).copied();
    let calls = calls - before;
    assert_eq!(of_block(0), Some(calls), "{shown}");
    // Four of five calls by the program, two of the three by each constructor, and those by destructors.
    let (constructed, destroyed) = (loaded - 1, loaded);
    let odd = (calls - 3 * constructed - destroyed) / 5 * 4 + 2 * constructed + destroyed;
    let others: Vec<u64> = (1..8).filter_map(of_block).collect();
    assert!(
        others.contains(&odd) && others.contains(&(calls - odd)),
        "{odd} {shown}"
    );
    assert_eq!(loads(&shown), loaded - 1, "{shown}");
}

#[test]
fn totals_and_samples_of_all_loads_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("loading.c"), &["-rdynamic"]);
    let library = library(folder.path());
    let script = "entry:libwork.so:work { @sizes = hist(arg0); @most = max(arg0); @all = sum(arg0); sample(arg0) } \
                  entry:main { @starts = count() }";
    let recording = folder.path().join("loads.arrow");
    let output = ilk(
        &[
            "-e",
            script,
            "-o",
            recording.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
            &library,
        ],
        "alone\ntogether\n",
    );
    let (shown, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    let last = shown.lines().filter_map(|line| line.split_once(' '));
    let mut last = last.filter_map(|(calls, loads)| {
        Some((calls.parse::<u64>().ok()?, loads.parse::<u64>().ok()?))
    });
    let (calls, loaded) = last.next_back().unwrap();
    assert_eq!(loads(&shown), loaded, "{shown}");
    let recording = Recording::open(&recording).unwrap();
    assert_eq!(recording.recovered(), None);
    let instruments = &recording.metadata().instruments;
    let work = instruments
        .iter()
        .find(|one| one.label.contains(WORK))
        .unwrap();
    let batches = recording.batches().map(Result::unwrap);
    let samples = batches.flat_map(|batch| batch.samples);
    let samples: Vec<u64> = samples
        .filter(|one| one.id == work.id)
        .map(|one| one.value)
        .collect();
    assert_eq!(samples.len() as u64, calls, "{shown}");
    let totals = recording.totals();
    let total = |name: &str| {
        let mut all = totals.added_up.iter().filter(|total| total.name == name);
        all.next()
            .unwrap_or_else(|| panic!("{totals:?}"))
            .value
            .clone()
    };
    assert_eq!(total("most"), TotalValue::Number(99));
    assert_eq!(
        total("all"),
        TotalValue::Number(samples.iter().sum::<u64>().into())
    );
    let TotalValue::Buckets(buckets) = total("sizes") else {
        panic!("{totals:?}");
    };
    assert_eq!(
        buckets.iter().map(|bucket| bucket.count).sum::<u64>(),
        calls
    );
    // Both parts have their placements.
    let placed = recording.metadata().placement(1);
    assert!(placed.is_some_and(|placed| placed.contains("work")));
}

/// Patches call code that reads memory, so that addresses within the arena remain on the stack of a thread that unloads the
/// library next.
#[test]
fn patches_that_have_read_memory_are_removed_when_their_library_is_unloaded() {
    let mut program = loading(false);
    let before = program.text();
    let script = format!("entry:{WORK} {{ @calls = count(); @read = sum(*(u64 *)arg0) }}");
    let following = Following::start(program.pid(), &["-e", &script]);
    let mapped = |program: &Counted| {
        let maps = program.maps();
        let lines = maps.lines().filter(|line| line.contains("memfd:gilk"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let watch = mapped(&program);
    for _ in 0..3 {
        program.does("alone");
        assert_eq!(mapped(&program), watch);
    }
    let (calls, loaded) = program.does("together");
    let pid = following.client.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &pid]).status();
    assert!(interrupted.unwrap().success());
    let shown = following.end();
    assert_eq!(loads(&shown), loaded, "{shown}");
    let counted = shown.lines().find(|line| line.contains("@calls of"));
    let counted = counted.and_then(|line| line.split_whitespace().next());
    let counted = counted.map(|number| number.replace(',', ""));
    assert_eq!(counted, Some(calls.to_string()), "{shown}");
    assert!(!shown.contains("points into an arena"), "{shown}");
    assert!(!program.maps().contains("memfd:gilk"), "{}", program.maps());
    assert_eq!(program.text(), before);
    program.end();
}

#[test]
fn a_library_that_comes_and_goes_is_instrumented_at_any_moment() {
    let mut program = loading(false);
    let before = program.text();
    program.does("alone");
    program.does("begin");
    for _ in 0..6 {
        let following = Following::start(program.pid(), &[WORK, "--for", "20ms"]);
        let shown = following.end();
        assert!(!shown.contains("Not instrumented"), "{shown}");
    }
    writeln!(program.input, "end").unwrap();
    program.line();
    program.does("alone");
    assert_eq!(program.text(), before);
    program.end();
}

#[test]
fn a_process_continues_to_load_libraries_when_its_client_and_the_supervisor_are_killed() {
    for with_supervisor in [false, true] {
        let mut program = loading(false);
        let before = program.text();
        program.does("alone");
        program.does("begin");
        let mut following = Following::start(program.pid(), &[WORK]);
        std::thread::sleep(Duration::from_millis(300));
        let supervisor = supervisor_of(following.client.id());
        if with_supervisor {
            kill(supervisor);
        }
        following.client.kill().unwrap();
        following.client.wait().unwrap();
        if with_supervisor {
            let (done, said) = cleaned(program.pid());
            assert!(done, "{said}");
        }
        let begun = Instant::now();
        while is_alive(supervisor) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        let maps = program.maps();
        assert!(!maps.contains("memfd:gilk"), "{maps}");
        writeln!(program.input, "end").unwrap();
        program.line();
        program.does("alone");
        assert_eq!(program.text(), before);
        program.end();
    }
}
