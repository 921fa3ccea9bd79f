//! The window by keyboard alone: from pane to pane, and the tasks of the tour.

use crate::support::{
    Window, browsing, placements, press, record, run_command, settle, until, until_filtered,
    until_open, window,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::HookType;
use gilk_gui::args::Start;

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
    // A block, a hook, an instrument.
    press(&mut harness, Modifiers::NONE, Key::J);
    press(&mut harness, Modifiers::NONE, Key::J);
    assert!(harness.state().state().graph.selected.is_some());
    press(&mut harness, Modifiers::ALT, Key::Num2);
    settle(&mut harness);
    press(&mut harness, Modifiers::COMMAND, Key::Enter);
    settle(&mut harness);
    assert_eq!(placements(&harness).len(), 1);
    assert_eq!(placements(&harness)[0].hook, HookType::Post);
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
