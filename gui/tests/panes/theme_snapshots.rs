//! Snapshots in each theme: source lines and a path, notes of a plan, and a refused value. The
//! snapshots are made like those of `snapshots.rs`.

use crate::support::{Window, click, fill, record, run_command, settle, until, window};
use egui_kittest::kittest::Queryable;
use egui_kittest::{SnapshotOptions, SnapshotResults};
use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_gui::args::{Start, ThemeChoice};
use gilk_instruments::program::Summary;
use ilk_driver::client::AggregateSummary;

const THEMES: [(ThemeChoice, &str); 3] = [
    (ThemeChoice::Dark, "dark"),
    (ThemeChoice::Light, "light"),
    (ThemeChoice::Contrast, "contrast"),
];

/// Opens a function of an image.
fn looking(image: std::path::PathBuf, function: &str, theme: ThemeChoice) -> Window {
    let start = Start {
        image: Some(image),
        function: Some(function.to_owned()),
        theme: Some(theme),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 1200.0]);
    until(&mut harness, "the function is open", |state| {
        state.graph.scene.is_some() && state.functions.answered.is_some()
    });
    settle(&mut harness);
    harness
}

fn snapshot(harness: &mut Window, results: &mut SnapshotResults, name: &str) {
    // Removes the pointer from the window.
    harness.remove_cursor();
    harness.run_steps(30);
    let tolerant = SnapshotOptions::new().threshold(1.0).max_failed_pixels(0);
    harness.snapshot_options(name, &tolerant);
    results.extend_harness(harness);
}

#[test]
fn source_lines_and_a_path_in_each_theme() {
    let (kernel, vmlinux) = crate::support::with_debug_information();
    let mut results = SnapshotResults::new();
    for (theme, name) in THEMES {
        let mut harness = looking(kernel.clone(), "kernel_clone", theme);
        run_command(&mut harness, "open debug information");
        let path = vmlinux.display().to_string();
        harness.get_by_label("Path").type_text(&path);
        harness.run_steps(3);
        click(&mut harness, "Open");
        until(&mut harness, "every function has its file", |state| {
            state.lines.files.is_some()
        });
        let mut recorded = record();
        recorded.now = None;
        recorded.totals = vec![AggregateSummary {
            placement: 0,
            instrument: "path-kernel-clone-0".into(),
            name: "paths".into(),
            unit: "paths".into(),
            may_be_zero: false,
            value: Summary::Values(vec![(0, 5), (3, 345)], 2),
        }];
        let state = harness.state_mut().state_mut();
        state.timeline.open(recorded);
        state.notices.clear();
        harness.run_steps(3);
        harness.get_by_label_contains("path 3: 345 times").click();
        harness.run_steps(3);
        assert!(harness.state().state().graph.path.is_some());
        click(&mut harness, "block 0 of kernel_clone");
        harness.get_by_label_contains("source kernel/fork.c:2");
        run_command(&mut harness, "fit graph");
        snapshot(&mut harness, &mut results, &format!("path_{name}"));
    }
}

#[test]
fn notes_of_a_plan_in_each_theme() {
    // A function that ends in a jump to another.
    let catalogue = crate::support::catalogue();
    let image = catalogue.image();
    let mut compiled = image.functions().iter();
    let (function, jump) = compiled
        .find_map(|one| {
            let cfg = Cfg::of(image, one.id);
            let hooks = gilk_engine::placement::options(image, &cfg);
            let mut ends = cfg.blocks.iter().zip(hooks);
            let is_it = |block: &gilk_engine::cfg::Block| block.end == BlockEnd::TailCall;
            let (block, _) = ends.find(|(block, hooks)| is_it(block) && hooks.post.is_ok())?;
            let known = image.keeps_convention(one.span.start);
            Some((catalogue.name(one.id)?.to_owned(), block.index)).filter(|_| known)
        })
        .unwrap();
    let mut results = SnapshotResults::new();
    for (theme, name) in THEMES {
        let mut harness = looking(crate::support::image_path(), &function, theme);
        click(&mut harness, "Instruments tab");
        fill(&mut harness, "Filter instruments", "elapsed");
        click(&mut harness, "instrument elapsed");
        run_command(&mut harness, "add to function entry");
        settle(&mut harness);
        click(&mut harness, &format!("block {} of {function}", jump.0));
        harness
            .get_all_by_label_contains("note: elapsed ends where")
            .next()
            .unwrap();
        snapshot(&mut harness, &mut results, &format!("note_{name}"));
    }
}

/// A refused value: an argument that the function has overwritten.
#[test]
fn a_refused_value_in_each_theme() {
    let mut results = SnapshotResults::new();
    for (theme, name) in THEMES {
        let mut harness = looking(crate::support::image_path(), "kernel_clone", theme);
        run_command(&mut harness, "fit graph");
        click(&mut harness, "Instruments tab");
        fill(&mut harness, "Filter instruments", "argument-0");
        click(&mut harness, "instrument argument-0");
        click(&mut harness, "block 6 of kernel_clone");
        crate::support::until(&mut harness, "it is refused", |state| {
            state.offer.refused().is_some()
        });
        harness.run_steps(3);
        snapshot(&mut harness, &mut results, &format!("refused_value_{name}"));
    }
}
