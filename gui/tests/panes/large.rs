//! Graphs at low zoom, and kernels with very many functions.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{
    Window, browsing, browsing_in, fill, placements, press, record, run_command, scene, settle,
    until, until_filtered, until_open,
};
use egui::{Key, Modifiers, Pos2, Rect, vec2};
use egui_kittest::kittest::Queryable;
use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::kernel::LiveParts;
use gilk_engine::session::Placement;
use gilk_gui::graph::Camera;
use gilk_gui::theme::Palette;

/// Returns the rectangles of blocks on the screen.
fn boxes(harness: &Window) -> Vec<Rect> {
    let graph = &harness.state().state().graph;
    let corner = harness.get_by_label("Control-flow graph").rect().min;
    let boxes = scene(harness).layout.boxes.iter();
    boxes
        .map(|rect| graph.camera.rect_to_screen(corner, *rect))
        .collect()
}

#[test]
fn distant_blocks_are_boxes_with_tooltips() {
    let mut harness = browsing("copy_process");
    assert!(
        harness
            .query_all_by_label_contains("-hook of block ")
            .next()
            .is_some(),
        "at natural zoom each hook can be clicked"
    );
    press(&mut harness, Modifiers::NONE, Key::Num0);
    let canvas = harness.get_by_label("Control-flow graph").rect();
    let camera: Camera = harness.state().state().graph.camera;
    assert!(camera.zoom < 0.2, "{camera:?}");
    assert!(
        harness
            .query_all_by_label_contains("-hook of block ")
            .next()
            .is_none(),
        "unreadable text is not drawn"
    );
    // All of them are visible, each as large as its code.
    let boxes = boxes(&harness);
    assert!(boxes.len() > 200);
    assert!(
        boxes
            .iter()
            .all(|rect| canvas.expand(1.0).contains_rect(*rect))
    );
    let lines = |block: usize| scene(&harness).shown[block].lines.len();
    let by_lines = |largest: bool| {
        let all = 0..boxes.len();
        match largest {
            true => all.max_by_key(|block| lines(*block)),
            false => all.min_by_key(|block| lines(*block)),
        }
        .unwrap()
    };
    let (large, small) = (by_lines(true), by_lines(false));
    assert!(boxes[large].height() > 3.0 * boxes[small].height());
    // They are drawn: their centres do not have the background colour.
    harness.hover_at(Pos2::new(5.0, 945.0));
    harness.run_steps(3);
    let picture = harness.render().unwrap();
    let ground = Palette::Dark.tokens().canvas;
    let [right, bottom] = [picture.width() - 1, picture.height() - 1];
    let drawn = |at: Pos2| {
        let pixel = picture.get_pixel((at.x as u32).min(right), (at.y as u32).min(bottom));
        pixel.0[..3] != [ground.r(), ground.g(), ground.b()]
    };
    let count = boxes.iter().filter(|rect| drawn(rect.center())).count();
    assert_eq!(count, boxes.len(), "some are not drawn");
    // The tooltip describes the block.
    harness.hover_at(boxes[large].center());
    harness.run_steps(40);
    harness.get_by_label(&format!("block {large}"));
    harness.get_by_label_contains(" bytes · ");
    // A click selects it at low zoom too.
    let name = format!("block {large} of copy_process");
    harness.get_by_label(&name).click();
    harness.run_steps(3);
    let selected = harness.state().state().graph.selected;
    assert_eq!(selected, Some(BlockIndex(large as u32)));
}

#[test]
fn the_wheel_zooms_a_graph_at_the_pointer() {
    let mut harness = browsing("copy_process");
    let canvas = harness.get_by_label("Control-flow graph").rect();
    let at = canvas.center() + vec2(60.0, -40.0);
    harness.hover_at(at);
    harness.run_steps(2);
    let under = |harness: &Window| {
        let camera = harness.state().state().graph.camera;
        camera.to_graph(canvas.min, at)
    };
    let (before, zoom) = (under(&harness), harness.state().state().graph.camera.zoom);
    for _ in 0..4 {
        harness.event(egui::Event::MouseWheel {
            source: egui::MouseWheelSource::Wheel,
            unit: egui::MouseWheelUnit::Point,
            delta: vec2(0.0, -60.0),
            phase: egui::TouchPhase::Move,
            modifiers: Modifiers::NONE,
        });
        harness.run_steps(8);
    }
    assert!(harness.state().state().graph.camera.zoom < 0.8 * zoom);
    assert!((under(&harness) - before).length() < 1.0);
}

#[test]
fn a_hundred_thousand_functions_are_filtered_while_typing() {
    const COUNT: u64 = 100_000;
    let path = crate::support::image_path();
    let mut parts: LiveParts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    // Functions that return at once, after the existing text, with names like a kernel's.
    let words = [
        "acpi", "tcp", "ext4", "page", "sched", "lock", "irq", "node", "queue", "map",
    ];
    let old = parts
        .kallsyms
        .lines()
        .find(|line| line.ends_with(" T _etext"));
    let old = old.unwrap().to_owned();
    let end = u64::from_str_radix(old.split(' ').next().unwrap(), 16).unwrap();
    let new = format!("{:016x} T _etext", end + 16 * COUNT);
    parts.kallsyms = parts.kallsyms.replace(&old, &new);
    for number in 0..COUNT {
        let word = |digit: u32| words[(number / 10u64.pow(digit) % 10) as usize];
        let at = end + 16 * number;
        let (first, second, third) = (word(0), word(1), word(2));
        writeln!(
            parts.kallsyms,
            "{at:016x} t {first}_{second}_{third}_{number}"
        )
        .unwrap();
    }
    let text = parts
        .memory
        .iter_mut()
        .find(|(at, bytes)| at.0 + bytes.len() as u64 == end);
    let mut function = [0xcc; 16];
    function[0] = 0xc3;
    text.unwrap().1.extend(function.repeat(COUNT as usize));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel");
    std::fs::write(&path, postcard::to_allocvec(&parts).unwrap()).unwrap();
    let mut harness = browsing_in(path, "kernel_clone");
    let all = harness.state().state().catalogue.as_ref().unwrap().len();
    assert!(all > COUNT as usize, "{all}");
    harness.get_by_label(&format!("{},{:03}", all / 1000, all % 1000));
    press(&mut harness, Modifiers::COMMAND, Key::F);
    // One letter per frame; the last result is that of the last request.
    for letter in "kclone".chars() {
        harness
            .get_by_label("Filter functions")
            .type_text(&letter.to_string());
        harness.step();
    }
    until_filtered(&mut harness, "kclone");
    let found = harness.state().state().functions.found.len();
    assert!(0 < found && found < 1000, "{found}");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, "kernel_clone");
    // Also one of the generated functions.
    press(&mut harness, Modifiers::COMMAND, Key::F);
    press(&mut harness, Modifiers::COMMAND, Key::A);
    let name = "acpi_tcp_ext4_210";
    harness.get_by_label("Filter functions").type_text(name);
    until(&mut harness, "it is found", |state| {
        state.functions.answered.as_deref() == Some(name) && !state.functions.found.is_empty()
    });
    harness.run_steps(2);
    harness.get_by_label(name);
}

/// Draws frames until a widget is there, which a thread may have to compute.
fn until_shown(harness: &mut Window, label: &str) {
    let began = Instant::now();
    while harness.query_by_label(label).is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "no {label}");
        harness.step();
    }
}

/// Opens a function, and fills the session with so many instruments in it.
fn filled(count: u32) -> Window {
    let mut harness = browsing("kernel_clone");
    let blocks = scene(&harness).cfg.blocks.len() as u32;
    let placement = |number: u32| Placement {
        function: "kernel_clone".into(),
        block: number % blocks,
        hook: HookType::Pre,
        instrument: "counter".into(),
        launch: 0.0,
        splash: 10.0,
    };
    let document = &mut harness.state_mut().state_mut().document;
    document.edit("fill", |session| {
        session.placements = (0..count).map(placement).collect();
    });
    document.close_step();
    settle(&mut harness);
    harness
}

#[test]
fn tables_of_a_large_session_follow_its_edits() {
    let mut harness = filled(6000);
    until_shown(&mut harness, "fold 6,000 instruments of kernel_clone");
    harness.state_mut().state_mut().graph.select(BlockIndex(3));
    harness.run_steps(3);
    run_command(&mut harness, "remove instruments from block");
    let here = |harness: &Window| {
        placements(harness)
            .iter()
            .filter(|one| one.block == 3)
            .count()
    };
    assert_eq!(here(&harness), 0);
    let others = placements(&harness).len();
    let label = |count: usize| {
        let (thousands, rest) = (count / 1000, count % 1000);
        format!("fold {thousands},{rest:03} instruments of kernel_clone")
    };
    until_shown(&mut harness, &label(others));
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(placements(&harness).len(), 6000);
    until_shown(&mut harness, &label(6000));
    run_command(&mut harness, "schedule pane");
    until_shown(&mut harness, "bar of all of kernel_clone");
}

#[test]
fn lanes_beyond_a_thousand_are_listed_filtered_and_closed() {
    let mut harness = browsing("kernel_clone");
    let mut recorded = record();
    let lanes = &mut Arc::make_mut(&mut recorded.metadata).instruments;
    for place in 0..1500 {
        let mut other = lanes[0].clone();
        (other.id, other.label) = (1 << 40 | place, format!("timestamp pre other {place}"));
        lanes.push(other);
    }
    recorded.now = None;
    harness.state_mut().state_mut().timeline.open(recorded);
    until_shown(&mut harness, "shown: 1,502 lanes");
    until_shown(&mut harness, "305 hits");
    fill(&mut harness, "Filter lanes", "other 149");
    until_shown(&mut harness, "shown: 11 of 1,502 lanes");
    let mut small = record();
    small.now = None;
    harness.state_mut().state_mut().timeline.open(small);
    // None of the other recording's rows stays, and the filter does.
    until_shown(&mut harness, "shown: 0 of 2 lanes");
}

#[test]
fn a_drag_in_a_large_session_is_planned_when_it_pauses() {
    let mut harness = filled(6000);
    for tenths in 1..=5 {
        let times = [(7, 0.0, 5.0 + f64::from(tenths) / 10.0)];
        let document = &mut harness.state_mut().state_mut().document;
        document.edit_times("splash", &times);
        harness.step();
        let state = harness.state().state();
        assert!(state.plan.pending() && state.run_hindrance().is_some());
    }
    settle(&mut harness);
    let outcome = harness.state().state().plan.outcome.as_ref().unwrap();
    let plan = outcome.as_ref().unwrap().plan();
    let at: Vec<f64> = plan.batches.iter().map(|batch| batch.at).collect();
    assert_eq!(at, [0.0, 5.5, 10.0]);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(placements(&harness)[7].splash, 10.0);
}
