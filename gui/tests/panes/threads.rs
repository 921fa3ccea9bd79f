//! Lanes by thread, by accessibility names.

use crate::support::{Window, browsing_in, click, placements, press, record, run_command};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::timeline::Record;
use gilk_samples::index::Index;
use gilk_samples::metadata::Metadata;
use gilk_samples::texts::{Argument, Form, PrintedLine, PrintedPart, Texts};
use gilk_samples::{Batch, Meaning, Sample};

const THREAD_RECORDER: u64 = 1 << 50;
const THREAD_NAMER: u64 = 1 << 51;

/// A run of a second on two CPUs with an event each millisecond on both. The first CPU runs thread
/// 40, and from the middle on 41; the second records at the middle that it runs 40.
fn thread_record(unit: &str) -> Record {
    let mut metadata = Metadata::clone(&record().metadata);
    let event = metadata.instruments[0].clone();
    let mut recorder = event.clone();
    (recorder.id, recorder.unit, recorder.meaning) = (THREAD_RECORDER, unit.into(), Meaning::Value);
    recorder.instrument = "running-thread".into();
    recorder.label = "running-thread pre finish_task_switch block 0".into();
    let mut namer = event.clone();
    (namer.id, namer.unit) = (THREAD_NAMER, "thread name".into());
    namer.instrument = "thread-name".into();
    namer.label = "thread-name pre finish_task_switch block 0".into();
    metadata.instruments = vec![event.clone(), recorder, namer];
    let argument = |form| PrintedPart::Argument(Argument::plain(form));
    let forms = [Form::Signed, Form::Signed, Form::Text];
    let line = PrintedLine(forms.map(argument).to_vec());
    metadata
        .texts
        .insert(THREAD_NAMER, Texts::Lines(vec![line]));
    let mut record = Record::live("threads.arrow".into(), metadata, 1.0);
    record
        .index
        .replace(Index::new().by_thread_and_level(&record.metadata));
    for (cpu, first, second) in [(0, Some(40), 41), (1, None, 40)] {
        let switch = |thread: u64, tsc| Sample {
            id: THREAD_RECORDER,
            value: thread,
            tsc,
        };
        let hit = |millisecond: u64| Sample {
            id: event.id,
            value: 0,
            tsc: 1000 * millisecond,
        };
        // At the same tick as the events before and after it.
        let samples = first.map(|thread| switch(thread, 0)).into_iter();
        let samples = samples
            .chain((0..=500).map(hit))
            .chain([switch(second, 500_000)]);
        let samples = samples.chain((500..1000).map(hit)).collect();
        record.append(&Batch { cpu, samples });
    }
    record.now = None;
    record
}

fn show(harness: &mut Window, record: Record) {
    harness.state_mut().state_mut().timeline.open(record);
    harness.run_steps(3);
}

#[test]
fn samples_belong_to_the_thread_that_ran_on_any_cpu() {
    let mut harness = browsing_in(crate::support::image_path(), "kernel_clone");
    show(&mut harness, thread_record("thread"));
    let lane = "timestamp pre kernel_clone block 0";
    harness.get_by_label(&format!("lane {lane}: 2002"));
    click(&mut harness, "lanes by thread");
    let top = |harness: &Window, name: &str| harness.get_by_label(name).rect().top();
    let tops = [
        // Of CPU 0 up to the switch, and of CPU 1 after it.
        ("thread 40", 501 + 500),
        ("thread 41", 500),
        ("unknown thread", 501),
    ]
    .map(|(thread, hits)| top(&harness, &format!("lane {lane} of {thread}: {hits}")));
    assert!(tops.is_sorted(), "{tops:?}");
    // Samples of the recording instrument belong to the thread.
    harness.get_by_label("lane running-thread pre finish_task_switch block 0 of thread 40: 2");
    assert!(
        harness
            .query_by_label_contains("This recording has no running threads")
            .is_none()
    );
    // Back by the palette.
    run_command(&mut harness, "lanes in session order");
    harness.run_steps(2);
    harness.get_by_label(&format!("lane {lane}: 2002"));
}

#[test]
fn threads_and_processes_have_their_names() {
    let mut harness = browsing_in(crate::support::image_path(), "kernel_clone");
    let run = thread_record("thread");
    // Threads 40 and 41 of process 40, of which the second has a name of its own.
    for (thread, name, tsc) in [(40, *b"make\0\0\0\0", 0), (41, *b"reader\0\0", 500_000)] {
        let sample = |value| Sample {
            id: THREAD_NAMER,
            value,
            tsc,
        };
        let words = [40, thread, u64::from_le_bytes(name), 0];
        let words = words.map(|word| sample(word).as_word());
        let samples = [&[sample(0)], &words[..]].concat();
        run.append(&Batch { cpu: 0, samples });
    }
    show(&mut harness, run);
    click(&mut harness, "lanes by thread");
    let lane = "timestamp pre kernel_clone block 0";
    harness.get_by_label(&format!("lane {lane} of make (thread 40): 1001"));
    harness.get_by_label(&format!("lane {lane} of reader (thread 41): 500"));
    run_command(&mut harness, "lanes by process");
    harness.run_steps(2);
    let heading = harness.get_by_label_contains("fold make (process 40)");
    let heading = heading.rect();
    for thread in ["make (thread 40)", "reader (thread 41)"] {
        let words = format!("lane {lane} of {thread}");
        let lane = harness.get_by_label_contains(&words);
        assert!(lane.rect().top() >= heading.bottom(), "{thread}");
    }
    harness.get_by_label_contains("fold unknown process");
}

#[test]
fn recording_threads_is_one_click_and_one_undo_step() {
    let image = crate::support::renamed("mmput", "finish_task_switch.isra.0");
    let mut harness = browsing_in(image, "kernel_clone");
    show(&mut harness, thread_record("things"));
    run_command(&mut harness, "lanes by thread");
    harness.run_steps(2);
    // The lanes stay.
    harness.get_by_label("lane timestamp pre kernel_clone block 0: 2002");
    harness.get_by_label_contains("This recording has no running threads.");
    let placed = |harness: &Window| -> Vec<String> {
        let placed = placements(harness).iter();
        placed
            .map(|one| {
                let times = format!("{} to {}", one.launch, one.splash);
                format!("{} {} {} {times}", one.instrument, one.function, one.block)
            })
            .collect()
    };
    click(&mut harness, "Record running threads");
    let there = ["running-thread", "thread-name"]
        .map(|instrument| format!("{instrument} finish_task_switch.isra.0 0 0 to 10"));
    assert_eq!(placed(&harness), there);
    harness.get_by_label_contains("plan verified: 2 instruments,");
    click(&mut harness, "Record running threads");
    assert_eq!(placed(&harness), there, "it is added once");
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(placed(&harness).is_empty(), "it is one undo step");
}

#[test]
fn a_kernel_without_the_function_is_reported() {
    let mut harness = browsing_in(crate::support::image_path(), "kernel_clone");
    show(&mut harness, thread_record("things"));
    click(&mut harness, "lanes by thread");
    click(&mut harness, "Record running threads");
    harness.get_by_label_contains("This kernel has no function finish_task_switch");
    assert!(placements(&harness).is_empty());
}
