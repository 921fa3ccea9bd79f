//! The recording of an execution in the code cache has what the terminal prints of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gilk_engine::InstrumentId;
use gilk_samples::process_end::EndWay;
use gilk_samples::recording::Recording;

use super::cloned::{self, compiled_from, is_in_cache, started};
use super::probes::interrupt;

/// Calls of `counted`, and those of its branch.
const CALLS: u64 = 9000;
const BRANCHES: u64 = 3000;
/// A program with these counts.
const PROGRAM: &str = r#"
static volatile unsigned sum;
__attribute__((noipa)) void counted(unsigned x)
{
	if (x % 3 == 1)
		sum += x;
	sum++;
}
int main(void)
{
	for (unsigned x = 0; x < 9000; x++)
		counted(x);
	return sum == 9000 + 3000 * 4499 + 1500 ? 0 : 3;
}
"#;

fn ilk(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Counts of blocks by function and offset, of a recording.
pub(super) fn recorded(recording: &Recording) -> BTreeMap<(String, u64), u64> {
    let mut values = BTreeMap::new();
    for batch in recording.batches() {
        values.extend(batch.unwrap().samples.iter().map(|one| (one.id, one.value)));
    }
    let metadata = recording.metadata();
    let count = |id: u64| {
        let place = InstrumentId::unpack(id).unwrap();
        let mut functions = metadata.functions.iter();
        let function = functions.find(|one| one.major == place.major).unwrap();
        let (start, _) = function.blocks[place.block as usize];
        ((function.name.clone(), u64::from(start)), values[&id])
    };
    metadata
        .instruments
        .iter()
        .map(|one| count(one.id))
        .collect()
}

/// A dynamic block as the terminal prints it: offset in its function, bytes, executions.
type Printed = (u64, u64, u64);

/// The blocks of the program that the terminal prints, by function.
fn printed(errors: &str) -> BTreeMap<String, Vec<Printed>> {
    let mut all: BTreeMap<String, Vec<Printed>> = BTreeMap::new();
    for line in errors.lines() {
        let Some((place, bytes)) = line.rsplit_once(" (cloned), ") else {
            continue;
        };
        let mut words = place.split_whitespace();
        let (count, _, name) = (words.next(), words.next(), words.next());
        let (function, offset) = name.unwrap().rsplit_once("+0x").unwrap();
        let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
        all.entry(function.to_owned()).or_default().push((
            u64::from_str_radix(offset, 16).unwrap(),
            number(bytes.split(' ').next().unwrap()),
            number(count.unwrap()),
        ));
    }
    all
}

#[test]
fn a_recording_of_the_cache_has_the_counts_and_numbers_that_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let (program, file) = (
        program.to_str().unwrap(),
        folder.path().join("counts.arrow"),
    );
    let file = file.to_str().unwrap();
    let arguments = [
        "clone",
        "--count",
        "--all",
        "--numbers",
        "-o",
        file,
        "--",
        program,
    ];
    let cached = ilk(&arguments, folder.path());
    let errors = text(&cached.stderr);
    assert!(cached.status.success(), "{errors}");

    let recording = Recording::open(file).unwrap();
    assert!(recording.recovered().is_none());
    let end = &recording.totals().ends[0];
    assert_eq!((&*end.program, &end.way), ("cloned", &EndWay::Ended(0)));
    let counts = recorded(&recording);
    assert!(recording.samples() >= counts.len() as u64);
    let of = |function: &str| {
        let blocks = counts.iter().filter(|((name, _), _)| name == function);
        blocks.map(|(_, count)| *count).collect::<Vec<u64>>()
    };
    assert_eq!(of("counted")[0], CALLS);
    assert!(of("counted").contains(&BRANCHES), "{:?}", of("counted"));
    assert_eq!(of("main")[0], 1);
    assert!(
        counts
            .keys()
            .any(|(name, _)| name.starts_with("libc.so.6:"))
    );

    // A block was executed as often as the printed blocks that have its first byte.
    let printed = printed(&errors);
    let mut compared = 0;
    for ((function, at), count) in &counts {
        let Some(blocks) = printed.get(function) else {
            continue;
        };
        let executed = blocks
            .iter()
            .filter(|(start, bytes, _)| (*start..start + bytes).contains(at));
        let executed: u64 = executed.map(|(.., count)| *count).sum();
        assert_eq!(*count, executed, "{function}+{at:#x}: {errors}");
        compared += 1;
    }
    assert!(compared >= of("counted").len() + of("main").len());

    let numbers = errors.lines().find(|line| line.starts_with("Code cache: "));
    let stats = ilk(&["stats", file], folder.path());
    let stats = text(&stats.stdout);
    assert!(
        stats.lines().any(|line| Some(line) == numbers),
        "{numbers:?}: {stats}"
    );
    let counted = stats
        .lines()
        .find(|line| line.ends_with("counter pre counted block 0"));
    assert!(counted.unwrap().trim().starts_with("9,000 "), "{stats}");

    // The file is kept, and the program is not started for nothing.
    let again = ilk(&arguments, folder.path());
    assert!(!again.status.success());
    assert!(
        text(&again.stderr).contains("--force"),
        "{}",
        text(&again.stderr)
    );
    let forced = ["clone", "--count", "--force", "-o", file, "--", program];
    assert!(ilk(&forced, folder.path()).status.success());
    let replaced = recorded(&Recording::open(file).unwrap());
    assert_eq!(replaced[&("counted".to_owned(), 0)], CALLS);
}

/// A program whose functions execute one after the other shows that in its counts over time.
#[test]
fn a_recording_of_the_cache_has_the_counts_over_time() {
    const PHASES: &str = r#"
#include <unistd.h>
static volatile unsigned sum;
__attribute__((noipa)) void first(void) { sum++; }
__attribute__((noipa)) void second(void) { sum++; }
int main(void)
{
	for (int i = 0; i < 400; i++) {
		first();
		usleep(1500);
	}
	for (int i = 0; i < 500; i++) {
		second();
		usleep(1500);
	}
	return sum != 900;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PHASES, &[]);
    let file = folder.path().join("counts.arrow");
    let (program, path) = (program.to_str().unwrap(), file.to_str().unwrap());
    let cached = ilk(
        &["clone", "--count", "-o", path, "--", program],
        folder.path(),
    );
    assert!(cached.status.success(), "{}", text(&cached.stderr));
    let recording = Recording::open(&file).unwrap();
    let readings = |function: &str| {
        let mut instruments = recording.metadata().instruments.iter();
        let label = format!("counter pre {function} block 0");
        let id = instruments.find(|one| one.label == label).unwrap().id;
        let samples = recording.batches().flat_map(|batch| batch.unwrap().samples);
        let samples = samples.filter(|sample| sample.id == id);
        samples.map(|one| (one.tsc, one.value)).collect::<Vec<_>>()
    };
    let (first, second) = (readings("first"), readings("second"));
    for (of, total) in [(&first, 400), (&second, 500)] {
        assert!(of.len() > 1, "{of:?}");
        let grow = of
            .windows(2)
            .all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1);
        assert!(grow, "{of:?}");
        assert_eq!(of.last().unwrap().1, total);
    }
    // The second function begins when the first has ended: one reading may have both.
    assert!(
        first.last().unwrap().0 <= second.first().unwrap().0,
        "{first:?} {second:?}"
    );
    let instruments = cached_summary(&text(&cached.stderr));
    assert_eq!(instruments, recording.metadata().instruments.len());
}

/// The number of blocks that the terminal says are in the recording.
fn cached_summary(errors: &str) -> usize {
    let line = errors
        .lines()
        .find_map(|line| line.strip_prefix("The executions of "));
    let (blocks, _) = line.unwrap().split_once(" blocks of ").unwrap();
    blocks.replace(',', "").parse().unwrap()
}

#[test]
fn the_rule_that_let_a_process_go_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("changing.c"), &[]);
    let file = folder.path().join("counts.arrow");
    let (program, path) = (program.to_str().unwrap(), file.to_str().unwrap());
    let cached = ilk(
        &[
            "clone",
            "--count",
            "-o",
            path,
            "--",
            program,
            "on-the-stack",
        ],
        folder.path(),
    );
    let recording = Recording::open(&file).unwrap();
    let [end] = &recording.totals().ends[..] else {
        panic!("{:?}", recording.totals().ends);
    };
    let EndWay::LetGo { rule, at, why } = &end.way else {
        panic!("{end:?}");
    };
    assert_eq!(rule, "may-change");
    assert!(*at > 0 && !why.is_empty(), "{end:?}");
    let errors = text(&cached.stderr);
    assert!(errors.contains(&end.sentence()), "{end:?}: {errors}");
}

/// The message that a person waits for, and Ctrl-C: the counts up to then are recorded.
#[test]
fn a_process_is_in_the_cache_when_that_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let program = cloned::compiled(folder.path(), &[]);
    let (mut child, mut input, mut output, _) = started(&program, "r");
    let pid = child.id();
    let file = folder.path().join("counts.arrow");
    let mut ilk = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--count", "-p", &pid.to_string(), "-o"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(ilk.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let expected =
        format!("ilk: The cache of process {pid} is ready. Ctrl-C lets the process go.\n");
    assert_eq!(line, expected);
    // The thread that waits for its input is in the cache as soon as it is scheduled.
    while !is_in_cache(pid) {
        assert!(ilk.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    input.write_all(b"a").unwrap();
    let mut answer = String::new();
    output.read_line(&mut answer).unwrap();
    interrupt(ilk.id());
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert!(ilk.wait().unwrap().success(), "{rest}");
    assert!(!is_in_cache(pid));
    drop(input);
    assert!(child.wait().unwrap().success());
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.totals().ends[0].way, EndWay::Requested);
    assert_eq!(recording.totals().ends[0].pid, pid);
    let work = recorded(&recording);
    let work = work.iter().filter(|((name, _), _)| name == "work");
    assert!(work.map(|(_, count)| count).sum::<u64>() > 0, "{rest}");
}

/// Code that no file has is named by the perf map of the process.
#[test]
fn generated_code_has_the_names_of_its_perf_map() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("generating.c"), &[]);
    let file = folder.path().join("counts.arrow");
    let (program, path) = (program.to_str().unwrap(), file.to_str().unwrap());
    let arguments = ["clone", "--count", "--all", "-o", path, "--", program];
    let output = ilk(&arguments, folder.path());
    let errors = text(&output.stderr);
    std::fs::remove_file(text(&output.stdout).trim()).unwrap();
    assert!(output.status.success(), "{errors}");
    let listed = |name: &str| {
        let line = errors.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{name}: {errors}"))
            .to_owned()
    };
    assert!(listed("seven+0x0 (perf map)").trim().starts_with("500 "));
    assert!(listed("add one+0x0 (perf map)").trim().starts_with("700 "));
    let counts = recorded(&Recording::open(&file).unwrap());
    assert_eq!(counts[&("seven+0x0 (perf map)".to_owned(), 0)], 500);
    assert_eq!(counts[&("add one+0x0 (perf map)".to_owned(), 0)], 700);
}

/// Code that no file has is named by the objects that the process registers for debuggers, also after its end.
#[test]
fn generated_code_has_the_names_of_registered_objects() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), include_str!("registering.c"), &[]);
    let functions = [("nine", "return 9;"), ("plus_two", "return value + 2;")];
    let objects = functions.map(|(name, body)| {
        let source = folder.path().join(format!("{name}.c"));
        std::fs::write(&source, format!("int {name}(int value) {{ {body} }}")).unwrap();
        let object = source.with_extension("o");
        let mut cc = Command::new("cc");
        let cc = cc
            .args(["-O2", "-c", "-o"])
            .args([&object, &source])
            .status();
        assert!(cc.unwrap().success());
        object.to_str().unwrap().to_owned()
    });
    let file = folder.path().join("counts.arrow");
    let (program, path) = (program.to_str().unwrap(), file.to_str().unwrap());
    let mut arguments = vec!["clone", "--count", "--all", "-o", path, "--", program];
    arguments.extend(objects.iter().map(String::as_str));
    let output = ilk(&arguments, folder.path());
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(text(&output.stdout).trim(), (300 * 9 + 400 * 3).to_string());
    let counts = recorded(&Recording::open(&file).unwrap());
    for (name, calls) in [("nine", 300), ("plus_two", 400)] {
        let listed = format!("{name}+0x0 (registered for GDB)");
        let line = errors.lines().find(|line| line.contains(&listed));
        let line = line.unwrap_or_else(|| panic!("{listed}: {errors}"));
        assert!(line.trim().starts_with(&calls.to_string()), "{line}");
        assert_eq!(counts[&(listed, 0)], calls);
    }
}

/// A client that is killed lets the process go, as a closed window does.
#[test]
fn a_process_is_let_go_when_its_client_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let program = cloned::compiled(folder.path(), &[]);
    let (mut child, mut input, mut output, _) = started(&program, "r");
    let pid = child.id();
    let file = folder.path().join("counts.arrow");
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap();
    let mut client = Command::new(built.join("examples/cached"))
        .env("XDG_CACHE_HOME", folder.path())
        .arg(pid.to_string())
        .arg(&file)
        .spawn()
        .unwrap();
    let wait = |is: bool, client: &mut Child| {
        let begun = Instant::now();
        while is_in_cache(pid) != is {
            assert!(!is || client.try_wait().unwrap().is_none(), "it has ended");
            assert!(begun.elapsed() < Duration::from_secs(60), "{is}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait(true, &mut client);
    client.kill().unwrap();
    client.wait().unwrap();
    wait(false, &mut client);
    input.write_all(b"a").unwrap();
    let mut answer = String::new();
    output.read_line(&mut answer).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    // Its command records what was counted.
    let begun = Instant::now();
    let is_whole = |recording: &Recording| recording.recovered().is_none();
    let recording = loop {
        if let Some(recording) = Recording::open(&file).ok().filter(is_whole) {
            break recording;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(recording.totals().ends[0].way, EndWay::Requested);
}

#[test]
fn a_program_that_ends_within_moments_has_its_functions_in_a_recording_that_is_written_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let recording = folder.path().join("x.arrow");
    // It ends while the recording up to now is written, or before, or after.
    for _ in 0..6 {
        let arguments = ["clone", "--count", "--live", "--force", "-o"];
        let names = [recording.to_str().unwrap(), "--", program.to_str().unwrap()];
        let output = ilk(&[&arguments[..], &names[..]].concat(), folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let counts = recorded(&Recording::open(&recording).unwrap());
        let entry = counts.get(&("counted".to_owned(), 0));
        assert_eq!(entry, Some(&CALLS), "{counts:?}");
    }
}
