//! Lanes by the thread that ran, by the names of things.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::timeline::Record;
use gilk_samples::index::Index;
use gilk_samples::{Batch, Meaning, Sample};
use support::{Window, browsing_in, click, placements, press, record, say};

const TELLER: u64 = 1 << 50;

/// A run of a second on two CPUs: an event each millisecond on both. The first runs thread 40, and from
/// the middle on 41; of the second it is told at the middle that it runs 40.
fn told(unit: &str) -> Record {
    let mut metadata = record().metadata;
    let event = metadata.instruments[0].clone();
    let mut teller = event.clone();
    (teller.id, teller.unit, teller.meaning) = (TELLER, unit.into(), Meaning::Value);
    teller.instrument = "running-thread".into();
    teller.label = "running-thread pre finish_task_switch block 0".into();
    metadata.instruments = vec![event.clone(), teller];
    let mut record = Record::live("told.arrow".into(), metadata, 1.0);
    record
        .index
        .replace(Index::new().by_thread_and_level(&record.metadata));
    for (cpu, first, second) in [(0, Some(40), 41), (1, None, 40)] {
        let told = |thread: u64, tsc| Sample {
            id: TELLER,
            value: thread,
            tsc,
        };
        let hit = |millisecond: u64| Sample {
            id: event.id,
            value: 0,
            tsc: 1000 * millisecond,
        };
        // At the same tick as what was hit before it and behind it.
        let samples = first.map(|thread| told(thread, 0)).into_iter();
        let samples = samples
            .chain((0..=500).map(hit))
            .chain([told(second, 500_000)]);
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
fn each_thread_has_the_samples_of_its_time_on_whatever_cpu() {
    let mut harness = browsing_in(support::image_path(), "kernel_clone");
    show(&mut harness, told("thread"));
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
    // What tells a thread is the thread's.
    harness.get_by_label("lane running-thread pre finish_task_switch block 0 of thread 40: 2");
    assert!(
        harness
            .query_by_label_contains("No instrument of this recording tells")
            .is_none()
    );
    // And back by the palette.
    say(&mut harness, "lanes in the session");
    harness.run_steps(2);
    harness.get_by_label(&format!("lane {lane}: 2002"));
}

#[test]
fn where_nobody_told_what_tells_threads_is_one_click_and_one_step() {
    let image = support::renamed("mmput", "finish_task_switch.isra.0");
    let mut harness = browsing_in(image, "kernel_clone");
    show(&mut harness, told("things"));
    say(&mut harness, "lanes by thread");
    harness.run_steps(2);
    // The lanes stay.
    harness.get_by_label("lane timestamp pre kernel_clone block 0: 2002");
    harness.get_by_label_contains("No instrument of this recording tells which thread ran.");
    let placed = |harness: &Window| -> Vec<String> {
        let placed = placements(harness).iter();
        placed
            .map(|one| {
                let times = format!("{} to {}", one.launch, one.splash);
                format!("{} {} {} {times}", one.instrument, one.function, one.block)
            })
            .collect()
    };
    click(&mut harness, "Tell threads apart");
    let there = ["running-thread finish_task_switch.isra.0 0 0 to 10"];
    assert_eq!(placed(&harness), there);
    harness.get_by_label_contains("plan verified: 1 instrument,");
    click(&mut harness, "Tell threads apart");
    assert_eq!(placed(&harness), there, "once is enough");
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(placed(&harness).is_empty(), "and it is one step");
}

#[test]
fn a_kernel_without_the_place_is_said() {
    let mut harness = browsing_in(support::image_path(), "kernel_clone");
    show(&mut harness, told("things"));
    click(&mut harness, "lanes by thread");
    click(&mut harness, "Tell threads apart");
    harness.get_by_label_contains("This kernel has no function finish_task_switch");
    assert!(placements(&harness).is_empty());
}
