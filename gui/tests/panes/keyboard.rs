//! The window by keyboard alone: from pane to pane, and the tasks of the tour.

use crate::support::{
    Window, browsing, placements, press, record, run_command, scene, settle, until, until_filtered,
    until_open, window,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::HookType;
use gilk_engine::session::Placement;
use gilk_gui::args::Start;
use gilk_gui::desk::Pane;

#[test]
fn the_tour_is_possible_by_keys_alone() {
    let start = Start {
        image: Some(crate::support::image_path()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the image is loaded", |state| {
        state.functions.answered.is_some()
    });
    // A function by some letters.
    press(&mut harness, Modifiers::NONE, Key::Slash);
    harness.get_by_label("Filter functions").type_text("kclone");
    until_filtered(&mut harness, "kclone");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, "kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    // Another by its address, its callers, and back.
    press(&mut harness, Modifiers::NONE, Key::G);
    harness.get_by_label("Go to").type_text("copy_process+0");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, "copy_process");
    press(&mut harness, Modifiers::NONE, Key::X);
    until(&mut harness, "the calls are found", |state| {
        state.calls.is_some()
    });
    harness
        .get_by_label("Find reference")
        .type_text("kernel_clone");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, "kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    until_open(&mut harness, "copy_process");
    press(&mut harness, Modifiers::ALT, Key::ArrowRight);
    until_open(&mut harness, "kernel_clone");
    // Its graph: whole, nearer, moved, then along both ways of a branch.
    press(&mut harness, Modifiers::NONE, Key::Num0);
    let camera = |harness: &Window| harness.state().state().graph.camera;
    let whole = camera(&harness);
    press(&mut harness, Modifiers::NONE, Key::Plus);
    let near = camera(&harness);
    assert!(near.zoom > whole.zoom);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    let below = camera(&harness);
    assert!(below.origin.y < near.origin.y && below.origin.x == near.origin.x);
    press(&mut harness, Modifiers::NONE, Key::Minus);
    assert!((camera(&harness).zoom - whole.zoom).abs() < 1e-3);
    let selected = |harness: &Window| harness.state().state().graph.selected;
    let is_branch = |harness: &Window| {
        let follow = |block, taken| scene(harness).follow(block, taken);
        selected(harness).is_some_and(|block| follow(block, true) != follow(block, false))
    };
    press(&mut harness, Modifiers::NONE, Key::J);
    for _ in 0..40 {
        if !is_branch(&harness) {
            press(&mut harness, Modifiers::NONE, Key::J);
        }
    }
    let first = selected(&harness);
    press(&mut harness, Modifiers::NONE, Key::T);
    let taken = selected(&harness);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert_eq!(selected(&harness), first);
    press(&mut harness, Modifiers::NONE, Key::F);
    assert!(
        selected(&harness).is_some() && selected(&harness) != taken,
        "{first:?}, {taken:?}"
    );
    // An instrument of the list.
    run_command(&mut harness, "instruments pane");
    focus(&mut harness, Key::F6, "Instruments region");
    focus(&mut harness, Key::Tab, "Filter instruments");
    let filter = harness.get_by_label("Filter instruments");
    filter.type_text("threads-inside");
    harness.run_steps(3);
    focus(&mut harness, Key::Tab, "instrument threads-inside");
    press(&mut harness, Modifiers::NONE, Key::Space);
    let instrument = |harness: &Window| harness.state().state().draft.instrument.clone();
    assert_eq!(instrument(&harness), "threads-inside");
    focus(&mut harness, Key::Tab, "edit threads-inside");
    press(&mut harness, Modifiers::NONE, Key::Space);
    assert!(harness.state().state().editor.text.is_some());
    // Its source is typed into, and checked.
    focus(&mut harness, Key::F6, "Source region");
    focus(&mut harness, Key::Tab, "Source");
    press(&mut harness, Modifiers::COMMAND, Key::A);
    let source = "instrument mine \"A mistake.\" event;\n\nhit { sample(tcs) }\n";
    harness.get_by_label("Source").type_text(source);
    harness.run_steps(4);
    let state = harness.state().state();
    assert!(state.editor.edited.as_ref().unwrap().good.is_none());
    show(&mut harness, Pane::Instruments);
    focus(&mut harness, Key::F6, "Instruments region");
    focus(&mut harness, Key::Tab, "Filter instruments");
    press(&mut harness, Modifiers::COMMAND, Key::A);
    harness
        .get_by_label("Filter instruments")
        .type_text("timestamp");
    harness.run_steps(3);
    focus(&mut harness, Key::Tab, "instrument timestamp");
    press(&mut harness, Modifiers::NONE, Key::Space);
    assert_eq!(instrument(&harness), "timestamp");
    // A hook, and the instrument at it.
    press(&mut harness, Modifiers::ALT, Key::Num2);
    settle(&mut harness);
    press(&mut harness, Modifiers::COMMAND, Key::Enter);
    settle(&mut harness);
    assert_eq!(placements(&harness).len(), 1);
    assert_eq!(placements(&harness)[0].hook, HookType::Post);
    // The bar of the schedule has fields.
    for pane in [Pane::Patch, Pane::Schedule] {
        show(&mut harness, pane);
    }
    let splash = format!("splash of bar: {}", label(&placements(&harness)[0]));
    focus(&mut harness, Key::F6, "Schedule region");
    focus(&mut harness, Key::Tab, &splash);
    press(&mut harness, Modifiers::COMMAND, Key::A);
    harness.get_by_label(&splash).type_text("7.5");
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(placements(&harness)[0].splash, 7.5);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(placements(&harness)[0].splash, 10.0);
    settle(&mut harness);
    // Every block, and undo.
    run_command(&mut harness, "add to every hookable block");
    settle(&mut harness);
    assert!(placements(&harness).len() > 10);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    settle(&mut harness);
    assert_eq!(placements(&harness).len(), 1);
    // Work for the kernel.
    run_command(&mut harness, "run a program");
    let session = harness.state().state().document.session();
    assert!(session.workload.is_some());
    // A saved image says why it cannot run.
    press(&mut harness, Modifiers::NONE, Key::F5);
    let notices = &harness.state().state().notices;
    assert!(
        notices[0]
            .words
            .starts_with("A saved image cannot run anything")
    );
    // The samples: filter, range, pin.
    let timeline = &mut harness.state_mut().state_mut().timeline;
    timeline.open(record());
    timeline.record.as_mut().unwrap().now = None;
    harness.run_steps(3);
    press(&mut harness, Modifiers::SHIFT, Key::L);
    assert!(harness.get_by_label("Filter lanes").is_focused());
    harness.get_by_label("Filter lanes").type_text("block 2");
    harness.run_steps(3);
    harness.get_by_label("shown: 1 of 2 lanes");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    press(&mut harness, Modifiers::NONE, Key::OpenBracket);
    press(&mut harness, Modifiers::NONE, Key::CloseBracket);
    assert!(harness.state().state().timeline.span().is_some());
    // The session is kept.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tour.ron");
    press(&mut harness, Modifiers::COMMAND, Key::S);
    let field = harness.get_by_label("Path");
    assert!(field.is_focused());
    field.type_text(&path.display().to_string());
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until(&mut harness, "the session is saved", |state| {
        state.document.path().is_some()
    });
    assert!(path.exists());
}

/// Shows a pane through the palette.
fn show(harness: &mut Window, pane: Pane) {
    if !harness.state().state().desk.sees(pane) {
        run_command(harness, pane.title());
        settle(harness);
    }
    assert!(harness.state().state().desk.sees(pane), "{pane:?}");
}

/// Returns the name of a placement in the window.
fn label(one: &Placement) -> String {
    format!(
        "{} {} {} block {}",
        one.instrument, one.hook, one.function, one.block
    )
}

/// Presses a key until it has moved the focus to a widget.
fn focus(harness: &mut Window, key: Key, name: &str) {
    for _ in 0..40 {
        if harness
            .query_by_label(name)
            .is_some_and(|one| one.is_focused())
        {
            return;
        }
        press(harness, Modifiers::NONE, key);
    }
    panic!("{name} has no focus after 40 keys");
}

#[test]
fn f6_moves_the_focus_from_pane_to_pane_and_tab_continues_inside() {
    let mut harness = browsing("kernel_clone");
    let region =
        |harness: &Window, pane: &str| harness.get_by_label(&format!("{pane} region")).is_focused();
    press(&mut harness, Modifiers::NONE, Key::F6);
    assert!(region(&harness, "Functions"));
    press(&mut harness, Modifiers::NONE, Key::F6);
    assert!(region(&harness, "Graph"));
    press(&mut harness, Modifiers::SHIFT, Key::F6);
    assert!(region(&harness, "Functions"));
    press(&mut harness, Modifiers::NONE, Key::Tab);
    assert!(harness.get_by_label("Filter functions").is_focused());
    // From a text field, too.
    press(&mut harness, Modifiers::SHIFT, Key::F6);
    assert!(region(&harness, "Timeline"));
}

#[test]
fn menus_tick_the_choices_in_effect() {
    let mut harness = browsing("kernel_clone");
    let toggled = |harness: &mut Window, entry: &str| {
        harness.get_all_by_label("Panes").next().unwrap().click();
        harness.run_steps(4);
        let entry = harness.get_by_label(entry);
        let toggled = entry.accesskit_node().toggled();
        harness.key_press(Key::Escape);
        harness.run_steps(4);
        toggled
    };
    let on = Some(egui::accesskit::Toggled::True);
    assert_eq!(toggled(&mut harness, "Timeline pane"), on);
    assert_ne!(toggled(&mut harness, "Schedule pane"), on);
}
