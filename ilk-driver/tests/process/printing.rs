//! Lines of `printf` in a process are whole, in the order of each thread, and those of its calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use gilk_engine::verify::verify;
use gilk_instruments::Library;
use gilk_samples::Sample;
use ilk_driver::process::{Attached, Drained, SampleRings};

use super::cache_instruments::in_cache;
use super::launched::{ilk, text_of};
use super::programs::session;
use super::{Counted, clean, compiled_from, compiled_with_musl, subject, without_area};

const SOURCE: &str = include_str!("printing.c");

const SCRIPT: &str = "
    entry:line { printf(\"%d,%d,%s,%d,%x;\", arg0, arg1, str(arg2), arg3, arg3 & 0xffff) }
    entry:single { sample(arg0) }";

/// Without memory.
const OF_REGISTERS: &str = "
    entry:line { printf(\"%d,%d,%d,%d,%x;\", arg0, arg1, arg1 * 5, arg3, arg3 & 0xffff) }
    entry:single { sample(arg0) }";

/// The texts of the program, as they are printed.
const NAMES: [&str; 6] = [
    "",
    "a",
    "seven b",
    "eight by",
    "fifteen bytes..",
    "more than fifte…",
];

/// The text of a writer's call, by a script with texts or by one of registers.
fn text(script: &str, writer: i64, serial: i64) -> String {
    let name = NAMES[usize::try_from((serial + writer) % 6).unwrap()];
    let name = match script {
        OF_REGISTERS => (serial * 5).to_string(),
        _ => name.to_owned(),
    };
    let value = serial * 7919 - writer;
    format!("{writer},{serial},{name},{value},{:x};", value & 0xffff)
}

/// The calls of each writer, as the program has printed them.
fn calls(shown: &str) -> BTreeMap<i64, i64> {
    let lines = shown.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("writer "));
    let calls = lines.map(|line| {
        let (writer, calls) = line.split_once(' ').unwrap();
        (writer.parse().unwrap(), calls.parse().unwrap())
    });
    calls.collect()
}

/// The number of lost samples that a command has printed.
fn lost(shown: &str) -> i64 {
    let lost = shown.lines().filter_map(|line| {
        let (before, _) = line.split_once(" lost")?;
        before
            .split(", ")
            .last()?
            .replace(',', "")
            .parse::<i64>()
            .ok()
    });
    lost.sum()
}

/// The lines of a recording in order of time, and the number of its other samples.
pub(super) fn recorded(recording: &Path) -> (Vec<String>, i64) {
    let csv = recording.with_extension("csv");
    let export = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["export", "--force", "-o"])
        .args([&csv, recording])
        .output()
        .unwrap();
    assert!(export.status.success(), "{}", text_of(&export.stderr));
    let all = std::fs::read_to_string(csv).unwrap();
    let mut lines = Vec::new();
    let mut others = 0;
    for row in all.lines().skip(1) {
        // The text is the last of the columns, and has commas.
        let columns: Vec<&str> = row.splitn(7, ',').collect();
        let text = columns[6].trim_matches('"');
        match columns[3].contains(" single ") {
            true => others += 1,
            false => {
                assert!(text.ends_with(';'), "{row}");
                lines.push(text.to_owned());
            }
        }
    }
    (lines, others)
}

/// Compares the lines of a recording with the calls of the program.
fn judged(script: &str, output: &Output, recording: &Path) {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let calls = calls(&shown);
    let of_handlers = calls.range(101..105).any(|(_, calls)| *calls > 0);
    assert!(calls.len() >= 8 && of_handlers, "{shown}");
    let (lines, others) = recorded(recording);
    let mut next: BTreeMap<i64, i64> = BTreeMap::new();
    for line in &lines {
        let mut numbers = line.split(',').map(str::parse::<i64>);
        let writer = numbers.next().unwrap().unwrap();
        let serial = numbers.next().unwrap().unwrap();
        assert_eq!(*line, text(script, writer, serial));
        let next = next.entry(writer).or_default();
        assert!(
            serial >= *next && serial < calls[&writer],
            "{line} is the {next}th"
        );
        *next = serial + 1;
    }
    // Each thread calls the other function as often as it prints in no handler.
    let threads: i64 = (1..5).map(|thread| calls[&thread]).sum();
    let hits = threads + calls.values().sum::<i64>();
    let lost = lost(&shown);
    let samples = i64::try_from(lines.len()).unwrap() + others;
    assert_eq!(samples + lost, hits, "{lost} lost: {shown}");
}

#[test]
fn lines_of_threads_and_handlers_and_forked_children_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let recording = folder.path().join("lines.arrow");
    let (file, program) = (recording.to_str().unwrap(), program.to_str().unwrap());
    let output = ilk(&["-e", SCRIPT, "-o", file, "--", program, "3"], "");
    judged(SCRIPT, &output, &recording);
}

/// Six threads and a handler print faster than the rings are read.
#[test]
fn lines_are_whole_or_lost_where_rings_are_full() {
    whole_or_lost(|_| {});
}

#[test]
fn lines_are_whole_or_lost_where_a_ring_that_all_threads_share_is_full() {
    whole_or_lost(without_area);
}

fn whole_or_lost(change: impl FnOnce(&mut Command)) {
    let mut counted = Counted::start(&[], change);
    let (subject, reserved) = subject(counted.pid(), "counted", 64);
    let script = "entry:counted { printf(\"%d %d %x\", (u32)arg0, (u32)arg0 + 1, (u32)arg0 * 3) }";
    let session = session(&subject, script);
    let library = Library::builtin().unwrap();
    let reserved = reserved.for_session(&session, &library);
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let mut attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let mut rings = attached.take_rings().unwrap();
    let id = plan.plan().instruments[0].id.pack();
    counted.does("load");
    let (mut lines, mut lost) = (0, 0);
    let mut drain = |rings: &mut SampleRings| {
        let Drained { batches, losses } = rings.drain().unwrap();
        for batch in batches {
            let (all, rest) = batch.samples.as_chunks::<4>();
            assert!(rest.is_empty(), "{rest:?}");
            for line in all {
                let [head, words @ ..] = line;
                assert_eq!((head.id, head.value), (id, 0));
                let value = words[0].value;
                assert!((1..2_000_005).contains(&value), "{line:?}");
                let meant = [value, value + 1, value * 3];
                for (word, value) in words.iter().zip(meant) {
                    let word = (word.id, word.value, word.tsc);
                    let meant = (id | Sample::WORD, value, head.tsc);
                    assert_eq!(word, meant, "{line:?}");
                }
                lines += 1;
            }
        }
        lost += losses.iter().map(|loss| loss.count).sum::<u64>();
    };
    drain(&mut rings);
    counted.does("load");
    let (calls, _) = counted.does("count");
    let removed = attached.remove().unwrap();
    clean(&removed);
    drain(&mut rings);
    assert!(
        lines > 100_000 && lost > 1_000_000,
        "{lines} lines, {lost} lost"
    );
    assert_eq!(lines + lost, calls);
    counted.end();
}

/// Without a recording lines are printed as they come: those of a CPU in their order.
#[test]
fn lines_are_printed_where_there_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let script = SCRIPT.lines().nth(1).unwrap();
    let name = program.to_str().unwrap();
    for output in [
        ilk(&["-e", script, "--", name], ""),
        in_cache(&["-e", script], &program, &[]),
    ] {
        printed(SCRIPT, &output, 8);
    }
}

/// Compares the lines that are printed as they come with the calls of so many writers, of which none is lost.
fn printed(script: &str, output: &Output, writers: usize) {
    let shown = text_of(&output.stdout) + &text_of(&output.stderr);
    let calls = calls(&shown);
    assert!(
        calls.len() == writers && shown.contains(" 0 lost"),
        "{shown}"
    );
    let mut printed: Vec<&str> = shown.lines().filter(|line| line.ends_with(';')).collect();
    printed.sort_unstable();
    let meant = calls.iter().flat_map(|(writer, calls)| {
        let calls = 0..*calls;
        calls.map(|serial| text(script, *writer, serial))
    });
    let mut meant: Vec<String> = meant.collect();
    meant.sort_unstable();
    assert_eq!(printed, meant);
}

/// The C library registers no thread for restartable sequences, so that all threads and children share a ring.
#[test]
fn lines_in_a_ring_that_all_threads_share_are_whole() {
    for options in [&[][..], &["-static"]] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled_with_musl(folder.path(), SOURCE, options);
        let recording = folder.path().join("lines.arrow");
        let (file, name) = (recording.to_str().unwrap(), program.to_str().unwrap());
        let recorded = ["-e", OF_REGISTERS, "-o", file];
        for (choice, script) in [
            (&[][..], OF_REGISTERS),
            (&["--children", "own"], OF_REGISTERS),
            (&[], SCRIPT),
            (&["--children", "own"], SCRIPT),
        ] {
            let program = ["-e", script, "-o", file, "--", name, "3"];
            let output = ilk(&[choice, &program].concat(), "");
            judged(script, &output, &recording);
            std::fs::remove_file(&recording).unwrap();
        }
        let output = in_cache(&recorded, &program, &[]);
        judged(OF_REGISTERS, &output, &recording);
        let script = OF_REGISTERS.lines().nth(1).unwrap();
        for output in [
            ilk(&["-e", script, "--", name], ""),
            in_cache(&["-e", script], &program, &[]),
        ] {
            printed(OF_REGISTERS, &output, 8);
        }
    }
}

#[test]
fn lines_of_children_of_their_own_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let recording = folder.path().join("lines.arrow");
    let (file, program) = (recording.to_str().unwrap(), program.to_str().unwrap());
    let own = ["--children", "own"];
    let arguments = ["-e", SCRIPT, "-o", file, "--", program, "3"];
    let output = ilk(&[&own[..], &arguments].concat(), "");
    judged(SCRIPT, &output, &recording);
}

#[test]
fn lines_in_the_code_cache_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), SOURCE, &[]);
    let recording = folder.path().join("lines.arrow");
    let options = ["-e", SCRIPT, "-o", recording.to_str().unwrap()];
    let output = in_cache(&options, &program, &[]);
    judged(SCRIPT, &output, &recording);
}
