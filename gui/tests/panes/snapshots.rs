//! Snapshots of the panes, drawn by `support::raster`, so that they are the same on every machine;
//! `UPDATE_SNAPSHOTS=1` updates them.

use crate::support::raster::Rasteriser;
use crate::support::{catalogue, settle, until, window_at};
use egui::accesskit::{Action, Role};
use egui_kittest::kittest::{NodeT, Queryable};
use egui_kittest::{Harness, SnapshotOptions};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::{HookType, Image, InstrumentId, Session};
use gilk_gui::args::{Start, ThemeChoice};
use gilk_gui::catalogue::Catalogue;
use gilk_gui::command::Command;
use gilk_gui::desk::Desk;
use gilk_gui::graph::marks::Hooked;
use gilk_gui::graph::view::{self, metrics};
use gilk_gui::graph::{Graph, Scene};
use gilk_gui::timeline::{self, Record, Timeline};
use gilk_gui::{app::App, theme};
use gilk_samples::index::Index;
use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo, Metadata, Placed};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::totals::{Total, TotalValue};
use gilk_samples::{Batch, Meaning, Sample};

/// Glyphs are rasterised with the widest vectors that the processor has, and rounded accordingly.
fn tolerant() -> SnapshotOptions {
    SnapshotOptions::new().threshold(1.0).max_failed_pixels(0)
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

/// A recording with a lane of every meaning; deterministic.
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
            placed: None,
            delivers: Delivers::Samples,
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

/// Takes a snapshot of the graph alone, at a number of pixels per point.
fn graph(catalogue: Catalogue, pixels: f32, name: &str) {
    let function = catalogue.image().function_named("kernel_clone").unwrap().id;
    let hooked = Hooked::of(catalogue.image(), &session().placements.into());
    let mut graph = Graph::default();
    let mut harness = Harness::builder()
        .with_size(egui::vec2(1000.0, 800.0) / pixels)
        .with_pixels_per_point(pixels)
        .renderer(Rasteriser::default())
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            if graph.scene.is_none() {
                let scene = Scene::new(&catalogue, function, metrics(ui)).unwrap();
                graph.open(scene.into(), Some(BlockIndex(1)));
            }
            view::show(ui, &mut graph, &hooked, metrics(ui), &mut Vec::new());
        });
    harness.run_steps(4);
    harness.snapshot_options(name, &tolerant());
}

#[test]
fn graph_pane() {
    graph(catalogue(), 1.0, "graph");
}

#[test]
fn graph_pane_at_two_pixels_per_point() {
    graph(catalogue(), 2.0, "graph_2x");
}

#[test]
fn graph_pane_with_remarks() {
    let parts = postcard::from_bytes(&std::fs::read(crate::support::typed()).unwrap()).unwrap();
    graph(
        Catalogue::new(Image::from_live(&parts).unwrap()),
        1.0,
        "graph_remarks",
    );
}

#[test]
fn timeline_pane() {
    let mut timeline = Timeline::default();
    timeline.open(record());
    let mut harness = Harness::builder()
        .with_size([1000.0, 330.0])
        .renderer(Rasteriser::default())
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            timeline::view::show(ui, &mut timeline, &[], None, &mut Vec::new());
        });
    harness.run_steps(4);
    harness.snapshot_options("timeline", &tolerant());
}

/// A level sampled at two hooks on two CPUs, the same as a plain value, and an aggregating
/// instrument.
fn level() -> Record {
    let clock = record().metadata.clock;
    let info = |block: u32, meaning| InstrumentInfo {
        id: InstrumentId::new(0, HookType::Pre, block, 0)
            .unwrap()
            .pack(),
        label: format!("threads-inside pre vfs_read block {block}"),
        instrument: "threads-inside".to_owned(),
        meaning,
        unit: "threads".to_owned(),
        launch: 0.5,
        splash: 9.0,
        placed: Some(Placed {
            placement: u32::from(meaning == Meaning::Value),
            function: "vfs_read".to_owned(),
            major: 0,
        }),
        delivers: Delivers::Samples,
    };
    let [entry, exit] = [0, 3].map(|block| info(block, Meaning::Level));
    let plain = info(5, Meaning::Value);
    let mut adds_up = info(6, Meaning::Value);
    (adds_up.instrument, adds_up.label) =
        ("histogram".into(), "histogram pre vfs_read block 6".into());
    adds_up.delivers = Delivers::Totals;
    adds_up.placed.as_mut().unwrap().placement = 2;
    let metadata = Metadata {
        clock,
        cpus: 2,
        instruments: vec![entry.clone(), exit.clone(), plain.clone(), adds_up],
        ..Metadata::default()
    };
    let mut record = Record::live("recordings/level.arrow".into(), metadata, 10.0);
    record
        .index
        .replace(Index::new().by_thread_and_level(&record.metadata));
    // Up to 3 and down again, slowly at first, then some hundred times in a second.
    let slow = [1, 2, 3, 2, 1, 2, 1, 0].into_iter().enumerate();
    let slow = slow.map(|(place, level)| (1.0 + 0.5 * place as f64, level));
    let fast = (0..400).map(|place| (6.0 + 0.0025 * place as f64, [1, 2, 1, 0][place % 4]));
    let mut batches = [Vec::new(), Vec::new()];
    let mut before = 0;
    for (place, (seconds, value)) in slow.chain(fast).enumerate() {
        let (id, tsc) = (
            if value > before { entry.id } else { exit.id },
            clock.tsc(seconds),
        );
        batches[place % 2].push(Sample { id, value, tsc });
        batches[place % 2].push(Sample {
            id: plain.id,
            value,
            tsc,
        });
        before = value;
    }
    for (cpu, samples) in [0, 1].into_iter().zip(batches) {
        record.append(&Batch { cpu, samples });
    }
    record.totals = vec![Total {
        placement: 2,
        instrument: "histogram".into(),
        name: "sizes".into(),
        unit: "bytes".into(),
        may_be_zero: false,
        value: TotalValue::Values(vec![(16, 1000), (4096, 234)], 0),
    }];
    record.now = None;
    record
}

#[test]
fn timeline_pane_with_a_level() {
    let mut timeline = Timeline::default();
    timeline.open(level());
    // 1, 2 and 3 for half a second each.
    timeline.markers = [Some(1.0), Some(2.5)];
    let mut harness = Harness::builder()
        .with_size([1200.0, 280.0])
        .renderer(Rasteriser::default())
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            timeline::view::show(ui, &mut timeline, &[], None, &mut Vec::new());
        });
    harness.run_steps(4);
    harness.get_by_label(
        "threads-inside of vfs_read: 2 threads on average over time, known for 1.50 s",
    );
    harness.get_by_label("lane threads-inside of vfs_read: 408");
    harness.snapshot_options("timeline_level", &tolerant());
}

/// The same recording with running threads recorded on each CPU, a switch each second.
fn recorded_threads() -> Record {
    let old = record();
    let mut metadata = Metadata::clone(&old.metadata);
    let mut recorder = metadata.instruments[0].clone();
    recorder.id += 1 << 28;
    (recorder.meaning, recorder.unit) = (Meaning::Value, "thread".into());
    recorder.instrument = "running-thread".into();
    recorder.label = "running-thread pre finish_task_switch block 0".into();
    metadata.instruments.push(recorder.clone());
    let clock = metadata.clock;
    let mut record = Record::live("recordings/forks.arrow".into(), metadata, 10.0);
    record
        .index
        .replace(Index::new().by_thread_and_level(&record.metadata));
    for cpu in [0, 1, ALL_CPUS] {
        let switch = |second: u64| Sample {
            id: recorder.id,
            value: 140 + (second + u64::from(cpu)) % 3,
            tsc: clock.tsc(second as f64),
        };
        let seconds = 2..if cpu == ALL_CPUS { 2 } else { 10 };
        let mut samples: Vec<Sample> = seconds.map(switch).collect();
        for info in old.lanes() {
            let look = old.index.look();
            look.part(Some(cpu)).visit(info.id, 0, u64::MAX, |point| {
                samples.push(Sample {
                    id: info.id,
                    value: point.value,
                    tsc: point.tsc,
                });
            });
        }
        samples.sort_by_key(|sample| (sample.tsc, sample.id));
        record.append(&Batch { cpu, samples });
    }
    record.now = None;
    record
}

#[test]
fn timeline_pane_by_thread() {
    let mut timeline = Timeline::default();
    timeline.open(recorded_threads());
    timeline.stack_by(timeline::Stack::Thread);
    let mut harness = Harness::builder()
        .with_size([1000.0, 800.0])
        .renderer(Rasteriser::default())
        .build_ui(move |ui| {
            theme::install(ui.ctx(), theme::Colours::Dark);
            timeline::view::show(ui, &mut timeline, &[], None, &mut Vec::new());
        });
    harness.run_steps(4);
    harness.snapshot_options("timeline_threads", &tolerant());
}

/// Opens the window with a layout of panes.
fn whole(theme: ThemeChoice, desk: Desk, size: [f32; 2]) -> Harness<'static, App> {
    whole_at(theme, desk, size, 1.0)
}

/// Opens the window with a layout of panes, at a number of pixels per point.
fn whole_at(theme: ThemeChoice, desk: Desk, size: [f32; 2], pixels: f32) -> Harness<'static, App> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forks.ron");
    std::fs::write(&path, session().to_ron().unwrap()).unwrap();
    let start = Start {
        image: Some(crate::support::image_path()),
        function: Some("kernel_clone".into()),
        block: Some(1),
        session: Some(path),
        theme: Some(theme),
        ..Start::default()
    };
    let mut harness = window_at(start, size, pixels);
    until(&mut harness, "everything is loaded", |state| {
        state.graph.scene.is_some()
            && state.document.path().is_some()
            && state.functions.answered.is_some()
    });
    harness.state_mut().state_mut().timeline.open(record());
    harness.state_mut().state_mut().desk = desk;
    settle(&mut harness);
    harness.run_steps(30);
    harness
}

/// Shows every pane, with a source in the editor.
fn every_pane(theme: ThemeChoice) -> Harness<'static, App> {
    let mut harness = whole(theme, Desk::tiled(), [1700.0, 1300.0]);
    harness.state_mut().state_mut().wanted_instrument = "elapsed".to_owned();
    harness.run_steps(3);
    harness.get_by_label("edit elapsed").click();
    settle(&mut harness);
    until(&mut harness, "the source is compiled", |state| {
        state.editor.outcome.is_some()
    });
    harness.run_steps(30);
    harness
}

#[test]
fn window_with_the_default_layout() {
    whole(ThemeChoice::Dark, Desk::default(), [1280.0, 800.0])
        .snapshot_options("window_dark", &tolerant());
}

#[test]
fn window_at_two_pixels_per_point() {
    let places = |harness: &Harness<'_, App>| {
        let named = harness.root().children_recursive();
        let places = named.filter_map(|node| {
            let shown = node.accesskit_node();
            shown.bounding_box()?;
            Some((shown.label()?, node.rect().min))
        });
        places.collect::<Vec<_>>()
    };
    let [one, two] = [1.0, 2.0].map(|pixels| {
        let size = [1280.0, 800.0];
        whole_at(ThemeChoice::Dark, Desk::default(), size, pixels)
    });
    let (before, after) = (places(&one), places(&two));
    assert!(before.len() > 60);
    for (name, at) in &after {
        // Numbers are slightly narrower at more pixels per point, which moves what is to the left
        // of them.
        let there =
            |(known, place): &(String, egui::Pos2)| known == name && (*place - *at).length() < 24.0;
        assert!(before.iter().any(there), "{name} at {at:?}");
    }
    assert_eq!(before.len(), after.len());
    let mut two = two;
    two.snapshot_options("window_2x", &tolerant());
}

#[test]
fn every_pane_in_dark_colours() {
    every_pane(ThemeChoice::Dark).snapshot_options("panes_dark", &tolerant());
}

#[test]
fn every_pane_in_light_colours() {
    every_pane(ThemeChoice::Light).snapshot_options("panes_light", &tolerant());
}

#[test]
fn every_pane_in_high_contrast() {
    every_pane(ThemeChoice::Contrast).snapshot_options("panes_contrast", &tolerant());
}

/// Returns the clickable widgets without an accessibility name.
fn nameless(harness: &Harness<'_, App>) -> Vec<String> {
    let all: Vec<_> = harness.root().children_recursive().collect();
    let usable = all.iter().filter(|node| {
        let node = node.accesskit_node();
        let (role, rect) = (node.role(), node.bounding_box());
        // Resize handles have no role of their own; scroll bars are named by their contents.
        node.data().supports_action(Action::Click)
            && !matches!(role, Role::Unknown | Role::ScrollBar)
            && rect.is_some()
    });
    assert!(usable.clone().count() > 8, "there is a lot to click");
    usable
        .filter(|node| {
            let node = node.accesskit_node();
            let said = node.label().or_else(|| node.value());
            said.is_none_or(|said| said.trim().is_empty())
        })
        .map(|node| format!("{:?} at {:?}", node.accesskit_node().role(), node.rect()))
        .collect()
}

#[test]
fn every_clickable_widget_has_a_name() {
    let mut harness = every_pane(ThemeChoice::Dark);
    assert_eq!(nameless(&harness), [""; 0]);
    // Dialogs, the palette, the list of shortcuts, the tour, the manual, and every menu.
    let dialogs = [
        Command::SaveSessionAs,
        Command::ShowPalette,
        Command::GoTo,
        Command::ShowShortcuts,
        Command::Tour,
        Command::Manual,
        Command::FindInGraph,
    ];
    for command in dialogs {
        crate::support::run_command(&mut harness, command.name());
        harness.run_steps(4);
        assert_eq!(nameless(&harness), [""; 0], "{}", command.name());
        harness.state_mut().state_mut().dialog = None;
        harness.state_mut().state_mut().palette = None;
        harness.state_mut().state_mut().shortcuts = false;
        harness.run_steps(4);
    }
    for menu in [
        "File",
        "Edit",
        "Instruments",
        "Questions",
        "Graph",
        "Samples",
        "View",
        "Panes",
        "Target",
        "Help",
    ] {
        let button = harness
            .get_all_by_label(menu)
            .find(|node| node.accesskit_node().role() == Role::Button)
            .unwrap();
        button.click();
        harness.run_steps(4);
        assert_eq!(nameless(&harness), [""; 0], "menu {menu}");
        harness.key_press(egui::Key::Escape);
        harness.run_steps(4);
    }
}
