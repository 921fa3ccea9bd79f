//! Tasks of the window's fourth pass: texts in the table, copying, the search of the pane in use, dialogs.

use std::sync::Arc;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::timeline::Record;
use gilk_samples::texts::{Argument, Form, PrintedLine, PrintedPart, Texts, ValueNames};
use gilk_samples::{Batch, Meaning, Sample};

use crate::support::{
    Window, browsing, button, click, fill, middle, press, record, run_command, settle, until,
};

fn has(harness: &Window, label: &str) -> bool {
    harness.query_all_by_label_contains(label).next().is_some()
}

/// Returns a finished run with an instrument whose samples are names of an enumeration and one whose samples are lines.
fn with_texts() -> Record {
    let run = record();
    let mut metadata = Arc::unwrap_or_clone(run.metadata);
    for info in &mut metadata.instruments {
        info.meaning = Meaning::Value;
    }
    let [state, line] = [0, 1].map(|place| metadata.instruments[place].id);
    let names = [("TASK_IDLE", 0), ("TASK_BUSY", 1)].into_iter();
    let texts = Texts::Names(ValueNames::new(names));
    metadata.texts.insert(state, texts);
    let argument = Argument::plain(Form::Text);
    let parts = vec![
        PrintedPart::Text("open ".into()),
        PrintedPart::Argument(argument),
    ];
    metadata
        .texts
        .insert(line, Texts::Lines(vec![PrintedLine(parts)]));
    let mut run = Record::live("run.arrow".into(), metadata, 10.0);
    run.now = None;
    let mut samples = Vec::new();
    for (tsc, value) in [(1000, 0), (2000, 1), (3000, 1), (4000, 1)] {
        let id = state;
        samples.push(Sample { id, value, tsc });
    }
    for (tsc, name) in [
        (5000, *b"passwd\0\0"),
        (6000, *b"shadow\0\0"),
        (7000, *b"shadow\0\0"),
    ] {
        let sample = |value| Sample {
            id: line,
            value,
            tsc,
        };
        samples.push(sample(0));
        samples.push(sample(u64::from_le_bytes(name)).as_word());
        samples.push(sample(0).as_word());
    }
    run.append(&Batch { cpu: 0, samples });
    run
}

fn copied(harness: &Window) -> String {
    let commands = &harness.output().platform_output.commands;
    let text = commands.iter().find_map(|one| match one {
        egui::OutputCommand::CopyText(text) => Some(text.clone()),
        _ => None,
    });
    text.expect("a text was copied")
}

#[test]
fn samples_that_are_text_are_counted_by_text_and_have_no_mean() {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(with_texts());
    harness.run_steps(3);
    click(&mut harness, "Statistics tab");
    until(&mut harness, "the table is computed", |state| {
        !state.statistics.rows.is_empty()
    });
    harness.run_steps(3);
    let rows = harness.state().state().statistics.shown();
    assert_eq!(rows.len(), 1, "one instrument in one function");
    let row = rows[0];
    assert_eq!((row.count, row.values), (7, None));
    let texts = row.texts.as_ref().unwrap();
    let listed: Vec<(&str, u64)> = texts
        .listed
        .iter()
        .map(|(text, count)| (text.as_str(), *count))
        .collect();
    let expected = [
        ("TASK_BUSY", 3),
        ("open shadow", 2),
        ("TASK_IDLE", 1),
        ("open passwd", 1),
    ];
    assert_eq!(listed, expected);
    let words = "kernel_clone timestamp: 7, TASK_BUSY 42.9 %, open shadow 28.6 %, TASK_IDLE 14.3 %, open passwd 14.3 %";
    click(&mut harness, words);
    harness.get_by_label("open shadow: 2 samples");
    harness.get_by_label("Show lane");
    assert!(!has(&harness, "histogram of"));
    harness.get_by_label("Copy CSV").click();
    harness.run_steps(1);
    assert!(
        copied(&harness).contains("\"TASK_BUSY 42.9 %, open shadow 28.6 %"),
        "{}",
        copied(&harness)
    );
}

#[test]
fn copying_is_confirmed() {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(with_texts());
    click(&mut harness, "Statistics tab");
    until(&mut harness, "the table is computed", |state| {
        !state.statistics.rows.is_empty()
    });
    harness.run_steps(2);
    for label in ["Copy CSV", "Copy text"] {
        harness.get_by_label(label).click();
        harness.run_steps(1);
        assert_eq!(copied(&harness).lines().count(), 2, "{label}");
        harness.run_steps(1);
        let notices = &harness.state().state().notices;
        let words: Vec<&str> = notices.iter().map(|one| one.words.as_str()).collect();
        assert_eq!(words, ["Copied 1 row."]);
    }
}

#[test]
fn ctrl_f_searches_the_pane_in_use() {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(with_texts());
    settle(&mut harness);
    let find = |harness: &mut Window| {
        press(harness, Modifiers::COMMAND, Key::F);
        harness.run_steps(2);
    };
    let focused = |harness: &Window, label: &str| harness.get_by_label(label).is_focused();
    // Without a pane in use, functions are searched.
    find(&mut harness);
    assert!(focused(&harness, "Filter functions"));
    let pressed_at = |harness: &mut Window, label: &str| {
        let at = middle(harness, label);
        button(harness, at, true);
        button(harness, at, false);
    };
    pressed_at(&mut harness, "Minimap");
    find(&mut harness);
    assert!(focused(&harness, "Find in graph"));
    press(&mut harness, Modifiers::NONE, Key::Escape);
    pressed_at(&mut harness, "Timeline tab");
    find(&mut harness);
    assert!(focused(&harness, "Find samples"));
    click(&mut harness, "Statistics tab");
    find(&mut harness);
    assert!(focused(&harness, "Filter statistics"));
    click(&mut harness, "Instruments tab");
    find(&mut harness);
    assert!(focused(&harness, "Filter instruments"));
    // The list of functions has a key of its own, from everywhere.
    click(&mut harness, "Functions tab");
    press(&mut harness, Modifiers::NONE, Key::Slash);
    harness.run_steps(2);
    assert!(focused(&harness, "Filter functions"));
}

#[test]
fn a_dialog_is_as_high_as_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..6 {
        std::fs::write(folder.path().join(format!("{number}.svg")), "").unwrap();
    }
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "export graph");
    let path = folder.path().display().to_string();
    fill(&mut harness, "Path", &format!("{path}/"));
    until(&mut harness, "paths are listed", |state| {
        let dialog = state.dialog.as_ref();
        dialog.is_some_and(|dialog| dialog.completions.len() == 6)
    });
    harness.run_steps(3);
    let gap = |harness: &Window| {
        let field = harness.get_by_label("Path").rect();
        harness.get_by_label("Cancel").rect().top() - field.bottom()
    };
    let with_lines = gap(&harness);
    fill(&mut harness, "Path", &format!("{path}/new.svg"));
    until(&mut harness, "no path is listed", |state| {
        let dialog = state.dialog.as_ref();
        dialog.is_some_and(|dialog| dialog.completions.is_empty())
    });
    harness.run_steps(3);
    let without = gap(&harness);
    assert!(
        without < 40.0 && with_lines > without + 60.0,
        "{with_lines} {without}"
    );
}

#[test]
fn tabs_and_the_controls_beside_them_do_not_overlap() {
    let mut harness = browsing("kernel_clone");
    let state = harness.state_mut().state_mut();
    state.timeline.open(with_texts());
    state.timeline.markers = [Some(0.001), Some(0.004)];
    run_command(&mut harness, "tile all panes");
    run_command(&mut harness, "lanes by process");
    settle(&mut harness);
    for (tab, controls) in [
        (
            "Timeline tab",
            ["Groups, order and axis of lanes", "Clear markers"],
        ),
        ("Statistics tab", ["Copy text", "Copy CSV"]),
    ] {
        let tab = harness.get_by_label(tab).rect();
        for control in controls {
            let control = harness.get_by_label(control).rect();
            assert!(tab.right() <= control.left(), "{tab:?} {control:?}");
        }
    }
    // The choice of groups is in the header only where it does not reach the tab.
    let tab = harness.get_by_label("Timeline tab").rect();
    for group in ["lanes by order", "lanes by process"] {
        let group = harness.query_by_label(group).map(|group| group.rect());
        assert!(
            group.is_none_or(|group| tab.right() <= group.left()),
            "{group:?}"
        );
    }
}
