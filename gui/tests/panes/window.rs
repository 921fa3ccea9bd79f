//! User actions in the window, by accessibility names.

use crate::support::{
    Window, browsing, browsing_forbidden, button, click, fill, middle, refused, scene, settle,
    until, until_filtered, until_open, window,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::{HookType, Session};
use gilk_gui::args::Start;
use gilk_gui::state::NoticeKind;

#[test]
fn functions_are_filtered_while_typing_and_enter_opens_the_best() {
    let mut harness = browsing("mmput");
    harness.key_press(Key::Slash);
    harness.run_steps(3);
    assert!(harness.get_by_label("Filter functions").is_focused());
    harness.get_by_label("Filter functions").type_text("kclone");
    until_filtered(&mut harness, "kclone");
    harness.run_steps(3);
    let all = harness.state().state().catalogue.as_ref().unwrap().len();
    let found = harness.state().state().functions.found.len();
    assert!(0 < found && found < all);
    harness.get_by_label(&format!("{found} of {all}"));
    assert!(!harness.state().state().functions.found.iter().any(|id| {
        harness
            .state()
            .state()
            .catalogue
            .as_ref()
            .unwrap()
            .name(*id)
            == Some("mmput")
    }));
    harness.key_press(Key::Enter);
    harness.run_steps(3);
    until_open(&mut harness, "kernel_clone");
    harness.run_steps(3);
    harness.get_by_label("block 0 of kernel_clone");
}

#[test]
fn arrows_move_in_the_list_and_a_click_opens() {
    let mut harness = browsing("mmput");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::F);
    harness.run_steps(2);
    harness
        .get_by_label("Filter functions")
        .type_text("copy_process");
    until_filtered(&mut harness, "copy_process");
    harness.run_steps(2);
    let rows = harness.state().state().functions.found.len();
    harness.key_press(Key::ArrowDown);
    harness.run_steps(2);
    assert_eq!(harness.state().state().functions.row, 1.min(rows - 1));
    harness.key_press(Key::ArrowUp);
    harness.run_steps(2);
    assert_eq!(harness.state().state().functions.row, 0);
    click(&mut harness, "copy_process");
    until_open(&mut harness, "copy_process");
}

#[test]
fn adding_an_instrument_can_be_undone_and_redone() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    harness.get_by_label("Block 0");
    click(&mut harness, "Add instrument");
    harness.get_by_label("show timestamp pre kernel_clone block 0");
    harness.get_by_label_contains("plan verified: 1 instrument,");
    let placed = harness.state().state().document.session().placements[0].clone();
    assert_eq!(
        (placed.hook, placed.launch, placed.splash),
        (HookType::Pre, 0.0, 10.0)
    );

    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert!(
        harness
            .query_by_label("show timestamp pre kernel_clone block 0")
            .is_none()
    );
    harness.get_by_label("No instruments yet");
    harness.key_press_modifiers(Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    harness.run_steps(3);
    harness.get_by_label("show timestamp pre kernel_clone block 0");
    click(&mut harness, "remove timestamp pre kernel_clone block 0");
    assert!(
        harness
            .state()
            .state()
            .document
            .session()
            .placements
            .is_empty()
    );
}

#[test]
fn the_instrument_and_the_hook_can_be_selected() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Instrument");
    click(&mut harness, "counter");
    let post = scene(&harness)
        .hook(gilk_engine::cfg::BlockIndex(0), HookType::Post)
        .unwrap()
        .is_ok();
    assert!(post, "the test's image lets block 0 be hooked");
    click(&mut harness, "select the post-hook: can be hooked");
    click(&mut harness, "Add instrument");
    let placed = &harness.state().state().document.session().placements[0];
    assert_eq!(
        (&*placed.instrument, placed.hook),
        ("counter", HookType::Post)
    );
}

#[test]
fn adding_to_every_block_is_one_undo_step() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Instrument");
    click(&mut harness, "counter");
    let count = scene(&harness).hookable(HookType::Pre).count();
    assert!(count > 20);
    click(&mut harness, "Add to every hookable block");
    assert_eq!(
        harness.state().state().document.session().placements.len(),
        count
    );
    let wrong = harness
        .state()
        .state()
        .plan
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.as_ref().err());
    assert_eq!(wrong, None);
    harness.get_by_label_contains(&format!("plan verified: {count} instruments"));
    click(&mut harness, "Add to every hookable block");
    assert_eq!(
        harness.state().state().document.session().placements.len(),
        count,
        "none is added twice"
    );
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert!(
        harness
            .state()
            .state()
            .document
            .session()
            .placements
            .is_empty()
    );
}

#[test]
fn a_refused_hook_shows_its_rule_and_cannot_be_added() {
    let mut harness = browsing_forbidden("copy_process");
    let (hook, block) = (
        HookType::Pre,
        refused(harness.state().state(), HookType::Pre),
    );
    let refusal = scene(&harness)
        .hook(block, hook)
        .unwrap()
        .clone()
        .unwrap_err();
    for _ in 0..=block.0 {
        harness.key_press(Key::J);
        harness.run_steps(2);
    }
    assert_eq!(harness.state().state().graph.selected, Some(block));
    harness.get_by_label(&format!(
        "select the pre-hook: refused by rule {}",
        refusal.rule.name()
    ));
    let words = &refusal.why[1..];
    assert!(
        harness.query_all_by_label_contains(words).next().is_some(),
        "{words}"
    );
    assert!(
        harness
            .get_by_label("Add instrument")
            .accesskit_node()
            .is_disabled()
    );

    // The tooltip of the pill in the graph has the same sentence.
    let pill = format!(
        "pre-hook of block {}: refused by rule {}",
        block.0,
        refusal.rule.name()
    );
    harness.get_by_label(&pill).hover();
    harness.run_steps(40);
    assert!(
        harness.query_all_by_label_contains(words).count() >= 2,
        "the tooltip has the sentence too"
    );
}

#[test]
fn keys_select_blocks_and_escape_goes_back() {
    let mut harness = browsing("kernel_clone");
    let selected = |harness: &egui_kittest::Harness<'_, gilk_gui::app::App>| {
        harness.state().state().graph.selected.map(|block| block.0)
    };
    for (key, block) in [
        (Key::J, 0),
        (Key::J, 1),
        (Key::ArrowDown, 2),
        (Key::K, 1),
        (Key::ArrowUp, 0),
    ] {
        harness.key_press(key);
        harness.run_steps(3);
        assert_eq!(selected(&harness), Some(block), "{key:?}");
    }
    let scene = harness.state().state().graph.scene.clone().unwrap();
    let taken = scene.follow(gilk_engine::cfg::BlockIndex(0), true).unwrap();
    harness.key_press(Key::T);
    harness.run_steps(3);
    assert_eq!(selected(&harness), Some(taken.0));
    harness.key_press(Key::Escape);
    harness.run_steps(3);
    assert_eq!(selected(&harness), Some(0));
}

#[test]
fn a_session_can_be_saved_and_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.ron");
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    fill(&mut harness, "Session name", "round trip");
    assert_eq!(
        harness.state().state().document.session().name,
        "round trip"
    );
    harness.key_press_modifiers(Modifiers::COMMAND, Key::S);
    harness.run_steps(3);
    fill(&mut harness, "Path", &path.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "the session is saved", |state| {
        state.document.path().is_some()
    });
    let saved = harness.state().state().document.session().clone();
    assert!(!harness.state().state().document.unsaved());
    assert_eq!(
        saved,
        Session::from_ron(&std::fs::read_to_string(&path).unwrap()).unwrap()
    );

    harness.key_press_modifiers(Modifiers::COMMAND, Key::N);
    harness.run_steps(3);
    assert_eq!(
        harness.state().state().document.session(),
        &Session::empty()
    );
    harness.key_press_modifiers(Modifiers::COMMAND, Key::O);
    harness.run_steps(3);
    fill(&mut harness, "Path", &path.display().to_string());
    click(&mut harness, "Open");
    until(&mut harness, "the session is open", |state| {
        state.document.path().is_some()
    });
    assert_eq!(harness.state().state().document.session(), &saved);
}

#[test]
fn unsaved_changes_need_confirmation() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::N);
    harness.run_steps(3);
    harness.get_by_label("Save the changes?");
    click(&mut harness, "Cancel");
    assert_eq!(
        harness.state().state().document.session().placements.len(),
        1
    );
    harness.key_press_modifiers(Modifiers::COMMAND, Key::N);
    harness.run_steps(3);
    click(&mut harness, "Discard");
    assert!(
        harness
            .state()
            .state()
            .document
            .session()
            .placements
            .is_empty()
    );
    assert!(harness.state().state().guard.is_none());
}

#[test]
fn sessions_need_a_target() {
    let mut harness = window(Start::default(), [1200.0, 800.0]);
    harness.run_steps(4);
    assert!(
        harness
            .get_by_label("Run session")
            .accesskit_node()
            .is_disabled()
    );
    assert!(
        harness
            .get_by_label("Stop run")
            .accesskit_node()
            .is_disabled()
    );
    harness.get_by_label("No process or kernel is open");
    harness.get_by_label("Process…");
    harness.get_by_label("Start the lab");

    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    assert!(
        harness
            .get_by_label("Run session")
            .accesskit_node()
            .is_disabled(),
        "a saved image cannot run anything"
    );
    harness.key_press(Key::F5);
    harness.run_steps(3);
    assert!(harness.state().state().run.active.is_none());
}

#[test]
fn notices_during_a_drag_wait_for_its_end() {
    let mut harness = browsing("kernel_clone");
    let place = middle(&harness, "Control-flow graph");
    let top = |harness: &Window| harness.get_by_label("Control-flow graph").rect().top();
    let before = top(&harness);
    button(&mut harness, place, true);
    harness
        .state_mut()
        .state_mut()
        .notify(NoticeKind::Good, "It is done.");
    harness.run_steps(3);
    assert!(harness.query_by_label("It is done.").is_none());
    assert_eq!(top(&harness), before);
    button(&mut harness, place, false);
    harness.run_steps(3);
    harness.get_by_label("It is done.");
    assert_eq!(top(&harness), before, "notices float");
}

#[test]
fn errors_of_the_session_are_shown_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.ron");
    let mut session = Session::empty();
    let placement = r#"(version: 1, name: "x", duration: 5.0, placements: [
        (function: "kernel_cloen", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 5.0)])"#;
    session.placements = Session::from_ron(placement).unwrap().placements;
    session.duration = 5.0;
    std::fs::write(&path, session.to_ron().unwrap()).unwrap();
    let start = Start {
        image: Some(crate::support::image_path()),
        session: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is refused", |state| {
        matches!(state.plan.outcome, Some(Err(_)))
    });
    harness.run_steps(3);
    harness.get_by_label_contains("no function named \"kernel_cloen\"");
    harness.get_by_label("this session cannot run");
}

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.arrow");
    std::fs::write(&path, b"ARROW1 but not really").unwrap();
    let start = Start {
        recording: Some(path),
        image: Some("/nowhere/kernel.image".into()),
        ..Start::default()
    };
    let mut harness = window(start, [1200.0, 800.0]);
    until(&mut harness, "both are reported", |state| {
        state.notices.len() == 2
    });
    harness.run_steps(3);
    harness.get_by_label_contains("damaged.arrow is not a recording that can be opened");
    harness.get_by_label_contains("/nowhere/kernel.image");
    harness
        .get_all_by_label("Dismiss message")
        .next()
        .unwrap()
        .click();
    harness.run_steps(3);
    assert_eq!(harness.state().state().notices.len(), 1);
}

#[test]
fn a_socket_without_an_agent_is_reported_with_advice() {
    let start = Start {
        socket: Some("/nowhere/ilk.sock".into()),
        ..Start::default()
    };
    let mut harness = window(start, [1200.0, 800.0]);
    until(&mut harness, "the target is lost", |state| {
        matches!(state.target, gilk_gui::state::TargetState::Lost(_))
    });
    harness.run_steps(3);
    assert!(
        harness
            .query_all_by_label_contains("No agent listens at /nowhere/ilk.sock")
            .next()
            .is_some()
    );
    harness.get_by_label("Reconnect");
}

#[test]
fn the_graph_can_be_panned_zoomed_and_fitted() {
    let mut harness = browsing("copy_process");
    let before = harness.state().state().graph.camera;
    let canvas = harness.get_by_label("Control-flow graph").rect();
    let corner = canvas.left_top() + egui::vec2(30.0, 60.0);
    harness.drag_at(corner);
    harness.run_steps(2);
    harness.hover_at(corner + egui::vec2(50.0, 40.0));
    harness.run_steps(2);
    harness.drop_at(corner + egui::vec2(50.0, 40.0));
    harness.run_steps(2);
    let panned = harness.state().state().graph.camera;
    assert_eq!(panned.zoom, before.zoom);
    assert!(
        (panned.origin - before.origin - egui::vec2(50.0, 40.0)).length() < 1.0,
        "{before:?} {panned:?}"
    );
    harness.key_press(Key::Num0);
    harness.run_steps(3);
    let fitted = harness.state().state().graph.camera;
    assert!(
        fitted.zoom < before.zoom,
        "copy_process is larger than the pane"
    );
    let scene = harness.state().state().graph.scene.clone().unwrap();
    let last = format!("block {} of copy_process", scene.cfg.blocks.len() - 1);
    harness.get_by_label(&last);
    click(&mut harness, "Graph at natural size");
}

#[test]
fn shortcuts_are_listed() {
    let mut harness = browsing("kernel_clone");
    harness.key_press(Key::Questionmark);
    harness.run_steps(4);
    harness.get_by_label("Find function");
    harness.get_by_label("Zoom at the pointer");
    click(&mut harness, "Close");
    settle(&mut harness);
    assert!(!harness.state().state().shortcuts);
    assert!(harness.query_by_label("Zoom at the pointer").is_none());
}
