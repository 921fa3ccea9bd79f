//! The page shown while no graph is open: status of the target, and first actions.

use egui::{ProgressBar, RichText, Ui, accesskit::Role};

use crate::availability::possible;
use crate::command::Command;
use crate::questions::Question;
use crate::state::{State, TargetState};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Draws the page.
pub(crate) fn show(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    ui.add_space(space::LARGE);
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
                .corner_radius(space::CORNER);
            let response = ui.add(bar);
            widgets::named(response, Role::ProgressIndicator, "Target progress");
            let step = if progress.name.is_empty() {
                "starting".to_owned()
            } else {
                format!("{:.0} %: {}", 100.0 * progress.overall, progress.name)
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
            if let Some(question) = state.question {
                let words = format!("\u{201c}{}\u{201d} follows.", question.text());
                ui.label(RichText::new(words).color(tokens.strong));
            }
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
            questions(ui, state, "Or start with a question", commands);
        }
        _ => {
            ui.label(
                RichText::new("No process or kernel is open")
                    .heading()
                    .color(tokens.strong),
            );
            let words = "Open a process of this computer to measure it while it runs. Or start the lab, a stock kernel in a virtual machine: try anything, it does not touch this computer.";
            ui.label(RichText::new(words).color(tokens.weak));
            ui.add_space(space::SMALL);
            let mut actions = vec![
                ("Open process…", Command::ChooseProcess),
                ("Open kernel file…", Command::OpenKernel),
                ("Start the lab", Command::StartLab),
            ];
            if state.tour.is_none() {
                actions.insert(0, ("Take the tour", Command::Tour));
            }
            if state.source.is_some() {
                actions.push(("Reconnect", Command::Reconnect));
            }
            let width = actions.iter().map(|(label, _)| button_width(ui, label));
            let gaps = (actions.len() - 1) as f32 * ui.spacing().item_spacing.x;
            let width = width.sum::<f32>() + gaps;
            ui.horizontal_wrapped(|ui| {
                let aside = (ui.available_width() - width).max(0.0) / 2.0;
                ui.add_space(aside);
                for (label, command) in actions {
                    widgets::button(ui, label, command, true, commands);
                }
            });
            questions(
                ui,
                state,
                "Start with a question; the lab answers it",
                commands,
            );
        }
    }
}

/// Returns the width of a button in points.
fn button_width(ui: &Ui, label: &str) -> f32 {
    let font = egui::TextStyle::Button.resolve(ui.style());
    let color = egui::Color32::PLACEHOLDER;
    let text = ui.painter().layout_no_wrap(label.to_owned(), font, color);
    text.size().x + 2.0 * ui.spacing().button_padding.x
}

/// Draws the questions about the whole kernel or process.
fn questions(ui: &mut Ui, state: &State, title: &str, commands: &mut Vec<Command>) {
    ui.add_space(space::MEDIUM);
    widgets::caption(ui, title);
    let of_process = state.shows_process();
    let is_offered =
        |question: &Question| question.fits(of_process) && !question.is_about_function();
    for question in Question::ALL.into_iter().filter(is_offered) {
        let command = Command::Question(question);
        let possible = possible(state, &command);
        let width = ui.available_width().min(320.0);
        let button = egui::Button::new(question.text())
            .wrap()
            .min_size(egui::vec2(width, 28.0));
        let response = ui.add_enabled(possible, button);
        let response = widgets::named(response, Role::Button, question.text());
        if response.on_hover_text(question.explanation()).clicked() {
            commands.push(command);
        }
    }
}
