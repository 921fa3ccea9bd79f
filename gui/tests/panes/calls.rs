//! The calls of a recording as an icicle: zoom, marks, comparison.

use std::path::{Path, PathBuf};

use crate::support::{Window, click, fill, run_command, settle, until, window};
use egui_kittest::SnapshotResults;
use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::calls::shape::places;
use gilk_gui::desk::Pane;
use gilk_samples::calls::{CallTree, ROOT};
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Recording, Writer};
use gilk_samples::{Batch, HookType, InstrumentId, Meaning, Sample};

const FUNCTIONS: [&str; 3] = ["kernel_clone", "copy_process", "dup_mm"];

/// Writes a recording of `clones` calls of kernel_clone, in each of which copy_process takes `inner` of 100 µs, and
/// dup_mm half of that.
fn written(folder: &Path, name: &str, clones: u64, inner: u64) -> PathBuf {
    let id = |major: u32, hook| InstrumentId::new(major, hook, 0, 0).unwrap().pack();
    let majors = 0..FUNCTIONS.len() as u32;
    let traces = majors.clone().flat_map(|major| {
        [HookType::Pre, HookType::Post].map(|hook| InstrumentInfo {
            id: id(major, hook),
            label: format!("call-trace {}", FUNCTIONS[major as usize]),
            instrument: "call-trace".into(),
            meaning: Meaning::Value,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: None,
            delivers: Delivers::Samples,
        })
    });
    let metadata = Metadata {
        clock: Clock {
            hz: 1_000_000,
            ..Clock::default()
        },
        cpus: 1,
        functions: majors
            .map(|major| FunctionInfo {
                major,
                name: FUNCTIONS[major as usize].into(),
                address: 0,
                blocks: Vec::new(),
                edges: Vec::new(),
            })
            .collect(),
        instruments: traces.collect(),
        ..Metadata::default()
    };
    let mut samples = Vec::new();
    for clone in 0..clones {
        let at = 1000 * clone;
        let mut step = |major: u32, enters: bool, tsc: u64| {
            let hook = if enters {
                HookType::Pre
            } else {
                HookType::Post
            };
            let value = 7 << 1 | u64::from(enters);
            samples.push(Sample {
                id: id(major, hook),
                value,
                tsc,
            });
        };
        step(0, true, at);
        step(1, true, at + 1);
        step(2, true, at + 2);
        step(2, false, at + 2 + inner / 2);
        step(1, false, at + 1 + inner);
        step(0, false, at + 100);
    }
    let path = folder.join(name);
    let mut writer = Writer::create(&path, &metadata).unwrap();
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    path
}

/// A window with the pane of a recording's calls.
fn opened(path: PathBuf) -> Window {
    let start = Start {
        image: Some(crate::support::image_path()),
        recording: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the recording is read", |state| {
        state.timeline.record.is_some() && state.catalogue.is_some()
    });
    run_command(&mut harness, "calls pane");
    until(&mut harness, "the calls are read", |state| {
        state.call_tree.run().is_some()
    });
    settle(&mut harness);
    harness
}

#[test]
fn calls_are_drawn_zoomed_and_marked() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = opened(written(folder.path(), "run.arrow", 20, 50));
    // 20 calls of 100 µs, of which copy_process has 50 and dup_mm 25.
    harness.get_by_label_contains("call kernel_clone, 2 ms (100.00 %)");
    harness.get_by_label_contains("call copy_process, 1 ms (50.00 %)");
    let dup_mm = "call dup_mm, 500 µs (25.00 %), 500 µs in itself, 20 calls";
    let narrow = harness.get_by_label(dup_mm).rect().width();
    harness.get_by_label_contains("call copy_process").click();
    harness.run_steps(3);
    let wide = harness.get_by_label(dup_mm).rect().width();
    assert!((wide / narrow - 2.0).abs() < 0.01, "{narrow} and {wide}");
    click(&mut harness, "All calls");
    assert_eq!(harness.get_by_label(dup_mm).rect().width(), narrow);

    fill(&mut harness, "Mark calls", "dup");
    harness.run_steps(3);
    harness.get_by_label("1 call marked, 25.00 % of the time");
    // A call within a marked one is in its time already.
    fill(&mut harness, "Mark calls", "_");
    harness.run_steps(3);
    harness.get_by_label("3 calls marked, 100.00 % of the time");
}

#[test]
fn a_comparison_colours_the_calls_by_their_change() {
    let folder = tempfile::tempdir().unwrap();
    let before = written(folder.path(), "before.arrow", 20, 20);
    let mut harness = opened(written(folder.path(), "after.arrow", 20, 50));
    run_command(&mut harness, "compare with another");
    let path = before.display().to_string();
    harness.get_by_label("Path").type_text(&path);
    harness.run_steps(3);
    click(&mut harness, "Compare");
    until(&mut harness, "both are compared", |state| {
        state.statistics.comparison.is_some()
    });
    run_command(&mut harness, "calls pane");
    until(&mut harness, "both are read", |state| {
        let run = state.call_tree.run();
        run.is_some_and(|run| run.earlier_share(ROOT) == Some(1.0))
    });
    settle(&mut harness);
    harness.get_by_label_contains("call copy_process, 1 ms (50.00 %), 500 µs in itself, 20 calls, 20.00 % of the time in the earlier recording");
    let mut results = SnapshotResults::new();
    results.add(harness.try_snapshot("calls_compared"));
    // The exported picture has the same comparison.
    let picture = folder.path().join("change.flame.svg");
    click(&mut harness, "Export recording…");
    fill(&mut harness, "Path", &picture.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "the picture is written", |_| picture.exists());
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(
        text.contains("copy_process: 1 ms (50.00 %, 20.00 % before)"),
        "{text}"
    );
}

#[test]
fn a_recording_without_call_traces_says_what_to_do() {
    let mut harness = crate::support::browsing("kernel_clone");
    let mut record = crate::support::record();
    record.now = None;
    harness.state_mut().state_mut().timeline.open(record);
    run_command(&mut harness, "calls pane");
    settle(&mut harness);
    assert!(harness.state().state().desk.sees(Pane::Calls));
    harness.get_by_label("No call traces in this recording");
}

#[test]
fn widths_are_the_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "run.arrow", 3, 40);
    let recording = Recording::open(&path).unwrap();
    let (tree, damaged) =
        CallTree::of(&recording, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(damaged.is_empty());
    let all = places(&tree, ROOT, 0.0);
    assert_eq!(all.len(), tree.iter().count());
    for place in &all {
        assert!((place.to - place.from - tree.share(place.call)).abs() < 1e-9);
        assert_eq!(place.row + 1, tree.way_to(place.call).len());
    }
    // A narrow call is left out, with its callees.
    assert_eq!(places(&tree, ROOT, 0.3).len(), 3);
}
