//! The page shown while no graph is open: status of the target, and first actions.

use egui::{ProgressBar, RichText, Ui, accesskit::Role};

use crate::command::Command;
use crate::state::{State, TargetState};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Draws the page.
pub(crate) fn show(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    ui.add_space(24.0);
    match &state.target {
        TargetState::Busy(progress) => {
            ui.label(
                RichText::new("Connecting to the target")
                    .heading()
                    .color(tokens.strong),
            );
            ui.add_space(space::SMALL);
            let bar = ProgressBar::new(progress.overall)
                .fill(tokens.accent)
                .desired_width(380.0)
                .desired_height(8.0)
                .corner_radius(4.0);
            let response = ui.add(bar);
            widgets::named(response, Role::ProgressIndicator, "Target progress");
            let (at, of) = progress.step;
            let step = if of > 0 {
                format!("step {} of {of}: {}", at + 1, progress.name)
            } else {
                "starting".to_owned()
            };
            ui.label(RichText::new(step).color(tokens.text));
            ui.add(
                egui::Label::new(
                    RichText::new(&progress.detail)
                        .font(code(text::SMALL))
                        .color(tokens.weak),
                )
                .truncate(),
            );
            ui.add_space(space::SMALL);
            widgets::button(ui, "Cancel", Command::Disconnect, true, commands);
        }
        _ if state.catalogue.is_some() => {
            ui.label(
                RichText::new("Open a function")
                    .heading()
                    .color(tokens.strong),
            );
            ui.label(RichText::new("Type a few letters of its name in the list on the left and press Enter. Its control-flow graph appears here.").color(tokens.weak));
        }
        _ => {
            ui.label(
                RichText::new("No kernel is open")
                    .heading()
                    .color(tokens.strong),
            );
            let words = "The lab runs a stock kernel in a virtual machine: try anything, it does not touch this computer.";
            ui.label(RichText::new(words).color(tokens.weak));
            ui.add_space(space::SMALL);
            ui.horizontal(|ui| {
                ui.add_space((ui.available_width() - 430.0).max(0.0) / 2.0);
                if state.tour.is_none() {
                    widgets::button(ui, "Take the tour", Command::Tour, true, commands);
                }
                widgets::button(ui, "Open kernel file…", Command::OpenKernel, true, commands);
                widgets::button(ui, "Start the lab", Command::StartLab, true, commands);
                widgets::button(
                    ui,
                    "Reconnect",
                    Command::Reconnect,
                    state.source.is_some(),
                    commands,
                );
            });
        }
    }
}
