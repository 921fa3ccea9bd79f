//! Viewing a recording: keys and wheel on the timeline, following a live run, tooltips, a recording
//! without a kernel, and C declarations.

use std::sync::Arc;

use crate::support::{Window, browsing, browsing_in, click, fill, record, until, window};
use egui::{Key, Modifiers, Pos2, vec2};
use egui_kittest::kittest::Queryable;
use gilk_engine::cfg::BlockIndex;
use gilk_gui::args::Start;
use gilk_gui::state::State;
use gilk_gui::timeline::{Range, Timeline};
use gilk_samples::Batch;
use gilk_samples::recording::Writer;

/// Width of the lanes' scales in points, to the right of their samples.
const SCALE: f32 = 92.0;

fn timeline(harness: &mut Window) -> &mut Timeline {
    &mut harness.state_mut().state_mut().timeline
}

fn range(harness: &Window) -> Range {
    harness.state().state().timeline.range
}

/// Opens a finished run of ten seconds, with the pointer in the middle of its lanes.
fn over() -> (Window, Pos2) {
    let mut harness = browsing("kernel_clone");
    let mut record = record();
    record.now = None;
    timeline(&mut harness).open(record);
    harness.run_steps(3);
    let canvas = harness.get_by_label("Timeline").rect();
    let names = harness
        .get_by_label_contains("lane timestamp pre kernel_clone block 0")
        .rect();
    let middle = egui::pos2(
        (names.right() + canvas.right() - SCALE) / 2.0,
        names.center().y,
    );
    harness.hover_at(middle);
    harness.run_steps(2);
    (harness, middle)
}

/// Holds a key for some frames.
fn hold(harness: &mut Window, key: Key) -> (Range, Range) {
    let before = range(harness);
    harness.key_down(key);
    harness.run_steps(4);
    harness.key_up(key);
    harness.run_steps(2);
    (before, range(harness))
}

fn wheel(harness: &mut Window, up: f32, times: usize) {
    for _ in 0..times {
        harness.event(egui::Event::MouseWheel {
            source: egui::MouseWheelSource::Wheel,
            unit: egui::MouseWheelUnit::Point,
            delta: vec2(0.0, up),
            phase: egui::TouchPhase::Move,
            modifiers: Modifiers::NONE,
        });
        harness.step();
    }
    harness.run_steps(20);
}

#[test]
fn keys_pan_and_zoom_the_timeline() {
    let (mut harness, _) = over();
    let (before, after) = hold(&mut harness, Key::W);
    assert!(after.width() < 0.9 * before.width(), "{before:?} {after:?}");
    let (before, after) = hold(&mut harness, Key::D);
    assert!(after.start > before.start && (after.width() - before.width()).abs() < 1e-9);
    let (before, after) = hold(&mut harness, Key::A);
    assert!(after.start < before.start && (after.width() - before.width()).abs() < 1e-9);
    let (before, after) = hold(&mut harness, Key::S);
    assert!(after.width() > 1.1 * before.width(), "{before:?} {after:?}");
}

#[test]
fn the_wheel_zooms_at_the_pointer_down_to_nanoseconds_and_back() {
    let (mut harness, middle) = over();
    let canvas = harness.get_by_label("Timeline").rect();
    let right = canvas.right() - SCALE;
    let left = 2.0 * middle.x - right;
    let share = f64::from((middle.x - left) / (right - left));
    let at = |range: Range| range.start + share * range.width();
    let seconds = at(range(&harness));
    wheel(&mut harness, 400.0, 40);
    let near = range(&harness);
    assert!((near.width() - 50e-9).abs() < 1e-12, "{near:?}");
    assert!((at(near) - seconds).abs() < 1e-6, "{near:?}, not {seconds}");
    harness.get_by_label_contains("50.0 ns in view");
    wheel(&mut harness, -400.0, 40);
    assert!((range(&harness).width() - 40.0).abs() < 1e-6);
}

#[test]
fn a_run_of_days_can_be_viewed_whole_and_by_the_nanosecond() {
    let (mut harness, _) = over();
    let mut days = record();
    (days.duration, days.now) = (3.0 * 86_400.0, None);
    timeline(&mut harness).open(days);
    harness.run_steps(3);
    harness.get_by_label_contains("3 d 2 h in view");
    wheel(&mut harness, 400.0, 80);
    harness.get_by_label_contains("50.0 ns in view");
}

#[test]
fn the_timeline_follows_new_samples_until_it_is_panned() {
    let mut harness = browsing("kernel_clone");
    timeline(&mut harness).open(record());
    let now = |harness: &mut Window, seconds: f64| {
        timeline(harness).record.as_mut().unwrap().now = Some(seconds);
        harness.run_steps(2);
    };
    timeline(&mut harness).range = Range {
        start: 0.0,
        end: 1.0,
    };
    now(&mut harness, 5.0);
    let followed = range(&harness);
    assert!(followed.start < 5.0 && followed.end > 5.0 && (followed.width() - 1.0).abs() < 1e-9);
    // Dragged to the right, to earlier samples.
    let middle = harness.get_by_label("Timeline").rect().center();
    harness.drag_at(middle);
    harness.run_steps(2);
    harness.hover_at(middle + vec2(80.0, 0.0));
    harness.run_steps(2);
    harness.drop_at(middle + vec2(80.0, 0.0));
    harness.run_steps(2);
    let stays = range(&harness);
    assert!(stays.start < followed.start);
    now(&mut harness, 9.0);
    assert_eq!(range(&harness), stays);
    click(&mut harness, "Follow newest samples");
    assert!(range(&harness).start < 9.0 && range(&harness).end > 9.0);
}

#[test]
fn the_tooltip_describes_the_sample_under_the_pointer() {
    let (mut harness, _) = over();
    timeline(&mut harness).range = Range {
        start: 0.0,
        end: 0.01,
    };
    harness.run_steps(2);
    let canvas = harness.get_by_label("Timeline").rect();
    let lane = harness
        .get_by_label_contains("lane timestamp pre kernel_clone block 2")
        .rect();
    // Its third sample is three milliseconds and two microseconds after the start.
    let x = lane.right() + 0.3002 * (canvas.right() - SCALE - lane.right());
    harness.hover_at(egui::pos2(x, lane.center().y));
    harness.run_steps(6);
    harness.get_by_label("at 0.003002 s");
    harness.get_by_label("CPU 0");
}

#[test]
fn a_sample_opens_its_block_and_a_block_shows_its_samples() {
    let (mut harness, _) = over();
    // With so many lanes that the last is out of view.
    let mut record = record();
    let lanes = &mut Arc::make_mut(&mut record.metadata).instruments;
    let last = lanes.pop().unwrap();
    for place in 0..40 {
        let mut other = lanes[0].clone();
        (other.id, other.label) = (1 << 40 | place, format!("timestamp pre elsewhere {place}"));
        lanes.push(other);
    }
    lanes.push(last);
    record.now = None;
    timeline(&mut harness).open(record);
    harness.run_steps(3);
    let lane = |harness: &Window, block: u32| {
        let name = format!("lane timestamp pre kernel_clone block {block}");
        let node = harness.query_by_label_contains(&name)?;
        let canvas = harness.get_by_label("Timeline").rect();
        let rect = node.rect();
        canvas.contains(rect.center()).then_some(rect)
    };
    assert_eq!(lane(&harness, 2), None);
    // From the first lane to its block, two blocks forward, and to the samples of that block.
    let first = lane(&harness, 0).unwrap();
    let place = egui::pos2(first.right() + 40.0, first.center().y);
    harness.drag_at(place);
    harness.run_steps(1);
    harness.drop_at(place);
    harness.run_steps(3);
    crate::support::settle(&mut harness);
    let selected = |harness: &Window| harness.state().state().graph.selected.unwrap().0;
    assert_eq!(selected(&harness), 0);
    click(&mut harness, "Schedule tab");
    for _ in 0..2 {
        crate::support::press(&mut harness, Modifiers::NONE, Key::J);
    }
    assert_eq!(selected(&harness), 2);
    crate::support::press(&mut harness, Modifiers::NONE, Key::L);
    harness.run_steps(3);
    assert!(lane(&harness, 2).is_some(), "its lane is visible");
    assert_eq!(lane(&harness, 0), None, "the first lane is out of view");
    for _ in 0..2 {
        crate::support::press(&mut harness, Modifiers::NONE, Key::K);
    }
    assert_eq!(selected(&harness), 0);
    crate::support::run_command(&mut harness, "show samples of block");
    harness.run_steps(3);
    assert!(lane(&harness, 0).is_some());
}

#[test]
fn a_block_without_a_lane_says_so() {
    let (mut harness, _) = over();
    let mut recorded = record();
    let says = |harness: &mut Window, words: &str| {
        crate::support::press(harness, Modifiers::NONE, Key::L);
        harness.run_steps(3);
        let all = &harness.state().state().notices;
        assert!(all.iter().any(|one| one.words.contains(words)), "{all:?}");
    };
    timeline(&mut harness).record = None;
    says(&mut harness, "No block is selected");
    harness.state_mut().state_mut().graph.select(BlockIndex(7));
    says(
        &mut harness,
        "There are no samples of block 7 of kernel_clone",
    );
    recorded.now = None;
    timeline(&mut harness).open(recorded);
    harness.run_steps(3);
    says(&mut harness, "no lane of block 7 of kernel_clone");
    harness.state_mut().state_mut().graph.select(BlockIndex(0));
    fill(&mut harness, "Filter lanes", "elsewhere");
    crate::support::press(&mut harness, Modifiers::NONE, Key::Escape);
    says(
        &mut harness,
        "The lanes of block 0 of kernel_clone are not in view",
    );
}

#[test]
fn a_recording_can_be_opened_without_a_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alone.arrow");
    let recorded = record();
    let mut writer = Writer::create(&path, &recorded.metadata).unwrap();
    let mut samples = Vec::new();
    for info in recorded.lanes() {
        recorded.index.look().visit(info.id, 0, u64::MAX, |point| {
            samples.push(gilk_samples::Sample {
                id: info.id,
                value: point.value,
                tsc: point.tsc,
            });
        });
    }
    samples.sort_by_key(|sample| sample.tsc);
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    let start = Start {
        recording: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    let is_there = |state: &State| state.timeline.record.is_some();
    until(&mut harness, "the recording is open", is_there);
    harness.run_steps(3);
    harness.get_by_label("lane timestamp pre kernel_clone block 0: 300");
    harness.get_by_label("no process or kernel");
    harness.get_by_label("alone.arrow");
}

#[test]
fn reading_a_large_recording_shows_progress_and_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.arrow");
    let recorded = record();
    let mut writer = Writer::create(&path, &recorded.metadata).unwrap();
    let id = recorded.lanes()[0].id;
    for batch in 0..800 {
        let sample = |place: u64| gilk_samples::Sample {
            id,
            value: place,
            tsc: (batch * 10_000 + place) * 1000,
        };
        let samples = (0..10_000).map(sample).collect();
        writer.write(&Batch { cpu: 0, samples }).unwrap();
    }
    writer.finish().unwrap();
    let start = Start {
        recording: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "some of it is read", |state| {
        let reading = state.reading.as_ref();
        reading.is_some_and(|reading| reading.done > 0 && reading.all == 8_000_000)
    });
    harness.get_by_label_contains("of 8,000,000 samples");
    click(&mut harness, "Stop reading recording");
    harness.get_by_label_contains("Stopped reading the recording");
    let state = harness.state().state();
    assert!(state.reading.is_none() && state.timeline.record.is_none());
}

#[test]
fn the_inspector_shows_the_c_declaration() {
    let mut harness = browsing_in(crate::support::typed(), "kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    harness.get_by_label("int kernel_clone(struct kernel_clone_args *args)");
}
