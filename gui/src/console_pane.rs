//! Console output of the lab's kernel since boot.

use egui::accesskit::Role;
use egui::{Label, RichText, ScrollArea, Ui};

use crate::command::Command;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Maximum number of lines kept: the pane shows the newest, the lab's log has all of them.
const MAX_LINES: usize = 20_000;

/// Appends console output.
pub(crate) fn append(console: &mut Vec<String>, lines: Vec<String>) {
    console.extend(lines);
    // Half of the lines are dropped at a time, so that the cost per line is constant.
    if console.len() > MAX_LINES {
        console.drain(..console.len() - MAX_LINES / 2);
    }
}

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    if !state.console.is_empty() {
        let words = widgets::counted(state.console.len(), "line");
        ui.label(RichText::new(words).small().color(Tokens::of(ui).weak));
    }
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    if state.console.is_empty() {
        widgets::empty(
            ui,
            "No console",
            "Shows the console output of the lab's kernel. Other targets have no console here.",
        );
        ui.vertical_centered(|ui| {
            let possible = crate::availability::possible(state, &Command::StartLab);
            widgets::button(ui, "Start the lab", Command::StartLab, possible, commands);
            let command = Command::StartLabWith;
            widgets::button(ui, "With another kernel…", command, possible, commands);
        });
        return;
    }
    let tokens = Tokens::of(ui);
    ui.spacing_mut().item_spacing.y = 0.0;
    let row = text::SMALL + space::TIGHT;
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
        for line in 0..5 * MAX_LINES {
            append(&mut console, vec![line.to_string()]);
            assert!(console.len() <= MAX_LINES);
            assert_eq!(console.last(), Some(&line.to_string()));
        }
        assert!(console.len() >= MAX_LINES / 2);
        append(&mut console, vec![String::new(); 3 * MAX_LINES]);
        assert_eq!(console.len(), MAX_LINES / 2);
    }
}
