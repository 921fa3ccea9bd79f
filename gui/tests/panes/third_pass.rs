//! Tasks of the window's third pass: paths as one thing, the editor's links, the manual, colours.

use std::sync::Arc;

use crate::support::{
    Window, browsing, click, fill, placements, press, record, run_command, settle, until,
};
use egui::{Color32, Key, Modifiers, Rect};
use egui_kittest::kittest::Queryable;
use gilk_gui::desk::Pane;
use gilk_gui::theme::Palette;
use gilk_instruments::program::{Bucket, Summary};
use gilk_samples::metadata::{Delivers, InstrumentInfo, Placed};
use ilk_driver::client::AggregateSummary;

fn has(harness: &Window, label: &str) -> bool {
    harness.query_all_by_label_contains(label).next().is_some()
}

#[test]
fn a_new_session_closes_the_recording_of_the_last() {
    let mut harness = browsing("kernel_clone");
    let mut recorded = record();
    recorded.now = None;
    harness.state_mut().state_mut().timeline.open(recorded);
    harness.run_steps(3);
    assert!(has(&harness, "305 hits"));
    run_command(&mut harness, "new session");
    settle(&mut harness);
    assert!(harness.state().state().timeline.record.is_none());
    assert!(!has(&harness, "305 hits"));
    harness.get_by_label("No samples yet");
}

#[test]
fn paths_are_counted_and_removed_as_one_thing() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "Count paths");
    let placed = placements(&harness).len();
    assert!(placed > 2);
    // One row in the session and in the schedule, and none in the list of instruments.
    let row = format!("kernel_clone counts paths, {placed} hooks");
    harness.get_by_label(&row);
    run_command(&mut harness, "schedule pane");
    settle(&mut harness);
    harness.get_by_label("bar of paths of kernel_clone");
    run_command(&mut harness, "instruments pane");
    settle(&mut harness);
    assert!(!has(&harness, "instrument path-"));
    assert!(has(&harness, "The next run counts"));
    // The session says so, and one click removes all of them with their sources.
    click(&mut harness, "stop counting paths of kernel_clone");
    let session = harness.state().state().document.session();
    assert!(session.placements.is_empty() && session.sources.is_empty());
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(placements(&harness).len(), placed);
    // So does the key for a block, because one counter without the others says nothing.
    run_command(&mut harness, "remove all");
    settle(&mut harness);
    click(&mut harness, "Count paths");
    assert_eq!(
        placements(&harness).len(),
        placed,
        "they can be placed again"
    );
}

#[test]
fn counted_paths_are_a_list_of_paths_without_lanes() {
    let mut harness = browsing("kernel_clone");
    let mut recorded = record();
    recorded.now = None;
    let bucket = |number: i128, count| Bucket {
        from: Some(number),
        to: Some(number),
        count,
    };
    let histogram = Summary::Buckets(vec![bucket(0, 103), bucket(1, 0), bucket(15, 203)]);
    let values = [Summary::Nothing, histogram, Summary::Nothing];
    for (number, value) in values.into_iter().enumerate() {
        let instrument = format!("path-kernel-clone-{number}");
        Arc::make_mut(&mut recorded.metadata)
            .instruments
            .push(InstrumentInfo {
                id: 1000 + number as u64,
                label: format!("{instrument} pre kernel_clone block {number}"),
                instrument: instrument.clone(),
                meaning: gilk_samples::Meaning::Count,
                unit: String::new(),
                launch: 0.0,
                splash: 10.0,
                placed: Some(Placed {
                    placement: number as u32,
                    function: "kernel_clone".into(),
                    major: 0,
                }),
                delivers: Delivers::Totals,
            });
        recorded.totals.push(AggregateSummary {
            placement: number,
            instrument,
            name: "paths".into(),
            unit: String::new(),
            may_be_zero: false,
            value,
        });
    }
    harness.state_mut().state_mut().timeline.open(recorded);
    harness.run_steps(3);
    harness.get_by_label("shown: 2 lanes");
    harness.get_by_label("paths of kernel_clone: path 15: 203");
    harness.get_by_label("paths of kernel_clone: path 0: 103");
    assert!(!has(&harness, "path 1: "), "a path that was not taken");
    assert!(
        !has(&harness, "@paths of"),
        "the totals of single instruments"
    );
    harness.get_by_label("306 values in totals");
}

#[test]
fn an_error_of_a_source_is_reached_and_mended_by_its_links() {
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "new instrument");
    settle(&mut harness);
    let text = "instrument mine \"Mine.\";\n\nhit { sample(czu) }\n";
    fill(&mut harness, "Source", text);
    settle(&mut harness);
    harness.get_by_label("go to line 3, column 14").click();
    harness.run_steps(3);
    assert!(harness.get_by_label("Source").is_focused());
    // What is typed stands where the error is.
    harness.get_by_label("Source").type_text("/**/");
    harness.run_steps(3);
    let typed = harness.state().state().editor.text.clone().unwrap();
    assert!(typed.contains("sample(/**/czu)"), "{typed}");
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    fill(&mut harness, "Source", text);
    settle(&mut harness);
    click(&mut harness, "Did you mean cpu?");
    let mended = harness.state().state().editor.text.clone().unwrap();
    assert_eq!(mended, text.replace("czu", "cpu"));
    assert!(harness.state().state().editor.name().is_some());
    // An instrument that is used is in sight, whatever the list was filtered by.
    harness.state_mut().state_mut().wanted_instrument = "elapsed".to_owned();
    click(&mut harness, "Use instrument in session");
    assert!(harness.state().state().desk.sees(Pane::Instruments));
    harness.get_by_label("instrument mine");
    harness.get_by_label("Of this session");
}

#[test]
fn the_manual_is_searched_and_its_links_are_followed() {
    let mut harness = browsing("kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::F1);
    harness.get_by_label("Navigation");
    fill(&mut harness, "Search the manual", "minimap");
    harness.get_by_label("1 place in 1 section");
    assert!(harness.query_by_label("Schedule").is_none());
    harness.get_by_label("Navigation");
    fill(&mut harness, "Search the manual", "");
    press(&mut harness, Modifiers::NONE, Key::Backspace);
    // A section is scrolled to.
    let top = |harness: &Window| harness.get_by_label("Saved state").rect().top();
    let before = top(&harness);
    harness.get_by_label("to Saved state").click();
    harness.run_steps(30);
    assert!(top(&harness) < before - 200.0, "{before} {}", top(&harness));
    // A link to a command executes it.
    harness.get_by_label("to Writing instruments").click();
    harness.run_steps(30);
    harness.get_by_label("New").click();
    harness.run_steps(3);
    assert!(harness.state().state().editor.text.is_some());
}

#[test]
fn instruments_are_in_groups() {
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "instruments pane");
    settle(&mut harness);
    let top = |label: &str| harness.get_by_label(label).rect().top();
    let order = [
        "Counts",
        "instrument counter",
        "Times",
        "instrument elapsed",
        "Branches and coverage",
        "Locks and threads",
    ];
    let tops = order.map(top);
    assert!(tops.is_sorted(), "{tops:?}");
}

/// Returns whether a part of the window has pixels of a colour.
fn shows(picture: &image::RgbaImage, part: Rect, color: Color32) -> bool {
    let (width, height) = picture.dimensions();
    let columns = (part.left().max(0.0) as u32)..(part.right() as u32).min(width);
    columns.into_iter().any(|x| {
        let mut rows = (part.top().max(0.0) as u32)..(part.bottom() as u32).min(height);
        rows.any(|y| picture.get_pixel(x, y).0[..3] == color.to_array()[..3])
    })
}

#[test]
fn an_instrument_has_one_colour_everywhere() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    let mut recorded = record();
    recorded.now = None;
    harness.state_mut().state_mut().timeline.open(recorded);
    run_command(&mut harness, "schedule pane");
    run_command(&mut harness, "tile all panes");
    harness.set_size(egui::vec2(2400.0, 1600.0));
    harness.run_steps(3);
    fill(&mut harness, "Filter instruments", "timestamp");
    harness.hover_at(egui::pos2(2.0, 2.0));
    harness.run_steps(5);
    until(&mut harness, "the rows of the table", |state| {
        !state.statistics.rows.is_empty()
    });
    harness.run_steps(5);
    let color = Palette::Dark.tokens().instrument("timestamp");
    let placed = "timestamp pre kernel_clone block 0";
    let list = harness.get_by_label("instrument timestamp").rect();
    let parts = [
        (
            "the list of instruments",
            list.with_max_x(list.left() + 30.0),
        ),
        (
            "the session",
            harness.get_by_label(&format!("show {placed}")).rect(),
        ),
        (
            "the schedule",
            harness.get_by_label(&format!("go to {placed}")).rect(),
        ),
        (
            "the lane",
            harness
                .get_by_label_contains(&format!("lane {placed}: 300"))
                .rect(),
        ),
    ];
    let picture = harness.render().unwrap();
    for (what, part) in parts {
        assert!(shows(&picture, part, color), "{what} {part:?}");
    }
}

#[test]
fn a_path_is_completed_by_a_click() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("sessions");
    std::fs::create_dir(&inner).unwrap();
    let text = r#"(version: 1, name: "found", duration: 10.0, placements: [])"#;
    std::fs::write(inner.join("found.ron"), text).unwrap();
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "open session");
    let begun = folder.path().join("ses").display().to_string();
    fill(&mut harness, "Path", &begun);
    let place = folder.path().join("sessions/").display().to_string();
    let complete = |harness: &mut Window, path: &str| {
        let name = format!("complete: {path}");
        until(harness, &name, |state| {
            let dialog = state.dialog.as_ref().unwrap();
            dialog.completions.iter().any(|one| one == path)
        });
        harness.run_steps(2);
        harness.get_by_label(&name).click();
        harness.run_steps(3);
    };
    complete(&mut harness, &place);
    complete(&mut harness, &format!("{place}found.ron"));
    until(&mut harness, "the session is open", |state| {
        state.document.session().name == "found"
    });
}
