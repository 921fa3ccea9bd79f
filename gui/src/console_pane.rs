//! What the lab's kernel has said on its console, from the boot on.

use egui::accesskit::Role;
use egui::{Label, RichText, ScrollArea, Ui};

use crate::command::Command;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Lines that are kept: a kernel that says more has its newest here, and all of them in the lab's log.
const KEPT: usize = 20_000;

/// Adds what the kernel said.
pub(crate) fn keep(console: &mut Vec<String>, lines: Vec<String>) {
    console.extend(lines);
    // Half at a time, so that a line costs no move of all others.
    if console.len() > KEPT {
        console.drain(..console.len() - KEPT / 2);
    }
}

/// What stands beside the pane's tab.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    if !state.console.is_empty() {
        let words = widgets::counted(state.console.len(), "line");
        ui.label(RichText::new(words).small().color(Tokens::of(ui).weak));
    }
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &State, said: &mut Vec<Command>) {
    if state.console.is_empty() {
        widgets::empty(
            ui,
            "No console",
            "What the lab's kernel says while it boots and runs stands here. Other targets keep theirs.",
        );
        ui.vertical_centered(|ui| {
            let possible = crate::panels::possible(state, &Command::StartLab);
            widgets::button(ui, "Start the lab", Command::StartLab, possible, said);
            let command = Command::StartLabWith;
            widgets::button(ui, "With another kernel…", command, possible, said);
        });
        return;
    }
    let tokens = Tokens::of(ui);
    ui.spacing_mut().item_spacing.y = 0.0;
    let row = text::SMALL + 4.0;
    let area = ScrollArea::both()
        .id_salt("console")
        .auto_shrink(false)
        .stick_to_bottom(true);
    area.show_rows(ui, row, state.console.len(), |ui, rows| {
        for line in state.console.get(rows).unwrap_or_default() {
            ui.horizontal(|ui| {
                ui.add_space(space::SMALL);
                let ink = RichText::new(line)
                    .font(code(text::SMALL))
                    .color(tokens.text);
                let shown = ui.add(Label::new(ink).extend());
                widgets::named(shown, Role::Label, line);
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept() {
        let mut console = Vec::new();
        for line in 0..5 * KEPT {
            keep(&mut console, vec![line.to_string()]);
            assert!(console.len() <= KEPT);
            assert_eq!(console.last(), Some(&line.to_string()));
        }
        assert!(console.len() >= KEPT / 2);
        keep(&mut console, vec![String::new(); 3 * KEPT]);
        assert_eq!(console.len(), KEPT / 2);
    }
}
