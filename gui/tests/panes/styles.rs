//! Choice of a function's style.

use crate::support::{browsing, click, until};
use egui::{Key, Modifiers};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use gilk_engine::placement::Style;
use gilk_gui::app::App;
use gilk_gui::state::State;

fn said(state: &State) -> Style {
    state.document.session().style("kernel_clone")
}

/// Returns the style in the plan, once the session is planned.
fn planned(harness: &mut Harness<'_, App>) -> Style {
    until(harness, "the session is planned", |state| {
        !state.plan.pending() && state.plan.outcome.is_some()
    });
    harness.run_steps(3);
    let outcome = harness.state().state().plan.outcome.as_ref().unwrap();
    outcome.as_ref().unwrap().plan().functions[0].style
}

#[test]
fn styles_are_compared_and_can_be_chosen_and_undone_by_key() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    assert!(
        harness
            .query_by_label("instrument the function: whole")
            .is_none()
    );
    click(&mut harness, "Instrument");
    click(&mut harness, "counter");
    click(&mut harness, "Add to every hookable block");
    assert_eq!(planned(&mut harness), Style::InPlace);
    let compared = harness.state().state().plan.compared["kernel_clone"].clone();
    let whole = compared.whole.as_ref().unwrap();
    assert!(whole.ns < compared.in_place.ns, "{compared:?}");
    for (style, cost) in [("in place", &compared.in_place), ("whole", whole)] {
        harness.get_by_label(&format!("ns per call {style}: {:.1}", cost.ns));
        harness.get_by_label(&format!("jumps per call {style}: {:.1}", cost.jumps));
        harness.get_by_label(&format!("splices {style}: {}", cost.sites));
        harness.get_by_label(&format!("waits {style}: {}", cost.waits));
    }
    for (style, taken) in [
        (Style::Whole, Style::Whole),
        (Style::Auto, compared.cheaper()),
    ] {
        let button = format!("instrument the function: {style}");
        harness.get_by_label(&button).focus();
        harness.run_steps(2);
        harness.key_press(Key::Space);
        harness.run_steps(3);
        assert_eq!(said(harness.state().state()), style);
        assert_eq!(planned(&mut harness), taken);
        harness.get_by_label(&format!("now {taken}"));
    }
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(said(harness.state().state()), Style::Whole);
    assert_eq!(planned(&mut harness), Style::Whole);
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(said(harness.state().state()), Style::InPlace);
    assert_eq!(planned(&mut harness), Style::InPlace);
    harness.key_press_modifiers(Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    harness.run_steps(3);
    assert_eq!(said(harness.state().state()), Style::Whole);
}
