//! What the panes look like. The pictures were made with a software renderer, so that they are the
//! same everywhere; `UPDATE_SNAPSHOTS=1` makes them again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use egui_kittest::{Harness, SnapshotOptions};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::{HookType, InstrumentId, Session};
use gilk_gui::args::{Start, ThemeChoice};
use gilk_gui::desk::Pane;
use gilk_gui::graph::marks::Hooked;
use gilk_gui::graph::view::{self, metrics};
use gilk_gui::graph::{Graph, Scene};
use gilk_gui::timeline::{self, Record, Timeline};
use gilk_gui::{app::App, theme};
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::{Batch, Meaning, Sample};
use support::{catalogue, settle, until, window};

/// Renderers of other versions round a little differently at the edges of letters.
fn tolerant() -> SnapshotOptions {
    SnapshotOptions::new().threshold(2.0).max_failed_pixels(60)
}

fn session() -> Session {
    Session::from_ron(
        r#"(version: 1, name: "forks", duration: 10.0, workload: Some((program: "/bin/pulsar", start: 0.5)), placements: [
            (function: "__x64_sys_clone", block: 0, hook: Pre, instrument: "timestamp", launch: 0.0, splash: 10.0),
            (function: "kernel_clone", block: 0, hook: Pre, instrument: "counter", launch: 1.0, splash: 8.0),
            (function: "kernel_clone", block: 1, hook: Post, instrument: "block-trace", launch: 1.0, splash: 4.0)])"#,
    )
    .unwrap()
}

/// A recording with a lane of every meaning; the same every time.
fn record() -> Record {
    let clock = Clock {
        hz: 1_000_000_000,
        start: 5_000_000_000,
        start_unix_ns: 0,
    };
    let meanings = [
        ("timestamp", Meaning::Event, "ticks"),
        ("counter", Meaning::Count, "hits"),
        ("elapsed-stop", Meaning::Duration, "ticks"),
        ("argument-2", Meaning::Value, ""),
        ("block-trace", Meaning::Block, ""),
    ];
    let mut metadata = Metadata {
        clock,
        cpus: 2,
        ..Metadata::default()
    };
    let mut batches: Vec<Batch> = (0..2)
        .map(|cpu| Batch {
            cpu,
            samples: Vec::new(),
        })
        .collect();
    let mut totals = Batch {
        cpu: ALL_CPUS,
        samples: Vec::new(),
    };
    for (number, (name, meaning, unit)) in meanings.into_iter().enumerate() {
        let id = InstrumentId::new(0, HookType::Pre, number as u32, 0)
            .unwrap()
            .pack();
        metadata.instruments.push(InstrumentInfo {
            id,
            label: format!("{name} pre kernel_clone block {number}"),
            instrument: name.to_owned(),
            meaning,
            unit: unit.to_owned(),
            launch: number as f64 * 0.5,
            splash: 10.0 - number as f64,
        });
        for group in 1..6_u64 {
            for hit in 0..32_u64 {
                let spread = (hit * hit * 37 + group * 101) % 640;
                let tsc = clock.tsc(group as f64 * 1.2 + spread as f64 * 0.001);
                let value = match meaning {
                    Meaning::Count => (group - 1) * 32 + hit + 1,
                    Meaning::Duration => 4_000_000 + spread * 9_000,
                    Meaning::Block => hit % 7,
                    _ => spread * spread,
                };
                let batch = if meaning == Meaning::Count {
                    &mut totals
                } else {
                    &mut batches[(hit % 2) as usize]
                };
                batch.samples.push(Sample { id, value, tsc });
            }
        }
    }
    totals.samples.sort_by_key(|sample| sample.value);
    let mut tscs: Vec<u64> = totals.samples.iter().map(|sample| sample.tsc).collect();
    tscs.sort_unstable();
    for (sample, tsc) in totals.samples.iter_mut().zip(tscs) {
        sample.tsc = tsc;
    }
    let mut record = Record::live("recordings/forks.arrow".into(), metadata, 10.0);
    for batch in batches.iter_mut().chain([&mut totals]) {
        batch.samples.sort_by_key(|sample| sample.tsc);
        record.append(batch);
    }
    record.now = None;
    record.bytes = 24_000;
    record
}

#[test]
fn graph_pane() {
    let catalogue = catalogue();
    let function = catalogue.image().function_named("kernel_clone").unwrap().id;
    let hooked = Hooked::of(catalogue.image(), &session());
    let mut graph = Graph::default();
    let mut harness = Harness::builder()
        .with_size([1000.0, 800.0])
        .wgpu()
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            if graph.scene.is_none() {
                let scene = Scene::new(&catalogue, function, metrics(ui)).unwrap();
                graph.open(scene.into(), Some(BlockIndex(1)));
            }
            view::show(ui, &mut graph, &hooked, metrics(ui), &mut Vec::new());
        });
    harness.run_steps(4);
    harness.snapshot_options("graph", &tolerant());
}

#[test]
fn timeline_pane() {
    let mut timeline = Timeline::default();
    timeline.open(record());
    let mut harness = Harness::builder()
        .with_size([1000.0, 330.0])
        .wgpu()
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            timeline::view::show(ui, &mut timeline, None, &mut Vec::new());
        });
    harness.run_steps(4);
    harness.snapshot_options("timeline", &tolerant());
}

/// The window with `front` before the panes that share its place.
fn whole(theme: ThemeChoice, front: Pane) -> Harness<'static, App> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forks.ron");
    std::fs::write(&path, session().to_ron().unwrap()).unwrap();
    let start = Start {
        image: Some(support::image_path()),
        function: Some("kernel_clone".into()),
        block: Some(1),
        session: Some(path),
        theme: Some(theme),
        ..Start::default()
    };
    let mut harness = window(start, [1280.0, 800.0]);
    until(&mut harness, "everything is loaded", |state| {
        state.graph.scene.is_some()
            && state.document.path().is_some()
            && state.functions.answered.is_some()
    });
    harness.state_mut().state_mut().timeline.open(record());
    harness.state_mut().state_mut().desk.show(front);
    settle(&mut harness);
    harness.run_steps(30);
    harness
}

#[test]
fn window_dark() {
    whole(ThemeChoice::Dark, Pane::Timeline).snapshot_options("window_dark", &tolerant());
}

#[test]
fn window_light() {
    whole(ThemeChoice::Light, Pane::Schedule).snapshot_options("window_light", &tolerant());
}

#[test]
fn window_contrast() {
    whole(ThemeChoice::Contrast, Pane::Patch).snapshot_options("window_contrast", &tolerant());
}
