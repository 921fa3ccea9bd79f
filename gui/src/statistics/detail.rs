//! The selected row of the table: its histogram, and ways to its lane, block and source.

use egui::accesskit::Role;
use egui::{RichText, ScrollArea, Sense, Ui, vec2};
use gilk_samples::Meaning;
use gilk_samples::metadata::Clock;

use super::rows::StatisticsRow;
use crate::command::Command;
use crate::theme::{Tokens, code, space, text};
use crate::timeline::histogram;
use crate::timeline::scale::length;
use crate::widgets;

/// Width of the panel in points.
pub(super) const WIDTH: f32 = 300.0;

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
        let name = RichText::new(&row.function).color(tokens.strong);
        ui.add(egui::Label::new(name).truncate());
    });
    widgets::caption(ui, &row.instrument);
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
    let least = values.min;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 96.0), Sense::hover());
    let name = format!("histogram of {} {}", row.function, row.instrument);
    widgets::named(response, Role::Image, &name);
    histogram::bars(ui, rect, &row.histogram, least, values.max);
    ui.horizontal(|ui| {
        widgets::caption(ui, &words(least));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            widgets::caption(ui, &words(values.max));
        });
    });
    let [p50, p90, p99] = values.percentiles;
    let lines = [
        ("count", widgets::grouped(row.count)),
        ("p50", words(p50)),
        ("p90", words(p90)),
        ("p99", words(p99)),
        ("max", words(values.max)),
    ];
    for (title, number) in lines {
        ui.horizontal(|ui| {
            widgets::caption(ui, title);
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                let number = RichText::new(number).font(code(text::CODE));
                ui.label(number.color(tokens.text));
            });
        });
    }
}
