//! Undo and redo of every change of the session, by accessibility names; random sequences of
//! commands are in `undo_tests`.

use crate::support::{
    Window, browsing_in, button, click, fill, press, record, renamed, run_command, settle,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::document::Edited;

/// A user action, with its name.
type UserAction = (&'static str, Box<dyn Fn(&mut Window)>);

fn edited(harness: &Window) -> Edited {
    harness.state().state().document.edited()
}

/// Types into a number field.
fn number(name: &'static str, value: &'static str) -> UserAction {
    let typed = move |harness: &mut Window| {
        fill(harness, name, value);
        press(harness, Modifiers::NONE, Key::Enter);
        settle(harness);
    };
    (name, Box::new(typed))
}

fn clicked(name: &'static str) -> UserAction {
    (name, Box::new(|harness: &mut Window| click(harness, name)))
}

fn command(letters: &'static str) -> UserAction {
    let command = |harness: &mut Window| {
        run_command(harness, letters);
        settle(harness);
    };
    (letters, Box::new(command))
}

fn typed(name: &'static str, text: &'static str) -> UserAction {
    let typed = |harness: &mut Window| {
        // One letter at a time is still one undo step.
        fill(harness, name, "");
        for letter in text.chars() {
            harness.get_by_label(name).type_text(&letter.to_string());
            harness.run_steps(1);
        }
        press(harness, Modifiers::NONE, Key::Enter);
        settle(harness);
    };
    (name, Box::new(typed))
}

/// Moves the second instrument of the selected hook to the first place.
fn reordered(harness: &mut Window) {
    let from = harness.get_by_label("order of counter 1").rect().center();
    let to = harness.get_by_label("order of timestamp 0").rect().center();
    button(harness, from, true);
    harness.hover_at(from.lerp(to, 0.5));
    harness.run_steps(2);
    harness.hover_at(to);
    harness.run_steps(2);
    button(harness, to, false);
    settle(harness);
}

/// Drags the end of a bar of the schedule to the left.
fn dragged(harness: &mut Window) {
    click(harness, "Schedule tab");
    let bar = harness.get_by_label("bar of timestamp pre kernel_clone block 0");
    let end = bar.rect().right_center() - egui::vec2(5.0, 0.0);
    button(harness, end, true);
    for by in 1..=6 {
        harness.hover_at(end - egui::vec2(12.0 * by as f32, 0.0));
        harness.run_steps(2);
    }
    button(harness, end - egui::vec2(72.0, 0.0), false);
    settle(harness);
}

/// Writes a note in the middle of the view, or edits the existing one.
fn noted(text: &'static str) -> impl Fn(&mut Window) {
    move |harness| {
        click(harness, "Timeline tab");
        match harness.query_by_label("note: slow") {
            Some(note) => note.click(),
            None => press(harness, Modifiers::NONE, Key::B),
        }
        harness.run_steps(3);
        harness.get_by_label("Note").type_text(text);
        harness.run_steps(2);
        press(harness, Modifiers::NONE, Key::Enter);
        settle(harness);
    }
}

/// Removes the note with the shortcut that removes instruments elsewhere.
fn unnoted(harness: &mut Window) {
    let note = harness.get_by_label("note: slow here").rect().center();
    harness.hover_at(note);
    harness.run_steps(3);
    press(harness, Modifiers::NONE, Key::Delete);
    harness.hover_at(egui::pos2(5.0, 5.0));
    settle(harness);
}

fn used(harness: &mut Window) {
    run_command(harness, "new instrument");
    settle(harness);
    click(harness, "Use instrument in session");
}

/// The steps; each changes the session that the earlier steps left.
fn steps() -> Vec<UserAction> {
    vec![
        typed("Session name", "forks"),
        number("Session duration", "20"),
        clicked("Run a program"),
        typed("Program and arguments", "/bin/pulsar 500"),
        number("Program start", "1"),
        clicked("Add instrument"),
        number("launch of timestamp pre kernel_clone block 0", "2"),
        number("splash of timestamp pre kernel_clone block 0", "12"),
        ("drag of a bar", Box::new(dragged)),
        number("launch of bar: timestamp pre kernel_clone block 0", "3"),
        number("splash of bar: timestamp pre kernel_clone block 0", "8"),
        // The same field again is another step.
        number("splash of bar: timestamp pre kernel_clone block 0", "9"),
        (
            "another instrument",
            Box::new(|harness| {
                click(harness, "Instrument");
                click(harness, "counter");
                click(harness, "Add instrument");
            }),
        ),
        ("order", Box::new(reordered)),
        command("instrument whole function"),
        command("add to every return"),
        command("record running threads"),
        clicked("Add to every hookable block"),
        ("new instrument", Box::new(used)),
        ("note", Box::new(noted("slow"))),
        ("longer note", Box::new(noted(" here"))),
        ("no note", Box::new(unnoted)),
        (
            "remove instruments from block",
            Box::new(|harness| {
                press(harness, Modifiers::NONE, Key::Delete);
                settle(harness);
            }),
        ),
        command("remove all instruments"),
        command("count paths"),
        command("entry of every match"),
    ]
}

#[test]
fn every_change_of_the_session_can_be_undone_and_redone() {
    let image = renamed("mmput", "finish_task_switch.isra.0");
    let mut harness = browsing_in(image, "kernel_clone");
    // Shows the whole inspector.
    harness.set_size(egui::vec2(1700.0, 1300.0));
    harness.state_mut().state_mut().timeline.open(record());
    // A filter with few matches, for adding to every match.
    fill(&mut harness, "Filter functions", "^mm");
    crate::support::until_filtered(&mut harness, "^mm");
    click(&mut harness, "block 0 of kernel_clone");
    let mut states = vec![edited(&harness)];
    for (name, step) in steps() {
        let before = edited(&harness);
        step(&mut harness);
        let after = edited(&harness);
        assert_ne!(after, before, "{name}: nothing changed");
        click(&mut harness, "Undo");
        assert_eq!(edited(&harness), before, "{name}: undone");
        click(&mut harness, "Redo");
        assert_eq!(edited(&harness), after, "{name}: redone");
        states.push(after);
    }
    // Back to the start and forward to the end, one step at a time.
    let last = states.len() - 1;
    for at in (0..last).rev() {
        press(&mut harness, Modifiers::COMMAND, Key::Z);
        assert_eq!(edited(&harness), states[at], "{at}");
    }
    assert!(!harness.state().state().document.can_undo());
    for state in &states[1..] {
        press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
        assert_eq!(&edited(&harness), state);
    }
    assert!(!harness.state().state().document.can_redo());
}
