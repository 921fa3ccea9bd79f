//! A program in the code cache: every block of it is counted without an instrument, or the session's instruments run.

use std::path::{Path, PathBuf};
use std::process::Command;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_engine::cfg::BlockIndex;
use gilk_gui::args::Start;
use gilk_gui::graph::heat::Heat;
use gilk_gui::state::{NoticeKind, State};
use gilk_samples::chart::totals::{cache, cache_lines};
use gilk_samples::recording::Recording;
use ilk_driver::client::InstrumentSummary;
use ilk_driver::process::CachedWork;

use crate::processes::{Cat, PATIENCE, read};
use crate::support::{
    Window, click, fill, press, run_command, save_as, scene, until, until_filtered, until_measured,
    until_open, until_within, window, window_of_session,
};

/// A program that calls `counted` so often, and executes its branch a third of that.
const CALLS: u64 = 9000;
const PROGRAM: &str = "static volatile unsigned sum;
__attribute__((noipa)) void counted(unsigned x) { if (x % 3 == 1) sum += x; sum++; }
int main(void) { for (unsigned x = 0; x < 9000; x++) counted(x); return 0; }
";

fn compiled(folder: &Path) -> PathBuf {
    compiled_by(folder, "cc", &[])
}

fn compiled_by(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("counted.c"), folder.join("counted"));
    std::fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new(compiler)
        .args(["-O2", "-o"])
        .args([&program, &source])
        .args(options)
        .status()
        .unwrap();
    assert!(compiled.success());
    program
}

/// Fails with the message of a run that has failed, which goes after a while.
pub(crate) fn no_trouble(state: &State) {
    let bad = state.notices.iter().find(|one| one.kind == NoticeKind::Bad);
    assert!(bad.is_none(), "{bad:?}");
}

/// Runs until the counts of the recording are shown.
pub(crate) fn run(harness: &mut Window, recording: &Path) {
    fill(harness, "Recording path", &recording.display().to_string());
    press(harness, Modifiers::NONE, Key::F5);
    until_within(harness, PATIENCE, "the run has ended", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref();
        state.run.active.is_none() && record.is_some_and(|record| !record.lanes().is_empty())
    });
    harness.run_steps(3);
}

/// Opens a function by the filter.
pub(crate) fn open(harness: &mut Window, function: &str) {
    fill(harness, "Filter functions", function);
    until_filtered(harness, function);
    press(harness, Modifiers::NONE, Key::Enter);
    until_open(harness, function);
}

#[test]
fn instruments_that_do_not_apply_are_no_hindrance_of_counts_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let session = folder.path().join("other.ron");
    let text = r#"(version: 1, name: "other", duration: 10.0, placements: [
        (function: "of_another_program", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 10.0)])"#;
    std::fs::write(&session, text).unwrap();
    let start = Start {
        session: Some(session),
        ..Start::default()
    };
    let harness = start_with(start, &program, "counted");
    assert_eq!(harness.state().state().run_hindrance(), None);
    harness.get_by_label("every block is counted in the code cache");
    assert!(harness.query_by_label("this session cannot run").is_none());
    assert!(
        harness
            .query_by_label_contains("of_another_program")
            .is_none()
    );
}

/// Opens a window on a program that was started for the cache, and on `counted`.
fn start(program: &Path) -> Window {
    start_at(program, "counted")
}

/// Opens a window on a program that was started for the cache, and on a function.
pub(crate) fn start_at(program: &Path, function: &str) -> Window {
    start_with(Start::default(), program, function)
}

/// Opens a window with what it shows at first, then on a program that was started for the cache, and on a function.
pub(crate) fn start_with(start: Start, program: &Path, function: &str) -> Window {
    let mut harness = window(start, [1500.0, 950.0]);
    run_command(&mut harness, "program in the code cache");
    fill(&mut harness, "Path", &program.display().to_string());
    click(&mut harness, "Start");
    read(&mut harness);
    open(&mut harness, function);
    harness
}

/// Returns the hits of each block of the open function, as its graph shows them.
fn hits(harness: &Window) -> Vec<u64> {
    shown_hits(harness)
        .into_iter()
        .map(Option::unwrap)
        .collect()
}

/// Returns those that are shown: blocks without instruments have none.
fn shown_hits(harness: &Window) -> Vec<Option<u64>> {
    let scene = scene(harness);
    let record = harness.state().state().timeline.record.as_ref().unwrap();
    let heat = Heat::of(record, &scene.name).unwrap();
    let blocks = 0..scene.cfg.blocks.len();
    let hits = blocks.map(|block| heat.block(BlockIndex(u32::try_from(block).unwrap())));
    hits.collect()
}

#[test]
fn a_program_is_counted_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = start(&program);
    let recording = folder.path().join("counts.arrow");
    run(&mut harness, &recording);

    // The graph has the counts, of blocks that were not executed too.
    let counted = hits(&harness);
    assert_eq!(counted[0], CALLS);
    assert!(counted.contains(&(CALLS / 3)), "{counted:?}");
    harness.get_by_label("block 0 was hit 9,000 times");
    let last = harness.state().state().run.last.as_ref().unwrap();
    let end = last.workload.as_deref().unwrap_or_default();
    assert!(end.ends_with("exit status: 0"), "{end:?}");

    // The pane has the numbers of the recording, in the words of the terminal.
    let read = Recording::open(&recording).unwrap();
    let numbers = read.totals().cache.unwrap();
    assert!(numbers.blocks > 0 && numbers.translating_ns > 0);
    for (value, words) in cache_lines(&numbers) {
        harness.get_by_label(&format!("Code cache: {value} {words}"));
    }

    // The terminal shows the same of the same recording, and the same counts of another run.
    let folder = std::env::current_exe().unwrap();
    let ilk = folder.parent().unwrap().with_file_name("ilk");
    let stats = Command::new(&ilk)
        .arg("stats")
        .arg(&recording)
        .output()
        .unwrap();
    let stats = String::from_utf8(stats.stdout).unwrap();
    assert!(stats.contains(&cache(&numbers)), "{stats}");
    let mut again = Command::new(&ilk);
    let again = again
        .args(["clone", "--count", "--all", "--"])
        .arg(&program);
    let printed = String::from_utf8(again.output().unwrap().stderr).unwrap();
    let is_entry = |line: &&str| line.contains(" counted+0x0 (counted), ");
    let entry = printed.lines().find(is_entry).unwrap();
    assert!(entry.trim().starts_with("9,000 "), "{entry}");
}

#[test]
fn only_what_a_function_executes_is_counted_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = start(&program);
    click(&mut harness, "Threads in the cache");
    click(&mut harness, "only while in");
    // The open function is offered, and another name than that of a function is refused before the run.
    assert_eq!(harness.state().state().only_while.function, "counted");
    fill(&mut harness, "Function of the cache", "countd");
    let hindrance = harness.state().state().run_hindrance().unwrap();
    assert!(hindrance.contains("countd"), "{hindrance}");
    harness.get_by_label(&hindrance);
    fill(&mut harness, "Function of the cache", "counted");
    run(&mut harness, &folder.path().join("counts.arrow"));

    let counted = hits(&harness);
    assert_eq!(counted[0], CALLS);
    // What calls it executed outside.
    let last = harness.state().state().run.last.as_ref().unwrap();
    let is_outside = |label: &str| label.contains(" main ");
    let outside = last.instruments.iter().filter(|one| is_outside(&one.label));
    assert_eq!(outside.filter_map(|one| one.total).sum::<u64>(), 0);
}

#[test]
fn only_calls_that_a_condition_chooses_are_counted_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = start(&program);
    click(&mut harness, "Threads in the cache");
    click(&mut harness, "only while in");
    // What is no condition is refused before the run.
    fill(&mut harness, "Condition of the cache", "arg0 <");
    let hindrance = harness.state().state().run_hindrance().unwrap();
    assert!(
        hindrance.starts_with("The condition is wrong: "),
        "{hindrance}"
    );
    fill(&mut harness, "Condition of the cache", "reg(\"edi\") < 900");
    run(&mut harness, &folder.path().join("counts.arrow"));
    assert_eq!(hits(&harness)[0], 900);
    let last = harness.state().state().run.last.as_ref().unwrap();
    let numbers = last.cache.unwrap();
    assert_eq!(
        (numbers.calls, numbers.other_calls),
        (Some(900), Some(CALLS - 900))
    );
    for line in [
        "900 calls executed in the cache",
        "8,100 calls for which the condition did not hold",
    ] {
        assert!(cache(&numbers).contains(line), "{}", cache(&numbers));
    }
}

/// Opens a window on a process of `cat` for the cache.
fn attach(cat: &Cat) -> Window {
    attach_to(cat, "cat")
}

/// Opens a window on a process that was started by a command line, for the cache.
pub(crate) fn attach_to(cat: &Cat, name: &str) -> Window {
    let pid = cat.pid();
    let mut harness = window(Start::default(), [1500.0, 950.0]);
    run_command(&mut harness, "process in the code cache");
    until(&mut harness, "the processes are listed", |state| {
        let dialog = state.processes.as_ref();
        dialog.is_some_and(|dialog| matches!(dialog.listed, Some(Ok(_))))
    });
    fill(&mut harness, "Filter of processes", &pid.to_string());
    harness.run_steps(3);
    click(&mut harness, &format!("process {pid}: {name}"));
    read(&mut harness);
    // It is stopped before, however slow this machine is.
    fill(&mut harness, "Session duration", "600");
    harness
}

/// Begins a run, and waits until the process is in the cache.
pub(crate) fn begin(harness: &mut Window, recording: &Path) {
    fill(harness, "Recording path", &recording.display().to_string());
    press(harness, Modifiers::NONE, Key::F5);
    until_within(harness, PATIENCE, "it is in the cache", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.now.is_some())
    });
}

#[test]
fn a_process_is_counted_in_the_code_cache_until_it_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let mut harness = attach(&cat);
    begin(&mut harness, &folder.path().join("counts.arrow"));
    for number in 0..10 {
        cat.copy(&format!("line {number}"));
    }
    // The counts up to now are shown meanwhile.
    until_within(&mut harness, PATIENCE, "its counts are shown", |state| {
        no_trouble(state);
        assert!(state.run.active.is_some());
        let record = state.timeline.record.as_ref().unwrap();
        let mut lanes = record.lanes().iter();
        let written = lanes.find(|lane| lane.label == "counter pre libc.so.6:write block 0");
        written.is_some_and(|lane| record.hits(lane) == 10)
    });
    run_command(&mut harness, "stop run");
    until_within(&mut harness, PATIENCE, "it is let go", |state| {
        let record = state.timeline.record.as_ref();
        state.run.active.is_none() && record.is_some_and(|record| !record.lanes().is_empty())
    });
    cat.copy("still the same program");
    let last = harness.state().state().run.last.as_ref().unwrap();
    assert!(last.stopped && last.ended.is_empty(), "{last:?}");
    let written = last.instruments.iter();
    let mut written = written.filter(|one| one.label == "counter pre libc.so.6:write block 0");
    assert_eq!(written.next().and_then(|one| one.total), Some(10));
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let mut files: Vec<_> = files.map(|file| file.file_name()).collect();
    files.sort();
    assert_eq!(files, ["counts.arrow", "counts.arrow.idx"]);
}

/// Chooses that the session's instruments run.
pub(crate) fn with_instruments(harness: &mut Window) {
    click(harness, "Measured in the cache");
    click(harness, "the session's instruments");
    harness.run_steps(2);
}

/// Places an instrument at a block of `counted`.
fn place(harness: &mut Window, block: u32, instrument: &str) {
    place_in(harness, "counted", block, instrument);
}

/// Places an instrument at a block of the open function.
pub(crate) fn place_in(harness: &mut Window, function: &str, block: u32, instrument: &str) {
    click(harness, &format!("block {block} of {function}"));
    click(harness, "Instrument");
    click(harness, instrument);
    click(harness, "Add instrument");
}

/// Runs once the session is planned.
pub(crate) fn run_planned(harness: &mut Window, recording: &Path) {
    until_within(harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    run(harness, recording);
}

/// The results of the last run's instruments: hits, if they count, and samples, by their labels.
fn results(harness: &Window) -> Vec<(String, Option<u64>, u64)> {
    let last = harness.state().state().run.last.as_ref().unwrap();
    let one = |one: &InstrumentSummary| (one.label.clone(), one.total, one.samples);
    last.instruments.iter().map(one).collect()
}

fn measured(harness: &Window) -> CachedWork {
    harness.state().state().document.choices().cached
}

#[test]
fn the_instruments_of_a_session_run_in_the_code_cache() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = start(&program);
    // As long as every block is counted, none is needed.
    assert_eq!(harness.state().state().run_hindrance(), None);
    with_instruments(&mut harness);
    let hindrance = harness.state().state().run_hindrance().unwrap();
    assert!(hindrance.contains("no instruments"), "{hindrance}");
    place(&mut harness, 0, "counter");
    place(&mut harness, 1, "counter");
    place(&mut harness, 0, "timestamp");
    let recording = folder.path().join("instruments.arrow");
    run_planned(&mut harness, &recording);

    let found = results(&harness);
    let total = |label: &str| {
        let one = found.iter().find(|(known, ..)| known == label);
        one.unwrap_or_else(|| panic!("{label}: {found:?}"))
    };
    assert_eq!(total("counter pre counted block 0").1, Some(CALLS));
    let inner = total("counter pre counted block 1").1;
    assert!(
        [CALLS / 3, CALLS - CALLS / 3].map(Some).contains(&inner),
        "{found:?}"
    );
    let (_, total, samples) = total("timestamp pre counted block 0");
    assert_eq!((*total, *samples), (None, CALLS));
    // They are those of the recording that is shown, with the numbers of the cache.
    let state = harness.state().state();
    let record = state.timeline.record.as_ref().unwrap();
    assert_eq!(record.lanes().len(), 3);
    let sampled = record.lanes().iter();
    let mut sampled = sampled.filter(|lane| lane.label.starts_with("timestamp"));
    assert_eq!(sampled.next().map(|lane| record.hits(lane)), Some(CALLS));
    let numbers = Recording::open(&recording).unwrap().totals().cache;
    assert_eq!(record.cache, numbers);
    assert!(numbers.is_some_and(|numbers| numbers.blocks > 0));
    let notice = state.notices.last().unwrap();
    let says = notice.words.starts_with("The session finished: ");
    assert!(says && notice.kind == NoticeKind::Good, "{notice:?}");
}

/// The lane of an instrument on the timeline: hits, and the number of its samples.
fn lane(state: &State, label: &str) -> (u64, u64) {
    let record = state.timeline.record.as_ref().unwrap();
    let mut lanes = record.lanes().iter();
    let Some(lane) = lanes.find(|lane| lane.label == label) else {
        return (0, 0);
    };
    let index = record.index.look();
    let samples = index.lane(lane.id).map_or(0, |lane| lane.total.count);
    (record.hits(lane), samples)
}

#[test]
fn samples_and_hits_of_instruments_in_the_code_cache_are_shown_while_they_run() {
    const WRITE: &str = "libc.so.6:write";
    const COUNTER: &str = "counter pre libc.so.6:write block 0";
    const SAMPLER: &str = "timestamp pre libc.so.6:write block 0";
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let mut harness = attach(&cat);
    with_instruments(&mut harness);
    open(&mut harness, WRITE);
    place_in(&mut harness, WRITE, 0, "counter");
    place_in(&mut harness, WRITE, 0, "timestamp");
    until_within(&mut harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    let recording = folder.path().join("samples.arrow");
    begin(&mut harness, &recording);
    for wanted in [10, 25] {
        let lines = wanted - lane(harness.state().state(), SAMPLER).0;
        for number in 0..lines {
            cat.copy(&format!("line {number}"));
        }
        until_within(&mut harness, PATIENCE, "they are shown", |state| {
            no_trouble(state);
            assert!(state.run.active.is_some());
            lane(state, COUNTER).0 == wanted && lane(state, SAMPLER) == (wanted, wanted)
        });
        // So are the hits of the block in the graph.
        assert_eq!(shown_hits(&harness)[0], Some(wanted));
    }
    let shown = lane(harness.state().state(), COUNTER);
    run_command(&mut harness, "stop run");
    until_within(&mut harness, PATIENCE, "it is let go", |state| {
        no_trouble(state);
        state.run.active.is_none() && state.timeline.record.as_ref().unwrap().cache.is_some()
    });
    cat.copy("still the same program");
    // What was shown is what the recording has: no sample twice, and none too few.
    let state = harness.state().state();
    assert_eq!(lane(state, SAMPLER), (25, 25));
    assert_eq!(lane(state, COUNTER), shown);
    let hits = shown_hits(&harness);
    assert!(hits[0] == Some(25) && hits[1..].iter().all(Option::is_none));
    let recorded = Recording::open(&recording).unwrap();
    assert_eq!(recorded.samples(), 25 + shown.1);
    until_measured(&mut harness, &recorded);
}

/// A program that copies lines, and with each unloads its library, loads it at another address, and calls it ten times
/// before and after that.
const LOADING: &str = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
static void use(void *library) {
	void (*work)(void) = (void (*)(void))dlsym(library, \"work\");
	for (int i = 0; i < 10; i++) work();
}
int main(int count, char **arguments) {
	char line[64];
	void *library = dlopen(arguments[1], RTLD_NOW);
	fgets(line, sizeof(line), stdin);
	do {
		fputs(line, stdout);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin)) return 0;
		use(library);
		void *at = (void *)((struct link_map *)library)->l_addr;
		dlclose(library);
		mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		library = dlopen(arguments[1], RTLD_NOW);
		use(library);
	} while (1);
}
";

#[test]
fn a_library_that_is_loaded_again_during_the_run_is_in_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let library = "static volatile int sum; void work(void) { sum++; }\n";
    for (text, name, options) in [
        (LOADING, "again", &[][..]),
        (library, "libwork.so", &["-shared", "-fPIC"]),
    ] {
        let source = file("source.c");
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("cc");
        let compiler = compiler.args(["-O2", "-w", "-o"]);
        let compiler = compiler.args([&file(name), &source]).args(options);
        assert!(compiler.status().unwrap().success());
    }
    let (program, library) = (file("again"), file("libwork.so"));
    let mut command = Command::new(&program);
    command.arg(&library);
    let mut cat = Cat::of(command);
    let name = format!("{} {}", program.display(), library.display());
    let mut harness = attach_to(&cat, &name);
    with_instruments(&mut harness);
    let work = "libwork.so:work";
    open(&mut harness, work);
    place_in(&mut harness, work, 0, "counter");
    place_in(&mut harness, work, 0, "timestamp");
    until_within(&mut harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
    let recording = file("again.arrow");
    begin(&mut harness, &recording);
    for number in 0..3 {
        cat.copy(&format!("line {number}"));
    }
    run_command(&mut harness, "stop run");
    until_within(&mut harness, PATIENCE, "it is let go", |state| {
        no_trouble(state);
        let record = state.timeline.record.as_ref().unwrap();
        state.run.active.is_none() && record.cache.is_some() && record.lanes().len() == 4
    });
    cat.copy("still the same program");
    // Ten calls of the library as it was at the start, and fifty of its later loads.
    let state = harness.state().state();
    let record = state.timeline.record.as_ref().unwrap();
    let hits = |name: &str| {
        let lanes = record.lanes().iter();
        let lanes = lanes.filter(|lane| lane.label == format!("{name} pre {work} block 0"));
        let mut hits: Vec<u64> = lanes.map(|lane| record.hits(lane)).collect();
        hits.sort_unstable();
        hits
    };
    assert_eq!(hits("counter"), [10, 50]);
    assert_eq!(hits("timestamp"), [10, 50]);
    until_measured(&mut harness, &Recording::open(&recording).unwrap());
    let mut counted: Vec<Option<u64>> = results(&harness).iter().map(|one| one.1).collect();
    counted.sort_unstable();
    assert_eq!(counted, [None, None, Some(10), Some(50)]);
}

#[test]
fn instruments_run_only_in_the_chosen_calls_and_their_choice_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let mut harness = start(&program);
    with_instruments(&mut harness);
    place(&mut harness, 0, "counter");
    // No branch ends the block.
    click(&mut harness, "block 1 of counted");
    run_command(&mut harness, "hook after block");
    run_command(&mut harness, "add instrument");
    assert_eq!(
        harness.state().state().document.session().placements.len(),
        2
    );
    click(&mut harness, "Threads in the cache");
    click(&mut harness, "only while in");
    fill(&mut harness, "Condition of the cache", "reg(\"edi\") < 900");
    run_planned(&mut harness, &folder.path().join("calls.arrow"));
    // A counter's samples are the readings of its total.
    let found: Vec<_> = results(&harness)
        .into_iter()
        .map(|(label, total, _)| (label, total))
        .collect();
    let counted = |label: &str, total| (label.to_owned(), Some(total));
    assert_eq!(
        found,
        [
            counted("counter pre counted block 0", 900),
            counted("counter post counted block 1", 300)
        ]
    );

    // The choice is a step, and the session's sidecar has it.
    for _ in 0..4 {
        press(&mut harness, Modifiers::COMMAND, Key::Z);
    }
    assert_eq!(measured(&harness), CachedWork::Blocks);
    for _ in 0..4 {
        press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    }
    assert_eq!(measured(&harness), CachedWork::Instruments);
    let session = folder.path().join("session.ron");
    save_as(&mut harness, &session);
    let again = window_of_session(session);
    assert_eq!(measured(&again), CachedWork::Instruments);
    assert!(!again.state().state().document.unsaved());
    // Of another target it is no hindrance.
    let hindrance = again.state().state().run_hindrance().unwrap();
    assert!(hindrance.starts_with("There is no target"), "{hindrance}");
}

/// `ilk clone --count -e … -o FILE`.
#[test]
fn a_recording_of_instruments_and_blocks_in_the_code_cache_shows_all_hits() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path());
    let recording = folder.path().join("both.arrow");
    let tests = std::env::current_exe().unwrap();
    let mut ilk = Command::new(tests.parent().unwrap().with_file_name("ilk"));
    let script = "entry:counted / reg(\"edi\") < 900 / { sample(reg(\"edi\")) }";
    let ilk = ilk
        .args(["clone", "--count", "-e", script, "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program);
    let done = ilk.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let start = Start {
        recording: Some(recording),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the recording is shown", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| !record.lanes().is_empty())
    });
    let record = harness.state().state().timeline.record.as_ref().unwrap();
    let sampled = record.lanes().iter().find(|info| info.placed.is_some());
    assert_eq!(record.hits(sampled.unwrap()), 900);
    // The graph has the counts of all blocks, not those of the script's instrument.
    let heat = Heat::of(record, "counted").unwrap();
    let hits: Vec<u64> = (0..)
        .map_while(|block| heat.block(BlockIndex(block)))
        .collect();
    assert_eq!(hits[0], CALLS);
    assert!(hits.contains(&(CALLS / 3)), "{hits:?}");
}

/// Programs that are linked statically, and to another C library.
#[test]
fn programs_without_a_registration_for_splices_are_counted_in_the_code_cache() {
    for (compiler, options) in [("cc", &["-static"][..]), ("musl-gcc", &[])] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_by(folder.path(), compiler, options);
        let mut harness = start(&program);
        run(&mut harness, &folder.path().join("counts.arrow"));
        let counted = hits(&harness);
        assert_eq!(counted[0], CALLS, "{compiler} {options:?}");
        assert!(counted.contains(&(CALLS / 3)), "{counted:?}");
    }
}

#[test]
fn instruments_in_a_program_that_registers_later_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_by(folder.path(), "cc", &["-static"]);
    let mut harness = start(&program);
    assert_eq!(harness.state().state().run_hindrance(), None);
    with_instruments(&mut harness);
    place(&mut harness, 0, "counter");
    until_within(&mut harness, PATIENCE, "it is refused", |state| {
        let hindrance = state.run_hindrance();
        hindrance.is_some_and(|why| why.contains("registers for restartable sequences only after"))
    });
}
