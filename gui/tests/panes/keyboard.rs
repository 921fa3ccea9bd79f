//! The window by keyboard alone: from pane to pane, and the tasks of the tour.

use crate::support::{
    Window, browsing, placements, press, record, run_command, settle, until, until_filtered,
    until_open, window,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::HookType;
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
    // Its graph: whole, then along a branch.
    press(&mut harness, Modifiers::NONE, Key::Num0);
    press(&mut harness, Modifiers::NONE, Key::J);
    press(&mut harness, Modifiers::NONE, Key::T);
    press(&mut harness, Modifiers::NONE, Key::J);
    assert!(harness.state().state().graph.selected.is_some());
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
    harness.state_mut().state_mut().draft.instrument = "timestamp".to_owned();
    // A hook, and the instrument at it.
    press(&mut harness, Modifiers::ALT, Key::Num2);
    settle(&mut harness);
    press(&mut harness, Modifiers::COMMAND, Key::Enter);
    settle(&mut harness);
    assert_eq!(placements(&harness).len(), 1);
    assert_eq!(placements(&harness)[0].hook, HookType::Post);
    for pane in [Pane::Patch, Pane::Schedule] {
        if !harness.state().state().desk.sees(pane) {
            run_command(&mut harness, pane.title());
            settle(&mut harness);
        }
        assert!(harness.state().state().desk.sees(pane), "{pane:?}");
    }
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
