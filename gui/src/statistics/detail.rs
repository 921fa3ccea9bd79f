//! The selected row of the table: its histogram, and ways to its lane, block and source.

use egui::accesskit::Role;
use egui::{Color32, Response, RichText, ScrollArea, Sense, Ui, vec2};
use gilk_samples::Meaning;
use gilk_samples::metadata::Clock;

use super::rows::StatisticsRow;
use crate::command::Command;
use crate::theme::{Tokens, code, prose, space, text};
use crate::timeline::histogram;
use crate::timeline::scale::length;
use crate::{object_names, widgets};

/// Width of the panel in points.
pub(super) const WIDTH: f32 = 300.0;
/// Height of the histogram in points: the buttons below it are in view in a low pane too.
const BARS: f32 = 72.0;

/// Draws the panel.
pub(super) fn show(
    ui: &mut Ui,
    row: &StatisticsRow,
    clock: Clock,
    source: Option<Command>,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    ScrollArea::vertical()
        .id_salt("statistics detail")
        .auto_shrink(false)
        .show(ui, |ui| {
            widgets::inset(ui, |ui| contents(ui, row, clock, tokens));
            ui.horizontal_wrapped(|ui| {
                ui.add_space(space::PANEL);
                widgets::button(ui, "Show lane", Command::ShowLane, true, commands);
                let open = Command::OpenNamed(row.function.clone(), None);
                widgets::button(ui, "Open function", open, true, commands);
                if let Some(source) = source {
                    widgets::button(ui, "Open source", source, true, commands);
                }
            });
        });
}

fn contents(ui: &mut Ui, row: &StatisticsRow, clock: Clock, tokens: &Tokens) {
    ui.horizontal(|ui| {
        widgets::dot(ui, tokens.instrument(&row.instrument));
        let name = object_names::fitting_here(ui, &row.function, &prose(text::BODY));
        let name = egui::Label::new(RichText::new(name).color(tokens.strong)).truncate();
        ui.add(name).on_hover_text(&row.function);
    });
    widgets::caption(ui, &row.instrument);
    if let Some(texts) = &row.texts {
        for (text, count) in &texts.listed {
            let label = counted(ui, text, *count, tokens.text);
            widgets::named(label, Role::Label, &format!("{text}: {count} samples"));
        }
        if texts.others > 0 {
            counted(ui, "other texts", texts.others, tokens.weak);
        }
        return;
    }
    let Some(values) = &row.values else {
        let words = format!("{} hits, without values", widgets::grouped(row.count));
        ui.label(RichText::new(words).small().color(tokens.weak));
        return;
    };
    let hz = clock.hz.max(1) as f64;
    let words = |value: u64| match row.meaning {
        Meaning::Duration => length(value as f64 / hz),
        _ => widgets::grouped(value),
    };
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), BARS), Sense::hover());
    let name = format!("histogram of {} {}", row.function, row.instrument);
    widgets::named(response, Role::Image, &name);
    histogram::bars(ui, rect, &row.histogram, values.min, values.max);
    ui.horizontal(|ui| {
        widgets::caption(ui, &words(values.min));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            widgets::caption(ui, &words(values.max));
        });
    });
}

/// Draws a text with the number of its samples to the right.
fn counted(ui: &mut Ui, words: &str, count: u64, color: Color32) -> Response {
    let small = |words: String| RichText::new(words).font(code(text::SMALL)).color(color);
    let right = egui::Layout::right_to_left(egui::Align::Center);
    let size = vec2(ui.available_width(), space::ROW);
    ui.allocate_ui_with_layout(size, right, |ui| {
        ui.label(small(widgets::grouped(count)));
        ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
            ui.add(egui::Label::new(small(words.to_owned())).truncate())
        })
        .inner
    })
    .inner
}
