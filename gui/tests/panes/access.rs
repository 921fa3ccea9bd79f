//! The tree of a screen reader: every pane with its region, every control with role, name, value and
//! state.

use crate::support::{Window, browsing, record, settle};
use egui::accesskit::{Action, Role};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_gui::desk::{Desk, Pane};

/// Shows every pane, with samples and an instrument's source.
fn every_pane() -> Window {
    let mut harness = browsing("kernel_clone");
    harness.set_size(egui::vec2(1700.0, 1300.0));
    let state = harness.state_mut().state_mut();
    state.desk = Desk::tiled();
    state.timeline.open(record());
    state.timeline.record.as_mut().unwrap().now = None;
    state.wanted_instrument = "elapsed".to_owned();
    harness.run_steps(4);
    harness.get_by_label("block 0 of kernel_clone").click();
    harness.run_steps(3);
    harness.get_by_label("edit elapsed").click();
    settle(&mut harness);
    harness.get_by_label("Add instrument").click();
    settle(&mut harness);
    harness.run_steps(8);
    harness
}

#[test]
fn every_control_of_every_pane_has_a_role_a_name_and_its_state() {
    let harness = every_pane();
    let mut wrong = Vec::new();
    let mut roles = std::collections::BTreeMap::new();
    for node in harness.root().children_recursive() {
        let shown = node.accesskit_node();
        let data = shown.data();
        let is_control = data.supports_action(Action::Click) || data.supports_action(Action::Focus);
        // Resize handles have no role of their own; scroll bars are named by their contents.
        let skipped = matches!(
            shown.role(),
            Role::Unknown | Role::ScrollBar | Role::GenericContainer
        );
        if !is_control || shown.bounding_box().is_none() || skipped {
            continue;
        }
        *roles.entry(format!("{:?}", shown.role())).or_insert(0) += 1;
        let name = shown.label().or_else(|| shown.value()).unwrap_or_default();
        let place = format!("{:?} {name:?} at {:?}", shown.role(), node.rect());
        if name.trim().is_empty() {
            wrong.push(format!("no name: {place}"));
        }
        let needs_state = matches!(
            shown.role(),
            Role::CheckBox
                | Role::RadioButton
                | Role::Tab
                | Role::ListBoxOption
                | Role::MenuItemCheckBox
        );
        if needs_state && shown.toggled().is_none() {
            wrong.push(format!("no state: {place}"));
        }
        let needs_value = matches!(
            shown.role(),
            Role::TextInput | Role::MultilineTextInput | Role::SpinButton | Role::ComboBox
        );
        let has_value = shown.value().is_some() || shown.numeric_value().is_some();
        if needs_value && !has_value {
            wrong.push(format!("no value: {place}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
    for role in [
        "Button",
        "Tab",
        "TextInput",
        "SpinButton",
        "RadioButton",
        "ListBoxOption",
        "CheckBox",
    ] {
        assert!(roles.contains_key(role), "{role} of {roles:?}");
    }
}

#[test]
fn every_pane_is_a_region_with_its_name() {
    let harness = every_pane();
    for pane in Pane::ALL {
        let name = format!("{} region", pane.name());
        let region = harness.get_by_label(&name);
        assert_eq!(
            region.accesskit_node().role(),
            Role::Pane,
            "{}",
            pane.name()
        );
        assert!(region.rect().is_positive());
    }
}
