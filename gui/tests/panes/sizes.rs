//! The window from 900 × 600 points to 3840 × 2160, and at 200 % text: nothing is cut, covered or out of
//! reach.

use crate::support::{Window, image_path, record, settle, until, window};
use egui::Rect;
use egui::accesskit::{Action, Role};
use egui_kittest::SnapshotOptions;
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_gui::args::{Start, ThemeChoice};

/// Opens a session with instruments, and selects a block.
fn opened(size: [f32; 2]) -> Window {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forks.ron");
    let placement = |block: u32, instrument: &str| {
        format!(
            r#"(function: "kernel_clone", block: {block}, hook: Pre, instrument: "{instrument}", launch: 0.0, splash: 10.0),"#
        )
    };
    let text = format!(
        r#"(version: 1, name: "forks", duration: 10.0, workload: Some((program: "/bin/pulsar", start: 0.5)), placements: [{}{}])"#,
        placement(0, "timestamp"),
        placement(1, "elapsed-when-called")
    );
    std::fs::write(&path, text).unwrap();
    let start = Start {
        image: Some(image_path()),
        function: Some("kernel_clone".into()),
        block: Some(1),
        session: Some(path),
        theme: Some(ThemeChoice::Dark),
        ..Start::default()
    };
    let mut harness = window(start, size);
    until(&mut harness, "everything is loaded", |state| {
        state.graph.scene.is_some()
            && state.document.path().is_some()
            && state.functions.answered.is_some()
    });
    let timeline = &mut harness.state_mut().state_mut().timeline;
    timeline.open(record());
    timeline.record.as_mut().unwrap().now = None;
    settle(&mut harness);
    harness.run_steps(20);
    harness
}

/// Controls with names, by their rectangles.
fn controls(harness: &Window) -> Vec<(String, Rect)> {
    let nodes = harness.root().children_recursive();
    let controls = nodes.filter_map(|node| {
        let shown = node.accesskit_node();
        let is_control = shown.data().supports_action(Action::Click);
        let is_field = matches!(
            shown.role(),
            Role::Button | Role::TextInput | Role::SpinButton | Role::ComboBox | Role::CheckBox
        );
        shown.bounding_box()?;
        let name = shown.label()?;
        // Blocks, pills and lanes are parts of pictures that are panned.
        let is_part = [" of kernel_clone", "-hook of block", "lane "];
        let is_part = is_part.iter().any(|part| name.contains(part));
        (is_control && is_field && !is_part).then(|| (name, node.rect()))
    });
    controls.collect()
}

/// Forms whose fields are next to each other.
const FORMS: [&[&str]; 3] = [
    &[
        "Session name",
        "Session duration",
        "Run a program",
        "Program and arguments",
        "Program start",
        "Recording path",
    ],
    &[
        "Instrument",
        "Launch time",
        "Splash time",
        "Add instrument",
        "Add to every hookable block",
    ],
    &["Run session", "Stop run", "Undo", "Redo"],
];

/// Panics if a control is cut at the sides of the window, or if fields of a form cover each other.
fn check(harness: &Window) {
    let screen = harness.ctx.content_rect();
    let controls = controls(harness);
    assert!(controls.len() > 25, "{}", controls.len());
    for (name, rect) in &controls {
        assert!(
            rect.left() >= screen.left() - 0.5 && rect.right() <= screen.right() + 0.5,
            "{name} is cut: {rect:?} in {screen:?}"
        );
    }
    for form in FORMS {
        let fields: Vec<(&str, Rect)> = form
            .iter()
            .map(|name| (*name, harness.get_by_label(name).rect()))
            .collect();
        for (place, (name, rect)) in fields.iter().enumerate() {
            assert!(rect.width() > 14.0, "{name} is {rect:?}");
            for (other, at) in &fields[place + 1..] {
                let both = rect.intersect(*at);
                let covers = both.width() > 1.0 && both.height() > 1.0;
                assert!(!covers, "{name} {rect:?} and {other} {at:?}");
            }
        }
    }
}

fn snapshot(harness: &mut Window, name: &str, max_failed_pixels: usize) {
    let tolerant = SnapshotOptions::new()
        .threshold(1.0)
        .max_failed_pixels(max_failed_pixels);
    harness.snapshot_options(name, &tolerant);
}

/// Single pixels of glyphs that differ after text has changed its size, by the order in which glyphs are drawn: 13 of
/// 2.3 million were seen.
const GLYPH_PIXELS: usize = 30;

#[test]
fn the_smallest_window_has_everything() {
    let mut harness = opened([900.0, 600.0]);
    check(&harness);
    snapshot(&mut harness, "size_900x600", 0);
}

#[test]
fn a_small_window_has_everything() {
    let mut harness = opened([1024.0, 700.0]);
    check(&harness);
    snapshot(&mut harness, "size_1024x700", 0);
}

#[test]
fn text_of_twice_the_size_has_everything() {
    // A window of 1920 × 1200 pixels at 200 %.
    let harness = opened([1920.0, 1200.0]);
    harness.ctx.set_zoom_factor(2.0);
    let mut harness = harness;
    harness.run_steps(20);
    check(&harness);
    snapshot(&mut harness, "size_zoomed", GLYPH_PIXELS);
}

#[test]
fn a_large_screen_is_used_and_its_forms_stay_readable() {
    let mut harness = opened([3840.0, 2160.0]);
    check(&harness);
    snapshot(&mut harness, "size_3840x2160", 0);
    for name in ["Add instrument", "Recording path", "Session name"] {
        let width = harness.get_by_label(name).rect().width();
        assert!(width <= 460.0, "{name} is {width} points wide");
    }
    let graph = harness.get_by_label("Control-flow graph").rect();
    assert!(graph.width() > 1500.0, "{graph:?}");
}
