//! Everything that changes the session is undone and done again, by the names of things; what commands do
//! in any order is in `undoing`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::document::Edited;
use support::{Window, browsing_in, button, click, fill, press, record, renamed, say, settle};

/// A thing a person does.
type Step = (&'static str, Box<dyn Fn(&mut Window)>);

fn edited(harness: &Window) -> Edited {
    harness.state().state().document.edited()
}

/// Types into a field of numbers.
fn number(name: &'static str, value: &'static str) -> Step {
    let typed = move |harness: &mut Window| {
        fill(harness, name, value);
        press(harness, Modifiers::NONE, Key::Enter);
        settle(harness);
    };
    (name, Box::new(typed))
}

fn clicked(name: &'static str) -> Step {
    (name, Box::new(|harness: &mut Window| click(harness, name)))
}

fn said(letters: &'static str) -> Step {
    let said = |harness: &mut Window| {
        say(harness, letters);
        settle(harness);
    };
    (letters, Box::new(said))
}

fn typed(name: &'static str, text: &'static str) -> Step {
    let typed = |harness: &mut Window| {
        // Letter by letter, which is one step.
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

/// Puts the second instrument of the chosen hook first.
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

/// Drags a bar of the schedule to the left by its end.
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

/// Writes a note in the middle of what is seen, or on in the one that is there.
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

/// Takes the note away by the key that takes instruments away where the pointer is elsewhere.
fn unnoted(harness: &mut Window) {
    let note = harness.get_by_label("note: slow here").rect().center();
    harness.hover_at(note);
    harness.run_steps(3);
    press(harness, Modifiers::NONE, Key::Delete);
    harness.hover_at(egui::pos2(5.0, 5.0));
    settle(harness);
}

fn used(harness: &mut Window) {
    say(harness, "new instrument");
    settle(harness);
    click(harness, "Use instrument in session");
}

/// Each of them changes the session as those before have left it.
fn steps() -> Vec<Step> {
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
        number("bar begins: timestamp pre kernel_clone block 0", "3"),
        number("bar ends: timestamp pre kernel_clone block 0", "8"),
        // The same field again: another step.
        number("bar ends: timestamp pre kernel_clone block 0", "9"),
        (
            "another instrument",
            Box::new(|harness| {
                click(harness, "Instrument");
                click(harness, "counter");
                click(harness, "Add instrument");
            }),
        ),
        ("order", Box::new(reordered)),
        said("function whole"),
        said("add to every return"),
        said("tell threads apart"),
        clicked("Add to every hookable block"),
        ("instrument of one's own", Box::new(used)),
        ("note", Box::new(noted("slow"))),
        ("longer note", Box::new(noted(" here"))),
        ("no note", Box::new(unnoted)),
        (
            "remove instruments of block",
            Box::new(|harness| {
                press(harness, Modifiers::NONE, Key::Delete);
                settle(harness);
            }),
        ),
        said("remove all instruments"),
        said("count paths"),
        said("entry of every match"),
    ]
}

#[test]
fn every_change_of_the_session_is_undone_and_done_again() {
    let image = renamed("mmput", "finish_task_switch.isra.0");
    let mut harness = browsing_in(image, "kernel_clone");
    // All of the inspector is to be in view.
    harness.set_size(egui::vec2(1700.0, 1300.0));
    harness.state_mut().state_mut().timeline.open(record());
    // A function that few others are beside, for what is put wherever the filter matches.
    fill(&mut harness, "Filter functions", "^mm");
    support::until_filtered(&mut harness, "^mm");
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
        assert_eq!(edited(&harness), after, "{name}: done again");
        states.push(after);
    }
    // Back to the beginning and on to the end, a step each.
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
