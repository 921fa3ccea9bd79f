//! The choice of a function of an object file that replaces the open function of a process.

use egui::accesskit::Role;
use egui::{ComboBox, Ui};
use gilk_instruments::Definition;

use crate::command::Command;
use crate::graph::Scene;
use crate::state::State;
use crate::theme::space;
use crate::widgets;

/// Words for a function that is not replaced.
const NONE: &str = "nothing";
/// The meaning of a replacement.
const MEANING: &str = "Calls of this function call the chosen function of the object file in its place, which may call the \
    original. At the end of the run the original is called again; the object file stays in the process.";

/// Draws the choice, if the function is of a process and object files with replacements were opened.
pub(crate) fn show(ui: &mut Ui, state: &State, scene: &Scene, commands: &mut Vec<Command>) {
    if !state.has_process() || state.shows_kernel_beside() {
        return;
    }
    let all = state.library.iter().filter(|one| one.replaces());
    let all: Vec<&Definition> = all.collect();
    if all.is_empty() {
        return;
    }
    let placements = &state.document.session().placements;
    let mut entry = placements.at(&scene.name, 0);
    let now = entry.find_map(|(_, placement)| {
        let mut all = all.iter();
        all.find(|one| one.name == *placement.instrument)
    });
    let now = now.map(|one| one.name.as_str());
    ui.horizontal_wrapped(|ui| {
        widgets::caption(ui, "replaced by");
        let combo = ComboBox::from_id_salt("replaced by").selected_text(now.unwrap_or(NONE));
        let shown = combo.show_ui(ui, |ui| {
            let none = "The function is called as it is.";
            let rows = all
                .iter()
                .map(|one| (Some(one.name.as_str()), one.summary.as_str()));
            for (choice, summary) in std::iter::once((None, none)).chain(rows) {
                let (is_chosen, words) = (choice == now, choice.unwrap_or(NONE));
                let row = ui.selectable_label(is_chosen, words);
                let name = format!("replace by {words}");
                let row = widgets::chosen(row, Role::ListBoxOption, is_chosen, &name);
                if row.on_hover_text(summary).clicked() && !is_chosen {
                    commands.push(Command::Replace(choice.map(str::to_owned)));
                }
            }
        });
        widgets::named(shown.response, Role::ComboBox, "Replaced by").on_hover_text(MEANING);
    });
    ui.add_space(space::SMALL);
}
