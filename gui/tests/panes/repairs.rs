//! Tests that a user's work stays as it is: changes are not lost, an instrument is at the hook where
//! it was dropped, and no value changes in silence.

use crate::support::{
    Window, browsing, browsing_in, button, click, fill, image_path, middle, placements, press,
    run_command, scene, settle, until, until_filtered, until_open, window,
};
use egui::{Event, Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_engine::HookType;
use gilk_gui::args::Start;
use gilk_gui::state::NoticeKind;

/// Opens a function and places an instrument, which is an unsaved change.
fn changed() -> Window {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    harness
}

#[test]
fn a_failed_open_after_discard_keeps_the_changes() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.ron");
    std::fs::write(&bad, "no session").unwrap();
    let mut harness = changed();
    press(&mut harness, Modifiers::COMMAND, Key::O);
    click(&mut harness, "Discard");
    fill(&mut harness, "Path", &bad.display().to_string());
    click(&mut harness, "Open");
    until(&mut harness, "the file is refused", |state| {
        state
            .notices
            .iter()
            .any(|notice| notice.kind == NoticeKind::Bad)
    });
    let document = &harness.state().state().document;
    assert_eq!(placements(&harness).len(), 1);
    assert!(document.unsaved() && document.can_undo());
    press(&mut harness, Modifiers::COMMAND, Key::Q);
    harness.get_by_label("Save the changes?");
}

#[test]
fn a_drop_on_a_pill_places_at_its_hook() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "Instruments tab");
    for (hook, name) in [(HookType::Post, "post"), (HookType::Pre, "pre")] {
        fill(&mut harness, "Filter instruments", "counter");
        let from = middle(&harness, "instrument counter");
        harness.event(Event::PointerMoved(from));
        harness.run_steps(2);
        button(&mut harness, from, true);
        harness.event(Event::PointerMoved(from + egui::vec2(30.0, 10.0)));
        harness.run_steps(2);
        let label = format!("{name}-hook of block 0: ");
        let pill = harness.get_by_label_contains(&label).rect().center();
        harness.event(Event::PointerMoved(pill));
        harness.run_steps(2);
        button(&mut harness, pill, false);
        settle(&mut harness);
        assert_eq!(placements(&harness).iter().next_back().unwrap().hook, hook);
    }
}

#[test]
fn a_typed_path_replaces_the_suggestion_and_a_folder_is_created_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/mine.ron");
    let mut harness = changed();
    // The first dialog leaves a cursor in the middle of its text.
    run_command(&mut harness, "export graph");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::ArrowLeft);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    press(&mut harness, Modifiers::COMMAND, Key::S);
    harness.event(Event::Text(path.display().to_string()));
    harness.run_steps(3);
    let dialog = harness.state().state().dialog.as_ref().unwrap();
    assert_eq!(dialog.text, path.display().to_string());
    click(&mut harness, "Save");
    assert!(!path.parent().unwrap().exists());
    harness.get_by_label_contains("does not exist");
    click(&mut harness, "Create folder and save");
    until(&mut harness, "the session is saved", |state| {
        !state.document.unsaved()
    });
    assert!(path.exists());
}

#[test]
fn escape_closes_what_is_open_before_it_goes_back() {
    let mut harness = browsing("kernel_clone");
    let selected = |harness: &Window| harness.state().state().graph.selected.map(|block| block.0);
    for _ in 0..2 {
        press(&mut harness, Modifiers::NONE, Key::J);
    }
    press(&mut harness, Modifiers::NONE, Key::T);
    let here = selected(&harness);
    assert_ne!(here, Some(1));

    harness.get_by_label("Edit").click();
    harness.run_steps(3);
    harness.get_by_label("Remove instruments from block");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(
        harness
            .query_by_label("Remove instruments from block")
            .is_none()
    );
    assert_eq!(selected(&harness), here, "with a menu");

    press(&mut harness, Modifiers::NONE, Key::Questionmark);
    assert!(harness.state().state().shortcuts);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(!harness.state().state().shortcuts);
    assert_eq!(selected(&harness), here, "with the shortcuts");

    press(&mut harness, Modifiers::NONE, Key::F1);
    assert!(harness.state().state().manual.is_some());
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(harness.state().state().manual.is_none());
    assert_eq!(selected(&harness), here, "with the manual");

    press(&mut harness, Modifiers::NONE, Key::Slash);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert_eq!(selected(&harness), here, "in a text field");

    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert_eq!(selected(&harness), Some(1));
}

#[test]
fn the_list_of_functions_answers_after_a_reconnect() {
    let mut harness = browsing_in(image_path(), "kernel_clone");
    fill(&mut harness, "Filter functions", "mmput");
    until_filtered(&mut harness, "mmput");
    let found = harness.state().state().functions.found.len();
    assert!(found > 0);
    run_command(&mut harness, "reconnect");
    until(&mut harness, "it is connected again", |state| {
        matches!(state.target, gilk_gui::state::TargetState::Offline)
    });
    settle(&mut harness);
    until_filtered(&mut harness, "mmput");
    assert_eq!(harness.state().state().functions.found.len(), found);
}

#[test]
fn the_inspectors_times_follow_the_session() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    let splash = |harness: &Window| harness.state().state().draft.splash;
    fill(&mut harness, "Session duration", "4");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    settle(&mut harness);
    assert_eq!(splash(&harness), 4.0);
    click(&mut harness, "Undo");
    assert_eq!(splash(&harness), 10.0, "after undo");
    click(&mut harness, "Redo");
    assert_eq!(splash(&harness), 4.0, "after redo");
    press(&mut harness, Modifiers::COMMAND, Key::N);
    click(&mut harness, "Discard");
    assert_eq!(splash(&harness), 10.0, "in a new session");
}

#[test]
fn the_inspector_forgets_an_instrument_that_left_with_its_session() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    run_command(&mut harness, "new instrument");
    settle(&mut harness);
    click(&mut harness, "Use instrument in session");
    let name = |harness: &Window| harness.state().state().draft.instrument.clone();
    let own = name(&harness);
    press(&mut harness, Modifiers::COMMAND, Key::N);
    click(&mut harness, "Discard");
    settle(&mut harness);
    assert_ne!(name(&harness), own);
    assert!(
        harness
            .state()
            .state()
            .definition(&name(&harness))
            .is_some()
    );
}

#[test]
fn a_wrong_time_is_refused_with_the_reason_and_changes_nothing() {
    let mut harness = changed();
    let splash = "splash of timestamp pre kernel_clone block 0";
    let launch = "launch of timestamp pre kernel_clone block 0";
    let times = |harness: &Window| {
        let one = &placements(harness)[0];
        (one.launch, one.splash)
    };
    let typed = |harness: &mut Window, field: &str, text: &str| {
        fill(harness, field, text);
        press(harness, Modifiers::NONE, Key::Enter);
    };
    typed(&mut harness, splash, "4");
    assert_eq!(times(&harness), (0.0, 4.0));
    for (field, text, reason) in [
        (launch, "6", "before the splash, which is at 4 s"),
        (splash, "1e99", "The session ends at 10 s"),
        (launch, "abc", "is not a time"),
        (launch, "-1", "The session starts at 0 s"),
        ("Session duration", "2", "in place until 4 s"),
        ("Session duration", "0", "at least 0.1 s"),
    ] {
        typed(&mut harness, field, text);
        assert_eq!(times(&harness), (0.0, 4.0), "{field} {text}");
        assert_eq!(harness.state().state().document.session().duration, 10.0);
        let shown = harness
            .query_all_by_label_contains("refused: ")
            .any(|_| true);
        assert!(shown, "{field} {text}: nothing is said");
        harness.get_by_label_contains(reason);
    }
    typed(&mut harness, launch, "250ms");
    assert_eq!(times(&harness), (0.25, 4.0));
    assert!(harness.query_by_label_contains("refused: ").is_none());
}

#[test]
fn the_tour_starts_at_its_first_button_and_has_a_program_to_measure() {
    let folder = tempfile::tempdir().unwrap();
    let empty = |state: Option<std::path::PathBuf>| Start {
        state,
        ..Start::default()
    };
    // The first start ever: no button of the window closes the tour except its own.
    let mut harness = window(empty(Some(folder.path().join("state"))), [1500.0, 950.0]);
    harness.run_steps(4);
    harness.get_by_label_contains("tour 1 of ");
    assert!(harness.query_by_label("Tour").is_none());
    let mut harness = window(empty(None), [1500.0, 950.0]);
    harness.run_steps(4);
    harness.get_by_label("Tour").click();
    harness.run_steps(4);
    harness.get_by_label_contains("tour 1 of ");

    let mut harness = browsing("mmput");
    run_command(&mut harness, "tour");
    harness.run_steps(3);
    // An image of a file cannot run anything, so the first step stays; its later steps do not.
    let tabs = harness.get_by_label("Timeline tab").rect();
    let card = harness.get_by_label_contains("tour 1 of ").rect();
    assert!(card.bottom() < tabs.top() && card.bottom() < middle(&harness, "Functions tab").y);
}

#[test]
fn the_tour_does_not_open_over_a_loaded_file() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start {
        image: Some(image_path()),
        function: Some("kernel_clone".to_owned()),
        state: Some(folder.path().join("state")),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until_open(&mut harness, "kernel_clone");
    assert!(harness.state().state().tour.is_none());
    assert!(!scene(&harness).cfg.blocks.is_empty());
}
