//! Questions: each makes a session in one step, with its view.

use crate::support::{Window, browsing, click, placements, run_command, settle, until, window};
use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;
use gilk_gui::desk::Pane;
use gilk_gui::questions::Question;
use gilk_gui::statistics::Column;
use gilk_samples::HookType;

/// Runs frames until a session of this name is there.
fn until_made(harness: &mut Window, name: &str) {
    until(harness, &format!("the session {name}"), |state| {
        state.document.session().name == name
    });
    settle(harness);
}

#[test]
fn a_question_on_the_start_page_makes_a_session_with_its_view() {
    let start = Start {
        image: Some(crate::support::image_path()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the image is loaded", |state| {
        state.functions.answered.is_some()
    });
    harness.run_steps(3);
    // Questions about a function need one.
    assert!(harness.query_by_label(Question::Branches.text()).is_none());
    harness.get_by_label(Question::SlowCalls.text()).click();
    harness.run_steps(3);
    until_made(&mut harness, "slow-system-calls");
    let state = harness.state().state();
    assert!(state.desk.sees(Pane::Statistics));
    assert_eq!(state.statistics.column, Column::Max);
    assert!(!state.document.unsaved());
    let placed = placements(&harness);
    assert!(placed.len() > 2);
    assert!(
        placed
            .iter()
            .all(|one| &*one.instrument == "elapsed" && one.function.starts_with("__x64_sys_"))
    );
    harness.get_by_label_contains("plan verified");
}

#[test]
fn a_question_about_the_open_function_hooks_its_branches() {
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "which branches");
    until_made(&mut harness, "branches");
    let hooks = |hook| {
        let all = placements(&harness).iter();
        all.filter(|one| one.hook == hook).count()
    };
    assert!(hooks(HookType::Taken) > 3);
    assert!(hooks(HookType::Untaken) > 3);
}

#[test]
fn unsaved_changes_are_kept_until_the_user_decides() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    run_command(&mut harness, "which functions call");
    harness.get_by_label_contains("has unsaved changes");
    assert_eq!(placements(&harness).len(), 1);
    click(&mut harness, "Discard");
    until_made(&mut harness, "callers");
    assert_eq!(&*placements(&harness)[0].instrument, "return-addresses");
}
